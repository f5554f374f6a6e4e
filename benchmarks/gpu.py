"""Simulation, decoding and Gram on a GPU, compared with two cores of a CPU, in one run.

    PYTHONPATH=src python -m benchmarks.gpu [--json gpu.json] [--quick]

Needs torch besides the dependencies of the package, and no network. Every figure is the best of
several runs. *ratio* is the throughput of the GPU over that of two cores of the same machine, the
faster of NumPy and torch there. *floor* is the least possible time as a share of the measured one:
the bytes that must be moved once (vectors in, vectors out, the map) over the bandwidth of the
device, which is measured by a large copy. Products of large matrices are limited by arithmetic, not
by that floor. The results of the GPU are checked: moments by z-tests with a false-alarm rate of
1e-6 each, Grams and decoded vectors against the CPU. Without a GPU only the CPU is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import offaxis
from benchmarks.harness import best_seconds
from offaxis.decoding import LinearDecoder
from offaxis.geometry import PublicVectors, as_task_model, measure
from offaxis.simulation import simulate
from offaxis.vectors import moved

EPSILON = 5
DIMS = (64, 768, 4096)
RANDOMIZERS = ("laplace", "gaussian", "privunit2")
DTYPES = (torch.float32, torch.float64)
NETWORKS = {(64, 10, 32, 10): 1 << 20, (768, 512, 100): 1 << 14, (4096, 1024, 1000): 1 << 13}
"""Sizes of layers → number of public vectors: enough that fixed costs are small."""
ALPHA = 1e-6
CPU, GPU = torch.device("cpu"), torch.device("cuda")

Figure = dict[str, Any]


@contextmanager
def two_cores() -> Iterator[None]:
    """Restrict this process and torch to two cores."""
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:2])
    torch.set_num_threads(2)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


def seconds(action: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Return the best time of a run, including the time until the device has finished."""

    def finished() -> None:
        action()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return best_seconds(finished, repeats)


