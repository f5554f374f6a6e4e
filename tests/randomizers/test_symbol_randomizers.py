"""Randomized response and subset selection: exact laws, twins, unbiasedness, payloads."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.randomizers import base
from offaxis.randomizers import symbols as response
from offaxis.randomizers import symbols as subset
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
    """What ``report`` makes of written random words; they must be used up."""
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
    """Words that stand for every draw but the coin's, each equally likely."""
    k = randomizer.size
    if isinstance(randomizer, KaryResponse):
        return [[0, other] for other in range(k - 1)]
    return [
        [2 if j == last else 1 if j in members else 3 for j in range(k - 1)]
        for members in itertools.combinations(range(k - 1), randomizer.chosen)
        for last in members
    ]


def exact_law(randomizer, own: int) -> dict[bytes, tuple[Fraction, Fraction]]:
    """Every payload with its chance if the coin shows the own symbol, and if it does not."""
    head = coin(randomizer).digits(32)
    all_draws = draws(randomizer)
    share = Fraction(1, len(all_draws))
    law: dict[bytes, tuple[Fraction, Fraction]] = {}
    for words in all_draws:
        for told, word in enumerate((head + 1, head - 1)):
            payload = payload_of(randomizer, own, word, *words)
            true, false = law.get(payload, (Fraction(0), Fraction(0)))
            law[payload] = (true + told * share, false + (1 - told) * share)
    return law


def worst_ratios(laws, p: Fraction) -> set[Fraction]:
    """The ratios other than 1 of all pairs of symbols at all payloads, at least 1."""
    chances = [{y: t * p + f * (1 - p) for y, (t, f) in law.items()} for law in laws]
    assert all(sum(chance.values()) == 1 for chance in chances)
    return {one[y] / two[y] for one in chances for two in chances for y in one if one[y] > two[y]}


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
    # The twin: one more in the eighth digit.
    (twin,) = worst_ratios(laws, Fraction((digits >> 248) + 1, 1 << 8))
    assert twin * exp_low > 1
    for own, law in enumerate(laws):
        named = randomizer.log_likelihood(list(payloads), np.full(len(payloads), own)) > 0
        assert [law[y][0] > 0 for y in payloads] == named.tolist()
        assert [law[y][1] == 0 for y in payloads] == named.tolist()


@given(
    st.integers(2, 1 << 16),
    st.data(),
    st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=1000),
)
def test_sets_with_the_own_symbol_weigh_e_to_the_epsilon_to_every_digit(size, data, epsilon):
    """Pr[own in S] / C(k−1, d−1) : Pr[own not in S] / C(k−1, d) = e^ε, by enclosures."""
    chosen = data.draw(st.integers(1, min(size - 1, 200)))
    p = own_coin(size, chosen, epsilon).digits(256)
    # C(k−1, d) : C(k−1, d−1), written out for sets of a size that can be counted.
    sets = Fraction(math.comb(size - 1, chosen), math.comb(size - 1, chosen - 1))
    exp_low, exp_high = (Fraction(side, ONE) for side in exp_minus(epsilon, 256))
    assert (ONE - p - 1) <= sets * (p + 1) * exp_high
    assert sets * p * exp_low <= ONE - p


def counts(payloads: list[bytes], cells: list[bytes]) -> np.ndarray:
    found = Counter(payloads)
    assert set(found) <= set(cells)
    return np.array([found[cell] for cell in cells])


def law_p_value(randomizer, own: int, payloads: list[bytes]) -> float:
    law = exact_law(randomizer, own)
    p = coin(randomizer).digits(256) / ONE
    chances = np.array([float(t) * p + float(f) * (1 - p) for t, f in law.values()])
    return counts_p_value(counts(payloads, list(law)), chances)


@every
@pytest.mark.parametrize("place", [0, 1, -1])
def test_payloads_follow_the_exact_law(randomizer, place):
    own = range(randomizer.size)[place]
    payloads = randomizer.report(np.full(COUNT, own), Entropy())
    assert law_p_value(randomizer, own, payloads) > ALPHA
    assert law_p_value(randomizer, (own + 1) % randomizer.size, payloads) < ALPHA


def neighbours(columns, chosen, rows, bits):
    """Sets of columns that stand side by side, with a uniform start: not uniform sets."""
    first = below(columns, rows, bits)
    member = np.zeros((rows, columns), dtype=bool)
    for step in range(chosen):
        member[np.arange(rows), (first + step) % columns] = True
    return member, first


TWINS = {
    "told with twice the budget": lambda k, d, e: own_coin(k, d, 2 * e),
    "d one too large": lambda k, d, e: own_coin(k, d + 1, e),
    "d one too small": lambda k, d, e: own_coin(k, d - 1, e),
}


@pytest.mark.parametrize("twin", [*TWINS, "sets not uniform"])
def test_the_same_check_catches_a_broken_subset_selection(twin):
    randomizer = SubsetSelection(6, Fraction(1), 3)
    if twin in TWINS:
        patch = mock.patch.object(subset, "own_coin", TWINS[twin])
    else:
        patch = mock.patch.object(subset, "choose_subsets", neighbours)
    with patch:
        payloads = randomizer.report(np.full(COUNT, 2), Entropy())
    assert law_p_value(randomizer, 2, payloads) < ALPHA


def careless(near, offset, preferred):
    """A lie may be the truth: the other symbols are not numbered without the own one."""
    return np.where(near, preferred[:, 0], offset)


@pytest.mark.parametrize("twin", ["told with twice the budget", "a lie may be the truth"])
def test_the_same_check_catches_a_broken_response(twin):
    randomizer = KaryResponse(5, Fraction(1))
    if twin == "a lie may be the truth":
        with mock.patch.object(response, "place", careless):
            payloads = randomizer.report(np.full(COUNT, 2), Entropy())
    else:
        payloads = KaryResponse(5, Fraction(2)).report(np.full(COUNT, 2), Entropy())
    assert law_p_value(randomizer, 2, payloads) < ALPHA


@pytest.mark.parametrize("face", ["simulate", "report"])
@pytest.mark.parametrize(
    "randomizer", [*SMALL[:2], *SMALL[3:], SubsetSelection(20, Fraction(2))], ids=str
)
def test_both_faces_are_unbiased_with_the_stated_error(randomizer, face):
    rng = np.random.default_rng(3)
    for own in (0, randomizer.size - 1):
        W = np.full(30_000, own)
        if face == "simulate":
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
    """From a and b themselves, in long arithmetic; and no set size has a smaller error."""
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
    alike = KaryResponse(size, epsilon)
    assert alike.levels == SubsetSelection(size, epsilon, 1).levels
