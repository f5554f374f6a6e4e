"""Uniformly random subsets, every row at once, without a shuffle.

Contract: ``choose_subsets(columns, chosen, rows, bits)`` gives every row a set of ``chosen`` of its
columns and one member of that set, every pair of the two equally likely. So the set is uniform, and
so is the set without that member, among the sets that have one column less.

Every column gets a random key of 32 bits; the set is the columns of the ``chosen`` smallest keys
and the member is the one of the largest key among them. A row in which another column has that same
key is drawn again. Neither the law of the keys nor the rule changes when columns are permuted, and
permutations carry every pair to every other: all are equally likely, exactly. How often rows are
drawn again depends on the keys alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits

Keys = Callable[[int], NDArray[np.uint32]]
"""A source of so many independent uniform 32-bit integers."""

MOST_COLUMNS: Final = 1 << 20
"""Up to here about one row in 2,000 is drawn again."""


def choose_subsets(
    columns: int, chosen: int, rows: int, bits: RandomBits
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Draw (rows, columns) memberships and one member a row, by the law above."""
    return by_keys(columns, chosen, rows, lambda count: bits.words(2 * count).view("<u4"))


def by_keys(
    columns: int, chosen: int, rows: int, draw: Keys
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Do as :func:`choose_subsets` does, with keys from any source; a seeded one never reports."""
    if not 1 <= chosen <= columns <= MOST_COLUMNS:
        raise ValueError(f"no sets of {chosen} among {columns} columns")
    member = np.empty((rows, columns), dtype=bool)
    last = np.empty(rows, dtype=np.int64)
    missing = np.arange(rows)
    while missing.size:
        keys = draw(missing.size * columns).reshape(missing.size, columns)
        edge = np.partition(keys, chosen - 1, axis=1)[:, chosen - 1, None]
        at_edge = keys == edge
        member[missing] = keys <= edge
        last[missing] = at_edge.argmax(axis=1)
        missing = missing[at_edge.sum(axis=1) > 1]
    return member, last
