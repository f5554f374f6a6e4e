"""Our figures beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.catalogue import PAIRS
from experiments.engine import Outcome, Study
from experiments.published import Figure, figure
from experiments.rows import CLEAN


@dataclass(frozen=True)
class Line:
    """One number of ours beside the paper's; ``paper`` is None where it has none."""

    outcome: Outcome
    paper: Figure | None

    @property
    def difference(self) -> float | None:
        """Ours minus theirs."""
        return None if self.paper is None else self.outcome.mean - self.paper.mean


@dataclass(frozen=True)
class Claim:
    """A sentence about a study, whether it holds here, and the case that decides.

    It is computed from the figures of a study, never asserted.
    """

    text: str
    holds: bool
    worst: str


def compare(study: Study, outcomes: Sequence[Outcome]) -> list[Line]:
    """Put the published number beside every cell of a study."""
    return [Line(outcome, _published(study, outcome)) for outcome in outcomes]


def _published(study: Study, outcome: Outcome) -> Figure | None:
    row = outcome.row
    level = row.level
    if study.table == "mnist-task-aware":
        level = "3" if row.label == "Task-Aware" else "32"
    return figure(study.table, row.label, level, outcome.epsilon)


Means = Mapping[tuple[str, str, float], float]


def means(outcomes: Sequence[Outcome]) -> dict[tuple[str, str, float], float]:
    """Return the means by (label, level, budget)."""
    return {(o.row.label, o.row.level, o.epsilon): o.mean for o in outcomes}


def budgets_of(ours: Means) -> list[float]:
    """Return the budgets, ascending."""
    return sorted({epsilon for _, _, epsilon in ours})


def recovery_ratios(ours: Means, instead: str | None = None) -> dict[tuple[str, str, float], float]:
    """Return (reshaped − plain) / (clean − plain) by (randomizer, level, budget).

    ``instead`` names a row that takes the place of every reshaped one.
    """
    levels = list(dict.fromkeys(level for _, level, _ in ours))
    ratios = {}
    for name, (plain, reshaped) in PAIRS.items():
        for level in levels:
            for epsilon in budgets_of(ours):
                base = ours[plain, level, epsilon]
                gained = ours[instead or reshaped, level, epsilon] - base
                ratios[name, level, epsilon] = gained / (ours[CLEAN, level, epsilon] - base)
    return ratios