def bandwidth(device: torch.device, numbers: int) -> float:
    """Return the bytes per second that a large copy reads and writes."""
    source = torch.zeros(numbers, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds(lambda: target.copy_(source), device, 20)


def plain_release(name: str, dim: int) -> offaxis.Release:
    """Return a release without reshaping, to measure only clipping and noise."""
    public = np.random.default_rng(0).standard_normal((512, dim))
    delta = 1e-5 if name == "gaussian" else None
    return offaxis.fit(None, public, epsilon=EPSILON, mechanism=name, delta=delta, reshaping="none")


def simulation_figure(name: str, dim: int, dtype: torch.dtype, run: Run) -> Figure:
    """Measure the simulation of one randomizer."""
    release = plain_release(name, dim)

    def rate(device: torch.device, numbers: int) -> float:
        vectors = torch.randn(max(1, numbers // dim), dim, dtype=dtype, device=device)
        rng = torch.Generator(device=device).manual_seed(1)
        elapsed = seconds(lambda: simulate(release, vectors, rng), device, run.repeats)
        return len(vectors) / elapsed

    with two_cores():
        vectors = np.random.default_rng(2).standard_normal((max(1, run.host // dim), dim))
        rng = np.random.default_rng(1)
        numpy_rate = len(vectors) / best_seconds(lambda: simulate(release, vectors, rng), 3)
        torch_rate = rate(CPU, run.host)
    figure: Figure = {
        "what": f"simulate {name} m={dim} {str(dtype)[6:]}",
        "numpy, 2 cores": numpy_rate,
        "torch, 2 cores": torch_rate,
    }
    if run.on_gpu:
        figure |= run.compared(rate(GPU, run.device), max(numpy_rate, torch_rate))
        figure["floor"] = 2 * dim * dtype.itemsize * figure["gpu"] / run.bandwidth
        check_law(release, name, dim, dtype)
    return figure


def check_law(release: offaxis.Release, name: str, dim: int, dtype: torch.dtype) -> None:
    """Check mean and squared error of simulations of one vector on the GPU, by z-tests."""
    rows = (1 << 24) // dim
    z = np.random.default_rng(4).standard_normal(dim)
    vectors = torch.tensor(z, dtype=dtype, device=GPU).expand(rows, dim)
    out = simulate(release, vectors, torch.Generator(device=GPU).manual_seed(3)).double()
    randomizer = release.randomizer
    encoded = release.encoder.encode(z[None])
    if name == "privunit2":
        expected = randomizer.domain.directions(encoded)[0] * randomizer.radius
    else:
        expected = randomizer.domain.project(encoded)[0]
    errors = out - torch.tensor(expected + release.decoder.offset, device=GPU)
    along = errors @ torch.tensor(expected / np.linalg.norm(expected), device=GPU)
    check_mean(along, 0.0, f"the mean of {name}")
    check_mean((errors**2).sum(dim=1), randomizer.expected_squared_error(), f"the error of {name}")


def check_mean(sample: torch.Tensor, expected: float, what: str) -> None:
    """Exit unless the sample has the expected mean; lattice and float32 may shift it by 1e-4."""
    mean, spread = float(sample.mean()), float(sample.std())
    slack = 1e-4 * abs(expected) + 1e-5 * spread
    z = (abs(mean - expected) - slack) / (spread / math.sqrt(len(sample)) + 1e-300)
    if 2 * stats.norm.sf(max(z, 0.0)) < ALPHA and spread:
        raise SystemExit(f"{what} is wrong on the GPU: {mean} instead of {expected}")


def decoding_figure(dim: int, dtype: torch.dtype, run: Run) -> Figure:
    """Measure a linear decoder, B v + c with B of shape (m, m)."""
    random = np.random.default_rng(5)
    decoder = LinearDecoder(random.standard_normal((dim, dim)), random.standard_normal(dim))
    few = random.standard_normal((256, dim))

    def rate(device: torch.device, numbers: int) -> float:
        observed = torch.randn(max(1, numbers // dim), dim, dtype=dtype, device=device)
        on_device: Any = moved(decoder, observed)
        return len(observed) / seconds(lambda: on_device.decode(observed), device, run.repeats)

    with two_cores():
        cpu_rate = rate(CPU, run.host)
    figure: Figure = {"what": f"decode m={dim} {str(dtype)[6:]}", "torch, 2 cores": cpu_rate}
    if run.on_gpu:
        figure |= run.compared(rate(GPU, run.device), cpu_rate)
        rows = max(1, run.device // dim)
        least = (2 * dim + dim * dim / rows) * dtype.itemsize / run.bandwidth
        figure["floor"] = least * figure["gpu"]
        observed = torch.tensor(few, dtype=dtype, device=GPU)
        on_device: Any = moved(decoder, observed)
        decoded = on_device.decode(observed).cpu().numpy()
        check_close(decoded, decoder.decode(few), dtype, "decoding")
    return figure


def network(sizes: tuple[int, ...], device: torch.device) -> torch.nn.Module:
    """Return a fixed ReLU network."""
    torch.manual_seed(6)
    parts: list[torch.nn.Module] = []
    for before, after in pairwise(sizes):
        parts += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1]).to(device)


def gram_figure(sizes: tuple[int, ...], run: Run) -> Figure:
    """Measure the geometry of a network over public vectors in host memory."""
    dim = sizes[0]
    rows = NETWORKS[sizes] // run.shorter
    public = np.random.default_rng(7).standard_normal((rows, dim))

    def rate(device: torch.device) -> tuple[float, np.ndarray]:
        model, grams = as_task_model(network(sizes, device)), []

        def run_once() -> None:
            grams.append(measure(model, PublicVectors(public)).gram)

        return rows / seconds(run_once, device, 1), grams[-1]

    with two_cores():
        cpu_rate, expected = rate(CPU)
    figure: Figure = {"what": f"gram {'→'.join(map(str, sizes))}", "torch, 2 cores": cpu_rate}
    if run.on_gpu:
        gpu_rate, computed = rate(GPU)
        figure |= run.compared(gpu_rate, cpu_rate)
        figure["floor"] = (dim * 4 + dim * dim * 8 / rows) * gpu_rate / run.bandwidth
        # A unit whose input rounds to the other side of zero changes a vector's whole Jacobian.
        check_close(computed, expected, torch.float32, "the Gram", slack=10)
    return figure


def check_close(
    computed: np.ndarray, expected: np.ndarray, dtype: torch.dtype, what: str, *, slack: float = 1
) -> None:
    """Exit unless two results agree in norm up to the rounding of the dtype."""
    error = np.linalg.norm(computed - expected) / np.linalg.norm(expected)
    if not error < slack * (1e-4 if dtype == torch.float32 else 1e-10):
        raise SystemExit(f"{what} is wrong on the GPU: relative error {error:.2e}")


class Run:
    """Sizes of the measurements, and the bandwidth of the device."""

    def __init__(self, *, quick: bool) -> None:
        self.on_gpu = torch.cuda.is_available()
        self.repeats = 3 if quick else 10
        self.host = 1 << (18 if quick else 22)
        self.device = 1 << (22 if quick else 27)
        self.shorter = 64 if quick else 1
        self.bandwidth = bandwidth(GPU, 1 << 28) if self.on_gpu else math.nan

    def compared(self, gpu_rate: float, cpu_rate: float) -> Figure:
        """Return the throughput of the GPU, and its ratio to that of two cores."""
        return {"gpu": gpu_rate, "ratio": gpu_rate / cpu_rate}

    def conditions(self) -> Figure:
        """Return the conditions of the figures."""
        return {
            "offaxis": offaxis.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "gpu": torch.cuda.get_device_name() if self.on_gpu else None,
            "bytes per second of a copy": self.bandwidth if self.on_gpu else None,
            "numbers per batch": {"cpu": self.host, "gpu": self.device},
            "unit": "vectors per second",
        }


def main() -> None:
    """Print the figures; with --json, write them as well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that it runs")
    arguments = parser.parse_args()
    run = Run(quick=arguments.quick)
    print("#", json.dumps(run.conditions()))
    if not run.on_gpu:
        print("# no GPU: only the CPU is measured")
    figures: list[Figure] = []

    def record(figure: Figure) -> None:
        figures.append(figure)
        rest = ", ".join(f"{k} {v:,.4g}" for k, v in figure.items() if k != "what")
        print(f"{figure['what']:<36} {rest}", flush=True)

    for dim in DIMS:
        for dtype in DTYPES:
            for name in RANDOMIZERS:
                record(simulation_figure(name, dim, dtype, run))
            record(decoding_figure(dim, dtype, run))
    for sizes in NETWORKS:
        record(gram_figure(sizes, run))
    if arguments.json:
        facts = {"conditions": run.conditions(), "figures": figures}
        arguments.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
