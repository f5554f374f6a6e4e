"""The spherical Laplace law rounded to integers, exactly and in bulk.

Contract: ``RoundedSpherical(dim=m, log2_scale=b).draw(n, bits)`` returns n independent rows of
integers with the law of round(X), coordinate by coordinate, where X in R^m has a density
proportional to exp(−‖x‖₂ / t), t = 2**b. No float is involved, and given uniform input bits the law
is exact.

How: X = t·‖h‖·g with h in R^{m+1} and g in R^m independent standard normal vectors, because
exp(−s) = ∫ (πu)^{−1/2} exp(−u − s²/4u) du is a mixture of Gaussians whose variances have the law of
‖h‖². All normals are drawn to 52 places (refinable_normal.py); 64-bit integers rounded outward
enclose t·‖h‖·|g_i| to 2**-20 of a step or better. Where that leaves the rounding open, the numbers
involved get more digits until it is decided. Proof: docs/proofs.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.refinable_normal import PLACES, Digits, Normals, RefinableNormal

LARGEST_LOG2_SCALE: Final = 25

_STEP: Final = 64
_CHUNK: Final = 1 << 14
_FAR: Final = 1 << (PLACES + 4)
"""Magnitudes from 16 on do not fit the 64-bit products; their rows are settled one by one."""

_SPLIT: Final = PLACES // 2
_SQUARE_SLACK: Final = 35
"""What _squares leaves out of one square: (x + 1)² 2**-52 − _squares(x) for x < 2**56."""

_FREE: Final = 7
"""Places by which a magnitude below 2**56 is moved up, to use all digits of a product."""

_PRODUCT_SLACK: Final = 36

_normal = RefinableNormal()

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]


def _squares(x: Integers) -> Integers:
    """Return floor(x² / 2**52) or one less, for x < 2**56."""
    high, low = x >> _SPLIT, x & ((1 << _SPLIT) - 1)
    squares: Integers = high * high + ((high * low) >> (_SPLIT - 1))
    return squares


def _sums(x: Integers) -> list[int]:
    """Return the sums of the rows, which may exceed 64 bits, of non-negative numbers."""
    high, low = (x >> 31).sum(axis=1), (x & ((1 << 31) - 1)).sum(axis=1)
    return [(a << 31) + b for a, b in zip(high.tolist(), low.tolist(), strict=True)]


@dataclass(frozen=True)
class RoundedSpherical:
    """Sampler of round(X) for X with a density proportional to exp(−‖x‖₂ / 2**log2_scale)."""

    dim: int
    log2_scale: int

    def __post_init__(self) -> None:
        """Keep all integers below inside 64 bits."""
        if not 0 <= self.log2_scale <= LARGEST_LOG2_SCALE:
            raise ValueError(
                f"log2_scale must lie in 0..{LARGEST_LOG2_SCALE}, got {self.log2_scale}"
            )
        if not 1 <= self.dim <= 1 << 20:
            raise ValueError(f"dim must lie in 1..2**20, got {self.dim}")

    @property
    def _length_places(self) -> int:
        """Q: ‖h‖ is kept in units of 2**-Q, so that four times its usual size is below 2**62."""
        return 60 - math.isqrt(self.dim + 1).bit_length()

    def draw(self, rows: int, bits: RandomBits) -> Integers:
        """Draw ``rows`` independent vectors."""
        out = np.empty((rows, self.dim), dtype=np.int64)
        chunk = max(1, _CHUNK // (2 * self.dim + 1))
        for start in range(0, rows, chunk):
            stop = min(start + chunk, rows)
            out[start:stop] = self._draw_chunk(stop - start, bits)
        return out

    def _draw_chunk(self, rows: int, bits: RandomBits) -> Integers:
        normals = _normal.draw(rows * (2 * self.dim + 1), bits)
        table = normals.magnitude.reshape(rows, -1)
        rounded, open_ = self._enclosed(table[:, : self.dim + 1], table[:, self.dim + 1 :])
        for row in np.flatnonzero(open_.any(axis=1)):
            self._settle(normals, int(row), np.flatnonzero(open_[row]), rounded[row], bits)
        negative = normals.negative.reshape(rows, -1)[:, self.dim + 1 :]
        np.negative(rounded, out=rounded, where=negative)
        return rounded

    def _enclosed(self, h: Integers, g: Integers) -> tuple[Integers, NDArray[np.bool_]]:
        """Return round(t‖h‖|g_i|) of magnitudes in units of 2**-52, and where it is still open."""
        places = self._length_places
        length, slack, fits = self._lengths(h)
        fits &= (h < _FAR).all(axis=1) & (g < _FAR).all(axis=1)
        up = g.astype(np.uint64) << np.uint64(_FREE)
        half_word, low_word = np.uint64(32), np.uint64((1 << 32) - 1)
        a, b = up >> half_word, up & low_word
        c, d = length[:, None] >> half_word, length[:, None] & low_word
        # Units of 2**(64 − 59 − Q) of ‖h‖|g_i|, so of 2**-fraction of a step.
        below = a * c + ((a * d) >> half_word) + ((b * c) >> half_word)
        above = below + (((a + np.uint64(1)) * slack[:, None]) >> half_word)
        above += np.uint64(_PRODUCT_SLACK)
        fraction = np.uint64(places + PLACES + _FREE - 64 - self.log2_scale)
        half = np.uint64(1) << (fraction - np.uint64(1))
        rounded = (below + half) >> fraction
        open_ = rounded != (above + half) >> fraction
        open_[~fits] = True
        return rounded.astype(np.int64), open_

    def _lengths(self, h: Integers) -> tuple[Words, Words, NDArray[np.bool_]]:
        """Enclose ‖h‖ in units of 2**-Q: the lower end, the width, and which rows fit.

        A row that does not fit the 64-bit products gets numbers without meaning.
        """
        shift = 2 * self._length_places - PLACES
        slack = _SQUARE_SLACK * h.shape[1]
        lower, widths, fits = [], [], []
        for total in _sums(_squares(np.minimum(h, _FAR - 1))):
            low = math.isqrt(total << shift)
            width = math.isqrt((total + slack) << shift) + 1 - low
            good = low + width < 1 << 62 and width < 1 << 31
            lower.append(low if good else 0)
            widths.append(width if good else 0)
            fits.append(good)
        return (
            np.array(lower, dtype=np.uint64),
            np.array(widths, dtype=np.uint64),
            np.array(fits, dtype=np.bool_),
        )

    def _settle(
        self,
        normals: Normals,
        row: int,
        columns: NDArray[np.intp],
        rounded: Integers,
        bits: RandomBits,
    ) -> None:
        """Give the numbers of a row digits until the magnitudes of ``columns`` are decided."""
        first = row * (2 * self.dim + 1)
        h = [normals.digits(first + i) for i in range(self.dim + 1)]
        g = {int(i): normals.digits(first + self.dim + 1 + int(i)) for i in columns}
        places = PLACES
        while g:
            below, above = _length(h, places)
            for column, known in list(g.items()):
                value = known.floor(places)
                ends = (value * below, (value + 1) * above)
                # round(y) = floor(y + 1/2), in units of 2**-(2 · places)
                low, high = (
                    ((end << (self.log2_scale + 1)) + (1 << (2 * places))) >> (2 * places + 1)
                    for end in ends
                )
                if low == high:
                    rounded[column] = low
                    del g[column]
            places += _STEP
            if g:
                h = [x.to(places, bits) for x in h]
                g = {column: x.to(places, bits) for column, x in g.items()}


def _length(h: list[Digits], places: int) -> tuple[int, int]:
    """Enclose ‖h‖ in units of 2**-places."""
    floors = [x.floor(places) for x in h]
    least = sum(x * x for x in floors)
    most = sum((x + 1) * (x + 1) for x in floors)
    return math.isqrt(least), math.isqrt(most) + 1
