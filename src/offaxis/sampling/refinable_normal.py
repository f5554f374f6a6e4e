"""Standard normal variables as real numbers: 52 binary digits now, more when asked for.

Contract: ``draw_normals(n, bits)`` returns n independent intervals [G, G + 1) / 2**52 with signs.
The magnitude is G plus a fraction whose digits, apart from those in ``further``, have not been
drawn and are uniform: filled up with fair digits, the numbers are exactly standard normal.

How: which cell of width 2**-9 a variable lies in says the rounded Gaussian. Within its cell, from
L to L + w, a point x is proposed uniformly and kept with probability exp(−(x² − L²)/2). A coin W
decides, kept when W >= 1 − exp(−e), e = (x² − L²)/2. The known digits of x enclose e, and

    e_low − e_high²/2 <= 1 − exp(−e) <= e_high

so 37 digits of W nearly always decide. If not, W and x get more digits until W is clear. What
decides is true for all x with the known digits, so the digits that are not known stay uniform; the
ones that were drawn to decide are kept. Proof: docs/proofs.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.enclosure import exp_minus
from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.rounded_gaussian import LOG2_CELLS, RoundedGaussian

Integers = NDArray[np.int64]

PLACES: Final = 52
"""Binary digits after the point that every number is drawn with."""

_HALF_CELL: Final = PLACES - LOG2_CELLS - 1
"""log2 of half a cell, in units of the last place."""

_COARSE: Final = 22
"""Places of a position that the first look at a coin leaves out, so that its products fit."""

_HEAD_BITS: Final = 64 - _HALF_CELL - 1
_COIN_BITS: Final = _HEAD_BITS + 16
_STEP: Final = 64
_USUAL: Final = 8
"""Standard deviations up to which a coin that shows a large head needs no second look."""

_CLEAR: Final = -(-((_USUAL + 1) << _HEAD_BITS) >> LOG2_CELLS)
"""Up to 8 deviations e is below 9 / 2**9: a head from here on keeps the point whatever it is."""

_LARGEST_CELL: Final = 1 << 19
"""Further out the tail would have more than 2**20 digits, which `enclosure.py` refuses."""

_cells = RoundedGaussian(LOG2_CELLS)


@dataclass(frozen=True)
class Digits:
    """The first ``places`` digits of a magnitude: it lies in [value, value + 1) / 2**places."""

    value: int
    places: int

    def to(self, places: int, bits: RandomBits) -> Digits:
        """Return the same number known to at least ``places``, with fresh digits if need be."""
        missing = places - self.places
        if missing <= 0:
            return self
        return Digits((self.value << missing) | bits.integer(missing), places)

    def floor(self, places: int) -> int:
        """Return the first ``places`` digits, of as many or more."""
        return self.value >> (self.places - places)


@dataclass(frozen=True)
class Normals:
    """Signs and first digits of independent normal variables.

    ``further`` holds, by index, those that are known better than to 52 places.
    """

    negative: NDArray[np.bool_]
    magnitude: Integers
    further: dict[int, Digits]

    def digits(self, index: int) -> Digits:
        """Return all that has been drawn of one magnitude."""
        return self.further.get(index) or Digits(int(self.magnitude[index]), PLACES)


def draw_normals(count: int, bits: RandomBits) -> Normals:
    """Draw ``count`` independent standard normal variables to 52 places."""
    cell = _cells.draw(count, bits)
    negative = cell < 0
    np.abs(cell, out=cell)
    if cell.size and int(cell.max()) > _LARGEST_CELL:
        raise AssertionError("a cell that no table or series reaches")
    centre = cell == 0
    # Lower ends, in half cells. The cell around zero is one half cell wide, and its sign is open.
    low = np.maximum(2 * cell - 1, 0)
    further: dict[int, Digits] = {}
    position, kept = _proposed(low, centre, negative, np.arange(count), further, bits)
    pending = np.flatnonzero(~kept)
    while pending.size:
        again, kept = _proposed(low, centre, negative, pending, further, bits)
        position[pending] = again
        pending = pending[~kept]
    position += low << _HALF_CELL
    return Normals(negative, position, further)


def _proposed(
    low: Integers,
    centre: NDArray[np.bool_],
    negative: NDArray[np.bool_],
    where: Integers,
    further: dict[int, Digits],
    bits: RandomBits,
) -> tuple[Integers, NDArray[np.bool_]]:
    """Propose a position above the lower end of the cells ``where`` and say whether it is kept.

    One 64-bit word gives the position, from its low digits, and the head of the coin. In the cell
    around zero the top digit of the position is the sign instead.
    """
    words = bits.words(4 * where.size).view("<u8")
    heads = (words >> np.uint64(_HALF_CELL + 1)).astype(np.int64)
    position = (words & np.uint64((2 << _HALF_CELL) - 1)).astype(np.int64)
    around_zero = np.flatnonzero(centre[where])
    negative[where[around_zero]] = position[around_zero] >> _HALF_CELL == 1
    position[around_zero] &= (1 << _HALF_CELL) - 1
    start = low[where]
    kept = (heads >= _CLEAR) & (start <= _USUAL << (LOG2_CELLS + 1))
    unsure = np.flatnonzero(~kept)
    if unsure.size:
        coin = (heads[unsure] << 16) | bits.words(unsure.size)
        kept[unsure], open_ = _decided(start[unsure], position[unsure], coin)
        for k in open_:
            index = unsure[k]
            keep, known = _settled(int(start[index]), int(position[index]), int(coin[k]), bits)
            kept[index] = keep
            if keep:
                further[int(where[index])] = known
    return position, kept


def _decided(
    low: Integers, position: Integers, coin: Integers
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Compare coins with both ends of 1 − exp(−e), in units of 2**-37; return also who is open."""
    step = position >> _COARSE
    start = low << (_HALF_CELL - _COARSE)
    # Squares of the coarse places, halved, to the digits of the coin.
    shift = 2 * (PLACES - _COARSE) + 1 - _COIN_BITS
    e_low = (step * (2 * start + step)) >> shift
    e_high = (((step + 1) * (2 * start + step + 1)) >> shift) + 1
    kept = coin >= e_high
    # Capped, so that the square fits; a cap only leaves more to be settled.
    square = np.minimum(e_high, 1 << 31) ** 2 >> (_COIN_BITS + 1)
    lost = (e_high < 1 << 31) & (coin + 1 <= e_low - square - 1)
    return kept, np.flatnonzero(~(kept | lost))


def _settled(low: int, position: int, coin: int, bits: RandomBits) -> tuple[bool, Digits]:
    """Give W and x digits until W is clear of 1 − exp(−e); return what is known of x by then."""
    known, x = _COIN_BITS, Digits((low << _HALF_CELL) + position, PLACES)
    while True:
        coin, known = (coin << _STEP) | bits.integer(_STEP), known + _STEP
        x = x.to(x.places + _STEP, bits)
        one = 1 << known
        below = one - _falls(low, x.value, x.places, known)[1]
        above = one - _falls(low, x.value + 1, x.places, known)[0]
        if coin >= above:
            return True, x
        if coin + 1 <= below:
            return False, x


def _falls(low: int, value: int, places: int, known: int) -> tuple[int, int]:
    """Enclose exp(−(x² − L²)/2) at x = value / 2**places, in units of 2**-known."""
    start = low << (places - LOG2_CELLS - 1)
    exponent = Fraction((value - start) * (value + start), 2 << (2 * places))
    return exp_minus(exponent, known) if exponent else (1 << known, 1 << known)
