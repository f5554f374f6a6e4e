"""The spherical Laplace law rounded to integers, exactly and in bulk.

Contract: ``RoundedSpherical(dim=m, log2_scale=b).draw(n, bits)`` returns n independent rows of
integers with the law of round(X), coordinate by coordinate, where X in R^m has a density
proportional to exp(−‖x‖₂ / t), t = 2**b. No float is involved, and given uniform input bits the law
is exact. Proof: docs/proofs.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.gaussian import LOG2_CELLS, RoundedGaussian
from offaxis.sampling.probability import exp_minus

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

LARGEST_LOG2_SCALE: Final = 25

PLACES: Final = 52
"""Binary digits after the point that every normal variable is drawn with."""

_STEP: Final = 64
"""Binary digits that an undecided number gets at a time."""

_CHUNK: Final = 1 << 14
_FAR: Final = 1 << (PLACES + 4)
"""Magnitudes of 16 and more do not fit the 64-bit products; their rows are settled one by one."""

_SPLIT: Final = PLACES // 2
_SQUARE_SLACK: Final = 35
"""The most that _squares omits of one square: (x + 1)² 2**-52 − _squares(x) for x < 2**56."""

_FREE: Final = 7
"""Places by which a magnitude below 2**56 is shifted up, to use all digits of a product."""

_PRODUCT_SLACK: Final = 36


@dataclass(frozen=True)
class RoundedSpherical:
    """Sampler of round(X) for X with a density proportional to exp(−‖x‖₂ / 2**log2_scale).

    X = t·‖h‖·g with h in R^{m+1} and g in R^m independent standard normal vectors, because
    exp(−s) = ∫ (πu)^{−1/2} exp(−u − s²/4u) du is a mixture of Gaussians whose variances have the
    law of ‖h‖². All normals are drawn to 52 places (:class:`RefinableNormal`). 64-bit integers
    rounded outward enclose t·‖h‖·|g_i| to 2**-20 of a step or better. Where that leaves the
    rounding open, the numbers involved get more digits until it is decided.
    """

    dim: int
    log2_scale: int

    def __post_init__(self) -> None:
        """Keep all integers below inside 64 bits."""
        if not 0 <= self.log2_scale <= LARGEST_LOG2_SCALE:
            raise ValueError(
                f"log2_scale must be in 0..{LARGEST_LOG2_SCALE}, got {self.log2_scale}"
            )
        if not 1 <= self.dim <= 1 << 20:
            raise ValueError(f"dim must be in 1..2**20, got {self.dim}")

    @property
    def _length_places(self) -> int:
        """Q: ‖h‖ is kept in units of 2**-Q, such that four times its usual size is below 2**62."""
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

        The numbers of a row that does not fit the 64-bit products are meaningless.
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
        """Draw digits of a row's numbers until the magnitudes of ``columns`` are decided."""
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


def _squares(x: Integers) -> Integers:
    """Return floor(x² / 2**52) or one less, for x < 2**56."""
    high, low = x >> _SPLIT, x & ((1 << _SPLIT) - 1)
    squares: Integers = high * high + ((high * low) >> (_SPLIT - 1))
    return squares


def _sums(x: Integers) -> list[int]:
    """Return the row sums of non-negative numbers, which may exceed 64 bits."""
    high, low = (x >> 31).sum(axis=1), (x & ((1 << 31) - 1)).sum(axis=1)
    return [(a << 31) + b for a, b in zip(high.tolist(), low.tolist(), strict=True)]


# ---- Standard normal variables whose digits can be extended

_COARSE: Final = 26
"""Places of a position that the first check of a coin uses, so that its products fit."""

_TAIL_BITS: Final = 16
_USUAL: Final = 8
"""Standard deviations up to which the first digits of a coin, if large, decide alone."""

_LARGEST: Final = 1 << 10
"""Standard deviations beyond which the tail has 2**20 zeros, more digits than are computed."""


