"""Public vectors in a column of a DataFrame, to fit releases to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from offaxis.engines.arrow import VECTOR, Batches, fold_vectors
from offaxis.engines.columns import arrow, vectors_of
from offaxis.engines.spark.fold import DataFrame, fold, select
from offaxis.engines.spark.watch import Tasks, watched
from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors
from offaxis.geometry.folding import A
from offaxis.geometry.public_hash import MultisetHash, PublicHash
from offaxis.vectors import Vectors


class SparkVectors(PublicVectors):
    """Public vectors in a column of a DataFrame; ``offaxis.fit`` takes them like an array.

    They have no order: sums are taken partition by partition and merged, and a release fitted to
    them names them by a hash of the multiset.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> frame = session.createDataFrame(enumerate(vectors.tolist()), "id int, vector array<double>")
    >>> public = spark.SparkVectors(frame)
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none")
    >>> release.provenance.public.count
    40
    >>> sum(len(batch) for batch in public.batches(rows=16))  # in constant memory
    40
    >>> from offaxis.geometry.folding import PublicMoments
    >>> public.fold(PublicMoments, rows=16).mean.shape, public.hashing.__name__
    ((3,), 'MultisetHash')
    """

    def __init__(
        self, frame: DataFrame, column: str = VECTOR, progress: Tasks | None = None
    ) -> None:
        self._frame, self._column, self._tasks = select(frame, column), column, progress

    @property
    def hashing(self) -> type[PublicHash]:
        """As a multiset."""
        return MultisetHash

    def fold(
        self, make: Callable[[], A], rows: int, progress: Callable[[int], None] | None = None
    ) -> A:
        """Fold every partition apart, and merge."""
        column = self._column

        def part(batches: Batches) -> A:
            return fold_vectors(make(), batches, rows, vectors=column)

        return fold(self._frame, part, make(), self._tasks)

    def batches(self, rows: int) -> Iterator[Vectors]:
        """Yield checked float64 batches, one partition after the other, in constant memory."""
        column, seen = self._column, False
        packed = self._frame.mapInArrow(_packing(column), "dim int, numbers binary")
        with watched(self._frame.sparkSession, None):
            for row in packed.toLocalIterator():
                block = np.frombuffer(row.numbers, dtype="<f8").reshape(-1, row.dim)
                seen = True
                for start in range(0, len(block), rows):
                    yield block[start : start + rows]
        if not seen:
            raise InvalidInput("public vectors must not be empty")


def _packing(column: str) -> Callable[[Batches], Iterator[Any]]:
    def pack(batches: Batches) -> Iterator[Any]:
        pa = arrow()
        for batch in batches:
            if batch.num_rows:
                rows = vectors_of(batch, column)
                cells = [pa.array([rows.shape[1]], pa.int32()), pa.array([rows.tobytes()])]
                yield pa.RecordBatch.from_arrays(cells, names=["dim", "numbers"])

    return pack
