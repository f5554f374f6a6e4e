"""Limits against a publisher who chooses budgets by looking at earlier reports, enumerated exactly.

``benchmarks/promises.py`` computes the largest E[(1 − e^{ε−L})₊], the true δ at ε, over *all* such
publishers, and prints it for the same limits.
"""

from __future__ import annotations

import math

import pytest

from benchmarks.promises import PLANS, by_distribution, worst_delta
from offaxis.privacy.composition import Cost, Limit


@pytest.mark.parametrize(("epsilon", "delta", "menu"), PLANS)
def test_no_publisher_exceeds_a_limit_with_slack(epsilon, delta, menu):
    limit = Limit(epsilon, delta, slack=delta)
    worst, reports = worst_delta(float(epsilon), menu, limit.admits)
    assert worst <= float(delta)
    sums = int(epsilon / min(menu))
    assert reports > sums or not limit.admits([Cost(min(menu), reports=sums + 1)])


@pytest.mark.parametrize(("epsilon", "delta", "menu"), PLANS)
def test_a_limit_by_sums_has_no_failure_at_all(epsilon, delta, menu):
    worst, _ = worst_delta(float(epsilon), menu, Limit(epsilon, delta).admits)
    assert worst <= 1e-12


@pytest.mark.parametrize(("epsilon", "delta", "menu"), PLANS)
def test_loss_distributions_of_what_was_spent_are_exceeded(epsilon, delta, menu):
    """The rule of earlier versions, as a broken control: its true δ is above the limit."""
    worst, _ = worst_delta(float(epsilon), menu, by_distribution(epsilon, delta))
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
