"""A uniform choice among any number of things, without the bias of a remainder."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits

MOST: Final = 1 << 32


def below(limit: int, count: int, bits: RandomBits) -> NDArray[np.int64]:
    """Draw ``count`` independent uniform integers in [0, limit), limit <= 2**32.

    32-bit words from the last, incomplete run of ``limit`` values are thrown away and drawn again,
    so every remainder is equally likely. How many are thrown away depends on the words alone.
    """
    if not 1 <= limit <= MOST:
        raise ValueError(f"limit must lie in 1..2**32, got {limit}")
    complete = MOST - MOST % limit
    words = bits.words(2 * count).view("<u4").astype(np.int64)
    missing = np.flatnonzero(words >= complete)
    while missing.size:
        words[missing] = bits.words(2 * missing.size).view("<u4")
        missing = missing[words[missing] >= complete]
    words %= limit
    return words


def choose_columns(columns: int, chosen: int, rows: int, bits: RandomBits) -> NDArray[np.int64]:
    """Draw, for every row, ``chosen`` distinct columns, every ordered choice equally likely.

    The first steps of a Fisher–Yates shuffle, all rows at once.
    """
    order = np.tile(np.arange(columns), (rows, 1))
    each = np.arange(rows)
    for place in range(min(chosen, columns - 1)):
        other = place + below(columns - place, rows, bits)
        order[each, other], order[:, place] = order[:, place].copy(), order[each, other]
    return order[:, :chosen]
