"""Public vectors: a source that is read in batches, sums over it, and its identity.

Contract: memory does not grow with the number of vectors. A source folds its batches into an
accumulator: a single machine all of them in order, a cluster each part separately, and the partial
results are merged. Accumulators and the functions that make them can therefore be pickled. Every
pass hashes the vectors, so that a release names the ones it was fitted to and a second pass over
other vectors is an error.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.tables import is_table
from offaxis.vectors import Vectors, as_array, as_batch

MINIMUM = 10
"""Fewer public vectors than this do not determine a percentile."""

ROWS: Final = 8192
"""Rows per batch of a pass."""


_BATCH_NUMBERS: Final = 1 << 23

Progress = Callable[[int], None]
"""Called with the number of vectors just processed."""


class PublicVectors:
    """A source of public vectors that is read in batches, in constant memory.

    Parameters
    ----------
    source : array (n, m), callable returning an iterator of arrays (b, m), or PublicVectors
        An array may be memory-mapped and of any real dtype. A callable is called once per pass
        (fitting makes two), so it must return the same vectors each time.

    Examples
    --------
    >>> from offaxis.geometry import PublicVectors
    >>> def batches():  # called once per pass, so it may read a file too large for memory
    ...     for seed in range(3):
    ...         yield np.random.default_rng(seed).standard_normal((100, 4))
    >>> [len(batch) for batch in PublicVectors(batches).batches(64)]
    [64, 36, 64, 36, 64, 36]
    """

    def __init__(self, source: Any) -> None:
        if isinstance(source, Iterator):
            raise InvalidInput(
                "public vectors are read several times, so an iterator cannot be used: pass an "
                "array, or a function that returns a fresh iterator of batches"
            )
        if not callable(source) and not isinstance(source, PublicVectors):
            if is_table(source) or not hasattr(source, "shape"):
                source = as_array(source, "public vectors")
            if len(source.shape) != 2:
                raise InvalidInput(
                    f"public vectors must be an array (n, m), or a function that returns batches, "
                    f"got a {type(source).__name__} of shape {tuple(source.shape)}"
                )
        self._source: Any = source

    @property
    def hashing(self) -> type[PublicHash]:
        """The hash class: SequenceHash, or MultisetHash for a source without an order."""
        return self._source.hashing if isinstance(self._source, PublicVectors) else SequenceHash

    def fold(self, make: Callable[[], A], rows: int, progress: Progress | None = None) -> A:
        """Add all vectors, in batches of at most ``rows``, to the accumulator from ``make()``.

        This source adds the batches in order. A distributed source makes one accumulator per part
        and merges them; it overrides this method, ``batches`` and ``hashing``.
        """
        if isinstance(self._source, PublicVectors):
            return self._source.fold(make, rows, progress)
        total = make()
        for batch in self.batches(rows):
            total.add(batch)
            if progress:
                progress(len(batch))
        return total

    def batches(self, rows: int) -> Iterator[Vectors]:
        """Yield checked float64 batches of at most ``rows`` vectors and 64 MiB."""
        if isinstance(self._source, PublicVectors):
            yield from self._source.batches(rows)
            return
        dim, seen = None, 0
        for block in self._blocks(rows):
            block = as_array(block, "public vectors") if is_table(block) else block
            if getattr(block, "ndim", None) != 2:
                raise InvalidInput(
                    f"the function of public vectors must return arrays (b, m), it returned a "
                    f"{type(block).__name__} of shape {getattr(block, 'shape', 'unknown')}"
                )
            step = _step(block, rows)
            for start in range(0, len(block), step):
                part = block[start : start + step]
                batch, _ = as_batch(part, dim, "public vectors", first_row=seen)
                dim, seen = batch.shape[1], seen + len(batch)
                yield batch
        if not seen:
            raise InvalidInput("public vectors must not be empty")

    def _blocks(self, rows: int) -> Iterator[Any]:
        if callable(self._source):
            yield from self._source()
        else:
            step = _step(self._source, rows)
            for start in range(0, len(self._source), step):
                yield self._source[start : start + step]


def _step(block: Any, rows: int) -> int:
    return max(1, min(rows, _BATCH_NUMBERS // max(1, int(block.shape[1]))))


# ---- Passes over the vectors


class Survey(NamedTuple):
    """The identity and the moments of the public vectors."""

    identity: PublicIdentity
    mean: Vectors
    covariance: Vectors


def survey(vectors: PublicVectors) -> Survey:
    """Return identity and moments of the vectors, in one pass."""
    moments, identity = fold_identified(vectors, PublicMoments)
    return Survey(identity, moments.mean, moments.covariance)


def fold_identified(
    vectors: PublicVectors,
    make: Callable[[], A],
    rows: int = ROWS,
    progress: Progress | None = None,
) -> tuple[A, PublicIdentity]:
    """Fold all vectors into the accumulator from ``make()``; return it with their identity."""
    identified = vectors.fold(partial(Identified[A], vectors.hashing, make), rows, progress)
    return identified.inner, identified.digest.identity()


def fold_again(vectors: PublicVectors, identity: PublicIdentity, make: Callable[[], A]) -> A:
    """Fold the vectors with this identity into the accumulator from ``make()``.

    Raises
    ------
    InvalidInput
        If the vectors are not the ones that ``identity`` names.
    """
    identified = vectors.fold(partial(Identified[A], vectors.hashing, make, identity.dim), ROWS)
    _check_same(identified.digest.identity(), identity)
    return identified.inner


def walk(vectors: PublicVectors, identity: PublicIdentity) -> Iterator[Vectors]:
    """Yield batches of the vectors with this identity, which is checked after the last batch.

    Raises
    ------
    InvalidInput
        After the last batch, if the vectors were not the ones that ``identity`` names.
    """
    digest = vectors.hashing()
    for batch in vectors.batches(ROWS):
        digest.add(batch)
        if batch.shape[1] == identity.dim:
            yield batch
    _check_same(digest.identity(), identity)


def _check_same(identity: PublicIdentity, expected: PublicIdentity) -> None:
    if identity != expected:
        raise InvalidInput(
            "the public vectors are not the ones the map was fitted to: pass the same vectors, "
            "and let a function of batches return the same ones on every pass"
        )


def evenly(public: Any, most: int) -> Vectors:
    """Return at most ``most`` evenly spaced public vectors as one array (n, m)."""
    vectors = PublicVectors(public)
    count = sum(len(batch) for batch in vectors.batches(ROWS))
    return taken_evenly(vectors.batches(ROWS), count, most)


def taken_evenly(batches: Iterable[Vectors], count: int, most: int) -> Vectors:
    """Return at most ``most`` evenly spaced rows of the ``count`` rows of all batches."""
    indices = places(count, most)
    parts, seen = [], 0
    for batch in batches:
        in_batch = indices[(indices >= seen) & (indices < seen + len(batch))]
        parts.append(batch[in_batch - seen])
        seen += len(batch)
    return np.concatenate(parts)


def places(count: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` evenly spaced indices below ``count``."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


# ---- Accumulators

T_contra = TypeVar("T_contra", contravariant=True)


class Accumulator(Protocol[T_contra]):
    """A sum over batches; two sums over different batches can be merged."""

    def add(self, batch: T_contra, /) -> None:
        """Add one batch."""
        ...

    def merge(self, other: Self, /) -> None:
        """Add the batches of another accumulator; an empty one changes nothing."""
        ...


A = TypeVar("A", bound=Accumulator[Any])


class Mapped(Generic[A]):
    """Apply a function to every batch and add the result to an accumulator.

    Pickling drops the function: only the sum travels back from a worker.
    """

    def __init__(self, function: Callable[[Vectors], Any], into: A) -> None:
        self._function: Callable[[Vectors], Any] | None = function
        self.into = into

    def __getstate__(self) -> dict[str, Any]:
        """Return the sum alone."""
        return {"_function": None, "into": self.into}

    def add(self, batch: Vectors) -> None:
        """Add one batch."""
        assert self._function is not None
        self.into.add(self._function(batch))

    def merge(self, other: Mapped[A]) -> None:
        """Add the sum of another accumulator."""
        self.into.merge(other.into)


class Identified(Generic[A]):
    """An accumulator together with the hash of its vectors.

    If ``dim`` is given, vectors of another dimension are hashed but not added.
    """

    def __init__(
        self, digest: type[PublicHash], make: Callable[[], A], dim: int | None = None
    ) -> None:
        self.digest = digest()
        self.inner = make()
        self._dim = dim

    def add(self, batch: Vectors) -> None:
        """Add one batch."""
        self.digest.add(batch)
        if self._dim in (None, batch.shape[1]):
            self.inner.add(batch)

    def merge(self, other: Identified[A]) -> None:
        """Add the vectors of another accumulator."""
        self.digest.merge(other.digest)
        self.inner.merge(other.inner)


class ArraySum:
    """A sum of arrays of one shape."""

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        self.total = np.zeros(shape)

    def add(self, array: Vectors) -> None:
        """Add one array."""
        self.total += array

    def merge(self, other: ArraySum) -> None:
        """Add another sum."""
        self.total += other.total


class PublicMoments:
    """Mean and covariance of public vectors, in one pass."""

    def __init__(self) -> None:
        self._count = 0
        self._origin: Vectors = np.empty(0)
        self._sum: Vectors = np.empty(0)
        self._products: Vectors = np.empty((0, 0))

    @classmethod
    def of(cls, count: int, origin: Vectors, total: Vectors, products: Vectors) -> PublicMoments:
        """Return the moments of vectors from their count and their sums about an origin."""
        moments = cls()
        moments._count, moments._origin, moments._sum = count, origin, total
        moments._products = products
        moments._check(origin)
        return moments

    def add(self, batch: Vectors) -> None:
        """Add one batch."""
        if not self._count:
            # Moments about one of the vectors: a large common offset cancels exactly.
            self._origin = batch[0].copy()
            self._sum = np.zeros(self._origin.size)
            self._products = np.zeros((self._origin.size, self._origin.size))
        shifted = batch - self._origin
        with np.errstate(over="ignore", invalid="ignore"):
            self._sum += shifted.sum(axis=0)
            self._products += shifted.T @ shifted
        self._check(batch)
        self._count += len(batch)

    def merge(self, other: PublicMoments) -> None:
        """Add moments taken about another origin."""
        if not self._count or not other._count:
            if other._count:
                self.__dict__.update(deepcopy(other.__dict__))
            return
        shift = other._origin - self._origin
        with np.errstate(over="ignore", invalid="ignore"):
            cross = np.outer(other._sum + other._count / 2 * shift, shift)
            self._sum += other._sum + other._count * shift
            self._products += other._products + (cross + cross.T)
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


# ---- Identity of the vectors

_LANES: Final = 1024

_MULTISET: Final = b"offaxis multiset of vectors 1"


@dataclass(frozen=True)
class PublicIdentity:
    """Which public vectors a release was fitted to."""

    count: int
    dim: int
    sha256: str


class PublicHash(ABC):
    """Count and hash of public vectors, independent of how they are split into batches."""

    def __init__(self) -> None:
        self._first: Vectors = np.empty(0)
        self._all_equal = True
        self.count = 0

    def add(self, batch: Vectors) -> None:
        """Add one batch."""
        if not self.count:
            self._first = batch[0].copy()
        self._all_equal = self._all_equal and bool((batch == self._first).all())
        self._update(np.ascontiguousarray(batch, dtype="<f8"))
        self.count += len(batch)

    def merge(self, other: Self) -> None:
        """Add the vectors of another hash."""
        self._join(other)
        if not self.count:
            self._first = other._first
        same = not other.count or np.array_equal(self._first, other._first)
        self._all_equal = self._all_equal and other._all_equal and same
        self.count += other.count

    def identity(self) -> PublicIdentity:
        """Return the identity of the vectors.

        Raises
        ------
        InvalidInput
            If there are too few vectors, or they are all equal.
        """
        if self.count < MINIMUM:
            raise InvalidInput(
                f"fitting needs at least {MINIMUM} public vectors, got {self.count}; "
                f"collect more public (not private) vectors"
            )
        if self._all_equal:
            raise InvalidInput(
                "the public vectors are all equal, so they do not determine a scale; "
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
    """Hash of vectors that have an order: SHA-256 of their concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self._sha = hashlib.sha256()

    def _update(self, batch: NDArray[Any]) -> None:
        self._sha.update(batch.tobytes())

    def _join(self, other: Self) -> None:
        raise InvalidInput(
            "vectors with an order are hashed one after the other, not in parts; a source that "
            "folds its parts separately must use MultisetHash"
        )

    def _digest(self) -> str:
        return self._sha.hexdigest()


class MultisetHash(PublicHash):
    """Hash of vectors in any order, in parts: a hash of the multiset.

    SHAKE-128 maps every vector to 1,024 numbers of 16 bits. These are added modulo 2^16 over the
    vectors, and the sum is hashed with SHA-256. Finding other vectors with the same sum is as hard
    as a lattice problem (Bellare and Micciancio 1997).
    """

    def __init__(self) -> None:
        super().__init__()
        self._lanes = np.zeros(_LANES, dtype="<u2")

    def _update(self, batch: NDArray[Any]) -> None:
        digests = b"".join(hashlib.shake_128(row.tobytes()).digest(2 * _LANES) for row in batch)
        lanes = np.frombuffer(digests, dtype="<u2").reshape(len(batch), _LANES)
        self._lanes += lanes.sum(axis=0, dtype="<u2")

    def _join(self, other: Self) -> None:
        self._lanes += other._lanes

    def _digest(self) -> str:
        shape = f" {self.count} {self._first.size} ".encode()
        return hashlib.sha256(_MULTISET + shape + self._lanes.tobytes()).hexdigest()
