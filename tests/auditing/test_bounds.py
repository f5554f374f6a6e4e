"""The bounds are exact: their coverage is computed from the binomial law, not sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from offaxis.auditing import trials as bounds


def counts(epsilon: float, trials: int) -> tuple[int, int, int, int]:
    """Return the expected counts of a tight Laplace release on its best event, p = 1/2."""
    return trials // 2, trials, round(trials * math.exp(-epsilon) / 2), trials


@given(
    trials=st.integers(1, 60),
    p=st.floats(0, 1),
    alpha=st.floats(1e-9, 0.4),
)
def test_clopper_pearson_covers_every_proportion(trials, p, alpha):
    hits = np.arange(trials + 1)
    weight = stats.binom.pmf(hits, trials, p)
    low = bounds.proportion_below(hits, trials, alpha)
    high = bounds.proportion_above(hits, trials, alpha)
    # Allow for rounding at the edge of an interval.
    assert weight[low > p * (1 + 1e-9) + 1e-12].sum() <= alpha * (1 + 1e-6)
    assert weight[high < p * (1 - 1e-9) - 1e-12].sum() <= alpha * (1 + 1e-6)


@given(hits=st.integers(0, 10**7), more=st.integers(0, 10**7), alpha=st.floats(1e-12, 0.4))
def test_clopper_pearson_is_tight(hits, more, alpha):
    trials = hits + more
    if hits:
        low = float(bounds.proportion_below(hits, trials, alpha))
        assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(alpha, rel=1e-4)
    if more:
        high = float(bounds.proportion_above(hits, trials, alpha))
        assert stats.binom.cdf(hits, trials, high) == pytest.approx(alpha, rel=1e-4)


def test_bounds_of_no_hits_and_of_all_hits():
    assert bounds.proportion_below(0, 10, 0.1) == 0
    assert bounds.proportion_above(10, 10, 0.1) == 1
    assert bounds.proportion_above(0, 10, 0.05) == pytest.approx(1 - 0.05 ** (1 / 10))


@given(
    trials=st.integers(1, 25),
    p=st.floats(0.001, 0.999),
    q=st.floats(0.001, 0.999),
    delta=st.sampled_from([0.0, 0.01, 0.2]),
    alpha=st.floats(1e-4, 0.4),
)
def test_the_bound_on_epsilon_keeps_its_error_rate(trials, p, q, delta, alpha):
    """Sum over the joint law of both counts."""
    hits = np.arange(trials + 1)
    here, there = np.meshgrid(hits, hits, indexing="ij")
    weight = stats.binom.pmf(here, trials, p) * stats.binom.pmf(there, trials, q)
    bound = bounds.epsilon_below(here, trials, there, trials, delta=delta, alpha=alpha)
    true = math.log((p - delta) / q) if p > delta else -math.inf
    assert weight[bound > true + 1e-9].sum() <= alpha * (1 + 1e-6)


@pytest.mark.parametrize(
    ("epsilon", "trials", "shown"),
    [(1, 10**5, 0.975), (1, 10**6, 0.992), (4, 10**6, 3.97), (8, 10**6, 7.80), (10, 10**7, 9.83)],
)
def test_known_bounds_of_a_tight_release(epsilon, trials, shown):
    bound = bounds.epsilon_below(*counts(epsilon, trials), delta=0.0, alpha=0.01)
    assert bound == pytest.approx(shown, abs=0.005)


def test_delta_is_subtracted_first():
    with_delta = bounds.epsilon_below(600, 1000, 10, 1000, delta=0.1, alpha=0.01)
    without = bounds.epsilon_below(600, 1000, 10, 1000, delta=0.0, alpha=0.01)
    low, high = bounds.proportion_below(600, 1000, 0.005), bounds.proportion_above(10, 1000, 0.005)
    assert with_delta == pytest.approx(math.log((low - 0.1) / high))
    assert with_delta < without
    assert bounds.epsilon_below(90, 1000, 0, 1000, delta=0.1, alpha=0.01) == -math.inf


@given(hits=st.integers(0, 200), other=st.integers(0, 200), alpha=st.floats(1e-6, 0.3))
def test_no_bound_exceeds_the_resolution(hits, other, alpha):
    most = bounds.resolution(200, delta=0.0, alpha=alpha)
    assert bounds.epsilon_below(hits, 200, other, 200, delta=0.0, alpha=alpha) <= most + 1e-12
    assert bounds.epsilon_below(200, 200, 0, 200, delta=0.0, alpha=alpha) == most


@pytest.mark.parametrize("epsilon", [0.1, 1, 5, 10, 20])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_reports_needed_are_the_smallest_number(epsilon, delta):
    needed = bounds.trials_needed(epsilon, delta=delta, alpha=1e-4)
    assert bounds.resolution(needed, delta=delta, alpha=1e-4) > epsilon
    assert bounds.resolution(needed - 1, delta=delta, alpha=1e-4) <= epsilon


def test_very_large_budgets_cannot_be_contradicted():
    assert bounds.trials_needed(100, delta=0.0, alpha=1e-4) is None


@given(
    trials=st.integers(1, 25),
    shift=st.floats(0, 3),
    threshold=st.floats(-2, 4),
    alpha=st.floats(1e-4, 0.4),
)
def test_the_bound_on_the_shift_keeps_its_error_rate(trials, shift, threshold, alpha):
    p, q = stats.norm.sf(threshold - shift), stats.norm.sf(threshold)
    hits = np.arange(trials + 1)
    here, there = np.meshgrid(hits, hits, indexing="ij")
    weight = stats.binom.pmf(here, trials, p) * stats.binom.pmf(there, trials, q)
    bound = bounds.shift_below(here, trials, there, trials, alpha=alpha)
    assert weight[bound > shift + 1e-9].sum() <= alpha * (1 + 1e-6)


@given(hits=st.integers(0, 50), other=st.integers(0, 60), alpha=st.floats(0, 1))
def test_equal_proportions_are_tested_exactly(hits, other, alpha):
    table = [[hits, 50 - hits], [other, 60 - other]]
    expected = stats.fisher_exact(table, alternative="greater").pvalue
    assert bounds.same_proportion(hits, 50, other, 60) == pytest.approx(expected, abs=1e-12)
