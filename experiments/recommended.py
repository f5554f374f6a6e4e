"""Where the recommended release stands: beside the best of the paper, and beside its prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from experiments.advice import Advice
from experiments.beyond import RECOMMENDED
from experiments.compare import Line
from experiments.engine import Outcome
from experiments.rows import LINE, MECHANISMS
from experiments.scores import LARGER_IS_BETTER
from experiments.sources import CORRUPTIONS


@dataclass(frozen=True)
class Standing:
    """One budget in one setting.

    Attributes
    ----------
    ours : Outcome
        The recommended release.
    best : Outcome
        The best of the paper's rows that have a guarantee, at this very budget.
    line : Outcome or None
        The reference line, where there is one.
    """

    ours: Outcome
    best: Outcome
    line: Outcome | None

    @property
    def margin(self) -> float:
        """By how much ours is better."""
        gap = self.ours.mean - self.best.mean
        return gap if LARGER_IS_BETTER[self.ours.metric] else -gap

    @property
    def place(self) -> str:
        """Where that is, in words."""
        level = self.ours.row.level
        return f"{f'{level}, ' if level else ''}ε = {self.ours.epsilon:g}"


def standings(lines: Sequence[Line]) -> list[Standing]:
    """Return where the recommended release stands, in the order of the study."""
    places: dict[tuple[str, float], list[Outcome]] = {}
    for line in lines:
        outcome = line.outcome
        places.setdefault((outcome.row.level, outcome.epsilon), []).append(outcome)
    return [_standing(found) for found in places.values()]


def _standing(found: Sequence[Outcome]) -> Standing:
    by_label = {outcome.row.label: outcome for outcome in found}
    paper = [by_label[label] for label in MECHANISMS if label in by_label and _counts(label)]
    ours = by_label[RECOMMENDED]
    pick = max if LARGER_IS_BETTER[ours.metric] else min
    return Standing(ours, pick(paper, key=lambda outcome: outcome.mean), by_label.get(LINE))


def _counts(label: str) -> bool:
    """Whether a row of the paper is a method with a guarantee."""
    mechanism = MECHANISMS[label]
    return mechanism.reports and not mechanism.mark


@dataclass(frozen=True)
class Prediction:
    """What was predicted on public vectors, and what the private ones have."""

    came: Outcome
    advice: Advice

    @property
    def question(self) -> str:
        """The setting, which says what is asked."""
        return self.came.row.setting

    @property
    def pooled(self) -> bool:
        """Whether public and private vectors are drawn from one pool: then there is no shift."""
        return " pooled " in self.question

    @property
    def corrupted(self) -> bool:
        """Whether the private vectors were changed on purpose."""
        return " cifar10-c " in self.question

    @property
    def inside(self) -> bool:
        """Whether what came lies within three standard errors of the prediction."""
        low, high = self.advice.interval
        return low <= self.came.mean <= high

    @property
    def gap(self) -> float:
        """What came, less what was predicted."""
        return self.came.mean - self.advice.score


def predictions(lines: Sequence[Line]) -> list[Prediction]:
    """Return the cells whose score is the very thing that was predicted."""
    return [
        Prediction(outcome, outcome.advice)
        for outcome in (line.outcome for line in lines)
        if outcome.advice is not None
        and outcome.row.setting.startswith(("agreement ", "fidelity "))
    ]


LOSS_AT: Final = 7.5
"""The budget at which shifts are compared."""


def kept_under_shifts(lines: Sequence[Line]) -> dict[str, dict[str, list[float]]]:
    """Return corruption → accuracy, agreement and fidelity at severities 0 to 5."""
    ours = {
        line.outcome.row.setting: line.outcome.mean
        for line in lines
        if line.outcome.row.mechanism.goal and line.outcome.epsilon == LOSS_AT
    }
    return {
        corruption: {
            kind: [
                ours[f"{asked}cifar10 relu"],
                *(ours[f"{asked}cifar10-c {corruption} {severity} relu"] for severity in "12345"),
            ]
            for kind, asked in KINDS.items()
        }
        for corruption in CORRUPTIONS
    }


KINDS: Final = {"accuracy": "", "agreement": "agreement ", "fidelity": "fidelity "}
"""What is asked under shifts → the beginning of its setting."""


def recommendations(lines: Sequence[Line]) -> dict[str, list[float]]:
    """Return the releases that were recommended, and at which budgets."""
    found: dict[str, list[float]] = {}
    for line in lines:
        advice, epsilon = line.outcome.advice, line.outcome.epsilon
        if advice is not None and epsilon not in found.setdefault(advice.title, []):
            found[advice.title].append(epsilon)
    return {title: sorted(budgets) for title, budgets in found.items()}
