"""The law of the rank form: its expectations, its loss, and how many directions it takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from offaxis.randomizers import make
from offaxis.randomizers.caps import LOSS, Ranks, most_pairs
from offaxis.randomizers.directions import nearest
from offaxis.simulation.randomizers import draw_ranks
from tests.checks import ALPHA, mean_p_value

GRID = [(5, 5, 1.0), (40, 12, 1.0), (286, 19, 5.0), (20, 1, 8.0)]


def normal_mean(ranks: Ranks) -> float:
    return ranks.expectation(
        lambda tail: np.exp(-(ndtri(tail / 2) ** 2) / 2) / math.sqrt(2 * math.pi)
    )


@pytest.mark.parametrize(("pairs", "near", "epsilon"), GRID)
def test_the_mean_component_is_that_of_ranking_real_normals(pairs, near, epsilon):
    """By brute force: draw the pairs, rank them, weigh them."""
    rng = np.random.default_rng(pairs)
    score = rng.standard_normal((20_000, pairs))
    chosen = nearest(score, near)
    component = np.take_along_axis(np.abs(score), chosen // 2, axis=1).sum(axis=1)
    weight = math.expm1(epsilon) / (near * math.exp(epsilon) + 2 * pairs - near)
    ranks = Ranks(pairs, near, epsilon)
    assert mean_p_value(weight * component, normal_mean(ranks)) > ALPHA
    assert mean_p_value(weight * component, 1.02 * normal_mean(ranks)) < ALPHA


@pytest.mark.parametrize(("pairs", "near", "epsilon"), GRID)
def test_simulated_ranks_have_that_mean_and_that_density(pairs, near, epsilon):
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
def test_the_loss_stays_within_what_is_stated(name, dim, epsilon):
    randomizer = make(name, dim=dim, radius=1.0, epsilon=epsilon)
    assert randomizer.mean >= (1 - LOSS) * randomizer.ideal_mean
    if name == "privunit2":  # nothing pure is better than the optimal cap
        assert randomizer.mean <= randomizer.ideal_mean * (1 + 1e-12)


def test_half_the_directions_would_lose_more():
    """The number is not wastefully large either."""
    good = make("privunit2", dim=64, radius=1.0, epsilon=7.5)
    half = Ranks(good.directions // 4, max(1, good.near // 2), 7.5)
    assert good._mean(half) < (1 - LOSS) * good.ideal_mean


def test_a_budget_too_large_for_the_directions_takes_what_fits_and_says_so():
    randomizer = make("privunit2", dim=64, radius=1.0, epsilon=25)
    assert randomizer.directions == 2 * most_pairs(64)
    assert randomizer.near == 1
    assert 0.5 < randomizer.mean / randomizer.ideal_mean < 1 - LOSS
