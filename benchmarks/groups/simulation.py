"""Simulated releases: both maps, clipping and noise, in seeded floating point."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from benchmarks.groups import task
from benchmarks.harness import OURS, Contender, Effort, Race
from benchmarks.rivals import gpu_name, installed, numpy
from benchmarks.rivals.maps import linear_parts
from offaxis.simulation import simulate

_ROWS: Final = 100_000
_ALONE: Final = 500
"""Vectors that are simulated one at a time."""


def measure(effort: Effort) -> Iterator[Race]:
    """Compare simulations of whole batches with the same steps in other libraries."""
    Z, rng = task.vectors(_ROWS), np.random.default_rng(0)
    alone = Z[:_ALONE]
    for name in ("laplace", "gaussian"):
        release = task.release(name)
        parts = linear_parts(release)
        contenders = {
            OURS: Contender(partial(simulate, release, Z, rng), len(Z)),
            "NumPy, whole batch": Contender(partial(numpy.simulate, parts, Z, rng), len(Z)),
            "NumPy, one vector at a time": Contender(
                partial(numpy.simulate_one_by_one, parts, alone, rng), len(alone)
            ),
        }
        if installed("torch"):
            import torch

            from benchmarks.rivals.torch import Simulation

            contenders["torch, whole batch"] = Contender(
                partial(Simulation(parts), torch.as_tensor(Z)), len(Z)
            )
        yield effort.race("simulate", f"{name}, m = 64", "vectors/s", contenders)
    if gpu_name():
        yield on_device(effort, "cuda", rows=10 * _ROWS)
    release = task.release("privunit2")
    contenders = {
        OURS: Contender(partial(simulate, release, Z, rng), len(Z)),
        "one vector at a time": Contender(
            lambda: [simulate(release, z, rng) for z in alone], len(alone)
        ),
    }
    yield effort.race("simulate", "privunit2, m = 64", "vectors/s", contenders)


def on_device(effort: Effort, device: str, rows: int) -> Race:
    """Compare simulations of vectors that are already on a device."""
    import torch

    from benchmarks.rivals.torch import Simulation, synchronized

    release, rng = task.release("laplace"), np.random.default_rng(0)
    Z = task.vectors(rows)
    vectors = torch.as_tensor(Z, device=device)
    generator = torch.Generator(device=device).manual_seed(0)
    rival = Simulation(linear_parts(release), device)
    contenders = {
        OURS: Contender(synchronized(simulate, device, release, vectors, generator), rows),
        "torch, the same steps": Contender(synchronized(rival, device, vectors), rows),
        "offaxis on the CPU": Contender(partial(simulate, release, Z, rng), rows),
    }
    return effort.race("simulate", f"laplace, m = 64, on {device}", "vectors/s", contenders)
