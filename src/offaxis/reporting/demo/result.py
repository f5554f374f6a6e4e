"""What the demo measured, as data: for the page and for the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from offaxis.evaluation import Evaluation, Row
from offaxis.evaluation.recommend import Recommendation
from offaxis.release import Release
from offaxis.reporting.demo.households import HouseholdResult
from offaxis.theory.ceiling import reference_line
from offaxis.theory.table import Row as TheoryRow

METRIC = "accuracy"


@dataclass(frozen=True)
class ExactCheck:
    """Real reports beside the simulation of the same release.

    Attributes
    ----------
    randomizer : str
    reshaping : {"none", "jacobian"}
    epsilon : float
    vectors : int
        Vectors in one repetition.
    simulated, exact : Evaluation
        Independent noise on the same vectors, repeated as often as each side can afford.
    """

    randomizer: str
    reshaping: str
    epsilon: float
    vectors: int
    simulated: Evaluation
    exact: Evaluation

    def error(self, side: Evaluation) -> float:
        """Return the standard error of one side's accuracy, or a little more.

        Answers are right or wrong independently of each other, each with a chance of its own; as
        p(1 − p) is concave, their mean spreads at most as if all had the mean chance. So one
        repetition is enough to know it.
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
        Of the release, which is reshaped.
    epsilon : float
    vectors, draws : int
        Measured on so many vectors, with so many simulated reports each.
    rows : tuple of Row
    """

    randomizer: str
    epsilon: float
    vectors: int
    draws: int
    rows: tuple[TheoryRow, ...]


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo found.

    Attributes
    ----------
    rows : tuple of Row
        The sweep: every randomizer at every budget, plain and reshaped.
    exact : tuple of ExactCheck
        Real reports beside their simulation, at the headline budget.
    centred : tuple of Row
        The headline budget again with nothing but the public mean subtracted.
    published : tuple of Row
        The reshaped rows of the headline budget again, in the paper's gauge.
    release : Release
        The reshaped release of the headline.
    theory : Theory
        What theory says about a reshaped release, beside what is measured.
    households : HouseholdResult
        The second task.
    recommended : tuple of Recommendation
        What is recommended for the first task, at some of the budgets.
    ceilings : dict
        Budget → the share of the model's answers that no report tells more of, for public vectors.
    clean : float
        Accuracy without privacy.
    classes : int
        Number of answers.
    seeds : int
        Repetitions behind every simulated mean.
    html : Path
        The page.
    """

    rows: tuple[Row, ...]
    exact: tuple[ExactCheck, ...]
    centred: tuple[Row, ...]
    published: tuple[Row, ...]
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
        """Return one plain row a cell: randomizer, reshaping, epsilon, accuracy, std."""
        return [
            {
                "randomizer": row.randomizer,
                "reshaping": row.reshaping,
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
        return tuple(dict.fromkeys(row.randomizer for row in self.rows))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets, in the order of the sweep."""
        return tuple(dict.fromkeys(row.epsilon for row in self.rows))

    def cell(self, randomizer: str, reshaping: str, epsilon: float) -> Evaluation:
        """Return one evaluation of the sweep."""
        return find(self.rows, randomizer, reshaping, epsilon)


def find(rows: Sequence[Row], randomizer: str, reshaping: str, epsilon: float) -> Evaluation:
    """Return the evaluation of one row."""
    wanted = (randomizer, reshaping, epsilon)
    for row in rows:
        if (row.randomizer, row.reshaping, row.epsilon) == wanted:
            return row.evaluation
    raise KeyError(wanted)
