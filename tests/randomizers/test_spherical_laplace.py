"""Spherical Laplace: the exact guarantee, the payload, and the law of reports and simulation.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers.laplace import Laplace, SphericalLaplace, largest_magnitude, unpack
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.spherical import LARGEST_LOG2_SCALE, RoundedSpherical
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, law_p_value, mean_p_value
from tests.limits import bounded

epsilons = st.fractions(min_value=Fraction(1, 1000), max_value=10_000, max_denominator=10**4)
dims = st.one_of(st.integers(1, 12), st.integers(1, 1 << 20))


@given(epsilons, dims)
def test_two_points_of_the_ball_are_within_epsilon_as_rationals(epsilon, dim):
    randomizer = SphericalLaplace(dim, 1.0, epsilon)
    t = 1 << randomizer.log2_scale
    assert Fraction(2 * randomizer.bound, t) == randomizer.realised_epsilon <= epsilon
    # The budget is spent up to less than one step: the noise is not larger than necessary.
    assert Fraction(2 * (randomizer.bound + 1), t) > epsilon
    # Broken control: R = ε t in place of ε t / 2 would break the guarantee.
    assert Fraction(2 * math.floor(epsilon * t), t) > epsilon
    assert randomizer.guarantee == Guarantee(epsilon)
    assert randomizer.guarantee.pure


@given(epsilons, dims)
def test_bound_and_tails_fit_the_payload_and_the_check(epsilon, dim):
    randomizer = SphericalLaplace(dim, 1.0, epsilon)
    t = 1 << randomizer.log2_scale
    assert randomizer.bound + randomizer.tail * t <= largest_magnitude(randomizer.width)
    assert randomizer.bound**2 * dim < 1 << 63
    assert randomizer.log2_scale <= LARGEST_LOG2_SCALE
    assert randomizer.payload_size == dim * randomizer.width


@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(-300, 300))
def test_hostile_vectors_never_leave_the_ball(dim, seed, magnitude):
    randomizer = SphericalLaplace(dim, 2.5, Fraction(3))
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((4, dim)) * 10.0**magnitude
    W[0] = np.sign(W[0]) * 1.7e308
    W[1, 0] = 5e-324
    for row in randomizer.integers(W).tolist():
        assert sum(n * n for n in row) <= randomizer.bound**2


def cell_masses(t: float, reach: int) -> np.ndarray:
    """Mass of exp(−‖x‖/t) on the unit squares around (−reach … reach)², by Gauss–Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    x = np.concatenate([nodes / 4 - 0.25, nodes / 4 + 0.25])
    k = np.arange(-reach, reach + 1)
    a, w = (k[:, None] + x).ravel(), np.tile(weights, 2 * k.size)
    mass = np.exp(-np.hypot(a[:, None], a) / t) * np.outer(w, w)
    return mass.reshape(k.size, x.size, k.size, x.size).sum(axis=(1, 3))


def worst_log_ratio(points: list[tuple[int, ...]], t: float, reach: int) -> float:
    """The largest log ratio of any two of the points at any output of a window, cell by cell."""
    shift = max(abs(c) for point in points for c in point)
    masses = np.log(cell_masses(t, reach + shift))
    size = 2 * reach + 1
    windows = np.stack(
        [masses[shift - i : shift - i + size, shift - j : shift - j + size] for i, j in points]
    )
    return float((windows.max(axis=0) - windows.min(axis=0)).max())


def test_rounded_noise_keeps_the_ratio_for_every_pair_of_a_small_lattice():
    """All pairs of points of the disc of R = 3, t = 4: at most 2R/t, and nearly reached."""
    disc = [p for p in product(range(-3, 4), repeat=2) if p[0] ** 2 + p[1] ** 2 <= 9]
    worst = worst_log_ratio(disc, 4.0, 12)
    assert 1.4 < worst <= 1.5 + 1e-9
    # Broken control: a square of the same bound is not a ball.
    square = list(product(range(-3, 4), repeat=2))
    assert worst_log_ratio(square, 4.0, 12) > 1.6


def test_the_density_ratio_of_the_simulation_is_within_epsilon():
    randomizer = SphericalLaplace(4, 2.0, Fraction(3, 2))
    rng = np.random.default_rng(5)
    W, X = rng.standard_normal((2, 3000, 4)) * 3
    V = draw_observations(randomizer, W, rng)
    gap = randomizer.log_density(V, W) - randomizer.log_density(V, X)
    assert np.abs(gap).max() <= 1.5 * (1 + 1e-12)
    pole, other = (x[None] for x in randomizer.worst_pair())
    top = randomizer.log_density(pole, pole) - randomizer.log_density(pole, other)
    assert top[0] == pytest.approx(float(randomizer.realised_epsilon), rel=1e-12)


