"""Uniform integers, columns and subsets, and randomized response: the exact law of each.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.sampling.choices import (
    MOST,
    MOST_COLUMNS,
    Response,
    below,
    by_keys,
    choose_columns,
    choose_subsets,
    place,
)
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.probability import digits, exp_minus, preferred
from tests.checks import ALPHA, counts_p_value
from tests.tape import Tape

# ---- Uniform integers

INTEGERS = 200_000


def test_every_value_is_equally_likely():
    assert counts_p_value(np.bincount(below(10, INTEGERS, Entropy())), np.full(10, 0.1)) > ALPHA


def test_the_bias_of_a_remainder_is_rejected():
    """Of 3·2**30 values a plain remainder of 32 bits gives the first third twice as often."""
    limit = 3 << 30
    thirds = np.full(3, 1 / 3)
    fair = below(limit, INTEGERS, Entropy()) >> 30
    assert counts_p_value(np.bincount(fair, minlength=3), thirds) > ALPHA
    broken = (Entropy().words(2 * INTEGERS).view("<u4") % limit) >> 30
    assert counts_p_value(np.bincount(broken, minlength=3), thirds) < ALPHA


@given(st.integers(1, MOST), st.lists(st.integers(0, MOST - 1), min_size=1, max_size=5))
def test_words_of_the_incomplete_run_are_redrawn(limit, words):
    good = MOST - MOST % limit - 1
    tape = Tape(b"".join(w.to_bytes(4, "little") for w in [*words, *[good] * len(words)]))
    drawn = below(limit, len(words), tape)
    expected = [(w if w <= good else good) % limit for w in words]
    assert drawn.tolist() == expected


@pytest.mark.parametrize("limit", [0, MOST + 1])
def test_an_impossible_limit_is_rejected(limit):
    with pytest.raises(ValueError, match="limit"):
        below(limit, 1, Entropy())


# ---- Columns


def test_columns_are_chosen_uniformly_without_repetition():
    chosen = choose_columns(5, 2, 60_000, Entropy())
    assert (chosen[:, 0] != chosen[:, 1]).all()
    pairs = np.bincount(chosen[:, 0] * 5 + chosen[:, 1], minlength=25)
    off_diagonal = ~np.eye(5, dtype=bool).ravel()
    assert counts_p_value(pairs[off_diagonal], np.full(20, 1 / 20)) > ALPHA
    # Broken control: every step swaps with any column, a common mistake in shuffles.
    broken = np.tile(np.arange(5), (60_000, 1))
    row = np.arange(60_000)
    for step in range(2):
        other = below(5, 60_000, Entropy())
        broken[row, other], broken[:, step] = broken[:, step].copy(), broken[row, other]
    pairs = np.bincount(broken[:, 0] * 5 + broken[:, 1], minlength=25)
    assert counts_p_value(pairs[off_diagonal], np.full(20, 1 / 20)) < ALPHA
    assert choose_columns(3, 3, 10, Entropy()).sum(axis=1).tolist() == [3] * 10


# ---- Subsets

SUBSETS = 60_000


def in_turn(keys: Iterator[np.ndarray]) -> Callable[[int], np.ndarray]:
    """A source that serves the given keys in order."""
    return lambda _: next(keys)


@pytest.mark.parametrize(("columns", "chosen"), [(1, 1), (3, 1), (3, 2), (4, 2), (4, 3), (3, 3)])
def test_over_all_keys_every_pair_of_subset_and_member_occurs_equally_often(columns, chosen):
    """Keys of five values represent those of 2**32; rows with a tie at the edge are redrawn."""
    counts: Counter[tuple[bytes, int]] = Counter()
    for keys in itertools.product(range(5), repeat=columns):
        answers = [np.array(keys, dtype=np.uint32), np.arange(columns, dtype=np.uint32)]
        queue = iter(answers)
        member, last = by_keys(columns, chosen, 1, in_turn(queue))
        redrawn = next(queue, None) is None
        assert redrawn == (keys.count(sorted(keys)[chosen - 1]) > 1)
        if not redrawn:
            assert member.sum() == chosen
            assert member[0, last[0]]
            counts[member.tobytes(), int(last[0])] += 1
    assert len(counts) == comb(columns, chosen) * chosen
    assert len(set(counts.values())) == 1


def pair_counts(member: np.ndarray, last: np.ndarray) -> np.ndarray:
    """How often each of the 30 pairs of a subset of 3 of 5 columns and a member of it occurs."""
    subsets = itertools.combinations(range(5), 3)
    sets: dict[tuple[int, ...], int] = {s: i for i, s in enumerate(subsets)}
    which = np.array([sets[tuple(np.flatnonzero(row).tolist())] for row in member])
    position = (np.cumsum(member, axis=1) - 1)[np.arange(len(last)), last]
    return np.bincount(3 * which + position, minlength=30)


def test_subsets_and_members_are_uniform():
    uniform = np.full(30, 1 / 30)
    counts = pair_counts(*choose_subsets(5, 3, SUBSETS, Entropy()))
    assert counts_p_value(counts, uniform) > ALPHA

    # Broken control: coarse keys, and a tie goes to the first column instead of a redraw.
    keys = Entropy().words(5 * SUBSETS).reshape(-1, 5) >> 12
    order = np.argsort(keys, axis=1, kind="stable")[:, :3]
    member = np.zeros((SUBSETS, 5), dtype=bool)
    np.put_along_axis(member, order, True, axis=1)
    assert counts_p_value(pair_counts(member, order[:, 2]), uniform) < ALPHA


@given(st.integers(1, 200), st.data(), st.integers(1, 5))
def test_every_subset_has_the_requested_size(columns, data, rows):
    chosen = data.draw(st.integers(1, columns))
    member, last = choose_subsets(columns, chosen, rows, Entropy())
    assert member.sum(axis=1).tolist() == [chosen] * rows
    assert member[np.arange(rows), last].all()


def test_only_rows_with_a_tie_at_the_edge_are_redrawn():
    drawn = [
        *[5, 9, 9, 7],  # two smallest: 5 and 7; the tie above does not matter
        *[4, 2**32 - 1, 2, 2],  # a tie at the second smallest
        *[8, 6, 6, 1],  # and here
        *[1, 0, 3, 2],  # the second row again
        *[0, 7, 0, 9],  # the third again: another tie
        *[3, 3, 2, 1],  # and again: 1 and 2
    ]
    tape = Tape(b"".join(key.to_bytes(4, "little") for key in drawn))
    member, last = choose_subsets(4, 2, 3, tape)
    assert tape.at_end()
    assert member.astype(int).tolist() == [[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]]
    assert last.tolist() == [3, 0, 2]


@pytest.mark.parametrize(("columns", "chosen"), [(3, 0), (3, 4), (0, 0), (MOST_COLUMNS + 1, 1)])
def test_impossible_subsets_are_rejected(columns, chosen):
    with pytest.raises(ValueError, match="cannot choose sets"):
        choose_subsets(columns, chosen, 1, Entropy())


# ---- Randomized response

RESPONSES = 300_000


def response_law(size: int, near: list[int], epsilon: float) -> np.ndarray:
    weight = np.ones(size)
    weight[near] = np.exp(epsilon)
    return weight / weight.sum()


def respond(size: int, near: list[int], epsilon: Fraction) -> np.ndarray:
    is_near, offset = Response(size, len(near), epsilon).draw(RESPONSES, Entropy())
    return place(is_near, offset, np.tile(near, (RESPONSES, 1)))


@pytest.mark.parametrize(
    ("size", "near", "epsilon"), [(2, [1], 1), (10, [7], 2), (10, [0, 4, 9], 1), (50, [3], 4)]
)
def test_each_preferred_symbol_has_weight_e_to_the_epsilon(size, near, epsilon):
    counts = np.bincount(respond(size, near, Fraction(epsilon)), minlength=size)
    assert counts_p_value(counts, response_law(size, near, epsilon)) > ALPHA
    # Broken control: the law of a slightly larger ε.
    assert counts_p_value(counts, response_law(size, near, epsilon + 0.1)) < ALPHA


@given(
    st.integers(1, 40),
    st.integers(1, 10**6),
    st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=1000),
)
def test_the_ratio_of_the_two_weights_is_e_to_the_epsilon_to_every_digit(near, far, epsilon):
    """p/near : (1−p)/far = e^ε, checked by enclosures of both sides."""
    bits = 256
    low, high = preferred(near, far, epsilon, bits)
    one = 1 << bits
    # (1 − p) near / (p far) = e^{−ε}
    ratio_low = Fraction((one - high) * near, high * far)
    ratio_high = Fraction((one - low) * near, low * far)
    exact_low, exact_high = (Fraction(side, one) for side in exp_minus(epsilon, bits))
    assert ratio_low <= exact_high
    assert exact_low <= ratio_high


def test_a_probability_rounded_up_would_exceed_epsilon():
    """Broken control: p rounded up to 8 digits has a larger ratio than e^ε."""
    epsilon = Fraction(5)
    p = digits(partial(preferred, 1, 9, epsilon), 8) + 1
    realised = Fraction(p, 2**8 - p) * 9
    assert realised * Fraction(exp_minus(epsilon, 200)[0], 1 << 200) > 1


@given(st.integers(2, 30), st.data())
def test_place_is_a_bijection_from_draws_to_symbols(size, data):
    near = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1)))
    draws = [(True, k) for k in range(len(near))] + [(False, k) for k in range(size - len(near))]
    is_near, offset = (np.array(column) for column in zip(*draws, strict=True))
    symbols = place(is_near, offset, np.tile(near, (size, 1)))
    assert symbols[: len(near)].tolist() == near
    assert sorted(symbols.tolist()) == list(range(size))


@pytest.mark.parametrize("arguments", [(5, 0, 1), (5, 5, 1), (2**33, 1, 1), (5, 1, 0), (5, 1, -1)])
def test_a_response_without_two_groups_or_budget_is_rejected(arguments):
    size, near, epsilon = arguments
    with pytest.raises(ValueError, match="invalid randomized response"):
        Response(size, near, Fraction(epsilon))
