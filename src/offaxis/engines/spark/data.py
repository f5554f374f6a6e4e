"""Data of Spark jobs: public vectors, sums over partitions, and folders on Hadoop file systems."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from offaxis.engines.arrow import VECTOR, Batches, exists_error, fold_vectors, input_error
from offaxis.engines.columns import arrow, vectors_of
from offaxis.engines.spark.cluster import Tasks, pyspark, watched
from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors
from offaxis.geometry.public import A, MultisetHash, PublicHash
from offaxis.vectors import Vectors

DataFrame = Any
Total = TypeVar("Total", bound="Mergeable")

_MOST_PARTIAL_SUMS: Final = 8
"""At most this many partial sums reach the driver; more are merged before."""


class SparkVectors(PublicVectors):
    """Public vectors in a column of a DataFrame; ``offaxis.fit`` accepts them like an array.

    They have no order: sums are computed per partition and merged, and a release fitted to them
    identifies them by a hash of the multiset.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> frame = session.createDataFrame(enumerate(vectors.tolist()), "id int, vector array<double>")
    >>> public = spark.SparkVectors(frame)
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    >>> release.provenance.public.count
    40
    """

    def __init__(
        self, frame: DataFrame, column: str = VECTOR, progress: Tasks | None = None
    ) -> None:
        self._frame, self._column, self._tasks = select(frame, column), column, progress

    @property
    def hashing(self) -> type[PublicHash]:
        """A hash that does not depend on the order."""
        return MultisetHash

    def fold(
        self, make: Callable[[], A], rows: int, progress: Callable[[int], None] | None = None
    ) -> A:
        """Fold each partition separately, and merge."""
        column = self._column

        def part(batches: Batches) -> A:
            return fold_vectors(make(), batches, rows, vectors=column)

        return fold(self._frame, part, make(), self._tasks)

    def batches(self, rows: int) -> Iterator[Vectors]:
        """Yield checked float64 batches, one partition after another, in constant memory."""
        column, empty = self._column, True
        packed = self._frame.mapInArrow(_pack_task(column), "dim int, numbers binary")
        with watched(self._frame.sparkSession, None):
            for row in packed.toLocalIterator():
                block = np.frombuffer(row.numbers, dtype="<f8").reshape(-1, row.dim)
                empty = False
                for start in range(0, len(block), rows):
                    yield block[start : start + rows]
        if empty:
            raise InvalidInput("public vectors must not be empty")


def _pack_task(column: str) -> Callable[[Batches], Iterator[Any]]:
    def pack(batches: Batches) -> Iterator[Any]:
        pa = arrow()
        for batch in batches:
            if batch.num_rows:
                rows = vectors_of(batch, column)
                cells = [pa.array([rows.shape[1]], pa.int32()), pa.array([rows.tobytes()])]
                yield pa.RecordBatch.from_arrays(cells, names=["dim", "numbers"])

    return pack


def reader(spark: Any) -> Callable[[str], DataFrame]:
    """Return a function that opens Parquet files or folders.

    Examples
    --------
    >>> from offaxis.engines import spark
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> parquet.write_table(pa.table({"id": [1, 2]}), "people.parquet")
    >>> read = spark.reader(spark.session("local[2]"))
    >>> read("people.parquet").columns
    ['id']
    >>> read("missing.parquet")
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: cannot read missing.parquet: ...
    """
    analysis_error = pyspark().errors.AnalysisException

    def read(path: str) -> DataFrame:
        try:
            return spark.read.parquet(located(spark, path))
        except analysis_error as error:
            raise InvalidInput(f"cannot read {path}: {str(error).splitlines()[0]}") from None

    return read


def number_of(frame: DataFrame) -> int:
    """Return the number of rows.

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


# ---- Sums over partitions


class Mergeable(Protocol):
    """A sum over some of the rows."""

    def merge(self, other: Any, /) -> None:
        """Add the sum over other rows."""
        ...


@dataclass(frozen=True)
class Shared:
    """A value that was sent to the machines; tasks read it as ``value``."""

    _packed: Any

    @property
    def value(self) -> Any:
        """The value, unpacked anew."""
        return pickle.loads(self._packed.value)


