"""Who the public vectors are: their number and a hash, taken on the way through them."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors

MINIMUM = 10
"""Fewer public vectors than this say nothing about a percentile."""

_LANES: Final = 1024
_MULTISET: Final = b"offaxis multiset of vectors 1"


@dataclass(frozen=True)
class PublicIdentity:
    """Which public vectors a release was fitted to."""

    count: int
    dim: int
    sha256: str


class PublicHash(ABC):
    """Count and hash of public vectors; how they are cut into batches does not matter."""

    def __init__(self) -> None:
        self._first: Vectors = np.empty(0)
        self._all_equal = True
        self.count = 0

    def add(self, batch: Vectors) -> None:
        """Take in one batch."""
        if not self.count:
            self._first = batch[0].copy()
        self._all_equal = self._all_equal and bool((batch == self._first).all())
        self._update(np.ascontiguousarray(batch, dtype="<f8"))
        self.count += len(batch)

    def merge(self, other: Self) -> None:
        """Take in what another one has seen."""
        self._join(other)
        if not self.count:
            self._first = other._first
        same = not other.count or np.array_equal(self._first, other._first)
        self._all_equal = self._all_equal and other._all_equal and same
        self.count += other.count

    def identity(self) -> PublicIdentity:
        """Return who the vectors are, or refuse if they are too few or all the same."""
        if self.count < MINIMUM:
            raise InvalidInput(
                f"fitting needs at least {MINIMUM} public vectors, got {self.count}; "
                f"collect more public (not private) vectors"
            )
        if self._all_equal:
            raise InvalidInput(
                "the public vectors are all equal, so they say nothing about any spread; "
                "use public vectors that differ from each other"
            )
        return PublicIdentity(self.count, self._first.size, self._digest())

    @abstractmethod
    def _update(self, batch: NDArray[Any]) -> None: ...

    @abstractmethod
    def _join(self, other: Self) -> None: ...

    @abstractmethod
    def _digest(self) -> str: ...


class SequenceHash(PublicHash):
    """Vectors that come in an order: SHA-256 of one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._sha = hashlib.sha256()

    def _update(self, batch: NDArray[Any]) -> None:
        self._sha.update(batch.tobytes())

    def _join(self, other: Self) -> None:
        raise InvalidInput(
            "vectors in an order are hashed one after the other, not in parts; a source that folds "
            "its parts apart hashes with MultisetHash"
        )

    def _digest(self) -> str:
        return self._sha.hexdigest()


class MultisetHash(PublicHash):
    """Vectors that come in any order, in parts: a hash of the set with its multiplicities.

    Every vector becomes 1,024 numbers of 16 bits, by SHAKE-128; these are added modulo 2^16 over
    the vectors, and the sum is hashed with SHA-256. Finding other vectors with the same sum is as
    hard as a lattice problem (Bellare and Micciancio 1997).
    """

    def __init__(self) -> None:
        super().__init__()
        self._lanes = np.zeros(_LANES, dtype="<u2")

    def _update(self, batch: NDArray[Any]) -> None:
        wide = b"".join(hashlib.shake_128(row.tobytes()).digest(2 * _LANES) for row in batch)
        lanes = np.frombuffer(wide, dtype="<u2").reshape(len(batch), _LANES)
        self._lanes += lanes.sum(axis=0, dtype="<u2")

    def _join(self, other: Self) -> None:
        self._lanes += other._lanes

    def _digest(self) -> str:
        shape = f" {self.count} {self._first.size} ".encode()
        return hashlib.sha256(_MULTISET + shape + self._lanes.tobytes()).hexdigest()
