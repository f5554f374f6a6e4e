"""Exact choices from a finite set: uniform integers, columns, subsets, and randomized response.

Contract: given independent uniform input bits, every law below is exact. No float is involved, and
no rejection depends on a private input.
"""

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
"""The largest number of values to choose from: one 32-bit word is drawn per choice."""

# ---- Uniform choices


def below(limit: int, count: int, bits: RandomBits) -> NDArray[np.int64]:
    """Draw ``count`` independent uniform integers in [0, limit), limit <= 2**32.

    32-bit words in the last, incomplete run of ``limit`` values are discarded and redrawn, so every
    remainder is equally likely. How many are discarded depends on the words alone.
    """
    if not 1 <= limit <= MOST:
        raise ValueError(f"limit must be in 1..2**32, got {limit}")
    complete = MOST - MOST % limit
    words = bits.words(2 * count).view("<u4").astype(np.int64)
    missing = np.flatnonzero(words >= complete)
    while missing.size:
        words[missing] = bits.words(2 * missing.size).view("<u4")
        missing = missing[words[missing] >= complete]
    words %= limit
    return words


def choose_columns(columns: int, chosen: int, rows: int, bits: RandomBits) -> NDArray[np.int64]:
    """Draw ``chosen`` distinct columns for every row, every ordered choice equally likely.

    These are the first steps of a Fisher–Yates shuffle, applied to all rows at once.
    """
    order = np.tile(np.arange(columns), (rows, 1))
    row = np.arange(rows)
    for place in range(min(chosen, columns - 1)):
        other = place + below(columns - place, rows, bits)
        order[row, other], order[:, place] = order[:, place].copy(), order[row, other]
    return order[:, :chosen]


Keys = Callable[[int], NDArray[np.uint32]]
"""A source that returns the requested number of independent uniform 32-bit integers."""

MOST_COLUMNS: Final = 1 << 20
"""Up to this many columns, at most about one row in 2,000 is redrawn."""


def choose_subsets(
    columns: int, chosen: int, rows: int, bits: RandomBits
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Draw a subset of ``chosen`` columns and one member of it for every row, without a shuffle.

    Returns (rows, columns) memberships and one member per row. Every pair of a subset and a member
    is equally likely. So the subset is uniform, and the subset without that member is uniform among
    the subsets with one column less.

    Every column gets a random 32-bit key. The subset is the columns with the ``chosen`` smallest
    keys; the member is the column with the largest of these. A row in which another column has that
    same key is redrawn. Permuting the columns changes neither the law of the keys nor the rule, and
    permutations map every pair to every other, so all pairs are equally likely, exactly. How often
    rows are redrawn depends on the keys alone.
    """
    return by_keys(columns, chosen, rows, lambda count: bits.words(2 * count).view("<u4"))


def by_keys(
    columns: int, chosen: int, rows: int, draw: Keys
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Choose subsets as :func:`choose_subsets`, with keys from any source.

    A seeded source is for simulations only; it never makes a report.
    """
    if not 1 <= chosen <= columns <= MOST_COLUMNS:
        raise ValueError(f"cannot choose sets of {chosen} among {columns} columns")
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


# ---- Randomized response


@dataclass(frozen=True)
class Response:
    """Exact randomized response over ``size`` symbols, ``near`` of them preferred.

    Each preferred symbol has weight e^ε and each other symbol weight 1; ε is kept as an exact
    fraction. The normaliser near·e^ε + size − near is the same whichever symbols are preferred, so
    changing them changes no probability by more than the factor e^ε: pure ε for *any* rule that
    selects them. With near = 1 this is k-ary randomized response (Warner 1965; Kairouz, Oh,
    Viswanath 2014).

    The draw is made before the preferred symbols are known. An exact coin with the irrational
    probability near / (near + (size − near) e^{−ε}) selects one of the two groups; a uniform draw
    selects a member of it. No rejection depends on the input.
    """

    size: int
    near: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        """Reject an empty group and an ε that is not positive."""
        if not 1 <= self.near < self.size <= MOST or self.epsilon <= 0:
            raise ValueError(f"invalid randomized response: {self}")

    @cached_property
    def _near_probability(self) -> Probability:
        return Probability(partial(preferred, self.near, self.size - self.near, self.epsilon))

    def draw(self, count: int, bits: RandomBits) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Draw ``count`` responses as (is the symbol preferred, its index within its group)."""
        is_near = self._near_probability.draw(count, bits)
        # Both indices are drawn for every response, so the work does not reveal which one is used.
        near = below(self.near, count, bits)
        far = below(self.size - self.near, count, bits)
        return is_near, np.where(is_near, near, far)


response_of = lru_cache(maxsize=128)(Response)
"""Return a shared :class:`Response`, so that the digits of its probability are computed once."""


def place(
    is_near: NDArray[np.bool_], offset: NDArray[np.int64], preferred: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the symbol of every draw, given the preferred symbols of each row in ascending order.

    The k-th symbol outside an ascending list a_0 < a_1 < … is k plus the number of i with
    a_i − i <= k.
    """
    skipped = (preferred - np.arange(preferred.shape[1]) <= offset[:, None]).sum(axis=1)
    chosen = np.take_along_axis(preferred, np.where(is_near, offset, 0)[:, None], axis=1)[:, 0]
    return np.where(is_near, chosen, offset + skipped)
