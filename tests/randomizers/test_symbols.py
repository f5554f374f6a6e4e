"""Randomized response and subset selection: exact laws, unbiasedness, strict payloads and inputs.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.randomizers import base, symbols
from offaxis.randomizers.base import FiniteSet
from offaxis.randomizers.symbols import KaryResponse, SubsetSelection, best_size, own_coin
from offaxis.sampling.choices import below, response_of
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.probability import exp_minus
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, counts_p_value, mean_p_value
from tests.tape import Tape

COUNT = 60_000
ONE = 1 << 256
SMALL = [
    KaryResponse(2, Fraction(1)),
    KaryResponse(5, Fraction(3, 2)),
    SubsetSelection(2, Fraction(1), 1),
    SubsetSelection(5, Fraction(1), 2),
    SubsetSelection(5, Fraction(3, 2), 4),
    SubsetSelection(6, Fraction(1, 3), 3),
]
every = pytest.mark.parametrize("randomizer", SMALL, ids=str)


def payload_of(randomizer, own: int, *words: int) -> bytes:
    """The payload of ``report`` for the given random words; it must use all of them."""
    tape = Tape(b"".join(word.to_bytes(4, "little") for word in words))
    with mock.patch.object(base, "require_entropy"):
        (payload,) = randomizer.report(np.array([own]), tape)
    assert tape.at_end()
    return payload


def coin(randomizer):
    if isinstance(randomizer, KaryResponse):
        return response_of(randomizer.size, 1, randomizer.epsilon)._near_probability
    return own_coin(randomizer.size, randomizer.chosen, randomizer.epsilon)


def draws(randomizer) -> list[list[int]]:
    """The words of every draw except the coin, all equally likely."""
    k = randomizer.size
    if isinstance(randomizer, KaryResponse):
        return [[0, other] for other in range(k - 1)]
    return [
        [2 if j == last else 1 if j in members else 3 for j in range(k - 1)]
        for members in itertools.combinations(range(k - 1), randomizer.chosen)
        for last in members
    ]


def exact_law(randomizer, own: int) -> dict[bytes, tuple[Fraction, Fraction]]:
    """Every payload with its probability if the coin shows heads (the input symbol) and tails."""
    head = coin(randomizer).digits(32)
    all_draws = draws(randomizer)
    share = Fraction(1, len(all_draws))
    law: dict[bytes, tuple[Fraction, Fraction]] = {}
    for words in all_draws:
        for heads, word in enumerate((head + 1, head - 1)):
            payload = payload_of(randomizer, own, word, *words)
            on_heads, on_tails = law.get(payload, (Fraction(0), Fraction(0)))
            law[payload] = (on_heads + heads * share, on_tails + (1 - heads) * share)
    return law


def worst_ratios(laws, p: Fraction) -> set[Fraction]:
    """The ratios above 1 of all pairs of symbols at all payloads."""
    chances = [{y: t * p + f * (1 - p) for y, (t, f) in law.items()} for law in laws]
    assert all(sum(chance.values()) == 1 for chance in chances)
    return {a[y] / b[y] for a in chances for b in chances for y in a if a[y] > b[y]}


@every
def test_over_all_draws_the_worst_ratio_is_e_to_the_epsilon_exactly(randomizer):
    laws = [exact_law(randomizer, own) for own in range(randomizer.size)]
    payloads = laws[0].keys()
    assert len(payloads) == math.comb(randomizer.size, randomizer.named)
    assert all(law.keys() == payloads for law in laws)
    digits = coin(randomizer).digits(256)
    (low,), (high,) = (worst_ratios(laws, Fraction(digits + up, ONE)) for up in (0, 1))
    exp_low, exp_high = (Fraction(side, ONE) for side in exp_minus(randomizer.epsilon, 256))
    assert low * exp_low <= 1 <= high * exp_high
    assert high * exp_high - low * exp_low < Fraction(1, 2**200)
    # Broken control: one more in the eighth digit.
    (broken,) = worst_ratios(laws, Fraction((digits >> 248) + 1, 1 << 8))
    assert broken * exp_low > 1
    for own, law in enumerate(laws):
        named = randomizer.log_likelihood(list(payloads), np.full(len(payloads), own)) > 0
        assert [law[y][0] > 0 for y in payloads] == named.tolist()
        assert [law[y][1] == 0 for y in payloads] == named.tolist()


@given(
    st.integers(2, 1 << 16),
    st.data(),
    st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=1000),
)
def test_sets_with_the_input_symbol_have_weight_e_to_the_epsilon_to_every_digit(
    size, data, epsilon
):
    """Pr[x in S] / C(k−1, d−1) : Pr[x not in S] / C(k−1, d) = e^ε, by enclosures."""
    chosen = data.draw(st.integers(1, min(size - 1, 200)))
    p = own_coin(size, chosen, epsilon).digits(256)
    # C(k−1, d) : C(k−1, d−1), computed directly for sets that are small enough.
    sets = Fraction(math.comb(size - 1, chosen), math.comb(size - 1, chosen - 1))
    exp_low, exp_high = (Fraction(side, ONE) for side in exp_minus(epsilon, 256))
    assert (ONE - p - 1) <= sets * (p + 1) * exp_high
    assert sets * p * exp_low <= ONE - p


def counts(payloads: list[bytes], cells: list[bytes]) -> np.ndarray:
    frequency = Counter(payloads)
    assert set(frequency) <= set(cells)
    return np.array([frequency[cell] for cell in cells])


def law_p_value(randomizer, own: int, payloads: list[bytes]) -> float:
    law = exact_law(randomizer, own)
    p = coin(randomizer).digits(256) / ONE
    chances = np.array([float(t) * p + float(f) * (1 - p) for t, f in law.values()])
    return counts_p_value(counts(payloads, list(law)), chances)


@every
@pytest.mark.parametrize("index", [0, 1, -1])
def test_payloads_follow_the_exact_law(randomizer, index):
    own = range(randomizer.size)[index]
    payloads = randomizer.report(np.full(COUNT, own), Entropy())
    assert law_p_value(randomizer, own, payloads) > ALPHA
    assert law_p_value(randomizer, (own + 1) % randomizer.size, payloads) < ALPHA


def neighbours(columns, chosen, rows, bits):
    """Sets of adjacent columns with a uniform start: not uniform sets."""
    first = below(columns, rows, bits)
    member = np.zeros((rows, columns), dtype=bool)
    for step in range(chosen):
        member[np.arange(rows), (first + step) % columns] = True
    return member, first


BROKEN_COINS = {
    "twice the budget": lambda k, d, e: own_coin(k, d, 2 * e),
    "d one too large": lambda k, d, e: own_coin(k, d + 1, e),
    "d one too small": lambda k, d, e: own_coin(k, d - 1, e),
}


@pytest.mark.parametrize("broken", [*BROKEN_COINS, "sets not uniform"])
def test_the_same_check_rejects_a_broken_subset_selection(broken):
    randomizer = SubsetSelection(6, Fraction(1), 3)
    patch: AbstractContextManager[object]
    if broken in BROKEN_COINS:
        patch = mock.patch.object(symbols, "own_coin", BROKEN_COINS[broken])
    else:
        patch = mock.patch.object(symbols, "choose_subsets", neighbours)
    with patch:
        payloads = randomizer.report(np.full(COUNT, 2), Entropy())
    assert law_p_value(randomizer, 2, payloads) < ALPHA


def place_among_all(near, offset, preferred):
    """The other symbol may be the input symbol: the numbering does not skip it."""
    return np.where(near, preferred[:, 0], offset)


@pytest.mark.parametrize("broken", ["twice the budget", "input symbol not skipped"])
def test_the_same_check_rejects_a_broken_response(broken):
    randomizer = KaryResponse(5, Fraction(1))
    if broken == "input symbol not skipped":
        with mock.patch.object(symbols, "place", place_among_all):
            payloads = randomizer.report(np.full(COUNT, 2), Entropy())
    else:
        payloads = KaryResponse(5, Fraction(2)).report(np.full(COUNT, 2), Entropy())
    assert law_p_value(randomizer, 2, payloads) < ALPHA


@pytest.mark.parametrize("source", ["simulate", "report"])
@pytest.mark.parametrize(
    "randomizer", [*SMALL[:2], *SMALL[3:], SubsetSelection(20, Fraction(2))], ids=str
)
def test_simulation_and_reports_are_unbiased_with_the_stated_error(randomizer, source):
    rng = np.random.default_rng(3)
    for own in (0, randomizer.size - 1):
        W = np.full(30_000, own)
        if source == "simulate":
            V = draw_observations(randomizer, W, rng)
        else:
            V = randomizer.read(randomizer.report(W, Entropy()))
        assert V.shape == (W.size, randomizer.size)
        assert V.dtype == np.float64
        assert np.allclose(V.sum(axis=1), 1)
        assert ((V > 0).sum(axis=1) == randomizer.named).all()
        one_hot = np.eye(randomizer.size)[own]
        assert mean_p_value(V, one_hot) > ALPHA
        assert mean_p_value(V + 0.2 * np.abs(V).mean(), one_hot) < ALPHA
        error = ((V - one_hot) ** 2).sum(axis=1)
        if np.ptp(error) > 1e-9:
            assert mean_p_value(error, randomizer.expected_squared_error()) > ALPHA
            assert mean_p_value(0.9 * error, randomizer.expected_squared_error()) < ALPHA
        else:
            assert np.allclose(error, randomizer.expected_squared_error())


@given(st.integers(2, 60), st.fractions(Fraction(1, 1000), 100, max_denominator=1000))
def test_levels_and_error_are_the_closed_forms(size, epsilon):
    """From a and b themselves, in rational arithmetic; and no set size has a smaller error."""
    q = Fraction(math.exp(-float(epsilon)))
    errors = []
    for d in range(1, size):
        randomizer = SubsetSelection(size, epsilon, d)
        a = d / (d + (size - d) * q)
        b = (d - a) / (size - 1)
        assert randomizer.levels == pytest.approx(
            (float(-b / (a - b)), float((1 - b) / (a - b))), rel=1e-9
        )
        error = (a * (1 - a) + (size - 1) * b * (1 - b)) / (a - b) ** 2
        assert randomizer.expected_squared_error() == pytest.approx(float(error), rel=1e-9)
        assert randomizer.own_chance == pytest.approx(float(a), rel=1e-12)
        errors.append(float(error))
    best = SubsetSelection(size, epsilon)
    assert best.chosen == best_size(size, epsilon)
    assert abs(best.chosen - size / (math.exp(epsilon) + 1)) <= 1
    assert best.expected_squared_error() <= min(errors) * (1 + 1e-9)
    assert KaryResponse(size, epsilon).levels == SubsetSelection(size, epsilon, 1).levels


# ---- Payloads and inputs


@given(st.sampled_from([2, 3, 7, 8, 9]), st.data())
def test_a_set_payload_is_read_back_exactly_or_rejected(size, data):
    randomizer = SubsetSelection(size, Fraction(1), data.draw(st.integers(1, size - 1)))
    width = randomizer.payload_size
    sets = st.sets(st.integers(0, 8 * width - 1), min_size=randomizer.chosen)
    of_this_width = sets.map(lambda s: sum(1 << j for j in s).to_bytes(width, "little"))
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
def test_a_response_payload_is_read_back_exactly_or_rejected(size, data):
    randomizer = KaryResponse(size, Fraction(1))
    width = 1 if size <= 256 else 2 if size <= 65_536 else 4
    edge = st.integers(size - 2, min(size + 1, (1 << 8 * width) - 1))
    of_this_width = edge.map(lambda symbol: symbol.to_bytes(width, "little"))
    payload = data.draw(of_this_width | st.binary(max_size=5))
    assert randomizer.payload_size == width
    number = int.from_bytes(payload, "little")
    if len(payload) == width and number < size:
        (reported,) = np.flatnonzero(randomizer.read([payload])[0] > 0)
        assert reported == number
    else:
        with pytest.raises(InvalidReport):
            randomizer.read([payload])


def test_bits_and_symbols_beyond_the_last_symbol_are_rejected():
    randomizer = SubsetSelection(5, Fraction(1), 2)
    for octet in range(256):
        if octet < 32 and octet.bit_count() == 2:
            assert (randomizer.read([bytes([octet])]) > 0).sum() == 2
        else:
            with pytest.raises(InvalidReport, match="nothing else"):
                randomizer.read([bytes([octet])])
    with pytest.raises(InvalidReport, match="no client"):
        KaryResponse(5, Fraction(1)).read([b"\4", b"\5"])


def test_given_words_give_the_documented_bytes():
    assert payload_of(KaryResponse(300, Fraction(1)), 258, 0, 0, 5) == b"\2\1"
    assert payload_of(KaryResponse(300, Fraction(1)), 258, 2**32 - 1, 0, 257) == b"\1\1"
    assert payload_of(KaryResponse(300, Fraction(1)), 258, 2**32 - 1, 0, 258) == b"\3\1"
    assert payload_of(KaryResponse(70_000, Fraction(1)), 65_536, 0, 0, 5) == b"\0\0\1\0"
    nine = SubsetSelection(9, Fraction(1), 3)
    keys = [10, 1, 20, 5, 30, 40, 50, 60]  # smallest keys: symbols 1, 3 and, the largest, 0
    assert payload_of(nine, 4, 2**32 - 1, *keys) == bytes([0b1011, 0])
    assert payload_of(nine, 4, 0, *keys) == bytes([0b11010, 0])
    # Among the others, the number of the input symbol denotes the last symbol.
    assert payload_of(nine, 3, 2**32 - 1, *keys) == bytes([0b0011, 1])
    assert payload_of(nine, 8, 0, *keys) == bytes([0b1010, 1])


@pytest.mark.parametrize(
    "randomizer",
    [
        KaryResponse(5, Fraction(1)),
        SubsetSelection(5, Fraction(1)),
        SubsetSelection(40, Fraction(3)),
    ],
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
def test_anything_but_symbols_is_rejected_before_any_entropy_is_used(randomizer, W):
    tape = Tape(b"")
    with mock.patch.object(base, "require_entropy"), pytest.raises(InvalidInput, match="symbols"):
        randomizer.report(W, tape)
    with pytest.raises(InvalidInput, match="symbols"):
        draw_observations(randomizer, W, np.random.default_rng(0))
    with pytest.raises(TypeError, match="Entropy"):
        randomizer.report(W, tape)


@pytest.mark.parametrize("dtype", ["i1", "u1", ">i2", "u4", "u8", "i8"])
@pytest.mark.parametrize(
    "randomizer", [KaryResponse(70, Fraction(100)), SubsetSelection(70, Fraction(100), 3)]
)
def test_at_the_largest_budget_every_input_symbol_is_named(randomizer, dtype):
    """False alarms: one in 2**130. Several chunks, so that no symbol can get another's report."""
    W = np.arange(70, dtype=dtype)[::-1]
    with mock.patch.object(symbols, "_PART", 700):
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
def test_the_checked_symbols_are_the_released_ones(randomizer):
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
    given_as: tuple[Any, ...] = (np.int64(9), "1/3", np.int32(2))
    built = SubsetSelection(*given_as)
    assert built == SubsetSelection(9, Fraction(1, 3), 2)
    assert [type(v) for v in (built.size, built.epsilon, built.chosen)] == [int, Fraction, int]
    assert built.guarantee.pure
    assert built.guarantee.epsilon == Fraction(1, 3)
    assert built.domain == FiniteSet(9)
    assert [w.shape for w in built.worst_pair()] == [(), ()]
    for kind, most in ((KaryResponse, 1 << 20), (SubsetSelection, 1 << 16)):
        assert kind(most, Fraction(1)).size == most
        for size in (1, 0, -1, most + 1, 2.0, True, "4"):
            with pytest.raises(InvalidInput, match="size"):
                kind(size, Fraction(1))  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="at most 100"):
            kind(4, Fraction(101))
        with pytest.raises(InvalidInput, match="epsilon"):
            kind(4, Fraction(0))
    for chosen in (0, 4, -2, 1.0, True, "1"):
        with pytest.raises(InvalidInput, match="chosen"):
            SubsetSelection(4, Fraction(1), chosen)  # type: ignore[arg-type]
