"""Exact coin flips with any probability, by comparing digits as long as needed."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.enclosure import Enclosure, digits, rational
from offaxis.sampling.entropy import RandomBits

_STEP = 64
_WORD_BITS = 32


class Probability:
    """A probability p known by certified enclosures.

    ``U < p`` for a uniform real U is decided by comparing binary digits from the left; the first
    difference decides, and no digit is ever guessed.
    """

    def __init__(self, enclose: Enclosure) -> None:
        self._enclose = enclose
        self._known: dict[int, int] = {}

    @classmethod
    def of(cls, p: Fraction) -> Probability:
        """Return a rational probability, 0 <= p <= 1."""
        if not 0 <= p <= 1:
            raise ValueError(f"a probability lies between 0 and 1, got {p}")
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
            wanted = self.digits(matched + _STEP) & ((1 << _STEP) - 1)
            if fresh != wanted:
                return fresh < wanted
            matched += _STEP

    def draw(self, count: int, bits: RandomBits) -> NDArray[np.bool_]:
        """Flip ``count`` independent coins, true with probability p exactly."""
        words = bits.words(2 * count).view("<u4")
        head = self.digits(_WORD_BITS)  # 2**32 when p = 1, which no word reaches
        flips = words.astype(np.uint64) < head
        for index in np.flatnonzero(words == head):
            flips[index] = self.exceeds(_WORD_BITS, bits)
        return flips
