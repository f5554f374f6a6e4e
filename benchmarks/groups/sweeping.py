"""Evaluation: sweeps over randomizers, budgets and seeds."""

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
_RANDOMIZERS: Final = ("laplace", "privunit2")


def measure(effort: Effort) -> Iterator[Race]:
    """Race a sweep, its fits included, against asking the model of one vector at a time."""
    evaluated = 2 * len(_RANDOMIZERS) * _SEEDS * _ROWS
    contenders = {
        OURS: Contender(lambda: small_sweep(_ROWS, _RANDOMIZERS), evaluated),
        "one vector at a time": Contender(_one_by_one, _ALONE * len(_RANDOMIZERS)),
    }
    what = f"laplace, privunit2, {_SEEDS} seeds"
    yield effort.race("sweep", what, "vectors/s", contenders)


def small_sweep(
    rows: int, randomizers: Sequence[str], *, public: int | None = None, seeds: int = _SEEDS
) -> None:
    """Evaluate randomizers at one budget, plain and reshaped, on so many vectors."""
    data = task.data()
    place = np.arange(rows) % len(data.vectors)
    sweep(
        data.head,
        data.public[:public],
        data.vectors[place],
        data.labels[place],
        randomizers=randomizers,
        epsilons=[task.EPSILON],
        seeds=seeds,
    )


def _one_by_one() -> None:
    rng, head = np.random.default_rng(0), task.data().head
    for name in _RANDOMIZERS:
        release = task.release(name)
        for z in task.many(_ALONE):
            head.outputs(simulate(release, z, rng)[None]).argmax()
