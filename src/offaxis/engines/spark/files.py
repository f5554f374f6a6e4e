"""Files and folders where a Spark cluster keeps them, through Hadoop's file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from offaxis.engines.job import already_there, is_input
from offaxis.engines.spark.fold import DataFrame
from offaxis.engines.spark.starting import pyspark
from offaxis.errors import InvalidInput


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