def test_the_likelihood_of_the_bytes_is_within_epsilon_and_reaches_it(monkeypatch):
    randomizer = SphericalLaplace(2, 1.0, Fraction(3))
    w, other = (np.tile(x, (500, 1)) for x in randomizer.worst_pair())
    payloads = randomizer.report(w, Entropy())
    ratio = randomizer.log_likelihood(payloads, w) - randomizer.log_likelihood(payloads, other)
    assert np.abs(ratio).max() <= 3 * (1 + 1e-12)
    monkeypatch.setattr(RoundedSpherical, "draw", lambda self, rows, bits: np.zeros((rows, 2), int))
    payloads = randomizer.report(w, Entropy())
    ratio = randomizer.log_likelihood(payloads, w) - randomizer.log_likelihood(payloads, other)
    assert ratio == pytest.approx(float(randomizer.realised_epsilon), rel=1e-12)


def drawn(randomizer: SphericalLaplace, W: np.ndarray, source: str) -> np.ndarray:
    if source == "simulate":
        return draw_observations(randomizer, W, np.random.default_rng(1))
    return randomizer.read(randomizer.report(W, Entropy()))


sources = pytest.mark.parametrize("source", ["simulate", "report"])


@sources
def test_simulation_and_reports_are_unbiased_with_the_stated_error(source):
    randomizer = SphericalLaplace(3, 2.0, Fraction(4))
    w = np.array([0.7, -0.4, 0.2])
    V = drawn(randomizer, np.tile(w, (40_000, 1)), source)
    error = ((V - w) ** 2).sum(axis=1)
    expected = randomizer.expected_squared_error()
    assert mean_p_value(V, w) > ALPHA
    assert mean_p_value(error, expected) > ALPHA
    # Broken controls: shifted by five percent of the radius; six percent less noise.
    assert mean_p_value(V + 0.05 * randomizer.radius, w) < ALPHA
    assert mean_p_value(0.94**2 * error, expected) < ALPHA


@sources
@pytest.mark.parametrize("dim", [1, 2, 16])
def test_simulation_and_reports_have_the_gamma_law_in_length(source, dim):
    randomizer = SphericalLaplace(dim, 1.0, Fraction(2))
    V = drawn(randomizer, np.zeros((20_000, dim)), source)
    radii = np.linalg.norm(V, axis=1) / randomizer.scale
    assert law_p_value(radii, stats.gamma(dim).cdf) > ALPHA
    assert law_p_value(0.9 * radii, stats.gamma(dim).cdf) < ALPHA
    assert law_p_value(radii, stats.gamma(dim + 1).cdf) < ALPHA


def test_reports_and_simulation_have_the_same_law():
    randomizer = SphericalLaplace(5, 1.0, Fraction(3))
    w = np.array([0.5, 0.1, -0.2, 0.3, 0.0])
    W = np.tile(w, (20_000, 1))
    real, simulated = drawn(randomizer, W, "report"), drawn(randomizer, W, "simulate")
    for of in (lambda V: V @ w, lambda V: V[:, 4], lambda V: np.abs(V).max(axis=1)):
        assert stats.ks_2samp(of(real), of(simulated), method="asymp").pvalue > ALPHA
        assert stats.ks_2samp(of(real), of(simulated) / 2, method="asymp").pvalue < ALPHA


def test_in_one_dimension_it_is_laplace():
    spherical, plain = SphericalLaplace(1, 1.0, Fraction(2)), Laplace(1, 1.0, Fraction(2))
    assert spherical.scale == pytest.approx(plain.scale)
    assert spherical.expected_squared_error() == pytest.approx(plain.expected_squared_error())
    V = drawn(spherical, np.zeros((20_000, 1)), "report")[:, 0]
    assert law_p_value(V, stats.laplace(scale=plain.scale).cdf) > ALPHA
    assert law_p_value(0.75 * V, stats.laplace(scale=plain.scale).cdf) < ALPHA


