from fractions import Fraction
from functools import partial

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.sampling.probability import (
    digits,
    exp_minus,
    logistic_minus,
    normal_tail,
    preferred,
    rational,
    root_two_over_pi,
)

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
    # The limit is irrational, so a true upper bound lies strictly above its integer part.
    assert low <= exact < high
    assert high - low <= 2


@given(arguments, precisions)
def test_the_enclosure_of_the_logistic_holds(x, bits):
    low, high = logistic_minus(x, bits)
    exact = true_value(lambda v: 1 / (1 + mpmath.exp(v)), x, bits)
    assert low <= exact < high


def test_digits_are_not_given_out_before_they_are_certain():
    """An enclosure that straddles a digit at first must be refined, not guessed."""
    asked = []

    def enclose(bits):
        asked.append(bits)
        p = 0b1011
        if len(asked) == 1:
            return (p << (bits - 4)) - 1, (p << (bits - 4)) + 1
        return (p << (bits - 4)) + 1, (p << (bits - 4)) + 2

    assert digits(enclose, 4) == 0b1011
    assert len(asked) == 2


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
def test_the_digits_of_a_rational_are_its_own(p, bits):
    assert digits(partial(rational, p), bits) == p.numerator * 2**bits // p.denominator
