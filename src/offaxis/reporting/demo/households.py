"""The demo's second task: tomorrow's electricity of a household from its last 16 days.

The paper's regression on bundled readings (studies/households.py), in its setting: gauge 1, radius
at the 90th percentile, one report a household.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from offaxis.reporting.names import TITLES
from offaxis.reporting.svg import (
    INK,
    LINE_DASHES,
    MUTED,
    PLAIN,
    RESHAPED,
    budget_axis,
    canvas,
    inline,
)
from offaxis.studies import engine
from offaxis.studies.catalogue import PAIRS
from offaxis.studies.lines import line_scores
from offaxis.studies.mechanisms import CLEAN, MECHANISMS
from offaxis.studies.sources import open_source
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