@contextmanager
def broadcast(spark: Any, value: Any) -> Iterator[Shared]:
    """Broadcast a public, possibly large value to the machines."""
    # As bytes: with encryption, pyspark cannot write arrays of 64 KiB or more (PickleBuffer).
    packed = spark.sparkContext.broadcast(pickle.dumps(value))
    try:
        yield Shared(packed)
    finally:
        packed.unpersist()


def select(frame: DataFrame, *columns: str) -> DataFrame:
    """Select columns of the frame; raise with the existing names if one is missing."""
    for name in columns:
        found = frame.columns.count(name)
        if found != 1:
            what = "no column" if not found else f"{found} columns"
            raise InvalidInput(
                f"there is {what} {name!r}; the columns are {', '.join(frame.columns)}"
            )
    return frame.select(*(frame[quoted(name)] for name in columns))


def quoted(name: str) -> str:
    """Return the name of a column as Spark reads it: a dot would name a field of a struct."""
    return f"`{name.replace('`', '``')}`"


def fold(
    frame: DataFrame, part: Callable[[Batches], Any], total: Total, progress: Tasks | None = None
) -> Total:
    """Apply ``part`` to every partition, merge the results into ``total``, and return it.

    Partial sums are sent as pickles, from machines that run this job's code in any case.
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
    coalesced = frame.coalesce(max(1, spark.sparkContext.defaultParallelism))
    sums = coalesced.mapInArrow(task, "state binary")
    if spark.sparkContext.defaultParallelism > _MOST_PARTIAL_SUMS:
        sums = sums.repartition(_MOST_PARTIAL_SUMS).mapInArrow(join, "state binary")
    with watched(spark, progress):
        rows = sums.collect()
    for row in rows:
        total.merge(pickle.loads(row.state))
    return total


def _state(total: Any) -> Any:
    pa = arrow()
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(total)], pa.binary())], ["state"])


def _states(batch: Any) -> Iterator[Any]:
    return (pickle.loads(state) for state in batch.column(0).to_pylist())


# ---- Folders on Hadoop file systems


def located(spark: Any, path: str) -> str:
    """Return the path for Spark; a local path is made absolute from this process's directory.

    Spark would resolve it from the directory in which its Java process was started.
    """
    default = str(spark._jsc.hadoopConfiguration().get("fs.defaultFS"))
    on_this_machine = default.startswith("file:") and "://" not in path
    return str(Path(path).absolute()) if on_this_machine else path


class SparkFolder:
    """A folder on the file system that its address names."""

    def __init__(self, spark: Any, path: str) -> None:
        self._spark = spark
        self.address = located(spark, path)
        self._path = spark._jvm.org.apache.hadoop.fs.Path(self.address)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())

    def exists(self) -> bool:
        """Whether the folder exists."""
        return bool(self._files.exists(self._path))

    def holds(self, file: str) -> bool:
        """Whether a file is in this folder."""
        path = self._spark._jvm.org.apache.hadoop.fs.Path(file)
        return str(path.toString()).startswith(f"{self._files.makeQualified(self._path)}/")

    def remove(self) -> None:
        """Remove the folder and its contents, if it exists."""
        self._files.delete(self._path, True)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file into the folder."""
        stream = self._files.create(self._spark._jvm.org.apache.hadoop.fs.Path(self._path, name))
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def rename(self, other: SparkFolder) -> None:
        """Rename it to a path that does not exist."""
        if not self._files.rename(self._path, other._path):
            raise InvalidInput(f"cannot write {other.address}: the folder could not be renamed")


@contextmanager
def complete_folder(
    frame: DataFrame, out: str, *, force: bool, reports: bool
) -> Iterator[SparkFolder]:
    """Yield a draft folder, renamed to ``out`` at the end of the block or removed on an error.

    ``frame`` is the source of its rows; ``reports`` states whether it holds reports.
    """
    spark = frame.sparkSession
    target = SparkFolder(spark, out.rstrip("/"))
    if any(target.holds(file) for file in frame.inputFiles()):
        raise input_error(out)
    if target.exists() and not force:
        raise exists_error(out, reports=reports)
    draft = SparkFolder(spark, f"{target.address}.unfinished-{token_hex(8)}")
    try:
        yield draft
        target.remove()
        draft.rename(target)
    except BaseException:
        draft.remove()
        raise
