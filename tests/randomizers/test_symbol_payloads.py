"""Symbols on the wire, read strictly; and what is taken for a symbol."""

from __future__ import annotations

from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.randomizers import base
from offaxis.randomizers import symbols as subset
from offaxis.randomizers.base import FiniteSet
from offaxis.randomizers.symbols import KaryResponse, SubsetSelection
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import draw_observations
from tests.randomizers.test_symbol_randomizers import SMALL, payload_of
from tests.tape import Tape


@given(st.sampled_from([2, 3, 7, 8, 9]), st.data())
def test_a_set_is_read_and_written_the_same_or_refused(size, data):
    randomizer = SubsetSelection(size, Fraction(1), data.draw(st.integers(1, size - 1)))
    width = randomizer.payload_size
    symbols = st.sets(st.integers(0, 8 * width - 1), min_size=randomizer.chosen)
    of_this_width = symbols.map(lambda s: sum(1 << j for j in s).to_bytes(width, "little"))
    payload = data.draw(of_this_width | st.binary(max_size=3))
    number = int.from_bytes(payload, "little")
    legal = (
        len(payload) == randomizer.payload_size
        and number < 1 << size
        and number.bit_count() == randomizer.chosen
    )
    if legal:
        V = randomizer.read([payload])
        assert np.packbits(V > 0, axis=1, bitorder="little")[0].tobytes() == payload
    else:
        with pytest.raises(InvalidReport):
            randomizer.read([payload])


@given(st.sampled_from([2, 255, 256, 257, 65_536, 65_537, 70_000]), st.data())
def test_a_response_is_read_and_written_the_same_or_refused(size, data):
    randomizer = KaryResponse(size, Fraction(1))
    width = 1 if size <= 256 else 2 if size <= 65_536 else 4
    edge = st.integers(size - 2, min(size + 1, (1 << 8 * width) - 1))
    of_this_width = edge.map(lambda symbol: symbol.to_bytes(width, "little"))
    payload = data.draw(of_this_width | st.binary(max_size=5))
    assert randomizer.payload_size == width
    number = int.from_bytes(payload, "little")
    if len(payload) == width and number < size:
        (told,) = np.flatnonzero(randomizer.read([payload])[0] > 0)
        assert told == number
    else:
        with pytest.raises(InvalidReport):
            randomizer.read([payload])


def test_a_bit_beyond_the_last_symbol_and_a_symbol_beyond_the_last_are_refused():
    randomizer = SubsetSelection(5, Fraction(1), 2)
    for octet in range(256):
        if octet < 32 and octet.bit_count() == 2:
            assert (randomizer.read([bytes([octet])]) > 0).sum() == 2
        else:
            with pytest.raises(InvalidReport, match="nothing else"):
                randomizer.read([bytes([octet])])
    with pytest.raises(InvalidReport, match="no client"):
        KaryResponse(5, Fraction(1)).read([b"\4", b"\5"])


def test_written_bits_give_written_bytes():
    assert payload_of(KaryResponse(300, Fraction(1)), 258, 0, 0, 5) == b"\2\1"
    assert payload_of(KaryResponse(300, Fraction(1)), 258, 2**32 - 1, 0, 257) == b"\1\1"
    assert payload_of(KaryResponse(300, Fraction(1)), 258, 2**32 - 1, 0, 258) == b"\3\1"
    assert payload_of(KaryResponse(70_000, Fraction(1)), 65_536, 0, 0, 5) == b"\0\0\1\0"
    nine = SubsetSelection(9, Fraction(1), 3)
    keys = [10, 1, 20, 5, 30, 40, 50, 60]  # the smallest: of 1, 3 and, largest of them, 0
    assert payload_of(nine, 4, 2**32 - 1, *keys) == bytes([0b1011, 0])
    assert payload_of(nine, 4, 0, *keys) == bytes([0b11010, 0])
    # The own symbol's number among the others stands for the last symbol.
    assert payload_of(nine, 3, 2**32 - 1, *keys) == bytes([0b0011, 1])
    assert payload_of(nine, 8, 0, *keys) == bytes([0b1010, 1])


