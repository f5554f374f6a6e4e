"""Comparisons of a study's figures: with the paper, and of recommendations with measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.beyond import RECOMMENDED
from experiments.catalogue import PAIRS
from experiments.engine import Outcome, Study
from experiments.methods import CLEAN, LINE, METHODS
from experiments.published import PublishedNumber, published_number
from experiments.recommended import Prediction
from experiments.scores import LARGER_IS_BETTER
from experiments.sources import CORRUPTIONS


@dataclass(frozen=True)
class ComparedCell:
    """One cell of a study and the published number; ``paper`` is None if the paper has none."""

    outcome: Outcome
    paper: PublishedNumber | None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.paper is None else self.outcome.mean - self.paper.mean


def compare(study: Study, outcomes: Sequence[Outcome]) -> list[ComparedCell]:
    """Return every cell of a study with its published number."""
    return [ComparedCell(outcome, _published(study, outcome)) for outcome in outcomes]


def _published(study: Study, outcome: Outcome) -> PublishedNumber | None:
    row = outcome.row
    level = row.level
    if study.table == "mnist-task-aware":
        level = "3" if row.label == "Task-Aware" else "32"
    return published_number(study.table, row.label, level, outcome.epsilon)


Means = Mapping[tuple[str, str, float], float]


def means(outcomes: Sequence[Outcome]) -> dict[tuple[str, str, float], float]:
    """Return the means by (label, level, budget)."""
    return {(o.row.label, o.row.level, o.epsilon): o.mean for o in outcomes}


def budgets_of(ours: Means) -> list[float]:
    """Return the budgets, ascending."""
    return sorted({epsilon for _, _, epsilon in ours})


def recovery_ratios(ours: Means, instead: str | None = None) -> dict[tuple[str, str, float], float]:
    """Return (reshaped − plain) / (clean − plain) by (randomizer, level, budget).

    ``instead`` is the label of a row that replaces every reshaped one.
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


# ---- The recommended release against the best of the paper


@dataclass(frozen=True)
class AgainstPaper:
    """The recommended release and the best of the paper, at one budget in one setting.

    Attributes
    ----------
    ours : Outcome
        The recommended release.
    best : Outcome
        The best of the paper's rows that have a guarantee, at this budget.
    line : Outcome or None
        The reference line, if the setting has one.
    """

    ours: Outcome
    best: Outcome
    line: Outcome | None

    @property
    def margin(self) -> float:
        """How much better ours is."""
        gap = self.ours.mean - self.best.mean
        return gap if LARGER_IS_BETTER[self.ours.metric] else -gap

    @property
    def place(self) -> str:
        """The level and the budget, in words."""
        level = self.ours.row.level
        return f"{f'{level}, ' if level else ''}ε = {self.ours.epsilon:g}"


def against_paper(cells: Sequence[ComparedCell]) -> list[AgainstPaper]:
    """Compare the recommended release with the best of the paper, in the order of the study."""
    places: dict[tuple[str, float], dict[str, Outcome]] = {}
    for outcome in (cell.outcome for cell in cells):
        row = outcome.row
        places.setdefault((row.level, outcome.epsilon), {})[row.label] = outcome
    return [_against_paper(by_label) for by_label in places.values()]


def _against_paper(by_label: Mapping[str, Outcome]) -> AgainstPaper:
    paper = [
        by_label[label]
        for label, method in METHODS.items()
        if label in by_label and method.reports and not method.mark
    ]
    ours = by_label[RECOMMENDED]
    pick = max if LARGER_IS_BETTER[ours.metric] else min
    return AgainstPaper(ours, pick(paper, key=lambda outcome: outcome.mean), by_label.get(LINE))


# ---- Predictions against measurements


@dataclass(frozen=True)
class PredictionCheck:
    """What was predicted on public vectors, and what is measured on private ones."""

    measured: Outcome
    prediction: Prediction

    @property
    def question(self) -> str:
        """The setting, which states what is scored."""
        return self.measured.row.setting

    @property
    def pooled(self) -> bool:
        """Whether public and private vectors are drawn from one pool, without a shift."""
        return " pooled " in self.question

    @property
    def corrupted(self) -> bool:
        """Whether the private vectors are deliberately shifted."""
        return " cifar10-c " in self.question

    @property
    def inside(self) -> bool:
        """Whether the measurement is within three standard errors of the prediction."""
        low, high = self.prediction.interval
        return low <= self.measured.mean <= high

    @property
    def gap(self) -> float:
        """Measured minus predicted."""
        return self.measured.mean - self.prediction.score


def prediction_checks(cells: Sequence[ComparedCell]) -> list[PredictionCheck]:
    """Return the cells whose score is the predicted quantity."""
    return [
        PredictionCheck(outcome, outcome.prediction)
        for outcome in (cell.outcome for cell in cells)
        if outcome.prediction is not None
        and outcome.row.setting.startswith(("agreement ", "fidelity "))
    ]


LOSS_AT: Final = 7.5
"""The budget at which shifts are compared."""

SCORED: Final = {"accuracy": "", "agreement": "agreement ", "fidelity": "fidelity "}
"""Score under shifts → the prefix of its setting."""


def kept_under_shifts(cells: Sequence[ComparedCell]) -> dict[str, dict[str, list[float]]]:
    """Return corruption → accuracy, agreement and fidelity at severities 0 to 5."""
    ours = {
        cell.outcome.row.setting: cell.outcome.mean
        for cell in cells
        if cell.outcome.row.method.goal and cell.outcome.epsilon == LOSS_AT
    }
    return {
        corruption: {
            score: [
                ours[f"{prefix}cifar10 relu"],
                *(ours[f"{prefix}cifar10-c {corruption} {severity} relu"] for severity in "12345"),
            ]
            for score, prefix in SCORED.items()
        }
        for corruption in CORRUPTIONS
    }


def recommended_budgets(cells: Sequence[ComparedCell]) -> dict[str, list[float]]:
    """Return the recommended releases and the budgets at which each was recommended."""
    budgets: dict[str, set[float]] = {}
    for outcome in (cell.outcome for cell in cells):
        if outcome.prediction is not None:
            budgets.setdefault(outcome.prediction.title, set()).add(outcome.epsilon)
    return {title: sorted(at) for title, at in budgets.items()}
