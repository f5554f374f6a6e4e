"""PrivUnit2 and PrivUnitG: the density ratio, the simulated law and the stated error.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Sphere
from offaxis.randomizers.caps import sphere_cap
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.simulation import draw_observations
from offaxis.simulation.randomizers import unit_directions
from tests.checks import ALPHA, law_p_value, mean_p_value

KINDS = [
    lambda dim, epsilon: PrivUnit2(dim, 2.0, epsilon),
    lambda dim, epsilon: PrivUnitG(dim, 2.0, epsilon),
    lambda dim, epsilon: PrivUnitG(dim, 2.0, epsilon, output="sphere"),
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("dim", [1, 2, 5, 64])
def test_the_density_ratio_never_exceeds_e_to_the_epsilon(make, dim):
    randomizer = make(dim, 3)
    rng = np.random.default_rng(dim)
    W, X = rng.standard_normal((2, 4000, dim))
    X[:1000] = -W[:1000]  # worst case: the opposite direction
    V = draw_observations(randomizer, W, rng)
    ratio = randomizer.log_density(V, W) - randomizer.log_density(V, X)
    assert np.abs(ratio).max() <= 3 * (1 + 1e-12)
    # The direction form of PrivUnitG is post-processed and stays further below the bound.
    assert ratio.max() > 1.5, "some report must approach the bound"


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(("dim", "epsilon"), [(1, 1), (2, 4), (8, 0.5), (8, 6), (64, 7.5)])
def test_simulation_is_unbiased_for_the_direction_with_the_stated_error(make, dim, epsilon):
    randomizer = make(dim, epsilon)
    rng = np.random.default_rng(17)
    w = rng.standard_normal(dim)
    target = randomizer.radius * w / np.linalg.norm(w)
    V = draw_observations(randomizer, np.tile(w, (60_000, 1)), rng)
    along = V @ target / randomizer.radius
    assert mean_p_value(V, target) > ALPHA
    assert mean_p_value(along, randomizer.radius) > ALPHA
    error = ((V - target) ** 2).sum(axis=1)
    if error.std() > 1e-9 * error.mean():
        assert mean_p_value(error, randomizer.expected_squared_error()) > ALPHA
        assert mean_p_value(0.9 * error, randomizer.expected_squared_error()) < ALPHA
    # Broken control: a scale that is not the reciprocal of the mean component.
    assert mean_p_value(along * 0.7, randomizer.radius) < ALPHA


@pytest.mark.parametrize(("dim", "epsilon"), [(2, 3), (3, 1), (16, 5), (64, 10)])
def test_privunit2_components_follow_the_law_of_the_ranks(dim, epsilon):
    randomizer = PrivUnit2(dim, 1.0, epsilon)
    rng = np.random.default_rng(3)
    w = rng.standard_normal(dim)
    V = draw_observations(randomizer, np.tile(w, (40_000, 1)), rng) * randomizer.mean
    component = V @ w / np.linalg.norm(w)
    # The public law of a component, weighted by the density of the ranks.
    grid = np.linspace(-1, 1, 20_001)
    public = stats.beta((dim - 1) / 2, (dim - 1) / 2, loc=-1, scale=2).cdf(grid)
    middle = (public[1:] + public[:-1]) / 2
    tail = 2 * np.minimum(middle, 1 - middle)
    mass = np.diff(public) * np.exp(randomizer.ranks.log_density(tail, middle > 0.5))
    cdf = np.concatenate([[0], np.cumsum(mass / mass.sum())])

    assert np.allclose(np.linalg.norm(V, axis=1), 1.0, rtol=1e-5)
    assert law_p_value(component, lambda t: np.interp(t, grid, cdf)) > ALPHA
    assert law_p_value(component * 0.97, lambda t: np.interp(t, grid, cdf)) < ALPHA


def test_many_directions_give_the_ideal_report():
    cap = sphere_cap(5.0, 16)
    pairs = math.ceil(5000 / (2 * cap.mass))
    many = PrivUnit2(16, 1.0, Fraction(5), directions=2 * pairs, near=5000)
    assert many.mean == pytest.approx(cap.mean, rel=1e-4)
    inside, outside = cap.threshold + 0.02, cap.threshold - 0.02
    for cosine, expected in ((inside, 5.0), (outside, 0.0), (-inside, 0.0)):
        V = np.zeros((1, 16))
        V[0, :2] = cosine, math.sqrt(1 - cosine**2)
        assert many.log_density(V, np.eye(1, 16))[0] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("make", KINDS)
def test_observations_do_not_depend_on_the_length_of_the_input(make):
    randomizer = make(4, 5)
    w = np.array([1.0, -2.0, 0.5, 0.0])
    V = [
        draw_observations(randomizer, np.tile(w * size, (100, 1)), np.random.default_rng(1))
        for size in (1.0, 1e-310, 1e290)
    ]
    assert np.allclose(V[0], V[1], rtol=1e-6)
    assert np.allclose(V[0], V[2], rtol=1e-6)


def test_dividing_tiny_vectors_by_a_floor_would_reveal_them():
    """Broken control: w / max(‖w‖, 1e-10) leaves a short vector, which the report reveals."""
    w = np.array([[1e-12, 0.0, 0.0]])
    broken = w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-10)
    assert np.linalg.norm(broken) < 0.5
    domain = PrivUnit2(3, 1.0, Fraction(1)).domain
    assert isinstance(domain, Sphere)
    direction = unit_directions(domain, w, np.random.default_rng(0))
    assert np.linalg.norm(direction) == pytest.approx(1.0)


@pytest.mark.parametrize("make", KINDS)
def test_privunit_is_pure_and_declares_its_bias(make):
    randomizer = make(4, 5)
    assert randomizer.guarantee.pure
    assert not randomizer.unbiased


@pytest.mark.parametrize("make", KINDS)
def test_a_budget_beyond_float64_is_rejected(make):
    with pytest.raises(InvalidInput, match="at most 100"):
        make(3, 101)


def test_an_unknown_output_is_rejected():
    with pytest.raises(InvalidInput, match="output"):
        PrivUnitG(3, 1.0, Fraction(1), output="cube")  # type: ignore[arg-type]