def test_the_tail_of_a_coordinate_is_as_rare_as_stated():
    """Chernoff with the exact moment generating function: 2 e^{−λa} (1 − λ²)^{−(m+1)/2}."""
    for dim in (1, 2, 64, 4096, 1 << 20):
        slope = np.linspace(1e-4, 0.9999, 20_000)
        tail = SphericalLaplace(dim, 1.0, Fraction(1)).tail
        exponent = -slope * tail - (dim + 1) / 2 * np.log1p(-(slope**2))
        assert exponent.min() <= -44
        assert (-slope * tail / 2 - (dim + 1) / 2 * np.log1p(-(slope**2))).min() > -44


def test_vectors_outside_the_ball_are_clipped_before_the_noise():
    randomizer = SphericalLaplace(2, 1.0, Fraction(50))
    for source in ("simulate", "report"):
        V = drawn(randomizer, np.tile([3e8, 4e8], (4000, 1)), source)
        assert V.mean(axis=0) == pytest.approx([0.6, 0.8], abs=0.02)


def test_a_report_is_the_lattice_point_plus_the_samplers_noise(monkeypatch):
    """The noise of the sampler and the input determine the payload."""
    randomizer = SphericalLaplace(3, 2.0, Fraction(4))
    noise = np.array([[5, -7, 0], [1, 2, 1 << 33]])
    monkeypatch.setattr(RoundedSpherical, "draw", lambda self, rows, bits: noise)
    W = np.array([[0.5, -0.25, 0.0], [1e300, 0.0, 0.0]])
    largest = largest_magnitude(randomizer.width)
    sent = unpack(randomizer.report(W, Entropy()), 3, randomizer.width)
    assert np.array_equal(sent, np.clip(randomizer.integers(W) + noise, -largest, largest))


def test_a_report_is_drawn_from_the_operating_system_only():
    class Seeded(Entropy):
        def words(self, count):
            return np.zeros(count, dtype=np.uint16)

    randomizer = SphericalLaplace(2, 1.0, Fraction(1))
    for source in (np.random.default_rng(0), None, 7, Seeded()):
        with pytest.raises(TypeError, match="Entropy"):
            randomizer.report(np.zeros((1, 2)), source)  # type: ignore[arg-type]


def test_every_row_takes_separate_bits_from_the_operating_system(monkeypatch):
    taken = []
    words = Entropy.words

    def recorded(self, count):
        taken.append(count)
        return words(self, count)

    monkeypatch.setattr(Entropy, "words", recorded)
    payloads = SphericalLaplace(5, 1.0, Fraction(1)).report(np.zeros((7, 5)), Entropy())
    # At least 11 normals of 32 + 64 bits per row, in words of 16.
    assert sum(taken) >= 7 * 11 * 6
    assert len(set(payloads)) == 7


def test_noise_is_drawn_in_whole_vectors():
    with pytest.raises(ValueError, match="vectors of 3"):
        SphericalLaplace(3, 1.0, Fraction(1)).noise(7, Entropy())


def test_many_coordinates_with_a_small_budget_take_four_bytes():
    """Truncation must not shrink a vector: the share that remains stays near one."""
    narrow, wide = (
        SphericalLaplace(768, 1.0, Fraction(5)),
        SphericalLaplace(768, 1.0, Fraction(1, 50)),
    )
    assert (narrow.width, wide.width) == (3, 4)
    for randomizer in (narrow, wide):
        w = np.random.default_rng(0).standard_normal((20, 768))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        kept = (randomizer.integers(w) * w).sum(axis=1) / randomizer.bound
        assert kept.min() > 0.97
        payloads = randomizer.report(w, Entropy())
        assert {len(p) for p in payloads} == {randomizer.payload_size}
        assert randomizer.read(payloads).shape == w.shape
        with pytest.raises(InvalidReport):
            randomizer.read([payloads[0][:-1]])


def test_lattices_that_cannot_keep_the_guarantee_are_rejected(monkeypatch):
    for log2_scale in (-2, 26, 1 << 70):
        with pytest.raises(InvalidInput, match="log2_scale"):
            SphericalLaplace(2, 1.0, Fraction(1), log2_scale=log2_scale)
    with pytest.raises(InvalidInput, match="no lattice point but zero"):
        SphericalLaplace(2, 1.0, Fraction(1, 10**3), log2_scale=4)
    monkeypatch.setattr(SphericalLaplace, "bound", 1 << 20)
    with pytest.raises(InvalidInput, match="the lattice gives"):
        SphericalLaplace(2, 1.0, Fraction(1))


def test_the_largest_release_is_built_quickly():
    with bounded(mebibytes=1):
        SphericalLaplace(1 << 20, 1.0, Fraction(10000))
        SphericalLaplace(1 << 20, 1.0, Fraction(1, 10**4))
