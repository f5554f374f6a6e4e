"""What the demo measured, as data: for the page and for the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from offaxis.evaluation import Evaluation, Row
from offaxis.release import Release

METRIC = "accuracy"


@dataclass(frozen=True)
class ExactCheck:
    """Real reports beside the simulation of the same release.

    Attributes
    ----------
    reshaping : {"none", "jacobian"}
    epsilon : float
    simulated, exact : Evaluation
        Independent noise on the same vectors.
    """

    reshaping: str
    epsilon: float
    simulated: Evaluation
    exact: Evaluation

    @property
    def gap(self) -> float | None:
        """Exact minus simulated accuracy in standard errors; None without an error estimate."""
        variance = sum(
            side.std(METRIC) ** 2 / side.runs[METRIC].size for side in (self.simulated, self.exact)
        )
        if variance == 0:
            return None
        return (self.exact.mean(METRIC) - self.simulated.mean(METRIC)) / math.sqrt(variance)


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo found.

    Attributes
    ----------
    rows : tuple of Row
        The sweep: every randomizer at every budget, plain and reshaped.
    exact : tuple of ExactCheck
        Laplace: real reports beside their simulation.
    centred : tuple of Row
        The headline budget again with nothing but the public mean subtracted.
    published : tuple of Row
        The reshaped rows of the headline budget again, in the paper's gauge.
    release : Release
        A reshaped Laplace release of the demo, which can release for real.
    clean : float
        Accuracy without privacy.
    chance : float
        Accuracy of guessing.
    seeds : int
        Repetitions behind every mean.
    html : Path
        The page.
    """

    rows: tuple[Row, ...]
    exact: tuple[ExactCheck, ...]
    centred: tuple[Row, ...]
    published: tuple[Row, ...]
    release: Release
    clean: float
    chance: float
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
