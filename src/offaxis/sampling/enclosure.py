"""Certified digits of exp(-x): integer arithmetic, rounded outward, never a float.

An exact sampler may compare random bits with the binary digits of an irrational probability as
long as every digit it looks at is certain. These functions deliver such digits.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

Enclosure = Callable[[int], tuple[int, int]]
"""bits -> (low, high) with low <= p * 2**bits <= high."""


def exp_minus(x: Fraction, bits: int) -> tuple[int, int]:
    """Enclose exp(-x) for x > 0: integers with ``low <= exp(-x) * 2**bits <= high``.

    The argument is halved until it is at most 1/2, where the partial sums of the alternating
    series lie on either side of the limit; the halvings are undone by squaring the enclosure.
    """
    halvings = max(0, (2 * x.numerator // x.denominator).bit_length())
    y = x / 2**halvings
    precision = bits + halvings + 16
    term = total = Fraction(1)
    order = 0
    below, above = Fraction(0), total
    while (above - below) * 2**precision > 1:
        order += 1
        term *= -y / order
        total += term
        below, above = (total, above) if order % 2 else (below, total)
    one = 1 << precision
    low = below.numerator * one // below.denominator
    high = -(-above.numerator * one // above.denominator)
    for _ in range(halvings):
        low = (low * low) >> precision
        high = -(-(high * high) >> precision)
    shift = precision - bits
    return low >> shift, -(-high >> shift)


def logistic_minus(x: Fraction, bits: int) -> tuple[int, int]:
    """Enclose 1 / (1 + exp(x)) for x > 0, as :func:`exp_minus` does exp(-x)."""
    low, high = exp_minus(x, bits + 2)
    one = 1 << (bits + 2)
    return (low << bits) // (one + low), -(-(high << bits) // (one + high))


def digits(enclose: Enclosure, bits: int) -> int:
    """Return the first ``bits`` binary digits of an irrational p in (0, 1): floor(p * 2**bits)."""
    guard = 16
    while True:
        low, high = (value >> guard for value in enclose(bits + guard))
        if low == high:
            return low
        guard *= 2
