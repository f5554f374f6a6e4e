"""Limits against a publisher who chooses budgets by looking at earlier reports, enumerated exactly.

The worst reports of a pure budget b are those of randomized response: the loss moves by +b with
probability e^b/(1 + e^b) and by −b otherwise. A publisher sees the loss so far and the payments,
and picks the next budget from a menu, or stops. Dynamic programming over payments and losses gives
the largest E[(1 − e^{ε−L})₊], the true δ at ε, over *all* such publishers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import pytest

from offaxis.privacy.composition import Cost, Limit, composed_epsilon

Rule = Callable[[list[Cost]], bool]


def worst_delta(
    epsilon: float, menu: tuple[Fraction, ...], admits: Rule, most: int = 40
) -> tuple[float, int]:
    """Return the largest δ at ε of a publisher who adapts, and the most reports it uses."""
    unit = Fraction(math.gcd(*(int(b * 1000) for b in menu)), 1000)
    steps = [int(b / unit) for b in menu]
    longest = 0

    @cache
    def allowed(counts: tuple[int, ...]) -> bool:
        costs = [Cost(b, reports=n) for b, n in zip(menu, counts, strict=True) if n]
        return sum(counts) <= most and admits(costs)

    @cache
    def value(counts: tuple[int, ...], loss: int) -> float:
        nonlocal longest
        longest = max(longest, sum(counts))
        best = max(0.0, -math.expm1(epsilon - loss * float(unit)))
        for i, step in enumerate(steps):
            more = tuple(n + (j == i) for j, n in enumerate(counts))
            if allowed(more):
                up = 1 / (1 + math.exp(-float(menu[i])))
                best = max(
                    best, up * value(more, loss + step) + (1 - up) * value(more, loss - step)
                )
        return best

    return value((0,) * len(menu), 0), longest


LIMITS = [
    (Fraction(3), Fraction(1, 1000), (Fraction(1, 5), Fraction(1, 2), Fraction(1))),
    (Fraction(3), Fraction(1, 1000), (Fraction(1, 4), Fraction(1))),
    (Fraction(2), Fraction(1, 100), (Fraction(1, 4), Fraction(1, 2))),
    (Fraction(1), Fraction(1, 20), (Fraction(1, 10), Fraction(3, 10), Fraction(1, 2))),
    (Fraction(4), Fraction(1, 10), (Fraction(1, 2), Fraction(2))),
]


@pytest.mark.parametrize(("epsilon", "delta", "menu"), LIMITS)
def test_no_publisher_exceeds_a_limit_with_slack(epsilon, delta, menu):
    limit = Limit(epsilon, delta, slack=delta)
    worst, reports = worst_delta(float(epsilon), menu, limit.admits)
    assert worst <= float(delta)
    sums = int(epsilon / min(menu))
    assert reports > sums or not limit.admits([Cost(min(menu), reports=sums + 1)])


@pytest.mark.parametrize(("epsilon", "delta", "menu"), LIMITS)
def test_a_limit_by_sums_has_no_failure_at_all(epsilon, delta, menu):
    worst, _ = worst_delta(float(epsilon), menu, Limit(epsilon, delta).admits)
    assert worst <= 1e-12


@pytest.mark.parametrize(("epsilon", "delta", "menu"), LIMITS)
def test_loss_distributions_of_what_was_spent_are_exceeded(epsilon, delta, menu):
    """The rule of earlier versions, as a broken control: its true δ is above the limit."""

    def composed(costs: list[Cost]) -> bool:
        total = composed_epsilon(costs, delta)
        return total is not None and total <= epsilon

    worst, _ = worst_delta(float(epsilon), menu, composed)
    assert worst > 1.2 * float(delta)


def test_reports_with_a_delta_leave_the_slack_alone():
    limit = Limit(5, "1e-5", slack="1e-6")
    assert limit.admits([Cost(1, "9e-6")])
    assert not limit.admits([Cost(1, "1e-5")]), "δ of the reports may not use the slack"
    assert Limit(5, "1e-5").admits([Cost(1, "1e-5")])


def test_the_filter_is_the_closed_form_at_its_best_order():
    """ρ = 1/2 at slack 1e-6: the minimum over α, on a fine grid, is met from above."""
    limit = Limit(100, 1e-6, slack=1e-6)
    grid = (1 + math.exp(x / 1000) for x in range(-8000, 8000))
    best = min(
        a / 2 + ((a - 1) * math.log(a - 1) - a * math.log(a) + math.log(1e6)) / (a - 1)
        for a in grid
    )
    assert limit.admits([Cost("1/10", reports=100)])
    for epsilon, admitted in ((best * (1 - 1e-6), False), (best * (1 + 1e-6), True)):
        tight = Limit(epsilon, 1e-6, slack=1e-6)
        assert tight.admits([Cost("1/10", reports=100)]) is admitted
