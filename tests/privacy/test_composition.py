"""Composition: exact sums and loss distributions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offaxis.errors import InvalidInput, MissingExtra
from offaxis.privacy.composition import (
    MOST_COMPOSED,
    Cost,
    Limit,
    basic,
    by_loss_distribution,
    composed_epsilon,
    filtered_epsilon,
    float_above,
    float_below,
)

PER_MILLION = Fraction(1, 10**6)


def test_budgets_add_up_exactly():
    costs = [Cost(Fraction(1, 3), reports=3), Cost(Fraction(2), Fraction(1, 10**6), 2)]
    assert basic(costs) == (Fraction(5), Fraction(2, 10**6))
    assert basic([]) == (Fraction(0), Fraction(0))


def test_many_small_budgets_cost_less_than_their_sum():
    total = by_loss_distribution([Cost(Fraction(1, 10), reports=400)], 1e-6)
    assert 8 < total < 12
    # The optimal bound for k pure reports has a closed form (Kairouz, Oh, Viswanath 2015).
    assert total == pytest.approx(homogeneous(0.1, 400, 1e-6), abs=0.5)
    assert total >= homogeneous(0.1, 400, 1e-6) - 1e-6, "a discretised total must not be below"


def homogeneous(epsilon: float, count: int, delta: float) -> float:
    """Return the smallest ε at δ of k-fold randomized response, by its binomial distribution."""

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


def test_a_limit_admits_by_sums_or_by_the_filter():
    costs = [Cost(Fraction(1, 10), reports=400)]
    assert Limit(40).admits(costs)
    assert not Limit(39).admits(costs), "a pure total is a plain sum"
    assert not Limit(39, PER_MILLION).admits(costs), "so is one without slack"
    assert Limit(13, PER_MILLION, slack=PER_MILLION).admits(costs)
    assert not Limit(8, PER_MILLION, slack=PER_MILLION).admits(costs)
    gaussian = [Cost(Fraction(1), PER_MILLION, 2)]
    assert Limit(2, 2 * PER_MILLION).admits(gaussian)
    assert not Limit(2, PER_MILLION).admits(gaussian), "the deltas add up too"
    assert not Limit(2, 2 * PER_MILLION, slack=PER_MILLION).admits(gaussian)


@given(
    parts=st.lists(st.tuples(st.fractions(Fraction(1, 50), 2), st.integers(1, 200)), max_size=4),
    slack=st.sampled_from([Fraction(1, 10**9), PER_MILLION, Fraction(1, 100)]),
)
def test_the_filter_is_never_below_the_optimal_bound_for_fixed_budgets(parts, slack):
    """Loss distributions are pessimistic by their grid, 1e-3 per report, and need a fixed plan."""
    costs = [Cost(epsilon, reports=count) for epsilon, count in parts]
    filtered = filtered_epsilon(costs, slack)
    assert filtered is not None
    optimal = composed_epsilon(costs, slack)
    if optimal is not None:
        reports = sum(count for _, count in parts)
        assert filtered >= min(optimal, basic(costs)[0]) - Fraction(2 * reports, 1000)
    more = filtered_epsilon([*costs, Cost(Fraction(1, 50))], slack)
    assert more is not None
    assert more >= filtered


def test_a_pure_report_is_dominated_by_randomized_response():
    """One report at δ = 0+ costs its ε, neither less nor visibly more."""
    assert by_loss_distribution([Cost(Fraction(3, 2))], 1e-12) == pytest.approx(1.5, abs=2e-3)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2), Fraction(4)])
@pytest.mark.parametrize("delta", [Fraction(1, 100), Fraction(1, 10)])
def test_one_report_has_the_epsilon_of_randomized_response(epsilon, delta):
    """δ(ε') = p (1 − e^(ε' − ε)) with p = e^ε / (1 + e^ε), solved for ε'."""
    closed_form = epsilon + math.log(1 - delta * (1 + math.exp(-epsilon)))
    composed = composed_epsilon([Cost(epsilon)], delta)
    assert composed is not None
    assert float(composed) == pytest.approx(closed_form, abs=2e-3)


@pytest.mark.parametrize("delta", [Fraction(1, 100), Fraction(1, 10)])
def test_two_reports_have_the_epsilon_of_their_largest_loss(delta):
    """Only the loss 2ε exceeds ε' in (0, 2ε): δ(ε') = p² (1 − e^(ε' − 2ε))."""
    p = math.e / (1 + math.e)
    closed_form = 2 + math.log(1 - delta / p**2)
    for costs in ([Cost(1, reports=2)], [Cost(1), Cost(1)]):
        composed = composed_epsilon(costs, delta)
        assert composed is not None
        assert float(composed) == pytest.approx(closed_form, abs=4e-3)


def test_the_delta_of_a_report_counts_towards_the_total_delta():
    """δ(ε') = δ0 + (1 − δ0) p (1 − e^(ε' − ε)) for a report that is (ε, δ0)."""
    p = math.exp(2) / (1 + math.exp(2))
    closed_form = 2 + math.log(1 - (0.1 - 0.01) / 0.99 / p)
    composed = composed_epsilon([Cost(2, Fraction(1, 100))], Fraction(1, 10))
    assert composed is not None
    assert float(composed) == pytest.approx(closed_form, abs=2e-3)


def test_no_reports_compose_to_zero():
    assert composed_epsilon([], PER_MILLION) == 0
    assert composed_epsilon([Cost(1, reports=0)], PER_MILLION) == 0


def test_a_delta_that_covers_every_loss_composes_to_zero_and_not_below():
    assert composed_epsilon([Cost(Fraction(1, 10))], Fraction(1, 2)) == 0


def test_costs_may_be_given_as_an_iterator():
    costs = [Cost(Fraction(1, 10), reports=50), Cost(1)]
    assert composed_epsilon(iter(costs), PER_MILLION) == composed_epsilon(costs, PER_MILLION)
    assert Limit(6).admits(iter(costs))


@pytest.mark.parametrize(
    ("cost", "delta"),
    [
        pytest.param(Cost(1, PER_MILLION, 2), PER_MILLION, id="the deltas exceed the total"),
        pytest.param(Cost(1, reports=MOST_COMPOSED + 1), PER_MILLION, id="too many reports"),
        pytest.param(Cost(Fraction(1, 10), reports=400), Fraction(1, 10**80), id="delta too small"),
    ],
)
def test_where_losses_cannot_be_composed_the_total_is_unknown(cost, delta):
    assert composed_epsilon([cost], delta) is None


def test_composing_needs_dp_accounting_and_exact_sums_do_not(without_dp_accounting):
    costs = [Cost(Fraction(1, 10), reports=400)]
    for compose in (composed_epsilon, by_loss_distribution):
        with pytest.raises(MissingExtra, match=r"need dp-accounting: .*accounting"):
            compose(costs, PER_MILLION)
    assert Limit(13, PER_MILLION, slack=PER_MILLION).admits(costs), "limits need no extra"
    # Answers that need no composition are available without the package.
    assert composed_epsilon([Cost(1, PER_MILLION, 2)], PER_MILLION) is None


def test_a_negative_number_of_reports_is_an_error():
    with pytest.raises(InvalidInput, match="whole number of at least 0"):
        Cost(Fraction(1), reports=-1)


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=100))
def test_fractions_become_floats_rounded_against_the_guarantee(value):
    assert Fraction(float_below(value)) <= value <= Fraction(float_above(value))
    assert float_above(value) <= float(value) * (1 + 2**-51)
    assert float_below(value) >= float(value) * (1 - 2**-51)
