"""The Gaussian law rounded to integers, exactly and in bulk.

Contract: ``RoundedGaussian(log2_scale=b).draw(n, bits)`` returns n independent integers with the
law of round(s·Z), Z standard normal and s = 2**b: ``Pr[K = k] = Φ((k + 1/2)/s) − Φ((k − 1/2)/s)``.
No float is involved, and given uniform input bits the law is exact.

How: a fair sign, and the magnitude by inversion. With T_j = Pr[|Z| >= (j + 1/2)/s] and V uniform
on [0, 1), the number of j with V < T_j is the magnitude. 32 bits of V are compared with the
certified first 32 digits of all T_j at once, by bisection in a table. When they tie with an edge
(about one draw in 160,000 at b = 12, and always beyond 6.3 standard deviations) V gets more digits
and the edges around it too, until no tie is left. Proof: docs/proofs.md.
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

LARGEST_LOG2_SCALE: Final = 12
SATURATED: Final = 1 << 24
"""Larger magnitudes are reported as this one; no report can tell them apart."""

_STEP: Final = 64
_CHUNK: Final = 1 << 14


@dataclass(frozen=True)
class RoundedGaussian:
    """Sampler of round(s·Z), s = 2**log2_scale."""

    log2_scale: int

    def __post_init__(self) -> None:
        """Keep the table small."""
        if not 0 <= self.log2_scale <= LARGEST_LOG2_SCALE:
            raise ValueError(
                f"log2_scale must lie in 0..{LARGEST_LOG2_SCALE}, got {self.log2_scale}"
            )

    @cached_property
    def _edges(self) -> NDArray[np.uint32]:
        """The first digits of T_j, ascending, so from the last j to j = 0; begins with 0."""
        return tail_digits(self.log2_scale)[::-1].copy()

    def draw(self, count: int, bits: RandomBits) -> NDArray[np.int32]:
        """Draw ``count`` independent variables."""
        return in_chunks(self._draw_chunk, count, _CHUNK, bits)

    def _draw_chunk(self, count: int, bits: RandomBits) -> NDArray[np.int32]:
        words = bits.words(2 * count).view("<u4")
        signs = np.unpackbits(bits.words(-(-count // 16)).view(np.uint8), count=count)
        place = np.searchsorted(self._edges, words, side="right")
        magnitude = (self._edges.size - place).astype(np.int32)
        for index in np.flatnonzero(self._edges[place - 1] == words):
            magnitude[index] = self._resolve(int(words[index]), int(magnitude[index]), bits)
        np.negative(magnitude, out=magnitude, where=signs.view(np.bool_))
        return magnitude

    def _resolve(self, head: int, least: int, bits: RandomBits) -> int:
        """Return the magnitude for a V that begins with ``head`` and lies below T_{least−1}."""
        value, known = head, DIGITS
        while True:
            value, known = (value << _STEP) | bits.integer(_STEP), known + _STEP
            magnitude = self._first_not_above(value, known, least)
            if self._digits(magnitude, known) != value:
                return min(magnitude, SATURATED)

    def _digits(self, j: int, known: int) -> int:
        return digits(partial(normal_tail, edge(j, self.log2_scale)), known)

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
