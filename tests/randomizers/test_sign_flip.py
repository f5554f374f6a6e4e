"""A sign encodes the length: means of vectors from randomizers of directions, still pure ε.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput
from offaxis.randomizers import make, privunit
from offaxis.randomizers.base import Ball, onto_lattice
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, counts_p_value, mean_p_value
from tests.tape import Tape

KINDS = [PrivUnit2, PrivUnitG]
NAMES = ["privunit2-mean", "privunitg-mean"]
B = privunit.LENGTH_BOUND
any_float = st.floats(allow_nan=False, allow_infinity=False, width=64)
vector = st.lists(any_float | st.floats(-2, 2), min_size=3, max_size=3).map(np.array)


def law(randomizer, w, nonce) -> np.ndarray:
    """Pr[index | w, nonce] in closed form, with the coin computed from its definition."""
    clipped = randomizer.domain.project(w[None])[0]
    steps = [int(x / randomizer.radius * B) for x in clipped]
    kept = Fraction(B + math.isqrt(sum(n * n for n in steps)), 2 * B)
    total = np.zeros(randomizer.directions)
    for share, side in ((kept, w), (1 - kept, -w)):
        weight = np.ones(randomizer.directions)
        weight[randomizer.nearest(side[None], nonce[None])[0]] = math.exp(randomizer.epsilon)
        total += float(share) * weight / weight.sum()
    return total


def small(kind, epsilon=2):
    return kind(3, 1.5, Fraction(epsilon), directions=20, near=3, target="vector")


@pytest.mark.parametrize("kind", KINDS)
@given(vector, vector, st.binary(min_size=12, max_size=12))
def test_no_pair_of_inputs_is_further_apart_than_e_to_the_epsilon(kind, w, other, nonce):
    """For every nonce and every index, in closed form; the likelihood of the bytes is that law."""
    randomizer = small(kind)
    key = np.frombuffer(nonce, dtype=np.uint8)
    first, second = law(randomizer, w, key), law(randomizer, other, key)
    assert max((first / second).max(), (second / first).max()) <= math.exp(2) * (1 + 1e-12)
    payloads = [nonce + i.to_bytes(4, "little") for i in range(20)]
    ratio = randomizer.log_likelihood(payloads, np.tile(w, (20, 1)))
    ratio -= randomizer.log_likelihood(payloads, np.tile(other, (20, 1)))
    np.testing.assert_allclose(ratio, np.log(first / second), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0.0, 0.5, 1.2, 30.0])
def test_reported_indices_follow_the_closed_form(monkeypatch, kind, size):
    randomizer = small(kind)
    nonce = np.arange(12, dtype=np.uint8)
    w = size * np.array([0.6, -0.64, 0.48])
    original = kind.nearest
    monkeypatch.setattr(
        kind, "nearest", lambda self, W, nonces: original(self, W, np.tile(nonce, (len(W), 1)))
    )
    payloads = randomizer.report(np.tile(w, (60_000, 1)), Entropy())
    counts = np.bincount([int.from_bytes(p[12:], "little") for p in payloads], minlength=20)
    assert counts_p_value(counts, law(randomizer, w, nonce)) > ALPHA
    broken = law(randomizer, np.array([-1.5, 0.0, 0.0]), nonce)
    assert counts_p_value(counts, broken) < ALPHA


@given(st.lists(vector, min_size=1, max_size=5).map(np.stack))
def test_lengths_are_integer_square_roots_within_the_bound(W):
    ball = Ball(3, 1.5, 2)
    lengths = privunit.lengths(W, ball)
    steps = onto_lattice(W, ball, B).tolist()
    assert lengths.tolist() == [math.isqrt(sum(n * n for n in row)) for row in steps]
    assert lengths.max() <= B


def test_the_float_root_is_the_integer_root_next_to_every_square():
    """Where it could fail: one below, at and one above the squares of all lengths."""
    k = np.arange(1, B + 1)
    assert (np.sqrt(k * k - 1).astype(np.int64) == k - 1).all()
    assert (np.sqrt(k * k).astype(np.int64) == k).all()
    assert (np.sqrt(k * k + 1).astype(np.int64) == k).all()


def test_the_coin_compares_integers():
    """Every length against the coins next to its threshold: + for exactly B + L of the 2B."""
    ball = Ball(1, 1.0, 2)
    for length in (0, 1, 1000, B - 1, B):
        W = np.full((4, 1), length / B)
        coins = np.array([0, B + length - 1, min(B + length, 2 * B - 1), 2 * B - 1])
        expected = [1 if coin < B + length else -1 for coin in coins]
        assert privunit.signs(W, ball, coins).tolist() == expected
        assert privunit.keep_probability(W, ball)[0] == Fraction(B + length, 2 * B)


def test_every_coin_takes_four_bytes():
    """2B divides 2**32, so nothing is rejected; the remainder is the low 21 bits."""
    tape = Tape(b"\xff\xff\xff\xff" + (7).to_bytes(4, "little"))
    assert privunit.draw_coins(2, tape).tolist() == [2 * B - 1, 7]
    assert tape.used == 8


def test_coins_are_drawn_before_the_vector_is_used(monkeypatch):
    order = []
    signs, words = privunit.signs, Entropy.words

    def signs_recorded(*arguments):
        order.append("signs")
        return signs(*arguments)

    def words_recorded(self, count):
        order.append("draw")
        return words(self, count)

    monkeypatch.setattr(privunit, "signs", signs_recorded)
    monkeypatch.setattr(Entropy, "words", words_recorded)
    make("privunit2-mean", dim=3, radius=1.0, epsilon=2).report(np.ones((5, 3)), Entropy())
    assert order.index("signs") == len(order) - 1


def people(radius: float, rng: np.random.Generator) -> np.ndarray:
    """Short vectors in one direction, long ones in another: the mean of directions differs."""
    W = rng.standard_normal((30_000, 4)) * 0.05 * radius
    W[:20_000, 0] += 0.2 * radius
    W[20_000:, 1] += 0.7 * radius
    return W


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_of_reports_is_the_mean_of_the_vectors(name):
    """Unseeded exact reports; the broken control has no sign flip and is off by over 40 percent."""
    randomizer = make(name, dim=4, radius=3.0, epsilon=6)
    W = people(3.0, np.random.default_rng(0))
    mean = W.mean(axis=0)
    V = randomizer.read(randomizer.report(W, Entropy()))
    assert mean_p_value(V - W, 0.0) > ALPHA
    broken = make(name.removesuffix("-mean"), dim=4, radius=3.0, epsilon=6)
    off = broken.read(broken.report(W, Entropy()))
    assert mean_p_value(off - W, 0.0) < ALPHA**10
    assert np.linalg.norm(off.mean(axis=0) - mean) > 0.4 * np.linalg.norm(mean)
    assert np.linalg.norm(V.mean(axis=0) - mean) < 0.1 * np.linalg.norm(mean)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0.0, 5e-324, 0.3, 1.0, 50.0])
def test_reports_are_unbiased_for_the_clipped_vector_of_any_length(name, size):
    randomizer = make(name, dim=3, radius=1.0, epsilon=4)
    w = size * np.array([0.6, 0.0, -0.8])
    V = randomizer.read(randomizer.report(np.tile(w, (20_000, 1)), Entropy()))
    target = min(size, 1.0) * np.array([0.6, 0.0, -0.8])
    assert mean_p_value(V, target) > ALPHA
    assert mean_p_value(V + 0.4, target) < ALPHA


@pytest.mark.parametrize("output", ["gaussian", "sphere"])
@pytest.mark.parametrize("size", [0.0, 0.4, 2.0])
def test_the_density_is_that_of_the_simulation(output, size):
    """E[f(w')/f(w) | w] = 1 for the true densities of the observation, not for powers of them."""
    w, other = size * np.eye(1, 3)[0], np.array([-0.3, 0.5, 0.1])
    for randomizer in (
        PrivUnitG(3, 1.0, Fraction(1), output=output, target="vector"),
        PrivUnit2(3, 1.0, Fraction(1), target="vector"),
    ):
        V = draw_observations(randomizer, np.tile(w, (8_000, 1)), np.random.default_rng(1))
        ratio = randomizer.log_density(V, np.tile(other, (len(V), 1)))
        ratio -= randomizer.log_density(V, np.tile(w, (len(V), 1)))
        assert mean_p_value(np.exp(ratio), 1.0) > ALPHA
        assert mean_p_value(np.exp(1.5 * ratio), 1.0) < ALPHA
        assert np.abs(ratio).max() <= 1 + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_the_vector_target_declares_a_ball_no_bias_and_the_same_budget(kind):
    vector, direction = kind(4, 2.0, 3, target="vector"), kind(4, 2.0, 3)
    assert vector.unbiased
    assert vector.domain == Ball(4, 2.0, 2)
    assert vector.guarantee == direction.guarantee
    assert vector.mean == direction.mean
    assert vector.payload_size == direction.payload_size


def test_an_unknown_target_is_rejected():
    with pytest.raises(InvalidInput, match="target"):
        PrivUnit2(3, 1.0, Fraction(1), target="length")  # type: ignore[arg-type]
