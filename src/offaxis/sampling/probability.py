"""Certified digits of probabilities, and exact coin flips that compare random bits with them.

Contract: integer arithmetic rounded outward, never a float. An exact sampler may compare random
bits with the binary digits of a probability as long as every digit it uses is certain. The
functions below deliver such digits for exp(-x), for the tail of the normal law and for
probabilities derived from them. :class:`Probability` flips the coins.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits

Enclosure = Callable[[int], tuple[int, int]]
"""bits -> (low, high) with low <= p * 2**bits <= high."""

# ---- Enclosures


def exp_minus(x: Fraction, bits: int) -> tuple[int, int]:
    """Enclose exp(-x) for x > 0: integers with ``low <= exp(-x) * 2**bits <= high``.

    The argument is halved until it is at most 1/2, where the partial sums of the alternating
    series are on either side of the limit; the halvings are undone by squaring the enclosure.
    """
    halvings = max(0, (2 * x.numerator // x.denominator).bit_length())
    precision = bits + halvings + 16
    one = 1 << precision
    # y = x / 2**halvings on either side, in units of 2**-precision; all terms below are integers.
    y_low = (x.numerator << (precision - halvings)) // x.denominator
    y_high = y_low + 1
    term_low = term_high = low = high = one
    order = 0
    while term_high > 1:
        order += 1
        term_low = term_low * y_low // (order << precision)
        term_high = -(-term_high * y_high // (order << precision))
        if order % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    # The remainder is smaller than the last term.
    low, high = low - term_high, high + term_high
    for _ in range(halvings):
        low = (low * low) >> precision
        high = -(-(high * high) >> precision)
    shift = precision - bits
    return low >> shift, -(-high >> shift)


def logistic_minus(x: Fraction, bits: int) -> tuple[int, int]:
    """Enclose 1 / (1 + exp(x)) for x > 0, as :func:`exp_minus` encloses exp(-x)."""
    low, high = exp_minus(x, bits + 2)
    one = 1 << (bits + 2)
    return (low << bits) // (one + low), -(-(high << bits) // (one + high))


def rational(p: Fraction, bits: int) -> tuple[int, int]:
    """Enclose a rational number."""
    scaled = p.numerator << bits
    return scaled // p.denominator, -(-scaled // p.denominator)


def preferred(near: int, far: int, x: Fraction, bits: int) -> tuple[int, int]:
    """Enclose near / (near + far · exp(-x)): the probability of a group with weights e^x."""
    precision = bits + 2 + far.bit_length()
    low, high = exp_minus(x, precision)
    one = 1 << precision
    top = (near << bits) * one
    return top // (near * one + far * high), -(-top // (near * one + far * low))


@lru_cache(maxsize=64)
def root_two_over_pi(bits: int) -> tuple[int, int]:
    """Enclose √(2/π), with π by Machin's 16 atan(1/5) − 4 atan(1/239)."""
    precision = bits + 32

    def atan_inverse(k: int) -> int:
        """Return 2**precision · atan(1/k), off by less than its number of terms."""
        power = total = (1 << precision) // k
        order = 1
        while power:
            power //= k * k
            order += 2
            total += -(power // order) if order % 4 == 3 else power // order
        return total

    # Fewer than `precision` terms per series, each off by less than 1, times 20: well below 2**28.
    if precision >= 1 << 20:
        raise ValueError("more digits than any sampler requests")
    pi = 16 * atan_inverse(5) - 4 * atan_inverse(239)
    slack = 1 << 28
    low = isqrt((2 << (2 * bits + precision)) // (pi + slack))
    high = isqrt((2 << (2 * bits + precision)) // (pi - slack) + 1) + 1
    return low, high


def normal_tail(x: Fraction, bits: int) -> tuple[int, int]:
    """Enclose Pr[|Z| >= x] of a standard normal Z, for x >= 0.

    Pr[|Z| < x] = √(2/π) Σ (−1)^n x^{2n+1} / (2^n n! (2n+1)). The terms alternate and, once
    2n > x², decrease, so the remainder is smaller than the last one. Each term is enclosed.
    """
    precision = bits + 16 + x.numerator * x.numerator // (x.denominator * x.denominator)
    top, bottom = x.numerator * x.numerator, x.denominator * x.denominator
    low, high = rational(x, precision)
    below = above = 0
    order = 0
    while high > 1 or 2 * order * bottom <= top:
        odd = 2 * order + 1
        if order % 2:
            below, above = below - -(-high // odd), above - low // odd
        else:
            below, above = below + low // odd, above - (-high // odd)
        order += 1
        divisor = 2 * order * bottom
        low, high = low * top // divisor, -(-high * top // divisor)
    below, above = max(0, below - high), above + high
    root_low, root_high = root_two_over_pi(precision)
    inside_low = below * root_low >> precision
    inside_high = -(-above * root_high >> precision)
    one, shift = 1 << precision, precision - bits
    return max(0, one - inside_high) >> shift, -((inside_low - one) >> shift)


def digits(enclose: Enclosure, bits: int) -> int:
    """Return the first ``bits`` binary digits of p: floor(p * 2**bits).

    Does not terminate if p is a multiple of 2**-bits and its enclosure never becomes exact.
    """
    guard = 16
    while True:
        low, high = (value >> guard for value in enclose(bits + guard))
        if low == high:
            return low
        guard *= 2


# ---- Exact coin flips

_STEP = 64
_WORD_BITS = 32


class Probability:
    """A probability p given by certified enclosures.

    ``U < p`` for a uniform real U is decided by comparing binary digits from the left. The first
    difference decides, and no digit is ever guessed.
    """

    def __init__(self, enclose: Enclosure) -> None:
        self._enclose = enclose
        self._known: dict[int, int] = {}

    @classmethod
    def of(cls, p: Fraction) -> Probability:
        """Return a rational probability, 0 <= p <= 1."""
        if not 0 <= p <= 1:
            raise ValueError(f"a probability must be between 0 and 1, got {p}")
        return cls(partial(rational, p))

    def digits(self, bits: int) -> int:
        """Return the first ``bits`` binary digits as an integer, floor(p · 2**bits)."""
        if bits not in self._known:
            self._known[bits] = digits(self._enclose, bits)
        return self._known[bits]

    def exceeds(self, matched: int, bits: RandomBits) -> bool:
        """Decide U < p for a uniform U whose first ``matched`` digits are those of p."""
        while True:
            fresh = bits.integer(_STEP)
            digits_of_p = self.digits(matched + _STEP) & ((1 << _STEP) - 1)
            if fresh != digits_of_p:
                return fresh < digits_of_p
            matched += _STEP

    def draw(self, count: int, bits: RandomBits) -> NDArray[np.bool_]:
        """Flip ``count`` independent coins, true with probability p exactly."""
        words = bits.words(2 * count).view("<u4")
        head = self.digits(_WORD_BITS)  # 2**32 when p = 1, which no word reaches
        flips = words.astype(np.uint64) < head
        for index in np.flatnonzero(words == head):
            flips[index] = self.exceeds(_WORD_BITS, bits)
        return flips
