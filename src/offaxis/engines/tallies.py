"""Simulated evaluation of releases over batches of Arrow records, as tallies that merge.

For public records only: nothing here makes a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offaxis.engines.arrow import VECTOR, Batches, nonempty
from offaxis.engines.columns import column_of, is_list, rows_of, values_of, vectors_of
from offaxis.errors import InvalidInput
from offaxis.evaluation.metrics import Evaluation, Tally, check_targets
from offaxis.geometry import TaskModel
from offaxis.release import Release
from offaxis.simulation import simulate
from offaxis.vectors import Vectors


class Tallies:
    """Tallies of several releases over several repetitions; partial tallies merge."""

    def __init__(self, releases: int, seeds: int) -> None:
        self._clean: Tally | None = None
        self._runs: list[list[Tally | None]] = [[None] * seeds for _ in range(releases)]

    def merge(self, other: Tallies) -> None:
        """Add the tallies of other vectors."""
        self._clean = _merged(self._clean, other._clean)
        for runs, other_runs in zip(self._runs, other._runs, strict=True):
            runs[:] = map(_merged, runs, other_runs)

    def add(
        self,
        releases: Sequence[Release],
        task: TaskModel,
        vectors: Vectors,
        targets: Any,
        seed: Sequence[int],
    ) -> None:
        """Simulate reports of some vectors, with the same seeds for every release, and count."""
        clean = task.outputs(vectors)
        checked = check_targets(targets, clean)
        self._clean = _merged(self._clean, Tally.of(clean, clean, checked))
        for release, runs in zip(releases, self._runs, strict=True):
            for index, before in enumerate(runs):
                rng = np.random.default_rng([*seed, index])
                outputs = task.outputs(simulate(release, vectors, rng))
                runs[index] = _merged(before, Tally.of(outputs, clean, checked))

    def evaluations(self) -> list[Evaluation]:
        """Return the scores of every release."""
        if self._clean is None:
            raise InvalidInput("there are no vectors to evaluate on")
        return [_evaluation(self._clean, runs) for runs in self._runs]


def fold_tallies(
    releases: Sequence[Release],
    task: TaskModel,
    batches: Batches,
    *,
    vectors: str = VECTOR,
    targets: str | None = None,
    seeds: int = 20,
    seed: int = 0,
    part: int = 0,
) -> Tallies:
    """Evaluate releases on public vectors; ``part`` is the number of this part of the records."""
    tallies = Tallies(len(releases), seeds)
    for number, batch in enumerate(nonempty(batches)):
        rows = vectors_of(batch, vectors, releases[0].input_dim)
        labels = None if targets is None else _targets_of(batch, targets)
        tallies.add(releases, task, rows, labels, [seed, part, number])
    return tallies


def _targets_of(batch: Any, name: str) -> Any:
    column = column_of(batch, name)
    return rows_of(column, f"column {name!r}") if is_list(column.type) else values_of(column, name)


def _merged(tally: Tally | None, other: Tally | None) -> Tally | None:
    if tally is None or other is None:
        return tally or other
    tally.merge(other)
    return tally


def _evaluation(clean: Tally, runs: list[Tally | None]) -> Evaluation:
    scores = [run.scores() for run in runs if run is not None]
    names = clean.scores()
    return Evaluation(names, {name: np.array([run[name] for run in scores]) for name in names})
