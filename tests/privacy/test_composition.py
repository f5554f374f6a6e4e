"""Totals over time: exact sums, loss distributions, and the shuffle bound."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offaxis.errors import InvalidInput
from offaxis.privacy.composition import (
    Cost,
    _above,
    _below,
    basic,
    by_loss_distribution,
    shuffled_epsilon,
    within,
)


def test_budgets_add_up_exactly():
    costs = [Cost(Fraction(1, 3), reports=3), Cost(Fraction(2), Fraction(1, 10**6), 2)]
    assert basic(costs) == (5, Fraction(2, 10**6))
    assert basic([]) == (0, 0)


def test_many_small_budgets_cost_less_than_their_sum():
    total = by_loss_distribution([Cost(Fraction(1, 10), reports=400)], 1e-6)
    assert 8 < total < 12
    # The optimal bound for k pure reports has a closed form (Kairouz, Oh, Viswanath 2015).
    assert total == pytest.approx(homogeneous(0.1, 400, 1e-6), abs=0.5)
    assert total >= homogeneous(0.1, 400, 1e-6) - 1e-6, "a discretised total must not be below"


def homogeneous(epsilon: float, count: int, delta: float) -> float:
    """The smallest ε at δ of k-fold randomized response, by its binomial law."""

    def delta_at(total: float) -> float:
        p = math.exp(epsilon) / (1 + math.exp(epsilon))
        excess = 0.0
        for k in range(count + 1):
            loss = (2 * k - count) * epsilon
            if loss > total:
                log_mass = (
                    math.lgamma(count + 1)
                    - math.lgamma(k + 1)
                    - math.lgamma(count - k + 1)
                    + k * math.log(p)
                    + (count - k) * math.log(1 - p)
                )
                excess += math.exp(log_mass) * -math.expm1(total - loss)
        return excess

    low, high = 0.0, count * epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(
            st.fractions(min_value=Fraction(1, 20), max_value=3, max_denominator=40),
            st.integers(1, 5),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_the_total_never_exceeds_the_sum_by_more_than_the_grid(parts):
    costs = [Cost(epsilon, reports=count) for epsilon, count in parts]
    reports = sum(count for _, count in parts)
    assert by_loss_distribution(costs, 1e-9) <= float(basic(costs)[0]) + 2e-3 * reports


def test_within_counts_either_way():
    costs = [Cost(Fraction(1, 10), reports=400)]
    assert within(costs, Fraction(40), Fraction(0))
    assert not within(costs, Fraction(39), Fraction(0)), "a pure total is a plain sum"
    assert within(costs, Fraction(12), Fraction(1, 10**6))
    assert not within(costs, Fraction(8), Fraction(1, 10**6))
    gaussian = [Cost(Fraction(1), Fraction(1, 10**6), 2)]
    assert within(gaussian, Fraction(2), Fraction(2, 10**6))
    assert not within(gaussian, Fraction(2), Fraction(1, 10**6)), "the deltas add up too"


def test_a_delta_below_what_can_be_told_apart_refuses():
    """Composed on a grid the loss has a tail that is cut off; below it the total is infinite."""
    costs = [Cost(Fraction(1, 10), reports=400)]
    assert not within(costs, Fraction(12), Fraction(1, 10**80))
    assert within(costs, Fraction(40), Fraction(1, 10**80)), "the exact sum still counts"


def test_a_pure_report_is_dominated_by_randomized_response():
    """One report at δ = 0+ costs its ε, neither less nor visibly more."""
    assert by_loss_distribution([Cost(Fraction(3, 2))], 1e-12) == pytest.approx(1.5, abs=2e-3)


@pytest.mark.parametrize("count", [10**5, 10**6, 10**8])
def test_shuffling_many_reports_lowers_the_central_epsilon(count):
    central = shuffled_epsilon(1, count, 1e-6)
    assert central is not None
    assert 0 < central < 1
    more = shuffled_epsilon(1, 10 * count, 1e-6)
    assert more is not None
    assert more < central


def test_the_shuffle_bound_is_known_only_for_small_budgets():
    assert shuffled_epsilon(12, 10**6, 1e-6) is None
    assert shuffled_epsilon(1, 10, 1e-6) is None
    with pytest.raises(InvalidInput, match="reports"):
        shuffled_epsilon(1, 0, 1e-6)


def test_a_negative_number_of_reports_is_refused():
    with pytest.raises(InvalidInput, match="whole number of at least 0"):
        Cost(Fraction(1), reports=-1)


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=100))
def test_where_a_fraction_becomes_a_float_it_is_rounded_against_the_promise(value):
    assert Fraction(_below(value)) <= value <= Fraction(_above(value))
    assert _above(value) <= float(value) * (1 + 2**-51)
    assert _below(value) >= float(value) * (1 - 2**-51)
