"""The Gaussian law rounded to integers, exactly and in bulk.

Contract: ``RoundedGaussian(log2_scale=b).draw(n, bits)`` returns n independent integers with the
law of round(s·Z), Z standard normal and s = 2**b: ``Pr[K = k] = Φ((k + 1/2)/s) − Φ((k − 1/2)/s)``.
No float is involved, and given uniform input bits the law is exact.

How: a fair sign, and the magnitude in two steps. First which of the cells of width 2**-9 standard
deviations |Z| lies in, by inversion: with T_j = Pr[|Z| >= (j + 1/2) / 2**9] and V uniform on
[0, 1), the number of j with V < T_j is the cell. 32 bits of V are compared with the certified first
32 digits of all T_j at once, by bisection in a table. When they tie with an edge (about one draw in
a million, and always beyond 6.3 standard deviations) V gets more digits and the edges around it
too, until no tie is left. Then, for b > 9, where in the cell (within_cell.py). Proof:
docs/proofs.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.chunks import in_chunks
from offaxis.sampling.enclosure import digits, normal_tail
from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.normal_table import DIGITS, edge, tail_digits
from offaxis.sampling.within_cell import WithinCell

LOG2_CELLS: Final = 9
"""Cells a standard deviation of the table, at most."""

LARGEST_LOG2_SCALE: Final = 20
LAST_CELL: Final = 1 << 28
"""Cells further out are counted as this one; what they stand for is clamped in every report."""

_STEP: Final = 64
_CHUNK: Final = 1 << 14


@dataclass(frozen=True)
class RoundedGaussian:
    """Sampler of round(s·Z), s = 2**log2_scale."""

    log2_scale: int

    def __post_init__(self) -> None:
        """Keep all integers below inside 64 bits."""
        if not 0 <= self.log2_scale <= LARGEST_LOG2_SCALE:
            raise ValueError(
                f"log2_scale must lie in 0..{LARGEST_LOG2_SCALE}, got {self.log2_scale}"
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
        """The first digits of T_j, ascending, so from the last j to j = 0; begins with 0."""
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
        """Return the cell of a V that begins with ``head`` and lies below T_{least−1}."""
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
