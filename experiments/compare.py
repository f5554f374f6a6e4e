"""Comparisons of a study's figures: with the paper, and of recommendations with measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

import numpy as np
from scipy.stats import t

from experiments.beyond import RECOMMENDED
from experiments.catalogue import PAIRS
from experiments.engine import Outcome, Study
from experiments.methods import CLEAN, COUNTERPARTS, LINE, METHODS, NETWORK_LABEL
from experiments.published import PublishedNumber, published, published_number
from experiments.recommended import Prediction
from experiments.scores import LARGER_IS_BETTER
from experiments.sources import CORRUPTIONS


@dataclass(frozen=True, eq=False)
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


def published_means(table: str) -> dict[tuple[str, str, float], float]:
    """Return the published means of a table by (label, level, budget)."""
    return {
        (row.label, row.level, epsilon): number.mean
        for row in published(table)
        for epsilon, number in row.numbers.items()
    }


def published_recovery_ratios(levels: Sequence[str]) -> dict[tuple[str, str, float], float]:
    """Return the recovery ratios that follow from the published tables, for shifts "NAME 1" …"""
    ratios = {}
    for corruption in dict.fromkeys(level.rsplit(" ", 1)[0] for level in levels):
        for (name, severity, epsilon), ratio in recovery_ratios(
            published_means(f"shift-{corruption}")
        ).items():
            ratios[name, f"{corruption} {severity}", epsilon] = ratio
    return ratios


# ---- How close a table is to the published one

APART: Final = 0.02
"""Accuracies that are further apart in the paper must be in the same order here."""

APART_SHARE: Final = 0.02
"""The same for errors, as a share of the larger one."""


@dataclass(frozen=True)
class Agreement:
    """How close the numbers of a table are to the published ones.

    Attributes
    ----------
    cells : int
        Compared cells.
    median, worst : float
        Absolute differences: of accuracies, or relative ones of errors.
    worst_at : str
        The row and budget of the worst.
    signs, orders : pair of int
        How many gains from reshaping have the published sign, and how many pairs of rows the
        published order, of how many. Published gains of zero, and pairs that are less than 2
        points (or 2 %) apart, are not counted.
    deviations : triple of float, or None
        Least, median and largest ratio of ours to the published standard deviation.
    within_heads : pair of int, or None
        How many published numbers are within the 95 % prediction interval for one more head, of how
        many; None with one head.
    closest_head : pair of float, or None
        Median and worst difference of the single head that is closest to the paper; None with one.
    relative : bool
        Whether differences are relative.
    """

    cells: int
    median: float
    worst: float
    worst_at: str
    signs: tuple[int, int]
    orders: tuple[int, int]
    deviations: tuple[float, float, float] | None
    within_heads: tuple[int, int] | None
    closest_head: tuple[float, float] | None
    relative: bool

    def percent(self, value: float) -> str:
        """Return a difference in points, or in percent if it is relative."""
        return f"{100 * value:.2f}{' %' if self.relative else ''}"


def agreement(cells: Sequence[ComparedCell]) -> Agreement | None:
    """Compare the cells of a study with the published ones; None if there are none."""
    compared = [(cell, cell.paper) for cell in cells if cell.paper is not None]
    if not compared:
        return None
    relative = not LARGER_IS_BETTER[compared[0][0].outcome.metric]
    gaps = {
        cell: abs(cell.outcome.mean - paper.mean) / (paper.mean if relative else 1)
        for cell, paper in compared
    }
    worst = max(gaps, key=lambda cell: gaps[cell])
    row = worst.outcome.row
    ratios = sorted(
        cell.outcome.std / paper.std
        for cell, paper in compared
        if paper.std and cell.outcome.row.method.reports
    )
    return Agreement(
        len(gaps),
        median(gaps.values()),
        gaps[worst],
        f"{row.method.title}{f', {row.level}' if row.level else ''}, ε = {worst.outcome.epsilon:g}",
        _same_signs(compared),
        _same_orders(compared, relative),
        (ratios[0], median(ratios), ratios[-1]) if ratios else None,
        _within_heads(compared),
        _closest_head(compared),
        relative,
    )


Compared = Sequence[tuple[ComparedCell, PublishedNumber]]


def _within_heads(compared: Compared) -> tuple[int, int] | None:
    several = [(cell.outcome, paper) for cell, paper in compared if cell.outcome.heads > 1]
    if not several:
        return None
    inside = sum(
        abs(paper.mean - outcome.mean)
        <= t.ppf(0.975, outcome.heads - 1) * outcome.spread * (1 + 1 / outcome.heads) ** 0.5
        for outcome, paper in several
    )
    return int(inside), len(several)


def _closest_head(compared: Compared) -> tuple[float, float] | None:
    most = max(cell.outcome.heads for cell, _ in compared)
    if most == 1:
        return None
    gaps = np.array(
        [
            [abs(mean - paper.mean) for mean in cell.outcome.head_means]
            for cell, paper in compared
            if cell.outcome.heads == most
        ]
    )
    closest = gaps[:, gaps.max(axis=0).argmin()]
    return float(np.median(closest)), float(closest.max())


def _same_signs(compared: Compared) -> tuple[int, int]:
    ours = means([cell.outcome for cell, _ in compared])
    paper = {
        (cell.outcome.row.label, cell.outcome.row.level, cell.outcome.epsilon): number.mean
        for cell, number in compared
    }
    same = counted = 0
    for plain, reshaped in PAIRS.values():
        for label, level, epsilon in ours:
            other = (plain, level, epsilon)
            if label != reshaped or other not in ours:
                continue
            theirs = paper[label, level, epsilon] - paper[other]
            if abs(theirs) >= 1e-4:  # published numbers have four digits
                counted += 1
                same += (ours[label, level, epsilon] - ours[other]) * theirs > 0
    return same, counted


def _same_orders(compared: Compared, relative: bool) -> tuple[int, int]:
    columns: dict[tuple[str, float], list[tuple[ComparedCell, PublishedNumber]]] = {}
    for cell, paper in compared:
        place = (cell.outcome.row.level, cell.outcome.epsilon)
        columns.setdefault(place, []).append((cell, paper))
    same = counted = 0
    for column in columns.values():
        for (a, paper_a), (b, paper_b) in combinations(column, 2):
            limit = APART_SHARE * max(paper_a.mean, paper_b.mean) if relative else APART
            gap = paper_a.mean - paper_b.mean
            if abs(gap) > limit:
                counted += 1
                same += (a.outcome.mean - b.outcome.mean) * gap > 0
    return same, counted


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
        for label in (*METHODS, NETWORK_LABEL)
        if label in by_label and label not in COUNTERPARTS and by_label[label].row.method.reports
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
