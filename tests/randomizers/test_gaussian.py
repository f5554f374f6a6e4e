"""Gaussian: calibrated by the exact privacy profile, up to rounding, never by the classical rule.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from offaxis.errors import InvalidInput
from offaxis.randomizers.gaussian import (
    Gaussian,
    certified_delta,
    log_delta,
    noise_scale,
    realised_delta,
)
from offaxis.randomizers.laplace import largest_magnitude, unpack
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.gaussian import LAST_CELL, LOG2_CELLS, RoundedGaussian
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, law_p_value, mean_p_value

LARGEST = largest_magnitude(3)
DELTA = Fraction(1, 10**5)

GRID = [
    (epsilon, delta)
    for epsilon in ("0.001", "0.05", "1", "5", "8.4", "10", "50")
    for delta in ("0.3", "1e-5", "1e-12", "1e-60")
]


def exact_delta(sigma: float, epsilon: str) -> mpmath.mpf:
    """Hockey-stick divergence of the worst pair ±ρu, sensitivity 1, in high precision."""
    s, e = mpmath.mpf(sigma), mpmath.mpf(epsilon)
    a, b = 1 / (2 * s) - e * s, -1 / (2 * s) - e * s
    return mpmath.ncdf(a) - mpmath.exp(e) * mpmath.ncdf(b)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_the_smallest_noise_that_keeps_delta_is_found(epsilon, delta):
    with mpmath.workdps(150):
        sigma = noise_scale(1.0, float(epsilon), float(delta))
        assert exact_delta(sigma, epsilon) <= mpmath.mpf(delta)
        assert exact_delta(sigma * (1 - 2e-12), epsilon) > mpmath.mpf(delta)


def test_the_classical_rule_would_break_the_guarantee():
    """Broken control: √(2 ln(1.25/δ))/ε at ε = 10 exceeds δ = 1e-5."""
    classical = math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
    assert log_delta(1 / classical, 10.0) > math.log(1e-5)
    assert noise_scale(1.0, 10.0, 1e-5) > classical


def test_the_sensitivity_is_the_diameter():
    scale, best = Gaussian(3, 2.0, Fraction(1), DELTA).scale, noise_scale(4.0, 1.0, 1e-5)
    assert best <= scale < best * (1 + 1 / 10_000)  # the cost of rounding the bound down to a step


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_sampled_losses_exceed_epsilon_at_most_as_often_as_delta_allows(epsilon):
    """Monte Carlo of the hockey-stick divergence at the worst pair; broken control: 0.8 σ."""
    delta, count = Fraction(1, 100), 400_000
    randomizer = Gaussian(2, 1.0, epsilon, delta)
    w = np.array([[1.0, 0.0]])
    noise = np.random.default_rng(4).standard_normal((count, 2))

    def excess(scale):
        V = w + scale * noise
        loss = (((V + w) ** 2).sum(1) - ((V - w) ** 2).sum(1)) / (2 * scale**2)
        return np.maximum(0.0, 1 - np.exp(epsilon - loss))

    assert mean_p_value(excess(randomizer.scale), float(delta)) > ALPHA
    broken = excess(0.8 * randomizer.scale)
    assert broken.mean() > delta
    assert mean_p_value(broken, float(delta)) < ALPHA


def test_simulation_has_the_stated_law_and_error():
    randomizer = Gaussian(3, 1.0, Fraction(2), DELTA)
    w = np.array([0.3, -0.2, 0.1])
    V = draw_observations(randomizer, np.tile(w, (50_000, 1)), np.random.default_rng(6))
    error = ((V - w) ** 2).sum(axis=1)
    assert mean_p_value(V, w) > ALPHA
    assert mean_p_value(error, randomizer.expected_squared_error()) > ALPHA
    assert mean_p_value(0.9 * error, randomizer.expected_squared_error()) < ALPHA
    law = stats.norm(scale=randomizer.scale).cdf
    assert law_p_value((V - w).ravel(), law) > ALPHA
    assert law_p_value(0.95 * (V - w).ravel(), law) < ALPHA


def test_density_differences_are_those_of_a_gaussian():
    randomizer = Gaussian(2, 1.0, Fraction(1), DELTA)
    V, W = np.array([[0.5, 0.5]]), np.array([[3.0, 4.0]])
    expected = -((0.5 - 0.6) ** 2 + (0.5 - 0.8) ** 2) / (2 * randomizer.scale**2)
    assert randomizer.log_density(V, W)[0] == pytest.approx(expected)


def test_simulation_clips_before_the_noise():
    randomizer = Gaussian(2, 1.0, Fraction(50), DELTA)
    V = draw_observations(randomizer, np.tile([3e8, 4e8], (4000, 1)), np.random.default_rng(1))
    assert V.mean(axis=0) == pytest.approx([0.6, 0.8], abs=0.05)


def test_the_gaussian_is_not_pure():
    assert not Gaussian(2, 1.0, Fraction(1), DELTA).guarantee.pure


deltas = st.sampled_from([Fraction(1, 2), Fraction(1, 10**5), Fraction(1, 10**12)])
epsilons = st.fractions(min_value=Fraction(1, 10), max_value=60, max_denominator=100)


@given(epsilons, deltas)
def test_the_certified_delta_is_within_delta_and_one_more_step_is_not(epsilon, delta):
    randomizer = Gaussian(2, 1.0, epsilon, delta)
    assert randomizer.realised_delta <= delta
    assert realised_delta(randomizer.bound + 1, randomizer.log2_scale, epsilon, delta) > delta


@given(epsilons, st.fractions(min_value=Fraction(1, 100), max_value=8, max_denominator=1000))
def test_the_certificate_bounds_the_true_delta_tightly(epsilon, h):
    with mpmath.workdps(60):
        e, ratio = (mpmath.mpf(x.numerator) / x.denominator for x in (epsilon, h))
        if e / ratio - ratio / 2 > 40:
            return
        true = mpmath.ncdf(ratio / 2 - e / ratio) - mpmath.exp(e) * mpmath.ncdf(
            -ratio / 2 - e / ratio
        )
        bound = certified_delta(h, epsilon, 100)
        assert (
            true <= mpmath.mpf(bound.numerator) / bound.denominator <= true + mpmath.mpf(2) ** -96
        )


def test_a_bound_far_inside_the_guarantee_is_certified_quickly():
    """A hostile file may contain it; the series would need millions of terms there."""
    randomizer = Gaussian(3, 1.0, Fraction(1000), DELTA, bound=1)
    assert randomizer.realised_delta < Fraction(1, 10**20)
    assert certified_delta(Fraction(1, 10), Fraction(5), 100) <= Fraction(1, 2**98)


def test_a_radius_in_place_of_the_diameter_would_break_the_guarantee():
    """Broken control: Δ = ρ instead of 2ρ doubles the bound; δ is off by orders of magnitude."""
    good = Gaussian(3, 1.0, Fraction(2), DELTA)
    assert (
        realised_delta(2 * good.bound, good.log2_scale, good.epsilon, good.delta)
        > 1000 * good.delta
    )


def test_a_bound_beyond_the_guarantee_is_rejected():
    good = Gaussian(3, 1.0, Fraction(2), DELTA)
    for bound in (good.bound + 1, 2_000_000, 1 << 23, 0, -2):
        with pytest.raises(InvalidInput, match="bound"):
            Gaussian(3, 1.0, Fraction(2), DELTA, bound=bound)
    assert Gaussian(3, 1.0, Fraction(2), DELTA, bound=5).scale > good.scale


def test_a_report_is_the_lattice_point_plus_the_samplers_noise(monkeypatch):
    randomizer = Gaussian(3, 2.0, Fraction(4), DELTA)
    noise = np.array([5, -7, 0, 1, 2, 1 << 33])
    monkeypatch.setattr(RoundedGaussian, "draw", lambda self, count, bits: noise)
    W = np.array([[0.5, -0.25, 0.0], [1e300, 0.0, 0.0]])
    sent = unpack(randomizer.report(W, Entropy()), 3)
    exact = randomizer.integers(W) + noise.reshape(2, 3)
    assert np.array_equal(sent, np.clip(exact, -LARGEST, LARGEST))


@given(epsilons, deltas)
def test_bound_and_tails_fit_the_payload(epsilon, delta):
    randomizer = Gaussian(2, 1.0, epsilon, delta)
    largest = largest_magnitude(randomizer.width)
    assert randomizer.bound + 40 * 2**randomizer.log2_scale <= largest
    assert LAST_CELL << max(0, randomizer.log2_scale - LOG2_CELLS) > randomizer.bound + largest


def test_budgets_that_no_lattice_supports_are_rejected():
    with pytest.raises(InvalidInput, match="no Gaussian lattice"):
        Gaussian(2, 1.0, Fraction(1, 10**8), Fraction(1, 10**80))
    with pytest.raises(InvalidInput, match="at most 1000"):
        Gaussian(2, 1.0, Fraction(1001), DELTA)
    with pytest.raises(InvalidInput, match="log2_scale"):
        Gaussian(2, 1.0, Fraction(1), DELTA, log2_scale=21)


@pytest.mark.parametrize("delta", [0, 1, -1, None])
def test_a_bad_delta_is_rejected(delta):
    with pytest.raises(InvalidInput, match="delta"):
        Gaussian(2, 1.0, Fraction(1), delta)


def test_a_delta_next_to_one_is_solved_quickly():
    """There the float solution is far off, and bisection finds the bound."""
    almost = Fraction(10**17 - 1, 10**17)
    randomizer = Gaussian(2, 1.0, Fraction(10), almost)
    assert randomizer.realised_delta <= almost


def test_many_coordinates_with_a_small_budget_take_four_bytes():
    """Truncation must not shrink a vector: the share that remains stays near one."""
    narrow, wide = (
        Gaussian(768, 1.0, epsilon, Fraction(1, 10**6))
        for epsilon in (Fraction(5), Fraction(1, 50))
    )
    assert (narrow.width, wide.width) == (3, 4)
    for randomizer in (narrow, wide):
        w = np.random.default_rng(0).standard_normal((20, 768))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        kept = (randomizer.integers(w) * w).sum(axis=1) / randomizer.bound
        assert kept.min() > 0.97
