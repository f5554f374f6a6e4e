"""Exact coin flips with an irrational probability, by comparing digits as long as needed."""

from __future__ import annotations

from offaxis.sampling.enclosure import Enclosure, digits
from offaxis.sampling.entropy import RandomBits

_STEP = 64


class Probability:
    """An irrational probability p known by certified enclosures.

    ``U < p`` for a uniform real U is decided by comparing binary digits from the left; the first
    difference decides, and no digit is ever guessed.
    """

    def __init__(self, enclose: Enclosure) -> None:
        self._enclose = enclose
        self._known: dict[int, int] = {}

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
