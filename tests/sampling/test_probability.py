"""Certified digits of probabilities, and exact coins in which no digit is guessed."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.sampling.entropy import Entropy
from offaxis.sampling.probability import (
    Probability,
    digits,
    exp_minus,
    logistic_minus,
    normal_tail,
    preferred,
    rational,
    root_two_over_pi,
)
from tests.checks import ALPHA, counts_p_value
from tests.tape import Tape

# ---- Enclosures

arguments = st.fractions(min_value=Fraction(1, 10**6), max_value=200, max_denominator=10**6)
precisions = st.integers(min_value=1, max_value=300)


def true_value(function, x, bits):
    with mpmath.workprec(bits + 600):
        value = function(mpmath.mpf(x.numerator) / x.denominator)
        return int(mpmath.floor(value * mpmath.mpf(2) ** bits))


@given(arguments, precisions)
def test_the_enclosure_of_exp_holds_and_is_tight(x, bits):
    low, high = exp_minus(x, bits)
    exact = true_value(lambda v: mpmath.exp(-v), x, bits)
    # The limit is irrational, so a true upper bound is strictly above its integer part.
    assert low <= exact < high
    assert high - low <= 2


@given(arguments, precisions)
def test_the_enclosure_of_the_logistic_holds(x, bits):
    low, high = logistic_minus(x, bits)
    exact = true_value(lambda v: 1 / (1 + mpmath.exp(v)), x, bits)
    assert low <= exact < high


def test_digits_are_returned_only_when_they_are_certain():
    """An enclosure that straddles a digit at first must be refined, not guessed."""
    precisions_requested = []

    def enclose(bits):
        precisions_requested.append(bits)
        p = 0b1011
        if len(precisions_requested) == 1:
            return (p << (bits - 4)) - 1, (p << (bits - 4)) + 1
        return (p << (bits - 4)) + 1, (p << (bits - 4)) + 2

    assert digits(enclose, 4) == 0b1011
    assert len(precisions_requested) == 2


@given(arguments, precisions)
def test_digits_of_the_logistic_are_certain(x, bits):
    exact = true_value(lambda v: 1 / (1 + mpmath.exp(v)), x, bits)
    assert digits(partial(logistic_minus, x), bits) == exact


@pytest.mark.parametrize("x", [Fraction(1), Fraction(1, 1 << 17), Fraction(128)])
def test_more_digits_extend_fewer(x):
    enclose = partial(exp_minus, x)
    assert digits(enclose, 256) >> 128 == digits(enclose, 128)


@given(st.fractions(min_value=0, max_value=20, max_denominator=10**5), precisions)
def test_the_enclosure_of_the_normal_tail_holds_and_is_tight(x, bits):
    low, high = normal_tail(x, bits)
    with mpmath.workprec(bits + 800):
        exact = mpmath.erfc(mpmath.mpf(x.numerator) / x.denominator / mpmath.sqrt(2))
        assert low <= exact * mpmath.mpf(2) ** bits <= high
    assert high - low <= 3


@given(st.integers(1, 1000), st.integers(1, 10**7), arguments, precisions)
def test_the_enclosure_of_a_preferred_group_holds_and_is_tight(near, far, x, bits):
    low, high = preferred(near, far, x, bits)
    with mpmath.workprec(bits + 600):
        weight = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
        assert low <= near / (near + far * weight) * mpmath.mpf(2) ** bits <= high
    assert high - low <= 2


@pytest.mark.parametrize("bits", [1, 32, 128, 1000])
def test_the_enclosure_of_the_root_of_two_over_pi_holds(bits):
    low, high = root_two_over_pi(bits)
    with mpmath.workprec(bits + 100):
        assert low <= mpmath.sqrt(2 / mpmath.pi) * mpmath.mpf(2) ** bits <= high
    assert high - low <= 2


@given(st.fractions(min_value=0, max_value=1), precisions)
def test_the_digits_of_a_rational_are_exact(p, bits):
    assert digits(partial(rational, p), bits) == p.numerator * 2**bits // p.denominator


# ---- Coins


def inverse_e() -> Probability:
    return Probability(partial(exp_minus, Fraction(1)))


def written(*integers: int) -> Tape:
    return Tape(b"".join(i.to_bytes(8, "little") for i in integers))


def test_the_first_different_digit_decides():
    p = inverse_e()
    head, tail = p.digits(80) >> 64, p.digits(80) & ((1 << 64) - 1)
    assert head == p.digits(16)
    assert p.exceeds(16, written(tail - 1))
    assert not p.exceeds(16, written(tail + 1))


def test_a_tie_fetches_more_bits():
    p = inverse_e()
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
def test_flips_are_true_with_probability_p(p):
    """False alarms: ALPHA."""
    flips = Probability.of(p).draw(400_000, Entropy())
    law = np.array([1 - p, p], dtype=float)
    assert counts_p_value(np.bincount(flips, minlength=2), law) > ALPHA
    # Broken control: a comparison of six bits only, off by one.
    coarse = Probability.of(Fraction(int(p * 2**6) - 1, 2**6)).draw(400_000, Entropy())
    assert counts_p_value(np.bincount(coarse, minlength=2), law) < ALPHA


def test_certain_coins_are_certain():
    assert not Probability.of(Fraction(0)).draw(1000, Entropy()).any()
    assert Probability.of(Fraction(1)).draw(1000, Entropy()).all()
    tape = Tape(bytes(4) + bytes(8) + (1).to_bytes(8, "little"))
    assert not Probability.of(Fraction(0)).draw(1, tape)[0], "zero is not below zero"


def test_a_number_that_is_no_probability_is_rejected():
    with pytest.raises(ValueError, match="between 0 and 1"):
        Probability.of(Fraction(3, 2))
