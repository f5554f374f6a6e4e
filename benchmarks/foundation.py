"""The foundation's figures: Gram, simulation, memory, exact Laplace, latency.

    python benchmarks/foundation.py [--json FILE] [--vectors 10000000]

Every ratio is measured in one run on one machine. float64 throughout (the torch model itself is
float32, its Gram is accumulated in float64); threads: all cores, as the library uses them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

import numpy as np
import opendp.prelude as dp
import torch

import offaxis
from beside_opendp import DIM, compare
from harness import best_seconds, publish
from offaxis.data import load_cifar10_features
from offaxis.geometry import Layers, PublicVectors, as_task_model, measure
from offaxis.randomizers import Laplace

Figures = list[dict[str, Any]]
MEMORY_SCRIPT = """
import re, sys
from pathlib import Path
import numpy as np
from offaxis.data import load_cifar10_features
from offaxis.geometry import PublicVectors, measure
data = load_cifar10_features()
block = np.ascontiguousarray(data.public[:5000], dtype=np.float64)
count = int(sys.argv[1])
measure(data.head, PublicVectors(lambda: (block for _ in range(count // len(block)))))
print(int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def as_module(head: Layers) -> torch.nn.Module:
    """Build the same head as a torch module."""
    layers: list[torch.nn.Module] = []
    for w, b in zip(head.weights, head.biases, strict=True):
        linear = torch.nn.Linear(w.shape[1], w.shape[0])
        with torch.no_grad():
            linear.weight.copy_(torch.as_tensor(np.array(w)))
            linear.bias.copy_(torch.as_tensor(np.array(b)))
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def one_by_one(module: torch.nn.Module, Z: np.ndarray) -> np.ndarray:
    """Accumulate the Gram with one call of autograd a sample and output."""
    gram = np.zeros((Z.shape[1], Z.shape[1]))
    for z in torch.as_tensor(Z, dtype=torch.float32):
        z = z.clone().requires_grad_(True)
        out = module(z[None])[0]
        J = torch.stack([torch.autograd.grad(o, z, retain_graph=True)[0] for o in out])
        gram += (J.T @ J).double().numpy()
    return gram


def gram_figures() -> Figures:
    """Time the Gram of 40,000 vectors through the MLP against the loop."""
    data = load_cifar10_features()
    Z = np.resize(np.asarray(data.public, dtype=np.float64), (40_000, 64))
    module = as_module(data.head).eval()
    loop = 300 / best_seconds(lambda: one_by_one(module, Z[:300]), 3)
    rows: Figures = [{"what": "Gram, autograd loop", "value": loop, "unit": "samples/s"}]
    for name, model in (("torch module", module), ("plain weights", data.head)):
        task = as_task_model(model)
        rate = len(Z) / best_seconds(lambda task=task: measure(task, PublicVectors(Z)))
        rows += [
            {"what": f"Gram, {name}", "value": rate, "unit": "samples/s"},
            {
                "what": f"Gram, {name} / loop",
                "value": rate / loop,
                "unit": "x",
                "target": ">= 150",
                "met": rate >= 150 * loop,
            },
        ]
    return rows


def simulation_figures() -> Figures:
    """Time whole simulated releases (both maps, clipping, noise) at m = 64."""
    data = load_cifar10_features()
    Z = np.resize(np.asarray(data.vectors, dtype=np.float64), (400_000, 64))
    rng = np.random.default_rng(0)
    targets = {"laplace": 1_200_000, "privunit2": 600_000}
    rows: Figures = []
    for name in ("laplace", "gaussian", "privunit2", "privunitg", "privunitg-sphere"):
        delta = 1e-5 if name == "gaussian" else None
        release = offaxis.fit(data.head, data.public, epsilon=5, randomizer=name, delta=delta)
        rate = len(Z) / best_seconds(lambda release=release: release.simulate(Z, rng), 7)
        row = {"what": f"simulate {name}, m=64, with maps", "value": rate, "unit": "vectors/s"}
        if name in targets:
            row |= {"target": f">= {targets[name]:,}", "met": rate >= targets[name]}
        rows.append(row)
    return rows


def exact_figures() -> Figures:
    """Time exact Laplace reports, many at once and one of 768 dimensions."""
    wide = offaxis.fit(
        None, np.random.default_rng(1).standard_normal((50, 768)), epsilon=5, reshaping="none"
    )
    z = np.random.default_rng(2).standard_normal(768)
    latency = best_seconds(lambda: [wide.privatize(z) for _ in range(200)]) / 200 * 1e3
    return [
        *compare(
            "Laplace",
            Laplace(DIM, 20.0, 5),
            np.random.default_rng(0).laplace,
            dp.m.make_laplace,
            dp.l1_distance(T=float),
            (120, 50),
        ),
        {
            "what": "one 768-d report",
            "value": latency,
            "unit": "ms",
            "target": "< 1",
            "met": latency < 1,
        },
    ]


def memory_figures(vectors: int) -> Figures:
    """Measure the peak memory of fresh processes that stream more and more public vectors."""
    peaks: Figures = []
    count = 10_000
    while count <= vectors:
        run = [sys.executable, "-c", MEMORY_SCRIPT, str(count)]
        peak = float(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
        peaks.append(
            {"what": f"peak memory, {count:,} public vectors", "value": peak, "unit": "MiB"}
        )
        count *= 10
    growth = peaks[-1]["value"] / peaks[0]["value"]
    row = {"what": "peak memory, most / fewest", "value": growth, "unit": "x"}
    return [*peaks, row | {"target": "<= 1.05", "met": growth <= 1.05}]


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--vectors", type=int, default=10_000_000)
    arguments = parser.parse_args()
    figures = [
        *exact_figures(),
        *simulation_figures(),
        *gram_figures(),
        *memory_figures(arguments.vectors),
    ]
    publish("foundation", figures, arguments.json)


if __name__ == "__main__":
    main()
