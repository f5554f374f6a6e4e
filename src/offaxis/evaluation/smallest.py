"""The inverse question: how small a budget reaches a wanted utility?

Contract: budgets are those of a grid, 0.05 apart. A budget is taken to reach what is wanted if its
best release does so on the vectors it was chosen on *and* on others, so that luck on either will
not do; a bisection finds one that does while the one before it does not. Scores come from
simulations and need not rise with every step: a smaller budget may be passed over, and what is told
is an estimate with its interval, not a certainty. Having a say in the budget, it is optimistic by a
part of its error. Below ``least_possible`` no report of any kind reaches what is wanted, as far as
the ceiling goes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from offaxis.evaluation.priors import Prior
from offaxis.evaluation.recommend import Question
from offaxis.evaluation.recommendation import Recommendation
from offaxis.evaluation.trials import Progress
from offaxis.evaluation.utility import Goal
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.vectors import as_number

_STEP: Final = Fraction(1, 20)


@dataclass(frozen=True, eq=False)
class SmallestBudget:
    """How small a budget can be.

    Attributes
    ----------
    wanted : float
        The utility that was asked for.
    epsilon : float or None
        The smallest budget found whose expected utility reaches it; None if none does.
    recommendation : Recommendation or None
        At that budget.
    least_possible : float or None
        Below it nobody reaches what is wanted; None if nobody does up to ``most``.
    most : float
        The largest budget that was tried.
    """

    wanted: float
    epsilon: float | None
    recommendation: Recommendation | None
    least_possible: float | None
    most: float

    @property
    def sentence(self) -> str:
        """The outcome in plain words."""
        if self.least_possible is None:
            return f"No report of a budget up to {self.most:g} can reach {self.wanted:g}."
        limit = f"below ε = {self.least_possible:.3g} no report of any kind can."
        if self.recommendation is None:
            return f"No budget up to {self.most:g} was found to reach {self.wanted:g}; {limit}"
        low, high = self.recommendation.expected.interval()
        return (
            f"ε = {self.epsilon:g} is the smallest budget found to reach {self.wanted:g} "
            f"(expected {self.recommendation.expected.score:.3f}, between {low:.3f} and "
            f"{high:.3f}); {limit}"
        )


def smallest_epsilon(
    model: Any,
    public: Any,
    *,
    wanted: float,
    goal: Goal = "answers",
    people: int = 1,
    weights: Mapping[str, float] | None = None,
    prior: Prior | None = None,
    most: Any = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> SmallestBudget:
    """Find the smallest budget whose best release has the wanted expected utility.

    Parameters
    ----------
    wanted : float
        The utility, as ``Recommendation.expected.score`` has it; for means it is negative.
    most : number
        The largest budget to try.
    model, public, goal, people, weights, prior, seed, progress
        As in :func:`offaxis.recommend`.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> found = offaxis.smallest_epsilon(task, public, wanted=0.99, most=0.5)
    >>> found.sentence
    'No report of a budget up to 0.5 can reach 0.99.'
    """
    target, limit = as_number(wanted, "wanted"), exact_epsilon(most)
    question = Question.of(model, public, goal, people, weights, prior, seed)
    possible = question.ceilings.least_epsilon(target, float(limit))
    # Estimates may pass the ceiling by luck: what it rules out is not even tried.
    first, last = math.ceil(Fraction(possible or 0) / _STEP) or 1, int(limit / _STEP)
    known: dict[int, bool] = {}

    def reached(step: int) -> bool:
        if step not in known:
            # Decoders are trained only for what is told at the end.
            compared = question.trials.compare(step * _STEP, None, progress)
            known[step] = compared.tried[0].utility.score >= target and (
                question.trials.estimate(compared.releases[0]).utility.score >= target
            )
        return known[step]

    if possible is None or first > last:
        return SmallestBudget(target, None, None, possible, float(limit))
    # The ceiling is often near: steps from it, each twice as long, find where to bisect.
    low, high = first - 1, first
    while not reached(high):
        if high == last:
            return SmallestBudget(target, None, None, possible, float(limit))
        low, high = high, min(last, 2 * high - first + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    found = question.answer(high * _STEP, progress)
    return SmallestBudget(target, found.epsilon, found, possible, float(limit))
