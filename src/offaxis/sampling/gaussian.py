"""The Gaussian law rounded to integers, exactly and in bulk.

Contract: ``RoundedGaussian(log2_scale=b).draw(n, bits)`` returns n independent integers with the
law of round(s·Z), Z standard normal and s = 2**b: ``Pr[K = k] = Φ((k + 1/2)/s) − Φ((k − 1/2)/s)``.
No float is involved, and given uniform input bits the law is exact. Proof: docs/proofs.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.laplace import in_chunks
from offaxis.sampling.probability import digits, exp_minus, normal_tail, root_two_over_pi

LOG2_CELLS: Final = 9
"""log2 of the largest number of table cells per standard deviation."""

LARGEST_LOG2_SCALE: Final = 20
LAST_CELL: Final = 1 << 28
"""Cells further out count as this one; such values are clamped in every report."""

_CHUNK: Final = 1 << 14

_STEP: Final = 64
"""Binary digits that a tie adds to a random number at a time."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class RoundedGaussian:
    """Sampler of round(s·Z), Z standard normal, s = 2**log2_scale.

    A fair bit gives the sign; the magnitude is drawn in two steps. The first step draws the cell of
    width 2**-9 standard deviations (2**-b for b < 9) that contains |Z|, by inversion: with
    T_j = Pr[|Z| >= (j + 1/2) / 2**9] and V uniform on [0, 1), the cell is the number of j with
    V < T_j. 32 bits of V are compared with the certified first 32 digits of all T_j at once, by
    bisection in a table. When they tie with an edge (about one draw in a million, and always beyond
    6.3 standard deviations), V and the edges around it get more digits until no tie is left. The
    second step, for b > 9, draws the position within the cell (:class:`WithinCell`).
    """

    log2_scale: int

    def __post_init__(self) -> None:
        """Keep all integers below inside 64 bits."""
        if not 0 <= self.log2_scale <= LARGEST_LOG2_SCALE:
            raise ValueError(
                f"log2_scale must be in 0..{LARGEST_LOG2_SCALE}, got {self.log2_scale}"
            )

    @cached_property
    def _log2_cells(self) -> int:
        return min(self.log2_scale, LOG2_CELLS)

    @cached_property
    def _within(self) -> WithinCell | None:
        finer = self.log2_scale - self._log2_cells
        return WithinCell(self._log2_cells, finer) if finer else None

    @cached_property
    def _edges(self) -> NDArray[np.uint32]:
        """The first digits of T_j in ascending order, from the last j down to 0; starts with 0."""
        return tail_digits(self._log2_cells)[::-1].copy()

    def draw(self, count: int, bits: RandomBits) -> NDArray[np.int64]:
        """Draw ``count`` independent variables."""
        return in_chunks(self._draw_chunk, count, _CHUNK, bits)

    def _draw_chunk(self, count: int, bits: RandomBits) -> NDArray[np.int64]:
        words = bits.words(2 * count).view("<u4")
        signs = np.unpackbits(bits.words(-(-count // 16)).view(np.uint8), count=count)
        place = np.searchsorted(self._edges, words, side="right")
        magnitude = self._edges.size - place
        for index in np.flatnonzero(self._edges[place - 1] == words):
            magnitude[index] = self._resolve(int(words[index]), int(magnitude[index]), bits)
        if self._within is not None:
            magnitude = self._within.draw(magnitude, bits)
        np.negative(magnitude, out=magnitude, where=signs.view(np.bool_))
        return magnitude

    def _resolve(self, head: int, least: int, bits: RandomBits) -> int:
        """Return the cell of a V that begins with ``head`` and is below T_{least−1}."""
        value, known = head, DIGITS
        while True:
            value, known = (value << _STEP) | bits.integer(_STEP), known + _STEP
            cell = self._first_not_above(value, known, least)
            if self._digits(cell, known) != value:
                return min(cell, LAST_CELL)

    def _digits(self, j: int, known: int) -> int:
        return digits(partial(normal_tail, edge(j, self._log2_cells)), known)

    def _first_not_above(self, value: int, known: int, least: int) -> int:
        """Return the smallest j >= least whose T_j does not exceed value in its known digits."""
        reach = 1
        while self._digits(least + reach - 1, known) > value:
            reach *= 2
        low, high = least + reach // 2, least + reach - 1
        while low < high:
            middle = (low + high) // 2
            if self._digits(middle, known) > value:
                low = middle + 1
            else:
                high = middle
        return low


# ---- Position within a cell

_WORD_BITS: Final = 32
_USUAL: Final = 8
"""Standard deviations up to which the first digits of a coin, if large, decide alone."""


@dataclass(frozen=True)
class WithinCell:
    """Sampler of the position of a Gaussian magnitude within its cell, exactly and in bulk.

    There are 2**log2_cells cells per standard deviation, each divided into 2**finer steps.
    Contract: given cells j with the law of round(|Z| · 2**c), ``WithinCell(c, q).draw(j, bits)``
    returns integers with the law of round(|Z| · 2**(c+q)).

    All lengths are counted in half steps of the finer lattice, h = 2 · |Z| · 2**(c+q). The cell of
    j extends from L = (2j − 1) 2**q, or 0 for j = 0, to (2j + 1) 2**q. Within it the density falls
    by the factor exp(−(h² − L²) / 8s²), s = 2**(c+q), which is nearly one. So a half step i is
    proposed uniformly and kept with that probability, as a point L + i + f with f uniform on
    [0, 1); rounding it does not require f. A coin W decides: the point is kept when
    W >= 1 − exp(−e). With

        e_low = i (2L + i) / 8s²,  e_high = (i + 1) (2L + i + 1) / 8s²,
        e − e²/2 <= 1 − exp(−e) <= e

    W is nearly always outside the range that f can affect. If not, W and f get more digits until it
    is.
    """

    log2_cells: int
    finer: int

    def draw(self, cell: Integers, bits: RandomBits) -> Integers:
        """Return round(h / 2) of a point drawn in each cell."""
        low = np.maximum(2 * cell - 1, 0) << self.finer
        half_steps, kept = self._propose(cell, low, bits)
        pending = np.flatnonzero(~kept)
        while pending.size:
            again, kept = self._propose(cell[pending], low[pending], bits)
            half_steps[pending] = again
            pending = pending[~kept]
        half_steps += 1
        half_steps >>= 1
        return half_steps

    def _propose(
        self, cell: Integers, low: Integers, bits: RandomBits
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """Propose a point in each cell and return whether it is kept.

        One 16-bit word provides the half step, from its low digits, and the head of the coin.
        """
        words = bits.words(cell.size)
        step = (words & ((2 << self.finer) - 1)).astype(np.int64)
        step[cell == 0] >>= 1  # this cell has half as many half steps
        heads = words >> (self.finer + 1)
        head_bits = 16 - (self.finer + 1)
        # Up to 8 deviations e_high is below 9 / 2**c: a larger head keeps any point.
        clear = -(-((_USUAL + 1) << head_bits) >> self.log2_cells)
        usual = _USUAL << (self.log2_cells + self.finer + 1)
        kept = (heads >= clear) & (low <= usual)
        unsure = np.flatnonzero(~kept)
        if unsure.size:
            tails = bits.words(2 * unsure.size).view("<u4") >> head_bits
            coin = (heads[unsure].astype(np.int64) << (_WORD_BITS - head_bits)) | tails
            kept[unsure] = self._decide(low[unsure], step[unsure], coin, bits)
        return low + step, kept

    def _decide(
        self, low: Integers, step: Integers, coin: Integers, bits: RandomBits
    ) -> NDArray[np.bool_]:
        """Compare coins of 32 digits with both ends of the probability, in units of 2**-32."""
        e_low = self._scaled(step * (2 * low + step))
        e_high = self._scaled((step + 1) * (2 * low + step + 1)) + 1
        kept = coin >= e_high
        # Capped so that the square fits; the cap only leaves more coins to settle.
        square = np.minimum(e_high, 1 << 31) ** 2 >> (_WORD_BITS + 1)
        lost = (e_high < 1 << 31) & (coin + 1 <= e_low - square - 1)
        for index in np.flatnonzero(~(kept | lost)):
            kept[index] = self._settle(int(low[index]), int(step[index]), int(coin[index]), bits)
        return kept

    def _scaled(self, numerator: Integers) -> Integers:
        """Return floor(2**32 · numerator / 8s²)."""
        shift = 2 * (self.log2_cells + self.finer) + 3 - _WORD_BITS
        return numerator >> shift if shift >= 0 else numerator << -shift

    def _settle(self, low: int, step: int, coin: int, bits: RandomBits) -> bool:
        """Draw digits of W and f until they decide whether W >= 1 − exp(−e)."""
        known, places, fraction = _WORD_BITS, 0, 0
        while True:
            coin, known = (coin << _STEP) | bits.integer(_STEP), known + _STEP
            fraction, places = (fraction << _STEP) | bits.integer(_STEP), places + _STEP
            one = 1 << known
            below, above = (
                one - side
                for side in (
                    self._density_ratio(low, step + Fraction(fraction, 1 << places), known)[1],
                    self._density_ratio(low, step + Fraction(fraction + 1, 1 << places), known)[0],
                )
            )
            if coin >= above:
                return True
            if coin + 1 <= below:
                return False

    def _density_ratio(self, low: int, offset: Fraction, known: int) -> tuple[int, int]:
        """Enclose exp(−((L + offset)² − L²) / 8s²)."""
        exponent = offset * (2 * low + offset) / (8 << (2 * (self.log2_cells + self.finer)))
        return exp_minus(exponent, known) if exponent else (1 << known, 1 << known)


# ---- Table of tail probabilities: certified first digits at every cell edge

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
    """Return floor(2**32 · Pr[|Z| >= (j + 1/2) / 2**log2_scale]) for j = 0, 1, …, in this order.

    The table ends with its first zero. Integer arithmetic only.

    Evaluating the series of :func:`normal_tail` at thousands of edges would noticeably delay a
    single report. It is evaluated only at multiples a of 1/64 and extended to the edges x = a + d
    around them, |d| <= 1/128, by Taylor's formula

        Pr[|Z| >= a + d] = Pr[|Z| >= a] − 2 φ(a) Σ_{n <= 9} (−1)^n He_n(a) d^{n+1} / (n+1)!  + r.

    By Cramér's bound |He_n(x) φ(x)| < √(n!)/2 the remainder is below √(10!) |d|^11 / 11! < 2**-90,
    and with 128 binary digits rounding adds less than 2**-118 (docs/proofs.md): the value is
    certain to well within 2**-64. If it is closer than that to a change of the 32nd digit, the
    series decides.
    """
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
