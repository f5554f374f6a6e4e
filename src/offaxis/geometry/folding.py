"""Sums over public vectors that can be taken in parts, anywhere, and put together.

A source of vectors folds its batches into what ``make()`` returns: one machine all of them one
after the other, a cluster every part apart, and the results are merged. So accumulators and what
makes them can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.geometry.public_hash import PublicHash
from offaxis.vectors import Vectors

T_contra = TypeVar("T_contra", contravariant=True)


class Accumulator(Protocol[T_contra]):
    """Something batches are added to; two of them, over different batches, can be merged."""

    def add(self, batch: T_contra, /) -> None:
        """Take in one batch."""
        ...

    def merge(self, other: Self, /) -> None:
        """Take in what another one has seen; one that has seen nothing changes nothing."""
        ...


A = TypeVar("A", bound=Accumulator[Any])


class Through(Generic[A]):
    """An accumulator of what a function makes of every batch.

    It leaves the function behind when it is pickled: what comes back from a worker is the sum.
    """

    def __init__(self, function: Callable[[Vectors], Any], into: A) -> None:
        self._function: Callable[[Vectors], Any] | None = function
        self.into = into

    def __getstate__(self) -> dict[str, Any]:
        """Return the sum alone."""
        return {"_function": None, "into": self.into}

    def add(self, batch: Vectors) -> None:
        """Take in one batch."""
        assert self._function is not None
        self.into.add(self._function(batch))

    def merge(self, other: Through[A]) -> None:
        """Take in what another one has seen."""
        self.into.merge(other.into)


class Identified(Generic[A]):
    """An accumulator beside the hash of the vectors it was given.

    Vectors of another dimension than ``dim``, where one is named, are hashed only.
    """

    def __init__(
        self, digest: type[PublicHash], make: Callable[[], A], dim: int | None = None
    ) -> None:
        self.digest = digest()
        self.inner = make()
        self._dim = dim

    def add(self, batch: Vectors) -> None:
        """Take in one batch."""
        self.digest.add(batch)
        if self._dim in (None, batch.shape[1]):
            self.inner.add(batch)

    def merge(self, other: Identified[A]) -> None:
        """Take in what another one has seen."""
        self.digest.merge(other.digest)
        self.inner.merge(other.inner)


class ArraySum:
    """A sum of arrays of one shape."""

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        self.total = np.zeros(shape)

    def add(self, array: Vectors) -> None:
        """Add one."""
        self.total += array

    def merge(self, other: ArraySum) -> None:
        """Add another one's sum."""
        self.total += other.total


class PublicMoments:
    """Mean and covariance of public vectors, taken on the way through them."""

    def __init__(self) -> None:
        self._count = 0
        self._origin: Vectors = np.empty(0)
        self._sum: Vectors = np.empty(0)
        self._products: Vectors = np.empty((0, 0))

    @classmethod
    def of(cls, count: int, origin: Vectors, total: Vectors, products: Vectors) -> PublicMoments:
        """Return the moments of vectors whose sums about an origin were taken elsewhere."""
        moments = cls()
        moments._count, moments._origin, moments._sum = count, origin, total
        moments._products = products
        moments._check(origin)
        return moments

    def add(self, batch: Vectors) -> None:
        """Take in one batch."""
        if not self._count:
            # Moments about one of the vectors: a large common offset cancels exactly.
            self._origin = batch[0].copy()
            self._sum = np.zeros(self._origin.size)
            self._products = np.zeros((self._origin.size, self._origin.size))
        moved = batch - self._origin
        with np.errstate(over="ignore", invalid="ignore"):
            self._sum += moved.sum(axis=0)
            self._products += moved.T @ moved
        self._check(batch)
        self._count += len(batch)

    def merge(self, other: PublicMoments) -> None:
        """Take in what another one has seen, about its own origin."""
        if not self._count or not other._count:
            if other._count:
                self.__dict__.update(deepcopy(other.__dict__))
            return
        shift = other._origin - self._origin
        with np.errstate(over="ignore", invalid="ignore"):
            mixed = np.outer(other._sum + other._count / 2 * shift, shift)
            self._sum += other._sum + other._count * shift
            self._products += other._products + (mixed + mixed.T)
        self._check(other.mean)
        self._count += other._count

    def _check(self, added: Vectors) -> None:
        if not np.isfinite(self._products).all():
            raise InvalidInput(
                f"public vectors as large as {np.abs(added).max():.1e} have no finite covariance; "
                f"rescale the vectors"
            )

    @property
    def mean(self) -> Vectors:
        """Return μ, the mean of the public vectors."""
        return self._origin + self._sum / self._count

    @property
    def covariance(self) -> Vectors:
        """Return the covariance of the public vectors, (m, m)."""
        shift = self._sum / self._count
        covariance = self._products / self._count
        covariance -= np.outer(shift, shift)
        return covariance
