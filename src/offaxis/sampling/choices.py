"""A uniform choice among any number of things, without the bias of a remainder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.probability import Probability, preferred

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


# ----------------------------------------------------------------------------
# Uniformly random subsets, every row at once, without a shuffle.
#
# Contract: ``choose_subsets(columns, chosen, rows, bits)`` gives every row a set of ``chosen`` of
# its columns and one member of that set, every pair of the two equally likely. So the set is
# uniform, and so is the set without that member, among the sets that have one column less.
#
# Every column gets a random key of 32 bits; the set is the columns of the ``chosen`` smallest keys
# and the member is the one of the largest key among them. A row in which another column has that
# same key is drawn again. Neither the law of the keys nor the rule changes when columns are
# permuted, and permutations carry every pair to every other: all are equally likely, exactly. How
# often rows are drawn again depends on the keys alone.

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


# ----------------------------------------------------------------------------
# Exact randomized response: one of several symbols, the preferred ones e^ε times as likely.
#
# Contract: ``Response(size, near, epsilon)`` stands for the law on ``size`` symbols that gives
# weight e^ε to each of ``near`` preferred symbols and 1 to each other. Its normaliser near·e^ε +
# size − near is the same whichever symbols are preferred, so changing them changes no probability
# by more than the factor e^ε: pure ε for *any* way of choosing them. With near = 1 this is k-ary
# randomized response (Warner 1965; Kairouz, Oh, Viswanath 2014).
#
# The draw is made before anybody knows which symbols are preferred: first which of the two groups,
# by a coin with the exact, irrational probability near / (near + (size − near) e^{−ε}), then which
# member of it, uniformly. No rejection depends on the input.


@dataclass(frozen=True)
class Response:
    """The law above; ε is a fraction and is kept exactly."""

    size: int
    near: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        """Refuse a group that is empty."""
        if not 1 <= self.near < self.size <= MOST or self.epsilon <= 0:
            raise ValueError(f"no such response: {self}")

    @cached_property
    def _near_probability(self) -> Probability:
        return Probability(partial(preferred, self.near, self.size - self.near, self.epsilon))

    def draw(self, count: int, bits: RandomBits) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Draw ``count`` responses as (is it a preferred symbol, its place in its group)."""
        is_near = self._near_probability.draw(count, bits)
        # Both places are drawn for every response: which one is used must not show in the work.
        near = below(self.near, count, bits)
        far = below(self.size - self.near, count, bits)
        return is_near, np.where(is_near, near, far)


response_of = lru_cache(maxsize=128)(Response)
"""The same law for everybody who asks for it: its digits are computed once."""


def place(
    is_near: NDArray[np.bool_], offset: NDArray[np.int64], preferred: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the symbols a draw stands for, given each row's preferred symbols, ascending.

    The k-th symbol outside an ascending list a_0 < a_1 < … is k plus the number of i with
    a_i − i <= k.
    """
    skipped = (preferred - np.arange(preferred.shape[1]) <= offset[:, None]).sum(axis=1)
    chosen = np.take_along_axis(preferred, np.where(is_near, offset, 0)[:, None], axis=1)[:, 0]
    return np.where(is_near, chosen, offset + skipped)
