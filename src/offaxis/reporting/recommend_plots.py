"""Figures of recommendations: what they keep at every budget, beside what ε allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offaxis.evaluation.utility import Utility
from offaxis.reporting.advice import Advice
from offaxis.reporting.svg import (
    CARD,
    INK,
    LINE_DASHES,
    PLAIN,
    RESHAPED,
    budget_axis,
    canvas,
    inline,
)


def utility_curve(
    found: Sequence[Advice], ceilings: Mapping[float, float], label: str, name: str
) -> str:
    """Draw the expected utility against the budget, with its interval, and the ceiling.

    Parameters
    ----------
    ceilings : mapping
        Budget → what no ε-LDP report passes; empty where that is not known.
    label : str
        What is measured, for the axis.
    name : str
        Unique in the page.
    """
    budgets = sorted({*ceilings, *(each.epsilon for each in found)})
    with canvas(4.6, 2.9) as (figure, axes):
        heights = [100 * ceilings[epsilon] for epsilon in sorted(ceilings)]
        axes.plot(sorted(ceilings), heights, color=INK, linestyle=LINE_DASHES, linewidth=1.1)
        _bars(axes, {e.epsilon: e.vector.utility for e in found if e.vector}, PLAIN, CARD)
        _bars(axes, {each.epsilon: each.expected for each in found}, RESHAPED, RESHAPED)
        lowest = min(0.0, *(100 * each.expected.score for each in found))
        axes.set(xlabel="budget ε", ylabel=f"{label}, %", ylim=(1.1 * lowest, 104))
        axes.set_xlim(0, 1.05 * budgets[-1])
        budget_axis(axes, budgets[-1])
        words = "; ".join(_words(each) for each in found)
        return inline(figure, name, f"{label} against the budget. {words}.")


def _bars(axes: Any, utilities: Mapping[float, Utility], colour: str, inside: str) -> None:
    """Draw a point a budget, with its interval."""
    spans = [utility.interval() for utility in utilities.values()]
    axes.errorbar(
        list(utilities),
        [100 * utility.score for utility in utilities.values()],
        yerr=[50 * (high - low) for low, high in spans],
        color=colour,
        mfc=inside,
        fmt="o",
        ms=5,
        linewidth=1.4,
        capsize=0,
    )


def _words(each: Advice) -> str:
    ceiling = "" if each.ceiling is None else f", at most {100 * each.ceiling:.1f} % is possible"
    return f"At ε = {each.epsilon:g}, {100 * each.expected.score:.1f} % with {each.title}{ceiling}"
