"""Evaluation: sweeps over mechanisms, budgets and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from benchmarks.groups import task
from benchmarks.harness import OURS, Contender, Effort, Race
from offaxis.evaluation import sweep
from offaxis.simulation import simulate

_ROWS: Final = 20_000
_ALONE: Final = 100
_SEEDS: Final = 5
_MECHANISMS: Final = ("laplace", "privunit2")


def measure(effort: Effort) -> Iterator[Race]:
    """Compare a sweep, including its fits, with evaluating one vector at a time."""
    evaluated = 2 * len(_MECHANISMS) * _SEEDS * _ROWS
    contenders = {
        OURS: Contender(lambda: small_sweep(_ROWS, _MECHANISMS), evaluated),
        "one vector at a time": Contender(_one_by_one, _ALONE * len(_MECHANISMS)),
    }
    yield effort.race("sweep", f"laplace, privunit2, {_SEEDS} seeds", "vectors/s", contenders)


def small_sweep(
    rows: int, mechanisms: Sequence[str], *, public: int | None = None, seeds: int = _SEEDS
) -> None:
    """Evaluate mechanisms at one budget, plain and reshaped, on this many vectors."""
    data = task.data()
    index = np.arange(rows) % len(data.vectors)
    sweep(
        data.head,
        data.public[:public],
        data.vectors[index],
        data.labels[index],
        mechanisms=mechanisms,
        epsilons=[task.EPSILON],
        seeds=seeds,
    )


def _one_by_one() -> None:
    rng, head = np.random.default_rng(0), task.data().head
    for name in _MECHANISMS:
        release = task.release(name)
        for z in task.vectors(_ALONE):
            head.outputs(simulate(release, z, rng)[None]).argmax()
