"""Laplace: the guarantee in exact numbers, the payload, and the law of reports and simulation.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.randomizers.base import onto_lattice
from offaxis.randomizers.laplace import Laplace, largest_magnitude, pack, unpack
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.laplace import DiscreteLaplace
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, law_p_value, mean_p_value

LARGEST = largest_magnitude(3)

epsilons = st.fractions(min_value=Fraction(1, 1000), max_value=50, max_denominator=10**4)


def worst_log_ratio(randomizer: Laplace, w: np.ndarray, other: np.ndarray) -> Fraction:
    """The largest log Pr[y|w] / Pr[y|w'] over all y, exactly: ‖n − n'‖₁ / t."""
    n, n2 = randomizer.integers(np.stack([w, other]))
    gap = int(np.abs(n.astype(np.int64) - n2).sum())
    return Fraction(gap, 1 << randomizer.log2_scale)


@given(epsilons, st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_the_ratio_of_any_two_inputs_stays_within_epsilon(epsilon, dim, seed):
    randomizer = Laplace(dim, 2.5, epsilon)
    rng = np.random.default_rng(seed)
    w, other = rng.standard_normal((2, dim)) * 10.0 ** rng.uniform(-3, 3)
    assert worst_log_ratio(randomizer, w, other) <= epsilon
    vertex = np.zeros(dim)
    vertex[rng.integers(dim)] = 1e9
    worst = worst_log_ratio(randomizer, vertex, -vertex)
    assert worst == randomizer.realised_epsilon <= epsilon
    # The worst pair nearly spends the budget: the noise is not larger than necessary.
    assert worst > epsilon - Fraction(3, 1 << randomizer.log2_scale)


def test_a_radius_in_place_of_the_diameter_would_break_the_guarantee():
    """Broken control: R = ε t instead of ε t / 2, the mistake of ρ for 2ρ."""
    good = Laplace(3, 1.0, Fraction(2))
    n, n2 = onto_lattice(np.array([[9.0, 0, 0], [-9.0, 0, 0]]), good.domain, 2 * good.bound)
    assert Fraction(int(np.abs(n - n2).sum()), 1 << good.log2_scale) > good.epsilon


@given(epsilons)
def test_bound_and_tails_fit_the_payload(epsilon):
    randomizer = Laplace(2, 1.0, epsilon)
    assert randomizer.realised_epsilon <= epsilon
    assert randomizer.bound >= 1
    assert randomizer.bound + 44 * 2**randomizer.log2_scale <= largest_magnitude(randomizer.width)
    assert randomizer.payload_size == 2 * randomizer.width


def test_an_epsilon_too_small_for_any_lattice_is_rejected():
    with pytest.raises(InvalidInput, match="epsilon=1e-09"):
        Laplace(2, 1.0, Fraction(1, 10**9))


def test_a_lattice_wider_than_the_payload_is_rejected():
    with pytest.raises(InvalidInput, match="log2_scale"):
        Laplace(2, 1.0, Fraction(1), log2_scale=26)


def test_many_coordinates_with_a_small_budget_take_four_bytes():
    """Truncation must not shrink a vector: the share that remains stays near one."""
    narrow, wide = Laplace(768, 1.0, Fraction(5)), Laplace(768, 1.0, Fraction(1, 50))
    assert (narrow.width, wide.width) == (3, 4)
    for randomizer in (narrow, wide):
        w = np.random.default_rng(0).standard_normal((20, 768))
        w /= np.abs(w).sum(axis=1, keepdims=True)
        kept = np.abs(randomizer.integers(w)).sum(axis=1) / randomizer.bound
        assert kept.min() > 0.97
        V = randomizer.read(randomizer.report(w, Entropy()))
        assert V.shape == w.shape


def test_the_density_ratio_of_the_simulation_is_within_epsilon():
    randomizer = Laplace(4, 2.0, Fraction(3, 2))
    rng = np.random.default_rng(5)
    W, X = rng.standard_normal((2, 3000, 4)) * 3
    V = draw_observations(randomizer, W, rng)
    gap = randomizer.log_density(V, W) - randomizer.log_density(V, X)
    assert np.abs(gap).max() <= 1.5 * (1 + 1e-12)
    vertex = np.array([[5.0, 0, 0, 0]])
    top = randomizer.log_density(vertex, vertex) - randomizer.log_density(vertex, -vertex)
    assert top[0] == pytest.approx(float(randomizer.realised_epsilon), rel=1e-12)


@pytest.mark.parametrize("source", ["simulate", "report"])
def test_simulation_and_reports_are_unbiased_with_the_stated_error(source):
    randomizer = Laplace(3, 2.0, Fraction(4))
    w = np.array([0.7, -0.4, 0.2])
    W = np.tile(w, (60_000, 1))
    if source == "simulate":
        V = draw_observations(randomizer, W, np.random.default_rng(1))
    else:
        V = randomizer.read(randomizer.report(W, Entropy()))
    error = ((V - w) ** 2).sum(axis=1)
    assert mean_p_value(V, w) > ALPHA
    assert mean_p_value(error, randomizer.expected_squared_error()) > ALPHA
    # Broken controls: shifted by five percent of the radius; six percent less noise.
    assert mean_p_value(V + 0.05 * randomizer.radius, w) < ALPHA
    short = w + 0.94 * (V - w)
    assert mean_p_value(((short - w) ** 2).sum(axis=1), randomizer.expected_squared_error()) < ALPHA


@pytest.mark.parametrize("source", ["simulate", "report"])
def test_simulation_and_reports_have_the_laplace_law_in_every_coordinate(source):
    randomizer = Laplace(2, 1.0, Fraction(2))
    W = np.zeros((40_000, 2))
    if source == "simulate":
        V = draw_observations(randomizer, W, np.random.default_rng(2))
    else:
        V = randomizer.read(randomizer.report(W, Entropy()))
    law = stats.laplace(scale=randomizer.scale).cdf
    assert law_p_value(V.ravel(), law) > ALPHA
    assert law_p_value(0.9 * V.ravel(), law) < ALPHA


def test_vectors_outside_the_ball_are_clipped_before_the_noise():
    randomizer = Laplace(2, 1.0, Fraction(50))
    V = randomizer.read(randomizer.report(np.tile([1e300, 1e300], (4000, 1)), Entropy()))
    assert V.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.02)


def test_a_report_is_the_lattice_point_plus_the_samplers_noise(monkeypatch):
    """The noise of the sampler and the input determine the payload."""
    randomizer = Laplace(3, 2.0, Fraction(4))
    noise = np.array([5, -7, 0, 1, 2, 3], dtype=np.int32)
    monkeypatch.setattr(DiscreteLaplace, "draw", lambda self, count, bits: noise)
    W = np.array([[0.5, -0.25, 0.0], [1e300, 0.0, 0.0]])
    sent = unpack(randomizer.report(W, Entropy()), 3)
    assert np.array_equal(sent, randomizer.integers(W) + noise.reshape(2, 3))


@pytest.mark.parametrize("vector", [[0.0, 0.0], [5e-324, 0.0], [1e300, -1e300], [0.3, 0.3]])
@pytest.mark.parametrize("noise", [(7, -9), (1 << 24, -(1 << 24)), (LARGEST, 0)])
def test_noise_is_added_to_every_vector_before_clamping(monkeypatch, vector, noise):
    randomizer = Laplace(2, 2.0, Fraction(4))
    values = np.array(noise, dtype=np.int32)
    monkeypatch.setattr(DiscreteLaplace, "draw", lambda self, count, bits: values)
    point = randomizer.integers(np.array([vector]))[0]
    sent = unpack(randomizer.report(np.array([vector]), Entropy()), 2)[0]
    assert sent.tolist() == np.clip(point + values, -LARGEST, LARGEST).tolist()


def test_integer_and_half_precision_inputs_are_read_as_numbers():
    randomizer = Laplace(2, 1.0, Fraction(50))
    for W in (np.array([[-(2**63), 0]]), np.array([[-60000, 0]], dtype=np.float16)):
        V = randomizer.read(randomizer.report(np.tile(W, (500, 1)), Entropy()))
        assert V.mean(axis=0) == pytest.approx([-1.0, 0.0], abs=0.05)


def test_a_lattice_that_breaks_the_guarantee_is_rejected(monkeypatch):
    monkeypatch.setattr(Laplace, "bound", 1 << 20)
    with pytest.raises(InvalidInput, match="the lattice gives"):
        Laplace(2, 1.0, Fraction(1))


def test_every_coordinate_takes_separate_bits_from_the_operating_system(monkeypatch):
    taken = []
    original = Entropy.words

    def recorded(self, count):
        taken.append(count)
        return original(self, count)

    monkeypatch.setattr(Entropy, "words", recorded)
    Laplace(5, 1.0, Fraction(1)).report(np.zeros((7, 5)), Entropy())
    assert sum(taken) >= 35 * 25


@pytest.mark.parametrize("width", [3, 4])
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20))
def test_a_payload_keeps_every_value_in_range_and_clamps_the_rest(width, values):
    array = np.array([values])
    payloads = pack(array, width)
    largest = largest_magnitude(width)
    assert [len(p) for p in payloads] == [width * len(values)]
    clamped = np.clip(array, -largest, largest).tolist()
    assert unpack(payloads, len(values), width).tolist() == clamped


def test_the_memory_order_does_not_matter():
    values = np.arange(600 * 64).reshape(600, 64)
    assert pack(np.asfortranarray(values)) == pack(values) == pack(values[::-1][::-1])


def test_a_malformed_payload_is_rejected():
    with pytest.raises(InvalidReport, match="6 bytes"):
        unpack([b"12345"], 2)
    with pytest.raises(InvalidReport, match="no client"):
        unpack([bytes(6)], 2)


def test_payload_bytes_are_as_documented():
    assert pack(np.array([[0, 1, -1]], dtype=np.int32)) == [
        bytes.fromhex("000080 010080 ffff7f".replace(" ", ""))
    ]
