"""The first 32 binary digits of the normal tail at every cell edge, certified and quickly.

Contract: ``tail_digits(b)[j] = floor(2**32 · Pr[|Z| >= (j + 1/2) / 2**b])`` for j = 0, 1, …, up to
and including the first zero. Integer arithmetic only.

Evaluating the series of :func:`normal_tail` at every one of thousands of edges would be felt by
whoever makes one report. It is evaluated at multiples a of 1/64 only, and carried to the edges
x = a + d around them, |d| <= 1/128, by Taylor's formula

    Pr[|Z| >= a + d] = Pr[|Z| >= a] − 2 φ(a) Σ_{n <= 9} (−1)^n He_n(a) d^{n+1} / (n+1)!  + r.

By Cramér's bound |He_n(x) φ(x)| < √(n!)/2 the remainder is below √(10!) |d|^11 / 11! < 2**-90, and
in 128 binary digits rounding adds less than 2**-118 (docs/proofs.md): the value is certain to
2**-64 with room to spare. Should it lie closer than that to a change of the 32nd digit, the series
decides.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.enclosure import digits, exp_minus, normal_tail, root_two_over_pi

DIGITS: Final = 32
_PRECISION: Final = 128
_DROPPED: Final = _PRECISION - DIGITS
_LOG2_ANCHORS: Final = 6
_TERMS: Final = 10
_SLACK: Final = 1 << (_PRECISION - 64)


def edge(j: int, log2_scale: int) -> Fraction:
    """Return the upper edge of the cell of ±j, in standard deviations."""
    return Fraction(2 * j + 1, 2 << log2_scale)


@cache
def tail_digits(log2_scale: int) -> NDArray[np.uint32]:
    """Return the table for the scale 2**log2_scale, in descending order."""
    table: list[int] = []
    shift = _PRECISION - log2_scale - 1
    spacing = _PRECISION - _LOG2_ANCHORS
    while not table or table[-1]:
        j = len(table)
        x = (2 * j + 1) << shift
        anchor = (x + (1 << (spacing - 1))) >> spacing
        start, coefficients = _around(anchor)
        value = start + _polynomial(coefficients, x - (anchor << spacing))
        low, high = (value - _SLACK) >> _DROPPED, (value + _SLACK) >> _DROPPED
        if low != high:
            low = digits(partial(normal_tail, edge(j, log2_scale)), DIGITS)
        table.append(low)
    return np.array(table, dtype=np.uint32)


def _polynomial(coefficients: list[int], d: int) -> int:
    """Return Σ c_n d^{n+1} by Horner's rule, rounded down at every step."""
    total = 0
    for c in reversed(coefficients):
        total = ((total + c) * d) >> _PRECISION
    return total


@cache
def _around(anchor: int) -> tuple[int, list[int]]:
    """Return the tail and −2 φ(a) (−1)^n He_n(a) / (n+1)! at a = anchor/64, times 2**128."""
    a = Fraction(anchor, 1 << _LOG2_ANCHORS)
    start = normal_tail(a, _PRECISION)[0]
    # φ(a) = √(2/π) e^{−a²/2} / 2
    height = root_two_over_pi(_PRECISION)[0]
    if anchor:
        height = (height * exp_minus(a * a / 2, _PRECISION)[0]) >> _PRECISION
    coefficients = []
    hermite, following, factorial = Fraction(1), a, 1
    for n in range(_TERMS):
        factorial *= n + 1
        exact = (-1) ** (n + 1) * height * hermite / factorial
        coefficients.append(exact.numerator // exact.denominator)
        hermite, following = following, a * following - (n + 1) * hermite
    return start, coefficients
