"""The Duchi, piecewise and hybrid randomizers: ratios, laws, unbiasedness, payloads.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.randomizers.box import POINTS, Duchi, Hybrid, Piecewise
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, counts_p_value, mean_p_value

KINDS = [Duchi, Piecewise, Hybrid]
any_float = st.floats(allow_nan=False, allow_infinity=False, width=64)
unit = st.floats(-1.5, 1.5)


def every_payload(dim: int) -> list[bytes]:
    bits = np.array(list(itertools.product([0, 1], repeat=dim)), dtype=np.uint8)
    return [row.tobytes() for row in np.packbits(bits, axis=1, bitorder="little")]


@given(st.lists(unit, min_size=8, max_size=8), st.integers(1, 4), st.sampled_from([1, 3]))
def test_over_all_payloads_the_duchi_laws_are_within_e_to_the_epsilon(values, dim, epsilon):
    """All 2**m payloads of two inputs, in closed form."""
    randomizer = Duchi(dim, 1.0, Fraction(epsilon))
    payloads = every_payload(dim)
    laws = []
    for w in (np.array(values[:dim]), np.array(values[4 : 4 + dim])):
        chance = np.exp(randomizer.log_likelihood(payloads, np.tile(w, (len(payloads), 1))))
        # Up to the constant 2**(1 - m) p, so the sum is that constant's inverse for every input.
        assert chance.sum() == pytest.approx(2 ** (dim - 1) * (1 + math.exp(-epsilon)))
        laws.append(chance)
    assert np.log(laws[0] / laws[1]).max() <= epsilon * (1 + 1e-9)


def test_duchi_reaches_its_epsilon_at_opposite_corners():
    randomizer = Duchi(3, 1.0, Fraction(2))
    w, other = randomizer.worst_pair()
    payload = [bytes([0b111])]
    ratio = randomizer.log_likelihood(payload, w[None]) - randomizer.log_likelihood(
        payload, other[None]
    )
    assert ratio[0] == pytest.approx(2)


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_duchi_payloads_follow_the_closed_form(dim):
    randomizer = Duchi(dim, 1.0, Fraction(3, 2))
    w = np.linspace(-0.8, 0.9, dim)
    payloads = every_payload(dim)
    chance = np.exp(randomizer.log_likelihood(payloads, np.tile(w, (len(payloads), 1))))
    drawn = randomizer.report(np.tile(w, (60_000, 1)), Entropy())
    counts = np.array([drawn.count(p) for p in payloads])
    assert counts_p_value(counts, chance / chance.sum()) > ALPHA
    broken = np.exp(randomizer.log_likelihood(payloads, np.tile(-w, (len(payloads), 1))))
    assert counts_p_value(counts, broken / broken.sum()) < ALPHA


@given(st.lists(unit, min_size=6, max_size=6), st.integers(1, 3))
def test_every_piecewise_window_has_the_same_number_of_points(values, sampled):
    """So the normaliser of every coordinate is constant, and its ratio at most e^(ε/k)."""
    randomizer = Piecewise(3, 1.0, Fraction(4), sampled)
    order = np.array([list(range(sampled))] * 2)
    starts = randomizer.starts(np.array(values).reshape(2, 3), order)
    assert starts.min() >= 0
    assert starts.max() + randomizer.near <= POINTS
    assert randomizer.share * sampled == randomizer.epsilon


def test_piecewise_points_are_a_bijection_from_draws():
    randomizer = Piecewise(1, 1.0, Fraction(1))
    for start in (0, 17, POINTS - randomizer.near):
        near = randomizer.points(np.array(start), np.array(True), np.arange(randomizer.near))
        far = randomizer.points(
            np.array(start), np.array(False), np.arange(POINTS - randomizer.near)
        )
        assert near.tolist() == list(range(start, start + randomizer.near))
        assert sorted([*near, *far]) == list(range(POINTS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["simulate", "report"])
@pytest.mark.parametrize(("dim", "epsilon"), [(1, 1), (2, 1), (3, 2), (8, 0.5), (8, 6)])
def test_simulation_and_reports_are_unbiased_with_the_stated_error(kind, source, dim, epsilon):
    randomizer = kind(dim, 2.0, Fraction(epsilon))
    rng = np.random.default_rng(dim)

    def draw(w: np.ndarray) -> np.ndarray:
        W = np.tile(w, (40_000, 1))
        if source == "simulate":
            return draw_observations(randomizer, W, rng)
        return randomizer.read(randomizer.report(W, Entropy()))

    w = rng.uniform(-2, 2, dim)
    V = draw(w)
    assert mean_p_value(V, w) > ALPHA
    assert mean_p_value(V + 0.4 * np.abs(V).mean(), w) < ALPHA
    corner, _ = randomizer.worst_pair()
    error = ((draw(corner) - corner) ** 2).sum(axis=1)
    assert mean_p_value(error, randomizer.expected_squared_error()) > ALPHA
    assert mean_p_value(0.8 * error, randomizer.expected_squared_error()) < ALPHA


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(any_float, min_size=6, max_size=6), st.sampled_from([Fraction(1, 2), Fraction(8)]))
def test_no_two_inputs_are_further_apart_than_epsilon(kind, values, epsilon):
    """Closed-form likelihood of payloads of either input, for any finite pair."""
    randomizer = kind(3, 1.0, epsilon)
    pair = np.array(values).reshape(2, 3)
    payloads = randomizer.report(np.repeat(pair, 20, axis=0), Entropy())
    first, second = (randomizer.log_likelihood(payloads, np.tile(w, (40, 1))) for w in pair)
    assert np.abs(first - second).max() <= float(epsilon) * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_is_the_law_of_the_reports(kind):
    randomizer = kind(2, 1.0, Fraction(1))
    w, other = (np.tile(x, (40_000, 1)) for x in randomizer.worst_pair())
    payloads = randomizer.report(w, Entropy())
    ratio = randomizer.log_likelihood(payloads, other) - randomizer.log_likelihood(payloads, w)
    assert np.abs(ratio).max() <= 1 + 1e-9
    assert mean_p_value(np.exp(ratio), 1.0) > ALPHA
    assert mean_p_value(np.exp(1.3 * ratio), 1.0) < ALPHA
    V = randomizer.read(payloads)
    gap = randomizer.log_density(V, other) - randomizer.log_density(V, w)
    assert np.allclose(gap, ratio)


def test_malformed_payloads_are_rejected():
    with pytest.raises(InvalidReport, match="bytes"):
        Duchi(9, 1.0, Fraction(1)).read([b"\0"])
    with pytest.raises(InvalidReport, match="no client"):
        Duchi(9, 1.0, Fraction(1)).read([b"\0\2"])
    randomizer = Piecewise(3, 1.0, Fraction(1), 2)
    for coordinates in ([0, 0], [1, 3]):
        entries = b"".join(c.to_bytes(4, "little") + b"\0\0" for c in coordinates)
        with pytest.raises(InvalidReport, match="no client"):
            randomizer.read([entries])
    with pytest.raises(InvalidInput, match="sampled"):
        Piecewise(3, 1.0, Fraction(1), 4)
    signs_only, both = Hybrid(2, 1.0, Fraction(1, 2)), Hybrid(2, 1.0, Fraction(2))
    by_sign, by_point = (b"\0\0\0\x80", b"\0\0\0\0")
    both.read([by_sign + b"\1\0", by_point + b"\5\0"])
    for hybrid, payload in (
        (both, by_sign + b"\2\0"),
        (signs_only, by_point + b"\1\0"),
        (both, b"\2\0\0\0\0\0"),
    ):
        with pytest.raises(InvalidReport, match="no client"):
            hybrid.read([payload])


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_beyond_the_exact_coins_is_rejected(kind):
    """At ε = 10,000 the digits of one probability take seconds; a hostile file may request it."""
    with pytest.raises(InvalidInput, match="at most 100"):
        kind(2, 1.0, Fraction(10_000))
    assert kind(2, 1.0, Fraction(100)).report(np.zeros((1, 2)), Entropy())
