"""Wide tasks: time and memory of a fit at m = 4,096 and k = 1,000, and the cost of a sketch.

    python -m benchmarks.wide [fits] [sketch] [growth] [tune] [--out FOLDER]

Public vectors have a decaying spectrum and tails heavier than a Gaussian's; the first layer has
larger weights along directions that vary more. The figures are in docs/high-dimension.md. Each fit
runs in a new process, on two threads, and reports the peak memory of that process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.fft import dct
from threadpoolctl import threadpool_limits

import offaxis
from benchmarks.harness import Growth, peak_mebibytes, publish
from offaxis.encoding import Optimal, active_directions
from offaxis.evaluation import tune
from offaxis.geometry import Layers, PublicVectors, TaskModel, as_task_model, measure
from offaxis.simulation import simulate

WIDE = (4096, 1024, 1000)
BOTH = (512, 256, 100)
PUBLIC = 20_000
DIRECTIONS = 64
EPSILON = 8


def vectors(dim: int, count: int, seed: int) -> np.ndarray:
    """Return vectors of random lengths, with deviations that decay as j^-0.6 along mixed axes."""
    rng = np.random.default_rng([seed, 1])
    parts = [_mixed(rng, min(2000, count - start), dim, 0.6) for start in range(0, count, 2000)]
    lengths = rng.gamma(4, 0.25, (count, 1)).astype(np.float32)
    return np.concatenate(parts) * lengths


def _mixed(rng: np.random.Generator, rows: int, dim: int, decay: float) -> np.ndarray:
    scale = (1 + np.arange(dim)) ** -decay * np.random.default_rng(5).choice([-1, 1], dim)
    return dct(scale * rng.standard_normal((rows, dim)), norm="ortho", axis=1).astype(np.float32)


def head(sizes: tuple[int, int, int], seed: int) -> Layers:
    """Return an MLP with one hidden layer; its units are active on about half of the vectors."""
    dim, hidden, outputs = sizes
    rng = np.random.default_rng([seed, 2])
    first = _mixed(rng, hidden, dim, 0.3).astype(np.float64)
    first /= (vectors(dim, 1000, seed) @ first.T).std(axis=0)[:, None]
    last = rng.standard_normal((outputs, hidden)) / np.sqrt(hidden)
    return Layers([first, last], [0.3 * rng.standard_normal(n) for n in (hidden, outputs)], "gelu")


def module(layers: Layers) -> Any:
    """Return the same network as a torch module in float32, of which only gradients are used."""
    import torch
    from torch import nn

    parts: list[nn.Module] = []
    for weight, bias in zip(layers.weights, layers.biases, strict=True):
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
        parts += [linear, nn.GELU()]
    return nn.Sequential(*parts[:-1])


def fit_once(kind: str, path: str) -> dict[str, Any]:
    """Fit to the vectors of a file and privatize one; return times and peak memory."""
    public, model = np.load(path, mmap_mode="r"), head(WIDE, 0)
    task = as_task_model(module(model) if kind == "torch" else model)
    started, cpu_started = time.perf_counter(), time.process_time()
    geometry = measure(task, PublicVectors(public))
    measured = time.perf_counter()
    active_directions(geometry)
    located = time.perf_counter()
    releases = {
        name: offaxis.fit(
            geometry,
            public,
            epsilon=EPSILON,
            mechanism=name,
            reshaping=Optimal(rank=DIRECTIONS),
        )
        for name in ("privunit2", "laplace")
    }
    ended = time.perf_counter()
    figures = {
        "probes per vector": geometry.probes or 0,
        "directions seen": active_directions(geometry).effects.size,
        "Gram and moments": measured - started,
        "directions": located - measured,
        "two releases": ended - located,
        "fit": ended - started,
        "CPU time of the fit": time.process_time() - cpu_started,
    }
    for name, release in releases.items():
        figures[name] = 1e3 * _median(lambda r=release: r.privatize(public[0]))
    figures["peak memory"] = _peak_gigabytes()
    return figures


def _median(action: Callable[[], Any], repeats: int = 101) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds))


def _peak_gigabytes() -> float:
    return peak_mebibytes() * 2**20 / 1e9


def _figure(what: str, value: float, unit: str, limit: float | None = None) -> dict[str, Any]:
    figure: dict[str, Any] = {"what": what, "value": float(value), "unit": unit}
    if limit is not None:
        figure |= {"target": f"at most {limit:g}", "met": value <= limit}
    return figure


def fits() -> list[dict[str, Any]]:
    """Fit plain weights and a torch module, each in a new process."""
    limits = {"fit": 300, "privunit2": 10, "laplace": 10, "peak memory": 4}
    units = {"privunit2": "ms per vector", "laplace": "ms per vector", "peak memory": "GB"}
    units |= {"probes per vector": "", "directions seen": ""}
    figures = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "public.npy"
        np.save(path, vectors(WIDE[0], PUBLIC, 0))
        threads = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
        for kind in ("layers", "torch"):
            command = [sys.executable, "-m", "benchmarks.wide", "--fit", kind, str(path)]
            done = subprocess.run(
                command,
                env={**os.environ, **threads},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            for name, value in json.loads(done.stdout).items():
                unit = units.get(name, "s")
                figures.append(_figure(f"{kind}: {name}", value, unit, limits.get(name)))
    return figures


def sketch(seeds: int = 8) -> list[dict[str, Any]]:
    """Compare releases fitted to sketches with those fitted to the full Gram, on new vectors."""
    rows: dict[str, list[float]] = {}
    for seed in range(seeds):
        for name, value in _compare(seed).items():
            rows.setdefault(name, []).append(value)
    figures = []
    for name, values in rows.items():
        error = np.std(values, ddof=1) / np.sqrt(seeds)
        limit = 1 if name.endswith("4 probes minus full") else None
        figures.append(_figure(name, np.mean(values), f"% ± {error:.2g}", limit))
        if limit:
            figures[-1]["met"] = abs(np.mean(values)) <= limit
    return figures


def _compare(seed: int) -> dict[str, float]:
    """Return errors of sketched Grams, and scores of releases fitted to them, in percent."""
    model, public = head(BOTH, seed), vectors(BOTH[0], PUBLIC, seed)
    new = vectors(BOTH[0], 3000, seed + 1000).astype(np.float64)
    geometries = {s: measure(model, PublicVectors(public), probes=s) for s in (None, 1, 4)}
    exact = geometries[None]
    centred = new - exact.mean
    variances = np.sum(centred @ exact.gram * centred, axis=1)
    clean = model.outputs(new).argmax(axis=1)
    scores: dict[str, float] = {}
    for probes in (1, 4):
        error = geometries[probes].gram - exact.gram
        along = np.sum(centred @ error * centred, axis=1) / variances
        size = np.linalg.norm(error) / np.linalg.norm(exact.gram)
        scores[f"Frobenius error, {probes} probes"] = float(100 * size)
        scores[f"error along a vector, {probes} probes"] = float(100 * np.sqrt(np.mean(along**2)))
    for name, epsilon in product(("privunit2", "laplace"), (8, 16)):
        for probes, geometry in geometries.items():
            release = offaxis.fit(
                geometry,
                public,
                epsilon=epsilon,
                mechanism=name,
                reshaping=Optimal(rank=16),
                percentile=50,
            )
            decoded = [simulate(release, new, np.random.default_rng([seed, i])) for i in range(4)]
            agreement = np.mean([model.outputs(part).argmax(axis=1) == clean for part in decoded])
            lost = np.mean([np.sum((part - new) @ exact.gram * (part - new)) for part in decoded])
            fidelity = 1 - lost / variances.sum()
            for metric, score in (("agreement", agreement), ("fidelity", fidelity)):
                what = f"{name}, budget {epsilon}: {metric}"
                if probes is None:
                    scores[what] = 100 * float(score)
                else:
                    difference = 100 * float(score) - scores[what]
                    scores[f"{what}, {probes} probes minus full"] = difference
    return scores


def growth() -> list[dict[str, Any]]:
    """Fit exponents of the CPU time of a Gram in the number of vectors and of outputs."""
    dim, hidden, _ = BOTH
    model, public = head(BOTH, 0), vectors(dim, 16_000, 0)
    growths = []
    counts = [2_000, 4_000, 8_000, 16_000]
    for label, task, probes in (
        ("exact Gram", model, None),
        ("sketched Gram", as_task_model(module(model)), 4),
    ):
        costs = [_gram_seconds(task, public[:n], probes) for n in counts]
        growths.append(Growth(label, "N", "s", counts, costs, 1))
    outputs = [125, 250, 500, 1_000, 2_000]
    tasks = [as_task_model(module(head((dim, hidden, k), 0))) for k in outputs]
    costs = [_gram_seconds(task, public[:4_000], 4) for task in tasks]
    growths.append(Growth("sketched Gram", "k", "s", outputs, costs, 1))
    figures = []
    for entry in growths:
        slope, error = entry.exponent()
        figures.append(
            _figure(f"{entry.task}, exponent in {entry.variable}", slope, f"± {error:.2g}")
        )
        for size, cost in zip(entry.sizes, entry.costs, strict=True):
            figures.append(_figure(f"  {entry.variable} = {size:,}", cost, "s"))
    return figures


def _gram_seconds(task: TaskModel, public: np.ndarray, probes: int | None) -> float:
    """Return the CPU time on one thread, which other load on the machine changes little."""
    import torch

    torch.set_num_threads(1)
    seconds = []
    with threadpool_limits(1):
        for _ in range(3):
            started = time.process_time()
            measure(task, PublicVectors(public), probes=probes)
            seconds.append(time.process_time() - started)
    return min(seconds)


def tuned() -> list[dict[str, Any]]:
    """Choose the number of directions at full width by ``tune``."""
    model, public = head(WIDE, 0), vectors(WIDE[0], PUBLIC, 0)
    started = time.perf_counter()
    ranks = [2, 4, 8, 16, 32, 64, 128, 256]
    chosen = tune(model, public, epsilon=EPSILON, ranks=ranks, percentiles=(50.0,))
    figures = []
    for finalist in chosen.candidates:
        rank = finalist.candidate.settings["reshaping"].rank
        score = finalist.utility.score
        figures.append(_figure(f"agreement with {rank} directions", 100 * score, "%"))
    expected = chosen.expected
    return [
        *figures,
        _figure("directions chosen", chosen.release.encoder.output_dim, ""),
        _figure("agreement, expected", 100 * expected.score, f"% ± {100 * expected.error:.2g}"),
        _figure("tune", time.perf_counter() - started, "s"),
        _figure("peak memory", _peak_gigabytes(), "GB"),
    ]


PARTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "fits": fits,
    "sketch": sketch,
    "growth": growth,
    "tune": tuned,
}


def main() -> None:
    """Run the given parts, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--fit", nargs=2, metavar=("KIND", "PATH"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="also write the figures as JSON to this folder")
    arguments = parser.parse_args()
    if arguments.fit:
        print(json.dumps(fit_once(*arguments.fit)))
        return
    for name in arguments.parts or PARTS:
        out = str(arguments.out / f"wide-{name}.json") if arguments.out else None
        publish(f"wide {name}", PARTS[name](), out)


if __name__ == "__main__":
    main()
