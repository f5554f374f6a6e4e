"""Public vectors, however many: an array, or batches that can be walked through more than once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, as_array, as_batch

MINIMUM = 10
"""Fewer public vectors than this say nothing about a percentile."""

_ROWS: Final = 8192


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
            source = source if hasattr(source, "shape") else as_array(source, "public vectors")
            if len(source.shape) != 2:
                raise InvalidInput(
                    f"public vectors must be an array (n, m), or a function that returns batches, "
                    f"got a {type(source).__name__} of shape {tuple(source.shape)}"
                )
        self._source: Any | Callable[[], Iterable[Any]] = source

    def batches(self, rows: int) -> Iterator[Vectors]:
        """Yield checked float64 batches of at most ``rows`` vectors."""
        dim, seen = None, 0
        for block in self._blocks(rows):
            if getattr(block, "ndim", None) != 2:
                raise InvalidInput(
                    f"the function of public vectors must give arrays (b, m), it gave a "
                    f"{type(block).__name__} of shape {getattr(block, 'shape', 'unknown')}"
                )
            for start in range(0, len(block), rows):
                part = block[start : start + rows]
                batch, _ = as_batch(part, dim, "public vectors", first_row=seen)
                dim, seen = batch.shape[1], seen + len(batch)
                yield batch
        if not seen:
            raise InvalidInput("public vectors must not be empty")

    def _blocks(self, rows: int) -> Iterator[Any]:
        if callable(self._source):
            yield from self._source()
        else:
            for start in range(0, len(self._source), rows):
                yield self._source[start : start + rows]


class PublicHash:
    """Count and hash of public vectors, taken on the way through them."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._first: Vectors = np.empty(0)
        self._all_equal = True
        self.count = 0

    def add(self, batch: Vectors) -> None:
        """Take in one batch; how the vectors are cut into batches does not matter."""
        if not self.count:
            self._first = batch[0].copy()
        self._sha.update(np.ascontiguousarray(batch, dtype="<f8").tobytes())
        self._all_equal = self._all_equal and bool((batch == self._first).all())
        self.count += len(batch)

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
        return PublicIdentity(self.count, self._first.size, self._sha.hexdigest())


class PublicMoments:
    """Mean and covariance of public vectors, taken on the way through them."""

    def __init__(self, first: Vectors) -> None:
        # Moments about one of the vectors: a large common offset cancels exactly.
        self._origin = first.copy()
        self._sum = np.zeros(first.size)
        self._products = np.zeros((first.size, first.size))
        self._count = 0

    def add(self, batch: Vectors) -> None:
        """Take in one batch."""
        moved = batch - self._origin
        with np.errstate(over="ignore", invalid="ignore"):
            self._sum += moved.sum(axis=0)
            self._products += moved.T @ moved
        if not np.isfinite(self._products).all():
            raise InvalidInput(
                f"public vectors as large as {np.abs(batch).max():.1e} have no finite covariance; "
                f"rescale the vectors"
            )
        self._count += len(batch)

    @property
    def mean(self) -> Vectors:
        """Return μ, the mean of the public vectors."""
        return self._origin + self._sum / self._count

    @property
    def covariance(self) -> Vectors:
        """Return the covariance of the public vectors, (m, m)."""
        shift = self._sum / self._count
        return self._products / self._count - np.outer(shift, shift)


class Survey(NamedTuple):
    """Who the public vectors are, and their moments."""

    identity: PublicIdentity
    mean: Vectors
    covariance: Vectors


def survey(vectors: PublicVectors) -> Survey:
    """Walk once through the vectors."""
    digest, moments = PublicHash(), None
    for batch in vectors.batches(_ROWS):
        moments = moments or PublicMoments(batch[0])
        digest.add(batch)
        moments.add(batch)
    assert moments is not None
    return Survey(digest.identity(), moments.mean, moments.covariance)


def walk(vectors: PublicVectors, identity: PublicIdentity) -> Iterator[Vectors]:
    """Yield batches of the vectors that ``identity`` names; that others came is said at the end.

    Raises
    ------
    InvalidInput
        After the last batch, if the vectors were others.
    """
    digest = PublicHash()
    for batch in vectors.batches(_ROWS):
        digest.add(batch)
        if batch.shape[1] == identity.dim:
            yield batch
    if digest.identity() != identity:
        raise InvalidInput(
            "the public vectors are not the ones the map was fitted to: pass the same vectors, "
            "and let a function of batches return the same ones on every pass"
        )
