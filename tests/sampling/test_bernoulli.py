"""Exact coins: every digit decides, none is guessed."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.sampling.entropy import Entropy
from offaxis.sampling.probability import Probability, exp_minus
from tests.checks import ALPHA, counts_p_value
from tests.tape import Tape


def half_life() -> Probability:
    return Probability(partial(exp_minus, Fraction(1)))


def written(*integers: int) -> Tape:
    return Tape(b"".join(i.to_bytes(8, "little") for i in integers))


def test_the_first_different_digit_decides():
    p = half_life()
    head, tail = p.digits(80) >> 64, p.digits(80) & ((1 << 64) - 1)
    assert head == p.digits(16)
    assert p.exceeds(16, written(tail - 1))
    assert not p.exceeds(16, written(tail + 1))


def test_a_tie_is_never_guessed_but_fetches_more_bits():
    p = half_life()
    tie = p.digits(80) & ((1 << 64) - 1)
    after = p.digits(144) & ((1 << 64) - 1)
    tape = written(tie, after - 1)
    assert p.exceeds(16, tape)
    assert tape.at_end()
    assert not p.exceeds(16, written(tie, after + 1))


@given(st.fractions(min_value=0, max_value=1, max_denominator=10**12), st.data())
def test_a_batch_of_flips_compares_every_word_with_p(p, data):
    """Against the definition U < p in exact rationals, with words at and around the digits of p."""
    coin = Probability.of(p)
    head = coin.digits(32)
    near = [w for w in (head - 1, head, head + 1, 0, 2**32 - 1) if 0 <= w < 2**32]
    words = data.draw(st.lists(st.sampled_from(near), min_size=1, max_size=6))
    more = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
    tape = Tape(
        b"".join(w.to_bytes(4, "little") for w in words)
        + b"".join(m.to_bytes(8, "little") for m in more)
    )
    expected, fetched = [], iter(more)
    for word in words:
        fresh = next(fetched) if word == head else 0
        expected.append(Fraction(word * 2**64 + fresh, 2**96) < p)
    if all(Fraction(w * 2**64 + m, 2**96) != p for w in words for m in more):
        assert coin.draw(len(words), tape).tolist() == expected


@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(1, 4), Fraction(999, 1000)])
def test_flips_come_true_with_probability_p(p):
    flips = Probability.of(p).draw(400_000, Entropy())
    law = np.array([1 - p, p], dtype=float)
    assert counts_p_value(np.bincount(flips, minlength=2), law) > ALPHA
    # Twin: the comparison of six bits that a hurried client would make, off by one.
    coarse = Probability.of(Fraction(int(p * 2**6) - 1, 2**6)).draw(400_000, Entropy())
    assert counts_p_value(np.bincount(coarse, minlength=2), law) < ALPHA


def test_certain_coins_are_certain():
    assert not Probability.of(Fraction(0)).draw(1000, Entropy()).any()
    assert Probability.of(Fraction(1)).draw(1000, Entropy()).all()
    tape = Tape(bytes(4) + bytes(8) + (1).to_bytes(8, "little"))
    assert not Probability.of(Fraction(0)).draw(1, tape)[0], "zero is not below zero"


def test_what_is_no_probability_is_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        Probability.of(Fraction(3, 2))
