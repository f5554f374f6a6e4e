"""Public vectors in parts: one to fit to, and others that a choice or an estimate is made on.

Contract: every vector is in exactly one part, drawn at random by a public seed. What is chosen on
one held-out part and estimated on another is estimated without optimism. The part to fit to is
walked through in batches and may be of any size; the held-out parts are held in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding.channel import evenly, places
from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors
from offaxis.vectors import Vectors

MOST_HELD_OUT: Final = 3000
"""Vectors of a held-out part, at most: so many are simulated in every comparison."""

LEAST_HELD_OUT: Final = 10
"""Fewer compare nothing and estimate nothing."""

SHARE: Final = 0.2
"""Of the public vectors, for each held-out part."""

_ROWS: Final = 8192


def sample(public: Any, most: int) -> tuple[Vectors, Vectors]:
    """Return ``most`` public vectors at even distances, (n, m), and as many of the others.

    All of them, and none, where there are not more.
    """
    source = PublicVectors(public)
    chosen = evenly(source, most)
    count = sum(len(batch) for batch in source.batches(_ROWS))
    if count <= most:
        return chosen, chosen[:0]
    left = np.ones(count, dtype=bool)
    left[places(count, most)] = False

    def others() -> Iterator[Vectors]:
        seen = 0
        for batch in source.batches(_ROWS):
            yield batch[left[seen : seen + len(batch)]]
            seen += len(batch)

    return chosen, evenly(others, most)


class Split:
    """Public vectors, split at random by their place in the order they come in.

    Parameters
    ----------
    public : array (n, m), or callable returning an iterator of batches
    seed : int
        Public.
    held_out : int
        Number of held-out parts.
    share, most, least
        Share of the vectors in each of these; vectors in each, at most and at least.

    Raises
    ------
    InvalidInput
        If a held-out part would be smaller than ``least``.
    """

    def __init__(
        self,
        public: Any,
        seed: int,
        *,
        held_out: int = 2,
        share: float = SHARE,
        most: int = MOST_HELD_OUT,
        least: int = LEAST_HELD_OUT,
    ) -> None:
        self._source = PublicVectors(public)
        count = sum(len(batch) for batch in self._source.batches(_ROWS))
        held = min(most, int(share * count))
        if held < least:
            raise InvalidInput(
                f"public vectors are split in {held_out + 1} parts, to fit to and to judge on, and "
                f"that takes at least {math.ceil(least / share)} of them, got {count}"
            )
        self._part: NDArray[np.int8] = np.zeros(count, dtype=np.int8)
        order = np.random.default_rng([seed, 0]).permutation(count)
        for index in range(held_out):
            self._part[order[index * held : (index + 1) * held]] = index + 1

    def _walk(self, which: int) -> Iterator[Vectors]:
        seen = 0
        for batch in self._source.batches(_ROWS):
            kept = batch[self._part[seen : seen + len(batch)] == which]
            seen += len(batch)
            if len(kept):
                yield kept

    @property
    def fitted(self) -> PublicVectors:
        """The part to fit to, in batches."""
        return PublicVectors(lambda: self._walk(0))

    def part(self, which: int) -> Vectors:
        """Return the part to fit to (0) or a held-out part (1, 2 …) as one array, (n, m)."""
        return np.concatenate(list(self._walk(which)))