@pytest.mark.parametrize(
    "randomizer",
    [KaryResponse(5, Fraction(1)), SubsetSelection(5, Fraction(1)), SubsetSelection(40, 3)],
    ids=str,
)
def test_the_amount_of_entropy_does_not_depend_on_the_symbol(randomizer):
    used = set()
    for own in range(randomizer.size):
        tape = Tape.named("amount", 1 << 16)
        with mock.patch.object(base, "require_entropy"):
            randomizer.report(np.full(50, own), tape)
        used.add(tape.used)
    assert len(used) == 1


BAD = [
    np.array([0.0, 1.0]),
    np.array([True, False]),
    np.array([0, 1], dtype=object),
    np.array([[0, 1]]),
    np.array(0),
    np.array([], dtype=np.int64),
    np.array([0, 5]),
    np.array([0, -1], dtype=np.int8),
    np.array([2**63], dtype=np.uint64),
    np.array(["0"]),
    np.ma.array([0, 1], mask=[False, True]),
    [[0], [0, 1]],
    [2**70],
]


@pytest.mark.parametrize("W", BAD, ids=repr)
@pytest.mark.parametrize("randomizer", [SMALL[1], SMALL[3]], ids=str)
def test_anything_but_symbols_is_refused_before_any_entropy_is_used(randomizer, W):
    tape = Tape(b"")
    with mock.patch.object(base, "require_entropy"), pytest.raises(InvalidInput, match="symbols"):
        randomizer.report(W, tape)
    with pytest.raises(InvalidInput, match="symbols"):
        draw_observations(randomizer, W, np.random.default_rng(0))
    with pytest.raises(TypeError, match="Entropy"):
        randomizer.report(W, tape)


@pytest.mark.parametrize("dtype", ["i1", "u1", ">i2", "u4", "u8", "i8"])
@pytest.mark.parametrize("randomizer", [KaryResponse(70, 100), SubsetSelection(70, 100, 3)])
def test_at_the_largest_budget_every_own_symbol_is_named(randomizer, dtype):
    """A false alarm in 2**130; over several parts, so that no symbol can go to another's report."""
    W = np.arange(70, dtype=dtype)[::-1]
    with mock.patch.object(subset, "_PART", 700):
        payloads = randomizer.report(W, Entropy())
    assert len(payloads) == 70
    V = randomizer.read(payloads)
    assert (V[np.arange(70), W] > 0).all()
    assert (randomizer.log_likelihood(payloads, W) == 100).all()
    assert (randomizer.log_density(V, W) == 100).all()
    others = (W.astype(int) + 1) % 70
    assert np.array_equal(
        randomizer.log_density(V, others), randomizer.log_likelihood(payloads, others)
    )


@pytest.mark.parametrize("randomizer", [SMALL[1], SMALL[3]], ids=str)
def test_what_is_checked_is_what_is_released(randomizer):
    W = np.zeros(50, dtype=np.int64)

    class Meddling(Tape):
        def words(self, count):
            W[:] = 99
            return super().words(count)

    with mock.patch.object(base, "require_entropy"):
        changed = randomizer.report(W, Meddling.named("meddling", 1 << 14))
        W[:] = 0
        kept = randomizer.report(W, Tape.named("meddling", 1 << 14))
    assert changed == kept


def test_parameters_are_read_exactly_and_within_limits():
    built = SubsetSelection(np.int64(9), "1/3", np.int32(2))
    assert built == SubsetSelection(9, Fraction(1, 3), 2)
    assert [type(v) for v in (built.size, built.epsilon, built.chosen)] == [int, Fraction, int]
    assert built.guarantee.pure
    assert built.guarantee.epsilon == Fraction(1, 3)
    assert built.domain == FiniteSet(9)
    assert [w.shape for w in built.worst_pair()] == [(), ()]
    for kind, most in ((KaryResponse, 1 << 20), (SubsetSelection, 1 << 16)):
        assert kind(most, 1).size == most
        for size in (1, 0, -1, most + 1, 2.0, True, "4"):
            with pytest.raises(InvalidInput, match="size"):
                kind(size, 1)
        with pytest.raises(InvalidInput, match="at most 100"):
            kind(4, 101)
        with pytest.raises(InvalidInput, match="epsilon"):
            kind(4, 0)
    for chosen in (0, 4, -2, 1.0, True, "1"):
        with pytest.raises(InvalidInput, match="chosen"):
            SubsetSelection(4, 1, chosen)