@dataclass(frozen=True)
class RefinableNormal:
    """Sampler of standard normal variables to 52 binary places, with more on request.

    Contract: ``RefinableNormal().draw(n, bits)`` returns n signs and integers G. The magnitudes are
    in [G, G + 1) / 2**52. Their later digits, apart from those in ``further``, have not been drawn
    and are uniform: extended with fair digits, the numbers are exactly independent standard
    normals.

    The rounded Gaussian gives the cell of width 2**-log2_cells (2**-9) that contains a variable.
    Within its cell, from L on, a point x is proposed uniformly and kept with probability exp(−e),
    e = (x² − L²)/2. A coin W decides: the point is kept when W >= 1 − exp(−e). The known digits of
    x enclose e, and

        e_low − e_high²/2 <= 1 − exp(−e) <= e_high

    so 37 digits of W nearly always decide. If not, W and x get more digits until they do. The
    decision holds for all x with the known digits, so the later ones stay uniform; digits of x that
    were drawn to decide are kept. Proof: docs/proofs.md.
    """

    log2_cells: int = LOG2_CELLS

    def __post_init__(self) -> None:
        """Keep all integers below inside 64 bits."""
        if not 1 <= self.log2_cells <= LOG2_CELLS:
            raise ValueError(f"log2_cells must be in 1..{LOG2_CELLS}, got {self.log2_cells}")

    @cached_property
    def _cells(self) -> RoundedGaussian:
        return RoundedGaussian(self.log2_cells)

    @property
    def _half_cell(self) -> int:
        """log2 of half a cell, in units of the last place."""
        return PLACES - self.log2_cells - 1

    @property
    def _coin_bits(self) -> int:
        """Digits of a coin at the second check: the unused bits of a 64-bit word, and 16 more."""
        return 64 - (self._half_cell + 1) + _TAIL_BITS

    def draw(self, count: int, bits: RandomBits) -> Normals:
        """Draw ``count`` independent standard normal variables."""
        cell = self._cells.draw(count, bits)
        negative = cell < 0
        np.abs(cell, out=cell)
        if (cell > _LARGEST << self.log2_cells).any():
            raise AssertionError("a cell further out than any series reaches")
        # Lower ends of the cells, in half cells.
        low = np.maximum(2 * cell - 1, 0)
        further: dict[int, Digits] = {}
        position, kept = self._propose(low, np.arange(count), negative, further, bits)
        pending = np.flatnonzero(~kept)
        while pending.size:
            again, kept = self._propose(low, pending, negative, further, bits)
            position[pending] = again
            pending = pending[~kept]
        position += low << self._half_cell
        return Normals(negative, position, further)

    def _propose(
        self,
        low: Integers,
        where: NDArray[np.intp],
        negative: NDArray[np.bool_],
        further: dict[int, Digits],
        bits: RandomBits,
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """Propose a position above the lower end of the cells ``where``; return whether it is kept.

        One 64-bit word provides the position, from its low digits, and the head of the coin. The
        cell around zero is half as wide and has no sign yet: there the top digit of the position is
        the sign.
        """
        words = bits.words(4 * where.size).view("<u8")
        heads = (words >> np.uint64(self._half_cell + 1)).astype(np.int64)
        position = (words & np.uint64((2 << self._half_cell) - 1)).astype(np.int64)
        start = low[where]
        centre = np.flatnonzero(start == 0)
        negative[where[centre]] = position[centre] >> self._half_cell == 1
        position[centre] &= (1 << self._half_cell) - 1
        # Up to 8 deviations e is below 9 / 2**c: a larger head keeps any point.
        clear = -(-((_USUAL + 1) << (self._coin_bits - _TAIL_BITS)) >> self.log2_cells)
        kept = (heads >= clear) & (start <= _USUAL << (self.log2_cells + 1))
        unsure = np.flatnonzero(~kept)
        if unsure.size:
            coin = (heads[unsure] << _TAIL_BITS) | bits.words(unsure.size)
            kept[unsure], undecided = self._decide(start[unsure], position[unsure], coin)
            for k in undecided:
                at = unsure[k]
                kept[at], x = self._settle(int(start[at]), int(position[at]), int(coin[k]), bits)
                if kept[at]:
                    further[int(where[at])] = x
        return position, kept

    def _decide(
        self, low: Integers, position: Integers, coin: Integers
    ) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Compare coins with both ends of 1 − exp(−e); return who is kept and who is undecided."""
        step = position >> (PLACES - _COARSE)
        start = low << (_COARSE - self.log2_cells - 1)
        # From halved squares of the coarse places to the digits of the coin.
        shift = 2 * _COARSE + 1 - self._coin_bits
        e_low = (step * (2 * start + step)) >> shift
        e_high = (((step + 1) * (2 * start + step + 1)) >> shift) + 1
        kept = coin >= e_high
        # Capped so that the square fits; the cap only leaves more coins to settle.
        square = np.minimum(e_high, 1 << 31) ** 2 >> (self._coin_bits + 1)
        lost = (e_high < 1 << 31) & (coin + 1 <= e_low - square - 1)
        return kept, np.flatnonzero(~(kept | lost))

    def _settle(self, low: int, position: int, coin: int, bits: RandomBits) -> tuple[bool, Digits]:
        """Draw digits of W and x until they decide W >= 1 − exp(−e); return x as known then."""
        known, x = self._coin_bits, Digits((low << self._half_cell) + position, PLACES)
        while True:
            coin, known = (coin << _STEP) | bits.integer(_STEP), known + _STEP
            x = x.to(x.places + _STEP, bits)
            one = 1 << known
            if coin >= one - self._density_ratio(low, x.value + 1, x.places, known)[0]:
                return True, x
            if coin + 1 <= one - self._density_ratio(low, x.value, x.places, known)[1]:
                return False, x

    def _density_ratio(self, low: int, value: int, places: int, known: int) -> tuple[int, int]:
        """Enclose exp(−(x² − L²)/2) at x = value / 2**places, in units of 2**-known."""
        start = low << (places - self.log2_cells - 1)
        exponent = Fraction((value - start) * (value + start), 2 << (2 * places))
        return exp_minus(exponent, known) if exponent else (1 << known, 1 << known)


_normal = RefinableNormal()


@dataclass(frozen=True)
class Digits:
    """The first ``places`` digits of a magnitude in [value, value + 1) / 2**places."""

    value: int
    places: int

    def to(self, places: int, bits: RandomBits) -> Digits:
        """Return the same number known to at least ``places``, with fresh digits if necessary."""
        missing = places - self.places
        if missing <= 0:
            return self
        return Digits((self.value << missing) | bits.integer(missing), places)

    def floor(self, places: int) -> int:
        """Return the first ``places`` digits of at least as many known ones."""
        return self.value >> (self.places - places)


@dataclass(frozen=True)
class Normals:
    """Signs and first digits of independent normal variables.

    ``further`` holds, by index, the magnitudes known to more than 52 places.
    """

    negative: NDArray[np.bool_]
    magnitude: Integers
    further: dict[int, Digits]

    def digits(self, index: int) -> Digits:
        """Return all digits drawn so far of one magnitude."""
        return self.further.get(index) or Digits(int(self.magnitude[index]), PLACES)
