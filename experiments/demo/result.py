"""The results of the demo as data, for its page and for the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from offaxis.evaluation import Evaluation, SweepCell
from offaxis.evaluation.recommendation import Recommendation
from offaxis.release import Release
from offaxis.theory.ceilings import reference_line
from offaxis.theory.table import TheoryRow

METRIC: Final = "accuracy"


@dataclass(frozen=True)
class DemoResult:
    """All results of the demo.

    Attributes
    ----------
    rows : tuple of SweepCell
        The sweep: every randomizer at every budget, plain and reshaped.
    exact : tuple of ExactCheck
        Real reports and their simulation, at the headline budget.
    centred : tuple of SweepCell
        The headline budget with the public mean subtracted and nothing else.
    published : tuple of SweepCell
        The reshaped rows of the headline budget, in the paper's setting.
    release : Release
        The reshaped release of the headline.
    theory : Theory
        The theory's table for a reshaped release, with measurements.
    households : HouseholdResult
        The second task.
    recommended : tuple of Recommendation
        The recommendations for the first task, at some of the budgets.
    ceilings : dict
        Budget → upper bound on the share of the model's answers that any report keeps, for public
        vectors.
    clean : float
        Accuracy without privacy.
    classes : int
        Number of answers.
    seeds : int
        Repetitions behind every simulated mean.
    html : Path
        The page.
    """

    rows: tuple[SweepCell, ...]
    exact: tuple[ExactCheck, ...]
    centred: tuple[SweepCell, ...]
    published: tuple[SweepCell, ...]
    release: Release
    theory: Theory
    households: HouseholdResult
    recommended: tuple[Recommendation, ...]
    ceilings: dict[float, float]
    clean: float
    classes: int
    seeds: int
    html: Path

    def table(self) -> list[dict[str, str | float]]:
        """Return one record per cell: randomizer, reshaping, epsilon, accuracy, std."""
        return [
            {
                "randomizer": row.mechanism,
                "reshaping": row.reshaping.name,
                "epsilon": row.epsilon,
                "accuracy": row.evaluation.mean(METRIC),
                "std": row.evaluation.std(METRIC),
            }
            for row in self.rows
        ]

    @property
    def chance(self) -> float:
        """Accuracy of guessing."""
        return 1 / self.classes

    @property
    def lines(self) -> dict[float, float]:
        """Accuracy of the model's answer sent by randomized response, by budget: not a bound."""
        return {e: reference_line(self.clean, self.classes, e) for e in self.epsilons}

    @property
    def randomizers(self) -> tuple[str, ...]:
        """Names of the randomizers, in the order of the sweep."""
        return tuple(dict.fromkeys(row.mechanism for row in self.rows))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets, in the order of the sweep."""
        return tuple(dict.fromkeys(row.epsilon for row in self.rows))

    def cell(self, randomizer: str, reshaping: str, epsilon: float) -> Evaluation:
        """Return one evaluation of the sweep."""
        return find(self.rows, randomizer, reshaping, epsilon)


def find(rows: Sequence[SweepCell], randomizer: str, reshaping: str, epsilon: float) -> Evaluation:
    """Return the evaluation of one row."""
    key = (randomizer, reshaping, epsilon)
    for row in rows:
        if (row.mechanism, row.reshaping.name, row.epsilon) == key:
            return row.evaluation
    raise KeyError(key)


@dataclass(frozen=True)
class HouseholdResult:
    """The demo's second task: the next day's electricity of a household from its last 16 days.

    Errors are in kWh per half-hour.

    Attributes
    ----------
    rmse : dict
        (randomizer, reshaping, budget) → one error per seed.
    clean : float
        Error without privacy.
    constant : float
        Error of always answering the public mean, which needs no report.
    lines : dict
        Budget → the root of the squared error without privacy plus the least squared error of a
        report of the forecast. A line, not a bound.
    reports : int
        Households that report in one repetition.
    """

    rmse: dict[tuple[str, str, float], tuple[float, ...]]
    clean: float
    constant: float
    lines: dict[float, float]
    reports: int

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets, ascending."""
        return tuple(sorted({epsilon for _, _, epsilon in self.rmse}))

    def mean(self, randomizer: str, reshaping: str, epsilon: float) -> float:
        """Return the mean error of one cell."""
        return float(np.mean(self.rmse[randomizer, reshaping, epsilon]))

    def means(self, randomizer: str, reshaping: str) -> list[float]:
        """Return the mean errors of one row, by ascending budget."""
        return [self.mean(randomizer, reshaping, epsilon) for epsilon in self.epsilons]

    def table(self) -> list[dict[str, str | float]]:
        """Return one record per cell: randomizer, reshaping, epsilon, rmse, std."""
        return [
            {
                "randomizer": name,
                "reshaping": shape,
                "epsilon": epsilon,
                "rmse": float(np.mean(runs)),
                "std": float(np.std(runs, ddof=1)) if len(runs) > 1 else 0.0,
            }
            for (name, shape, epsilon), runs in self.rmse.items()
        ]


@dataclass(frozen=True)
class ExactCheck:
    """Real reports of a release and their simulation.

    Attributes
    ----------
    randomizer : str
    reshaping : {"none", "jacobian"}
    epsilon : float
    vectors : int
        Vectors in one repetition.
    simulated, exact : Evaluation
        Independent noise on the same vectors; the two may have different numbers of repetitions.
    """

    randomizer: str
    reshaping: str
    epsilon: float
    vectors: int
    simulated: Evaluation
    exact: Evaluation

    def error(self, side: Evaluation) -> float:
        """Return an upper bound on the standard error of one side's accuracy.

        Answers are correct or wrong independently of each other, each with some probability. As
        p(1 − p) is concave, the variance of their mean is at most that of equal probabilities. So
        one repetition is enough to estimate it.
        """
        sizes = [len(part.runs[METRIC]) for part in (self.simulated, self.exact)]
        right = self.simulated.runs[METRIC].sum() + self.exact.runs[METRIC].sum()
        chance = float(right) / sum(sizes)
        return math.sqrt(chance * (1 - chance) / (self.vectors * len(side.runs[METRIC])))

    @property
    def gap(self) -> float:
        """Exact minus simulated accuracy, in standard errors."""
        error = math.hypot(self.error(self.simulated), self.error(self.exact))
        difference = self.exact.mean(METRIC) - self.simulated.mean(METRIC)
        return difference / error if error else 0.0


@dataclass(frozen=True)
class Theory:
    """The theory's table for one release of the demo.

    Attributes
    ----------
    randomizer : str
        The randomizer of the release, which is reshaped.
    epsilon : float
    vectors, draws : int
        Number of vectors in the measurement, and of simulated reports per vector.
    rows : tuple of TheoryRow
    """

    randomizer: str
    epsilon: float
    vectors: int
    draws: int
    rows: tuple[TheoryRow, ...]
