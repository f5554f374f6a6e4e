"""Public vectors, however many: an array, or batches that can be walked through more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from offaxis.arrays.tables import is_table
from offaxis.errors import InvalidInput
from offaxis.geometry.folding import A, Identified, PublicMoments
from offaxis.geometry.public_hash import PublicHash, PublicIdentity, SequenceHash
from offaxis.vectors import Vectors, as_array, as_batch

Progress = Callable[[int], None]
"""Called with the number of vectors just finished."""

ROWS: Final = 8192
_BATCH_NUMBERS: Final = 1 << 23


class PublicVectors:
    """A source of public vectors that is read in batches, in constant memory.

    Parameters
    ----------
    source : array (n, m), callable returning an iterator of arrays (b, m), or PublicVectors
        An array may be memory-mapped and of any real dtype. A callable is called once for every
        pass (fitting makes two), so it must give the same vectors each time.

    Examples
    --------
    >>> from offaxis.geometry import PublicVectors
    >>> def batches():  # called for every pass, so it may read a file too large for memory
    ...     for seed in range(3):
    ...         yield np.random.default_rng(seed).standard_normal((100, 4))
    >>> public = PublicVectors(batches)
    >>> [len(batch) for batch in public.batches(64)]
    [64, 36, 64, 36, 64, 36]
    >>> from offaxis.geometry.folding import PublicMoments
    >>> public.fold(PublicMoments, rows=64).mean.shape, public.hashing.__name__
    ((4,), 'SequenceHash')
    """

    def __init__(self, source: Any) -> None:
        if isinstance(source, Iterator):
            raise InvalidInput(
                "public vectors are read twice, so an iterator will not do: pass an array, or a "
                "function that returns a fresh iterator of batches"
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
        """How the vectors are hashed: in their order; MultisetHash for a source without one."""
        return self._source.hashing if isinstance(self._source, PublicVectors) else SequenceHash

    def fold(self, make: Callable[[], A], rows: int, progress: Progress | None = None) -> A:
        """Add all vectors, in batches of at most ``rows``, to what ``make()`` returns.

        This source adds them one batch after the other. One whose vectors lie apart makes an
        accumulator for every part and merges these; it overrides this, ``batches`` and
        ``hashing``.
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
        """Yield checked float64 batches of at most ``rows`` vectors, and 64 MiB."""
        if isinstance(self._source, PublicVectors):
            yield from self._source.batches(rows)
            return
        dim, seen = None, 0
        for block in self._blocks(rows):
            block = as_array(block, "public vectors") if is_table(block) else block
            if getattr(block, "ndim", None) != 2:
                raise InvalidInput(
                    f"the function of public vectors must give arrays (b, m), it gave a "
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


class Survey(NamedTuple):
    """Who the public vectors are, and their moments."""

    identity: PublicIdentity
    mean: Vectors
    covariance: Vectors


def survey(vectors: PublicVectors) -> Survey:
    """Walk once through the vectors."""
    moments, identity = fold_identified(vectors, PublicMoments)
    return Survey(identity, moments.mean, moments.covariance)


def fold_identified(
    vectors: PublicVectors,
    make: Callable[[], A],
    rows: int = ROWS,
    progress: Progress | None = None,
) -> tuple[A, PublicIdentity]:
    """Fold all vectors into what ``make()`` returns; say who they are."""
    known = vectors.fold(partial(Identified[A], vectors.hashing, make), rows, progress)
    return known.inner, known.digest.identity()


def fold_again(vectors: PublicVectors, identity: PublicIdentity, make: Callable[[], A]) -> A:
    """Fold the vectors that ``identity`` names; refuse others."""
    known = vectors.fold(partial(Identified[A], vectors.hashing, make, identity.dim), ROWS)
    _check_same(known.digest.identity(), identity)
    return known.inner


def walk(vectors: PublicVectors, identity: PublicIdentity) -> Iterator[Vectors]:
    """Yield batches of the vectors that ``identity`` names; that others came is said at the end.

    Raises
    ------
    InvalidInput
        After the last batch, if the vectors were others.
    """
    digest = vectors.hashing()
    for batch in vectors.batches(ROWS):
        digest.add(batch)
        if batch.shape[1] == identity.dim:
            yield batch
    _check_same(digest.identity(), identity)


def _check_same(found: PublicIdentity, wanted: PublicIdentity) -> None:
    if found != wanted:
        raise InvalidInput(
            "the public vectors are not the ones the map was fitted to: pass the same vectors, "
            "and let a function of batches return the same ones on every pass"
        )
