"""The smallest budget whose best release reaches a target utility."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final

from offaxis.evaluation.priors import Prior
from offaxis.evaluation.recommend import Effort, Recommendation, Search
from offaxis.evaluation.selection import Progress, shown
from offaxis.mechanisms.base import Goal
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.privacy.wording import MEAN_OVER
from offaxis.vectors import as_number

_STEP: Final = Fraction(1, 20)
"""Distance of the budgets that are tried."""


@dataclass(frozen=True, eq=False)
class SmallestBudget:
    """The smallest budget found for a target utility, and the smallest possible one.

    Attributes
    ----------
    target : float
        The requested utility.
    epsilon : float or None
        The smallest budget found whose expected utility reaches the target; None if none does.
    recommendation : Recommendation or None
        The recommendation at that budget.
    least_possible : float or None
        No report of a smaller budget reaches the target, as far as the ceiling is a bound; None if
        no report of a budget up to ``max_epsilon`` does.
    max_epsilon : float
        The largest budget that was tried.
    """

    target: float
    epsilon: float | None
    recommendation: Recommendation | None
    least_possible: float | None
    max_epsilon: float

    @property
    def summary(self) -> str:
        """The outcome in plain words."""
        if self.least_possible is None:
            return (
                f"No report of a budget up to {self.max_epsilon:g} can reach {self.target:g}, by a "
                f"plug-in estimate from the public vectors, which tends to allow too much."
            )
        limit = (
            f"below ε = {self.least_possible:.3g} no report of any kind can, by a plug-in estimate "
            f"from the public vectors, which tends to be too low."
        )
        if self.recommendation is None:
            return (
                f"No budget up to {self.max_epsilon:g} was found to reach {self.target:g}; {limit}"
            )
        low, high = self.recommendation.expected.interval()
        return (
            f"ε = {self.epsilon:g} is the smallest budget found to reach {self.target:g} "
            f"(expected {self.recommendation.expected.score:.3f}, between {low:.3f} and "
            f"{high:.3f}); {limit}"
        )


def smallest_epsilon(
    model: Any,
    public: Any,
    *,
    target: float,
    max_epsilon: Any = 10,
    goal: Goal = "answers",
    people: int = MEAN_OVER,
    weights: Mapping[str, float] | None = None,
    prior: Prior | None = None,
    effort: Effort = "quick",
    seed: int = 0,
    progress: Progress | None = None,
) -> SmallestBudget:
    """Find the smallest budget whose best release reaches a target utility.

    Contract: budgets are multiples of 0.05. A budget reaches the target if its best release does,
    on the vectors it was chosen on *and* on held-out ones, so that luck on either does not suffice.
    A bisection finds a budget that reaches the target while the one before it does not. Scores come
    from simulations and need not rise with every step, so a smaller budget may be missed. The
    result is an estimate with an interval, not a certainty; because the budget is chosen by it, it
    is optimistic by a part of its error.

    Parameters
    ----------
    target : float
        The utility, as in ``Recommendation.expected.score``; negative for means.
    max_epsilon : number
        The largest budget to try.
    model, public, goal, people, weights, prior, effort, seed, progress
        As in :func:`offaxis.recommend`.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> offaxis.smallest_epsilon(task, public, target=0.99, max_epsilon=0.5).summary
    'No report of a budget up to 0.5 can reach 0.99, by a plug-in estimate from the public ...'
    """
    goal_score, limit = as_number(target, "target"), exact_epsilon(max_epsilon)
    search = Search.of(model, public, goal, people, weights, prior, seed, effort=effort)
    with shown(progress) as show:
        return _smallest_budget(search, goal_score, limit, show)


def _smallest_budget(
    search: Search, target: float, limit: Fraction, progress: Progress
) -> SmallestBudget:
    possible = search.ceilings.least_epsilon(target, float(limit))
    # Estimates may exceed the ceiling by luck: budgets that it rules out are not tried.
    first, last = math.ceil(Fraction(possible or 0) / _STEP) or 1, int(limit / _STEP)

    @cache
    def reached(step: int) -> bool:
        # Decoders are trained only for the budget that is returned.
        compared = search.selection.compare(step * _STEP, None, progress)
        if compared.finalists[0].utility.score < target:
            return False
        return search.selection.estimate(compared.releases[0]).utility.score >= target

    if possible is None or first > last:
        return SmallestBudget(target, None, None, possible, float(limit))
    # The answer is often near the ceiling: steps of doubling length from there bracket it.
    low, high = first - 1, first
    while not reached(high):
        if high == last:
            return SmallestBudget(target, None, None, possible, float(limit))
        low, high = high, min(last, 2 * high - first + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    best = search.at(high * _STEP, progress)
    return SmallestBudget(target, best.epsilon, best, possible, float(limit))
