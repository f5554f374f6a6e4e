"""The demo's second task: tomorrow's electricity of a household from its last 16 days.

The paper's regression on bundled readings (households.py), in its setting: order 1, radius
at the 90th percentile, one report a household.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from experiments import engine
from experiments.catalogue import PAIRS
from experiments.lines import line_scores
from experiments.rows import CLEAN, MECHANISMS
from experiments.sources import open_source
from offaxis.evaluation import Evaluation, SweepCell
from offaxis.evaluation.recommendation import Recommendation
from offaxis.release import Release
from offaxis.reporting.pages import (
    INK,
    LINE_DASHES,
    MUTED,
    PLAIN,
    RESHAPED,
    TITLES,
    budget_axis,
    canvas,
    inline,
)
from offaxis.theory.ceilings import reference_line
from offaxis.theory.table import TheoryRow
from offaxis.vectors import Vectors

LABELS: Final = {
    "laplace": PAIRS["Laplace"],
    "privunit2": PAIRS["PrivUnit2"],
    "privunitg-sphere": PAIRS["PrivUnitG"],
}
"""Randomizer → the studies' plain and reshaped row."""

SHAPES: Final = ("none", "jacobian")


@dataclass(frozen=True)
class HouseholdResult:
    """Errors in kWh per half-hour.

    Attributes
    ----------
    rmse : dict
        (randomizer, reshaping, budget) → one error a seed.
    clean : float
        Error without privacy.
    constant : float
        Error of always answering the public mean, which needs no report.
    lines : dict
        Budget → the root of the squared error without privacy and the least squared error that a
        report of the forecast can have. A line, not a bound.
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
        """Return one plain row a cell: randomizer, reshaping, epsilon, rmse, std."""
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


def measure_households(
    epsilons: Sequence[float], seeds: int, advance: Callable[[int], None]
) -> HouseholdResult:
    """Simulate every randomizer at every budget, plain and reshaped.

    ``advance`` is called once a mechanism, :data:`STEPS` times in all.
    """
    source = open_source("lhsm")
    budgets = tuple(epsilons)
    found: dict[tuple[str, str, float], tuple[float, ...]] = {}
    with tempfile.TemporaryDirectory() as folder:

        def run(label: str) -> list[engine.Outcome]:
            row = engine.Row(label, "", "lhsm", MECHANISMS[label], budgets)
            outcomes = engine.run([row], Path(folder), seeds=seeds)
            advance(1)
            return outcomes

        clean = run(CLEAN)[0].mean
        for name, labels in LABELS.items():
            for shape, label in zip(SHAPES, labels, strict=True):
                for outcome in run(label):
                    found[name, shape, outcome.epsilon] = outcome.runs
    least = line_scores(source, "least", budgets, seeds)
    constant = line_scores(source, "public mean", budgets[:1], seeds)[budgets[0]]
    lines = {epsilon: float(np.mean(runs)) for epsilon, runs in least.items()}
    return HouseholdResult(
        found, clean, float(np.mean(constant)), lines, len(source.sample(0).answers)
    )


STEPS: Final = 1 + 2 * len(LABELS)


def error_curves(result: HouseholdResult, randomizer: str) -> str:
    """Draw the error against the budget for one randomizer, on a logarithmic scale."""
    epsilons = result.epsilons
    curves: dict[str, Vectors] = {
        shape: np.array(result.means(randomizer, shape)) for shape in SHAPES
    }
    with canvas(3.4, 2.5) as (figure, axes):
        # Their names stand in the page's legend: curves pass wherever there would be room.
        for level in (result.constant, result.clean):
            axes.axhline(level, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        axes.plot(
            epsilons,
            [result.lines[epsilon] for epsilon in epsilons],
            color=INK,
            linestyle=LINE_DASHES,
            linewidth=1.1,
        )
        for shape, colour, dashes in (("none", PLAIN, (0, (4, 2))), ("jacobian", RESHAPED, "-")):
            axes.plot(
                epsilons,
                curves[shape],
                color=colour,
                linestyle=dashes,
                linewidth=1.8,
                marker="o",
                ms=2.8,
            )
        axes.set_yscale("log")
        axes.set(ylim=(0.045, 30), xlabel="budget ε", ylabel="error, kWh")
        axes.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
        axes.minorticks_off()
        budget_axis(axes, max(epsilons))
        label = (
            f"{TITLES[randomizer]}: error against the budget. At ε = {epsilons[0]:g}, "
            f"{curves['none'][0]:.3g} kWh plain and {curves['jacobian'][0]:.3g} reshaped; at "
            f"ε = {epsilons[-1]:g}, {curves['none'][-1]:.3g} and {curves['jacobian'][-1]:.3g}. "
            f"The best channel for the answer alone: {result.lines[epsilons[0]]:.3g} and "
            f"{result.lines[epsilons[-1]]:.3g}."
        )
        return inline(figure, f"household-{randomizer}", label)


# ----------------------------------------------------------------------------
# What the demo measured, as data: for the page and for the command line.

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
    rows : tuple of SweepCell
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
    rows : tuple of SweepCell
        The sweep: every randomizer at every budget, plain and reshaped.
    exact : tuple of ExactCheck
        Real reports beside their simulation, at the headline budget.
    centred : tuple of SweepCell
        The headline budget again with nothing but the public mean subtracted.
    published : tuple of SweepCell
        The reshaped rows of the headline budget again, in the paper's setting.
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
        """Return one plain row a cell: randomizer, reshaping, epsilon, accuracy, std."""
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
    wanted = (randomizer, reshaping, epsilon)
    for row in rows:
        if (row.mechanism, row.reshaping.name, row.epsilon) == wanted:
            return row.evaluation
    raise KeyError(wanted)
