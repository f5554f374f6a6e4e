"""Randomized response: closed-form ratios, the law, and the place of every symbol."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.sampling.choices import Response, place
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.probability import digits, exp_minus, preferred
from tests.checks import ALPHA, counts_p_value

COUNT = 300_000


def law(size: int, near: list[int], epsilon: float) -> np.ndarray:
    weight = np.ones(size)
    weight[near] = np.exp(epsilon)
    return weight / weight.sum()


def respond(size: int, near: list[int], epsilon: Fraction) -> np.ndarray:
    is_near, offset = Response(size, len(near), epsilon).draw(COUNT, Entropy())
    return place(is_near, offset, np.tile(near, (COUNT, 1)))


@pytest.mark.parametrize(
    ("size", "near", "epsilon"), [(2, [1], 1), (10, [7], 2), (10, [0, 4, 9], 1), (50, [3], 4)]
)
def test_each_preferred_symbol_weighs_e_to_the_epsilon(size, near, epsilon):
    counts = np.bincount(respond(size, near, Fraction(epsilon)), minlength=size)
    probabilities = law(size, near, epsilon)
    assert counts_p_value(counts, probabilities) > ALPHA
    # Twin: e^ε to one of k written as "keep with e^ε/(e^ε+1), else uniform over all".
    twin = law(size, near, epsilon + 0.1)
    assert counts_p_value(counts, twin) < ALPHA


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


def test_a_probability_rounded_up_would_break_the_promise():
    """The twin: p rounded to 8 digits away from one half promises more than it keeps."""
    epsilon = Fraction(5)
    p = digits(partial(preferred, 1, 9, epsilon), 8) + 1
    realised = Fraction(p, 2**8 - p) * 9
    assert realised * Fraction(exp_minus(epsilon, 200)[0], 1 << 200) > 1


@given(st.integers(2, 30), st.data())
def test_places_are_a_bijection_from_draws_to_symbols(size, data):
    near = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1)))
    draws = [(True, k) for k in range(len(near))] + [(False, k) for k in range(size - len(near))]
    is_near, offset = (np.array(column) for column in zip(*draws, strict=True))
    symbols = place(is_near, offset, np.tile(near, (size, 1)))
    assert symbols[: len(near)].tolist() == near
    assert sorted(symbols.tolist()) == list(range(size))


@pytest.mark.parametrize("arguments", [(5, 0, 1), (5, 5, 1), (2**33, 1, 1), (5, 1, 0), (5, 1, -1)])
def test_a_response_without_two_groups_or_budget_is_refused(arguments):
    size, near, epsilon = arguments
    with pytest.raises(ValueError, match="no such response"):
        Response(size, near, Fraction(epsilon))
