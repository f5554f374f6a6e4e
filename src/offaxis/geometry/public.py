"""Public vectors, however many: an array, or batches that can be walked through more than once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, as_batch

MINIMUM = 10
"""Fewer public vectors than this say nothing about a percentile."""


@dataclass(frozen=True)
class PublicIdentity:
    """Which public vectors a release was fitted to."""

    count: int
    dim: int
    sha256: str


class PublicVectors:
    """A source of public vectors that is read in batches, in constant memory.

    Parameters
    ----------
    source : array (n, m), or callable returning an iterator of arrays (b, m)
        An array may be memory-mapped and of any real dtype. A callable is called once for every
        pass (fitting makes two), so it must give the same vectors each time.
    """

    def __init__(self, source: Any) -> None:
        if isinstance(source, PublicVectors):
            source = source._source
        elif isinstance(source, Iterator):
            raise InvalidInput(
                "public vectors are read twice, so an iterator will not do: pass an array, or a "
                "function that returns a fresh iterator of batches"
            )
        elif not callable(source):
            source = source if hasattr(source, "shape") else np.asarray(source)
            if source.ndim != 2:
                raise InvalidInput(
                    f"public vectors must be a batch (n, m), got shape {tuple(source.shape)}"
                )
        self._source: Any | Callable[[], Iterable[Any]] = source

    def batches(self, rows: int) -> Iterator[Vectors]:
        """Yield checked float64 batches of at most ``rows`` vectors."""
        dim = None
        for block in self._blocks(rows):
            for start in range(0, len(block), rows):
                batch, _ = as_batch(block[start : start + rows], dim, "public vectors")
                dim = batch.shape[1]
                yield batch

    def _blocks(self, rows: int) -> Iterator[Any]:
        if callable(self._source):
            yield from self._source()
        else:
            if len(self._source) == 0:
                raise InvalidInput("public vectors must not be empty")
            for start in range(0, len(self._source), rows):
                yield self._source[start : start + rows]


class PublicDigest:
    """Count, moments and hash of public vectors, taken on the way through them."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._count = 0
        self._origin: Vectors = np.empty(0)
        self._sum: Vectors = np.empty(0)
        self._products: Vectors = np.empty(0)
        self._all_equal = True

    def add(self, batch: Vectors) -> None:
        """Take in one batch; how the vectors are cut into batches does not matter to the hash."""
        self._sha.update(np.ascontiguousarray(batch, dtype="<f8").tobytes())
        self._count += len(batch)
        if not self._origin.size:
            dim = batch.shape[1]
            self._origin, self._sum = batch[0].copy(), np.zeros(dim)
            self._products = np.zeros((dim, dim))
        # Moments about one of the vectors: a large common offset cancels exactly.
        moved = batch - self._origin
        self._all_equal = self._all_equal and not moved.any()
        with np.errstate(over="ignore", invalid="ignore"):
            self._sum += moved.sum(axis=0)
            self._products += moved.T @ moved
        if not np.isfinite(self._products).all():
            raise InvalidInput(
                f"public vectors as large as {np.abs(batch).max():.1e} have no finite covariance; "
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
        return self._products / self._count - np.outer(shift, shift)

    def identity(self) -> PublicIdentity:
        """Return who the vectors are, or refuse if they are too few."""
        if self._count < MINIMUM:
            raise InvalidInput(
                f"fitting needs at least {MINIMUM} public vectors, got {self._count}; "
                f"collect more public (not private) vectors"
            )
        if self._all_equal:
            raise InvalidInput(
                "the public vectors are all equal, so they say nothing about any spread; "
                "use public vectors that differ from each other"
            )
        return PublicIdentity(self._count, self.mean.size, self._sha.hexdigest())


def identify(vectors: PublicVectors) -> PublicIdentity:
    """Walk through the vectors only to say who they are."""
    digest = PublicDigest()
    for batch in vectors.batches(8192):
        digest.add(batch)
    return digest.identity()
