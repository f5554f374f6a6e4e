"""The rank form: pure by counting, whatever floating point does.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.randomizers import directions, make, privunit
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.sampling.entropy import Entropy
from tests.checks import ALPHA, counts_p_value

KINDS = [PrivUnit2, PrivUnitG]
any_float = st.floats(allow_nan=False, allow_infinity=False, width=64)


def closed_form(randomizer, w, nonce) -> np.ndarray:
    """Pr[index | w, nonce] in closed form."""
    weight = np.ones(randomizer.directions)
    weight[randomizer.nearest(w[None], nonce[None])[0]] = math.exp(randomizer.epsilon)
    return weight / weight.sum()


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(any_float, min_size=6, max_size=6), st.binary(min_size=12, max_size=12))
def test_no_pair_of_inputs_is_further_apart_than_e_to_the_epsilon(kind, values, nonce):
    """For every nonce and every index, in closed form: weights e^ε and 1 over one normaliser."""
    randomizer = kind(3, 1.0, Fraction(2), directions=20, near=3)
    w, other = np.array(values[:3]), np.array(values[3:])
    key = np.frombuffer(nonce, dtype=np.uint8)
    ratio = closed_form(randomizer, w, key) / closed_form(randomizer, other, key)
    assert ratio.max() <= math.exp(2) * (1 + 1e-12)
    assert closed_form(randomizer, w, key) == pytest.approx(
        np.where(closed_form(randomizer, w, key) > 1 / 20, math.exp(2), 1) / (3 * math.exp(2) + 17)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_reported_indices_follow_the_closed_form(monkeypatch, kind):
    randomizer = kind(3, 1.0, Fraction(2), directions=12, near=2)
    nonce = np.arange(12, dtype=np.uint8)
    w = np.array([0.3, -1.0, 0.2])
    original = kind.nearest
    monkeypatch.setattr(
        kind, "nearest", lambda self, W, nonces: original(self, W, np.tile(nonce, (len(W), 1)))
    )
    payloads = randomizer.report(np.tile(w, (60_000, 1)), Entropy())
    index = np.array([int.from_bytes(p[12:], "little") for p in payloads])
    expected = closed_form(randomizer, w, nonce)
    assert counts_p_value(np.bincount(index, minlength=12), expected) > ALPHA
    assert (
        counts_p_value(np.bincount(index, minlength=12), closed_form(randomizer, -w, nonce)) < ALPHA
    )


def test_a_threshold_under_a_fixed_generator_would_not_be_pure():
    """Broken control: near means above a threshold, so their number depends on the input."""
    randomizer = PrivUnit2(3, 1.0, Fraction(4), directions=40, near=4)
    nonce = np.arange(12, dtype=np.uint8)[None]
    rng = np.random.default_rng(0)
    W = rng.standard_normal((200, 3))
    scores = directions.products(
        np.repeat(nonce, 200, axis=0), 20, randomizer.integers(W), normalise=True
    )
    near = (np.abs(scores) >= 0.8 * privunit.INPUT_BOUND).sum(axis=1)
    normaliser = near * math.exp(4) + 40 - near
    assert normaliser.max() / normaliser.min() > 1.5
    assert {row.size for row in randomizer.nearest(W, np.repeat(nonce, 200, axis=0))} == {4}


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_ranking_costs_no_privacy(monkeypatch, kind):
    """With pure noise as scores exactly c are near: the guarantee does not depend on floats."""
    randomizer = kind(3, 1.0, Fraction(1))
    rng = np.random.default_rng(1)
    monkeypatch.setattr(
        privunit,
        "products",
        lambda nonces, pairs, inputs, normalise: rng.random((len(inputs), pairs)),
    )
    near = randomizer.nearest(np.ones((50, 3)), np.zeros((50, 12), dtype=np.uint8))
    assert near.shape == (50, randomizer.near)
    assert (np.diff(near, axis=1) > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_zero_vector_is_reported_as_a_random_direction(kind):
    randomizer = kind(2, 1.0, 4)
    V = randomizer.read(randomizer.report(np.zeros((20_000, 2)), Entropy()))
    angle = np.arctan2(V[:, 1], V[:, 0])
    counts = np.histogram(angle, np.linspace(-np.pi, np.pi, 9))[0]
    assert counts_p_value(counts, np.full(8, 1 / 8)) > ALPHA


@pytest.mark.parametrize("kind", KINDS)
def test_reports_do_not_depend_on_the_length_of_the_input(kind):
    randomizer = kind(4, 1.0, 5)
    w = np.array([1.0, -2.0, 0.5, 0.0])
    W = np.stack([w * size for size in (1.0, 2.0**-1060, 2.0**900, 2.0**-500)])
    nonces = np.zeros((4, 12), dtype=np.uint8)
    near = randomizer.nearest(W, nonces)
    assert (near == near[0]).all()
    assert (randomizer.integers(W) == randomizer.integers(w[None])).all()


def test_all_randomness_is_drawn_before_the_input_is_ranked(monkeypatch):
    """Nonce, group and index within the group are drawn before the input is ranked."""
    order = []
    words, nearest = Entropy.words, PrivUnit2.nearest

    def words_recorded(self, count):
        order.append("draw")
        return words(self, count)

    def nearest_recorded(self, W, nonces):
        order.append("rank")
        return nearest(self, W, nonces)

    monkeypatch.setattr(Entropy, "words", words_recorded)
    monkeypatch.setattr(PrivUnit2, "nearest", nearest_recorded)
    PrivUnit2(3, 1.0, Fraction(2)).report(np.ones((5, 3)), Entropy())
    assert order.index("rank") == len(order) - 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_direction_that_does_not_exist_is_rejected(kind):
    randomizer = kind(3, 1.0, 1, directions=10, near=2)
    assert randomizer.payload_size == 16
    randomizer.read([bytes(12) + (9).to_bytes(4, "little")])
    for index in (10, 2**32 - 1):
        with pytest.raises(InvalidReport, match="does not exist"):
            randomizer.read([bytes(12) + index.to_bytes(4, "little")])


def test_opposite_indices_are_opposite_vectors():
    randomizer = PrivUnitG(5, 1.0, Fraction(1), directions=10, near=2)
    V = randomizer.read([bytes(12) + bytes([i, 0, 0, 0]) for i in range(10)])
    assert (V[::2] == -V[1::2]).all()


@pytest.mark.parametrize(
    "numbers",
    [
        {"directions": 11, "near": 2},
        {"directions": 0, "near": 1},
        {"directions": 10, "near": 6},
        {"directions": 10, "near": 0},
        {"directions": 1 << 40, "near": 1},
        {"directions": 10},
        {"near": 1},
    ],
)
def test_impossible_numbers_of_directions_are_rejected(numbers):
    with pytest.raises(InvalidInput, match=r"directions|near"):
        PrivUnit2(3, 1.0, Fraction(1), **numbers)


def test_chunked_reading_and_ranking_give_the_same_result(monkeypatch):
    randomizer = make("privunit2", dim=5, radius=1.0, epsilon=3)
    assert isinstance(randomizer, PrivUnit2)
    payloads = randomizer.report(np.random.default_rng(0).standard_normal((100, 5)), Entropy())
    whole = randomizer.read(payloads)
    monkeypatch.setattr(privunit, "_READ_ROWS", 1)
    assert np.array_equal(randomizer.read(payloads), whole)
    monkeypatch.setattr(privunit, "_SCORES", 1)
    W = np.random.default_rng(1).standard_normal((7, 5))
    nonces = np.random.default_rng(2).integers(0, 256, (7, 12), dtype=np.uint8)
    near = randomizer.nearest(W, nonces)
    monkeypatch.setattr(privunit, "_SCORES", 1 << 30)
    assert np.array_equal(randomizer.nearest(W, nonces), near)
