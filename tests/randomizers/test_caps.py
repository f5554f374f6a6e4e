"""Calibration of PrivUnit: the ideal cap up to rounding, and the law and the loss of the ranks.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

from offaxis.randomizers import make
from offaxis.randomizers.caps import (
    LOSS,
    Ranks,
    gaussian_cap,
    half_gamma_ratio,
    most_pairs,
    normalised_mean,
    sphere_cap,
)
from offaxis.randomizers.directions import nearest
from offaxis.randomizers.privunit import RankForm
from offaxis.simulation.randomizers import draw_ranks
from tests.checks import ALPHA, mean_p_value

# ---- The ideal cap

EPSILONS = ["0.001", "0.1", "1", "5", "10", "50"]
DIMS = [2, 3, 4, 16, 64, 768, 10_000]


def sphere_mean(epsilon: str, dim: int, slope: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
    """A(γ) and γ in high precision, γ = slope/√(1 + slope²)."""
    gain, a = mpmath.expm1(mpmath.mpf(epsilon)), mpmath.mpf(dim - 1) / 2
    sine2 = 1 / (1 + slope**2)
    mass = mpmath.betainc(a, mpmath.mpf(1) / 2, 0, sine2, regularized=True) / 2
    density = mpmath.gamma(mpmath.mpf(dim) / 2) / (mpmath.sqrt(mpmath.pi) * mpmath.gamma(a))
    moment = density * sine2**a / (dim - 1)
    return gain * moment / (gain * mass + 1), slope * mpmath.sqrt(sine2)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("dim", DIMS)
def test_the_cap_of_privunit2_is_calibrated_up_to_rounding(epsilon, dim):
    cap = sphere_cap(float(epsilon), dim)
    with mpmath.workdps(120):
        threshold = mpmath.mpf(cap.threshold)
        if cap.threshold < 1:
            start = threshold / mpmath.sqrt(1 - threshold**2)
            gap = lambda s: mpmath.fsub(*sphere_mean(epsilon, dim, s))  # noqa: E731
            slope = mpmath.findroot(
                gap, (start * (1 - mpmath.mpf(10) ** -9), start), solver="anderson", verify=False
            )
            best = sphere_mean(epsilon, dim, slope)[0]
            assert abs(cap.mean / best - 1) < 2e-14


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 5.0, 20.0, 50.0])
def test_caps_in_one_and_three_dimensions_have_closed_forms(epsilon):
    assert sphere_cap(epsilon, 1).mean == pytest.approx(math.tanh(epsilon / 2), rel=1e-15)
    assert sphere_cap(epsilon, 3).mean == pytest.approx(math.tanh(epsilon / 4), rel=1e-14)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_cap_of_privunitg_is_calibrated_up_to_rounding(epsilon):
    cap = gaussian_cap(float(epsilon))
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)

        def gap(g):
            normaliser = mpmath.exp(e) * mpmath.ncdf(-g) + mpmath.ncdf(g)
            return g * normaliser - mpmath.expm1(e) * mpmath.npdf(g)

        best = mpmath.findroot(gap, cap.threshold)
        assert abs(cap.mean / best - 1) < 1e-15
        for dim in [1, *DIMS]:
            exact = direction_mean(e, best, dim)
            assert abs(normalised_mean(float(epsilon), dim) / exact - 1) < 1e-13


def direction_mean(e, g, dim):
    """E⟨v/‖v‖, u⟩ in closed form: a confluent hypergeometric function."""
    if dim == 1:
        mass = mpmath.ncdf(-g)
        return mpmath.expm1(e) * mass / (mpmath.expm1(e) * mass + 1)
    m, a = mpmath.mpf(dim), g * g / 2
    half = mpmath.mpf(1) / 2
    expectation = (mpmath.gamma(m / 2 + half) / mpmath.gamma(m / 2) * a ** (m / 2)) * mpmath.hyperu(
        m / 2 + half, m / 2 + 1, a
    )
    density = mpmath.gamma(m / 2) / (mpmath.sqrt(mpmath.pi) * mpmath.gamma((m - 1) / 2))
    return g * mpmath.sqrt(2 * mpmath.pi) * density / (m - 1) * expectation


@pytest.mark.parametrize("x", [0.5, 1.0, 7.5, 59.9, 60.0, 5000.0])
def test_the_ratio_of_gamma_functions_is_accurate(x):
    exact = mpmath.gamma(mpmath.mpf(x) + mpmath.mpf(1) / 2) / mpmath.gamma(mpmath.mpf(x))
    assert abs(half_gamma_ratio(x) / exact - 1) < 5e-15


# ---- Ranks

GRID = [(5, 5, 1.0), (40, 12, 1.0), (286, 19, 5.0), (20, 1, 8.0)]


def normal_mean(ranks: Ranks) -> float:
    return ranks.expectation(
        lambda tail: np.exp(-(ndtri(tail / 2) ** 2) / 2) / math.sqrt(2 * math.pi)
    )


@pytest.mark.parametrize(("pairs", "near", "epsilon"), GRID)
def test_the_mean_component_is_that_of_ranking_real_normals(pairs, near, epsilon):
    """By brute force: draw the pairs, rank them, weight them."""
    rng = np.random.default_rng(pairs)
    score = rng.standard_normal((20_000, pairs))
    chosen = nearest(score, near)
    component = np.take_along_axis(np.abs(score), chosen // 2, axis=1).sum(axis=1)
    weight = math.expm1(epsilon) / (near * math.exp(epsilon) + 2 * pairs - near)
    ranks = Ranks(pairs, near, epsilon)
    assert mean_p_value(weight * component, normal_mean(ranks)) > ALPHA
    assert mean_p_value(weight * component, 1.02 * normal_mean(ranks)) < ALPHA


@pytest.mark.parametrize(("pairs", "near", "epsilon"), GRID)
def test_simulated_ranks_have_the_mean_and_the_density(pairs, near, epsilon):
    ranks = Ranks(pairs, near, epsilon)
    tail, towards = draw_ranks(ranks, 200_000, np.random.default_rng(5))
    t = -ndtri(tail / 2) * np.where(towards, 1, -1)
    assert mean_p_value(t, normal_mean(ranks)) > ALPHA
    assert mean_p_value(t, normal_mean(ranks) * 1.05 + 0.02) < ALPHA
    # Against the public law the density is exp(log_density)/Z, so its inverse has mean Z.
    normaliser = (near * math.exp(epsilon) + 2 * pairs - near) / (2 * pairs)
    inverse = normaliser * np.exp(-ranks.log_density(tail, towards))
    assert mean_p_value(inverse, 1.0) > ALPHA
    assert mean_p_value(inverse**1.2, 1.0) < ALPHA or np.ptp(inverse) == 0


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1, 3, 5, 7.5, 10])
@pytest.mark.parametrize("dim", [1, 2, 3, 16, 64, 768])
@pytest.mark.parametrize("name", ["privunit2", "privunitg", "privunitg-sphere"])
def test_the_loss_is_within_the_stated_limit(name, dim, epsilon):
    randomizer = make(name, dim=dim, radius=1.0, epsilon=epsilon)
    assert isinstance(randomizer, RankForm)
    assert randomizer.mean >= (1 - LOSS) * randomizer.ideal_mean
    if name == "privunit2":  # no pure mechanism exceeds the optimal cap
        assert randomizer.mean <= randomizer.ideal_mean * (1 + 1e-12)


def test_half_the_directions_would_lose_more():
    """The number of directions is not larger than necessary."""
    good = make("privunit2", dim=64, radius=1.0, epsilon=7.5)
    assert isinstance(good, RankForm)
    half = Ranks(good.directions // 4, max(1, good.near // 2), 7.5)
    assert good._mean(half) < (1 - LOSS) * good.ideal_mean


def test_a_budget_too_large_for_the_directions_uses_the_most_and_declares_the_loss():
    randomizer = make("privunit2", dim=64, radius=1.0, epsilon=25)
    assert isinstance(randomizer, RankForm)
    assert randomizer.directions == 2 * most_pairs(64)
    assert randomizer.near == 1
    assert 0.5 < randomizer.mean / randomizer.ideal_mean < 1 - LOSS
