"""PrivUnit2 and PrivUnitG: ideal calibration to rounding, the density ratio, law and error."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from offaxis.errors import InvalidInput
from offaxis.randomizers.caps import gaussian_cap, half_gamma_ratio, normalised_mean, sphere_cap
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.simulation import draw_observations
from offaxis.simulation.randomizers import unit_directions
from tests.checks import ALPHA, law_p_value, mean_p_value

EPSILONS = ["0.001", "0.1", "1", "5", "10", "50"]
DIMS = [2, 3, 4, 16, 64, 768, 10_000]
KINDS = [
    lambda dim, epsilon: PrivUnit2(dim, 2.0, epsilon),
    lambda dim, epsilon: PrivUnitG(dim, 2.0, epsilon),
    lambda dim, epsilon: PrivUnitG(dim, 2.0, epsilon, output="sphere"),
]


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
def test_privunit2_is_calibrated_to_rounding(epsilon, dim):
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
def test_known_closed_forms(epsilon):
    assert sphere_cap(epsilon, 1).mean == pytest.approx(math.tanh(epsilon / 2), rel=1e-15)
    assert sphere_cap(epsilon, 3).mean == pytest.approx(math.tanh(epsilon / 4), rel=1e-14)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_privunitg_is_calibrated_to_rounding(epsilon):
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
def test_the_ratio_of_gamma_functions(x):
    exact = mpmath.gamma(mpmath.mpf(x) + mpmath.mpf(1) / 2) / mpmath.gamma(mpmath.mpf(x))
    assert abs(half_gamma_ratio(x) / exact - 1) < 5e-15


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
    assert ratio.max() > 1.5, "some report must come near the bound"


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
    # Twin: a scale that is not the reciprocal of the mean component.
    twin = along * 0.7
    assert mean_p_value(twin, randomizer.radius) < ALPHA


@pytest.mark.parametrize(("dim", "epsilon"), [(2, 3), (3, 1), (16, 5), (64, 10)])
def test_privunit2_components_follow_the_law_of_the_ranks(dim, epsilon):
    randomizer = PrivUnit2(dim, 1.0, epsilon)
    rng = np.random.default_rng(3)
    w = rng.standard_normal(dim)
    V = draw_observations(randomizer, np.tile(w, (40_000, 1)), rng) * randomizer.mean
    component = V @ w / np.linalg.norm(w)
    # The public law of a component, weighed by the density of the ranks.
    grid = np.linspace(-1, 1, 20_001)
    public = stats.beta((dim - 1) / 2, (dim - 1) / 2, loc=-1, scale=2).cdf(grid)
    middle = (public[1:] + public[:-1]) / 2
    tail = 2 * np.minimum(middle, 1 - middle)
    mass = np.diff(public) * np.exp(randomizer.ranks.log_density(tail, middle > 0.5))
    heap = np.concatenate([[0], np.cumsum(mass / mass.sum())])

    assert np.allclose(np.linalg.norm(V, axis=1), 1.0, rtol=1e-5)
    assert law_p_value(component, lambda t: np.interp(t, grid, heap)) > ALPHA
    assert law_p_value(component * 0.97, lambda t: np.interp(t, grid, heap)) < ALPHA


def test_many_directions_give_the_ideal_report():
    cap = sphere_cap(5.0, 16)
    pairs = math.ceil(5000 / (2 * cap.mass))
    many = PrivUnit2(16, 1.0, 5, directions=2 * pairs, near=5000)
    assert many.mean == pytest.approx(cap.mean, rel=1e-4)
    inside, outside = cap.threshold + 0.02, cap.threshold - 0.02
    for cosine, expected in ((inside, 5.0), (outside, 0.0), (-inside, 0.0)):
        V = np.zeros((1, 16))
        V[0, :2] = cosine, math.sqrt(1 - cosine**2)
        assert many.log_density(V, np.eye(1, 16))[0] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("make", KINDS)
def test_the_length_of_the_input_leaves_no_trace(make):
    randomizer = make(4, 5)
    w = np.array([1.0, -2.0, 0.5, 0.0])
    V = [
        draw_observations(randomizer, np.tile(w * size, (100, 1)), np.random.default_rng(1))
        for size in (1.0, 1e-310, 1e290)
    ]
    assert np.allclose(V[0], V[1], rtol=1e-6)
    assert np.allclose(V[0], V[2], rtol=1e-6)


def test_dividing_tiny_vectors_by_a_floor_would_give_them_away():
    """The twin: w / max(‖w‖, 1e-10) leaves a short vector, and the report shows it."""
    w = np.array([[1e-12, 0.0, 0.0]])
    twin = w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-10)
    assert np.linalg.norm(twin) < 0.5
    direction = unit_directions(PrivUnit2(3, 1.0, 1).domain, w, np.random.default_rng(0))
    assert np.linalg.norm(direction) == pytest.approx(1.0)


@pytest.mark.parametrize("make", KINDS)
def test_it_is_pure_and_declares_its_bias(make):
    randomizer = make(4, 5)
    assert randomizer.guarantee.pure
    assert not randomizer.unbiased


@pytest.mark.parametrize("make", KINDS)
def test_a_budget_beyond_float64_is_refused(make):
    with pytest.raises(InvalidInput, match="at most 100"):
        make(3, 101)


def test_an_unknown_output_is_refused():
    with pytest.raises(InvalidInput, match="output"):
        PrivUnitG(3, 1.0, 1, output="cube")
