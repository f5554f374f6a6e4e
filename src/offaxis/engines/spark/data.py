"""Sums over the rows of a DataFrame, partition by partition, merged on the way to the driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from offaxis.engines.arrow import VECTOR, Batches, already_there, fold_vectors, is_input
from offaxis.engines.columns import arrow, vectors_of
from offaxis.engines.spark.cluster import Tasks, pyspark, watched
from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors
from offaxis.geometry.public import A, MultisetHash, PublicHash
from offaxis.vectors import Vectors

DataFrame = Any
Total = TypeVar("Total", bound="Mergeable")


class Mergeable(Protocol):
    """A sum over some of the rows."""

    def merge(self, other: Any, /) -> None:
        """Add the sum over others."""
        ...


_AT_ONCE: Final = 8
"""So many partial sums reach the driver; more are merged on the way."""


@contextmanager
def shared(spark: Any, value: Any) -> Iterator[Any]:
    """Send something public, and perhaps large, to the machines once."""
    public = spark.sparkContext.broadcast(value)
    try:
        yield public
    finally:
        public.unpersist()


def select(frame: DataFrame, *columns: str) -> DataFrame:
    """Return the frame of these columns, or say which there are."""
    for name in columns:
        if name not in frame.columns:
            raise InvalidInput(f"there is no column {name!r}; there are {', '.join(frame.columns)}")
    return frame.select(*(frame[name] for name in columns))


def fold(
    frame: DataFrame, part: Callable[[Batches], Any], total: Total, progress: Tasks | None = None
) -> Total:
    """Merge what ``part`` makes of every partition into ``total``, and return it.

    Partial sums travel as pickles, from machines that run this job's code anyway.
    """

    def task(batches: Batches) -> Iterator[Any]:
        yield _state(part(batches))

    def join(batches: Batches) -> Iterator[Any]:
        total = None
        for other in (other for batch in batches for other in _states(batch)):
            if total is None:
                total = other
            else:
                total.merge(other)
        if total is not None:
            yield _state(total)

    spark = frame.sparkSession
    several = frame.coalesce(max(1, spark.sparkContext.defaultParallelism))
    sums = several.mapInArrow(task, "state binary")
    if spark.sparkContext.defaultParallelism > _AT_ONCE:
        sums = sums.repartition(_AT_ONCE).mapInArrow(join, "state binary")
    with watched(spark, progress):
        found = sums.collect()
    for row in found:
        total.merge(pickle.loads(row.state))
    return total


def _state(total: Any) -> Any:
    pa = arrow()
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(total)], pa.binary())], ["state"])


def _states(batch: Any) -> Iterator[Any]:
    return (pickle.loads(state) for state in batch.column(0).to_pylist())


# ----------------------------------------------------------------------------
# Files and folders where a Spark cluster keeps them, through Hadoop's file systems.


def located(spark: Any, path: str) -> str:
    """Return a path as Spark must be told it: a local one from where this process stands.

    Spark itself would take it from where its Java process was started.
    """
    default = str(spark._jsc.hadoopConfiguration().get("fs.defaultFS"))
    on_this_machine = default.startswith("file:") and "://" not in path
    return str(Path(path).absolute()) if on_this_machine else path


def reader(spark: Any) -> Callable[[str], DataFrame]:
    """Return a function that opens Parquet files or folders, or says that it cannot.

    Examples
    --------
    >>> from offaxis.engines import spark
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> parquet.write_table(pa.table({"id": [1, 2]}), "people.parquet")
    >>> read = spark.reader(spark.session("local[2]"))
    >>> read("people.parquet").columns
    ['id']
    >>> read("nowhere.parquet")
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: cannot read nowhere.parquet: ...
    """
    failed = pyspark().errors.AnalysisException

    def read(path: str) -> DataFrame:
        try:
            return spark.read.parquet(located(spark, path))
        except failed as error:
            raise InvalidInput(f"cannot read {path}: {str(error).splitlines()[0]}") from None

    return read


def number_of(frame: DataFrame) -> int:
    """Return how many rows there are.

    Examples
    --------
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> frame = session.createDataFrame(enumerate(vectors.tolist()), "id int, vector array<double>")
    >>> spark.number_of(frame)
    40
    """
    return int(frame.count())


class SparkFolder:
    """One folder, on whatever file system its address names."""

    def __init__(self, spark: Any, path: str) -> None:
        self._spark = spark
        self.address = located(spark, path)
        self._path = spark._jvm.org.apache.hadoop.fs.Path(self.address)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())

    def exists(self) -> bool:
        """Whether something is there."""
        return bool(self._files.exists(self._path))

    def holds(self, file: str) -> bool:
        """Whether a file lies in it."""
        path = self._spark._jvm.org.apache.hadoop.fs.Path(file)
        return str(path.toString()).startswith(f"{self._files.makeQualified(self._path)}/")

    def remove(self) -> None:
        """Remove it with all that is in it, if it is there."""
        self._files.delete(self._path, True)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file into it."""
        stream = self._files.create(self._spark._jvm.org.apache.hadoop.fs.Path(self._path, name))
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def rename(self, other: SparkFolder) -> None:
        """Move it to where nothing is."""
        if not self._files.rename(self._path, other._path):
            raise InvalidInput(f"cannot write {other.address}: the folder could not be renamed")


@contextmanager
def appearing(frame: Any, out: str, *, force: bool, reports: bool) -> Iterator[SparkFolder]:
    """Give a folder that takes its place once all of it is written, or is removed.

    ``frame`` is what it is made of, ``reports`` whether it holds reports.
    """
    spark = frame.sparkSession
    target = SparkFolder(spark, out.rstrip("/"))
    if any(target.holds(file) for file in frame.inputFiles()):
        raise is_input(out)
    if target.exists() and not force:
        raise already_there(out, reports=reports)
    draft = SparkFolder(spark, f"{target.address}.unfinished-{token_hex(8)}")
    try:
        yield draft
        target.remove()
        draft.rename(target)
    except BaseException:
        draft.remove()
        raise


# ----------------------------------------------------------------------------
# Public vectors in a column of a DataFrame, to fit releases to.


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
    >>> from offaxis.geometry.public import PublicMoments
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
