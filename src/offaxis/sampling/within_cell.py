"""Where in its cell a Gaussian magnitude lies, exactly and in bulk.

Contract: given cells j drawn with the law of round(|Z| · 2**c), ``WithinCell(c, q).draw(j, bits)``
returns integers with the law of round(|Z| · 2**(c+q)).

How: all lengths are counted in half steps of the finer lattice, h = 2 · |Z| · 2**(c+q). The cell of
j reaches from L = (2j − 1) 2**q, or 0 for j = 0, to (2j + 1) 2**q. Within it the density falls by
the factor exp(−(h² − L²) / 8s²), s = 2**(c+q), which is nearly one. So a half step i is proposed
uniformly and kept with that probability, as a point L + i + f with f uniform on [0, 1); f need not
be known to round it. A coin W decides, kept when W >= 1 − exp(−e). With

    e_low = i (2L + i) / 8s²,  e_high = (i + 1) (2L + i + 1) / 8s²,  e − e²/2 <= 1 − exp(−e) <= e

W is nearly always clear of what f could change. If not, W and f get digits until it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.enclosure import exp_minus
from offaxis.sampling.entropy import RandomBits

_WORD_BITS: Final = 32
_STEP: Final = 64
_USUAL: Final = 8
"""Standard deviations up to which a coin that shows a large head needs no second look."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class WithinCell:
    """Sampler of the finer magnitude: 2**log2_cells cells a deviation, each cut in 2**finer."""

    log2_cells: int
    finer: int

    def draw(self, cell: Integers, bits: RandomBits) -> Integers:
        """Return round(h / 2) of a point drawn in each cell."""
        low = np.maximum(2 * cell - 1, 0) << self.finer
        half_steps, kept = self._proposed(cell, low, bits)
        pending = np.flatnonzero(~kept)
        while pending.size:
            again, kept = self._proposed(cell[pending], low[pending], bits)
            half_steps[pending] = again
            pending = pending[~kept]
        half_steps += 1
        half_steps >>= 1
        return half_steps

    def _proposed(
        self, cell: Integers, low: Integers, bits: RandomBits
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """Propose a point in each cell and say whether it is kept.

        One 16-bit word gives the half step, from its low digits, and the head of the coin.
        """
        words = bits.words(cell.size)
        step = (words & ((2 << self.finer) - 1)).astype(np.int64)
        step[cell == 0] >>= 1  # that cell has half as many half steps
        heads = words >> (self.finer + 1)
        head_bits = 16 - (self.finer + 1)
        # Up to 8 deviations e_high is below 9 / 2**c: a larger head keeps the point whatever it is.
        clear = -(-((_USUAL + 1) << head_bits) >> self.log2_cells)
        usual = _USUAL << (self.log2_cells + self.finer + 1)
        kept = (heads >= clear) & (low <= usual)
        unsure = np.flatnonzero(~kept)
        if unsure.size:
            tails = bits.words(2 * unsure.size).view("<u4") >> head_bits
            coin = (heads[unsure].astype(np.int64) << (_WORD_BITS - head_bits)) | tails
            kept[unsure] = self._decided(low[unsure], step[unsure], coin, bits)
        return low + step, kept

    def _decided(
        self, low: Integers, step: Integers, coin: Integers, bits: RandomBits
    ) -> NDArray[np.bool_]:
        """Compare coins of 32 digits with both ends of the probability, in units of 2**-32."""
        e_low = self._scaled(step * (2 * low + step))
        e_high = self._scaled((step + 1) * (2 * low + step + 1)) + 1
        kept = coin >= e_high
        # Capped, so that the square fits; a cap only leaves more to be settled.
        square = np.minimum(e_high, 1 << 31) ** 2 >> (_WORD_BITS + 1)
        lost = (e_high < 1 << 31) & (coin + 1 <= e_low - square - 1)
        for index in np.flatnonzero(~(kept | lost)):
            kept[index] = self._settled(int(low[index]), int(step[index]), int(coin[index]), bits)
        return kept

    def _scaled(self, numerator: Integers) -> Integers:
        """Return floor(2**32 · numerator / 8s²)."""
        shift = 2 * (self.log2_cells + self.finer) + 3 - _WORD_BITS
        return numerator >> shift if shift >= 0 else numerator << -shift

    def _settled(self, low: int, step: int, coin: int, bits: RandomBits) -> bool:
        """Give W and f digits until W is clear of 1 − exp(−e)."""
        known, places, fraction = _WORD_BITS, 0, 0
        while True:
            coin, known = (coin << _STEP) | bits.integer(_STEP), known + _STEP
            fraction, places = (fraction << _STEP) | bits.integer(_STEP), places + _STEP
            one = 1 << known
            below, above = (
                one - side
                for side in (
                    self._falls(low, step + Fraction(fraction, 1 << places), known)[1],
                    self._falls(low, step + Fraction(fraction + 1, 1 << places), known)[0],
                )
            )
            if coin >= above:
                return True
            if coin + 1 <= below:
                return False

    def _falls(self, low: int, offset: Fraction, known: int) -> tuple[int, int]:
        """Enclose exp(−((L + offset)² − L²) / 8s²)."""
        exponent = offset * (2 * low + offset) / (8 << (2 * (self.log2_cells + self.finer)))
        return exp_minus(exponent, known) if exponent else (1 << known, 1 << known)
