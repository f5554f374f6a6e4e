"""Folders where a Spark cluster keeps them, through Hadoop's file systems."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

from offaxis.engines.job import already_there
from offaxis.errors import InvalidInput


class SparkFolder:
    """One folder, on whatever file system its address names."""

    def __init__(self, spark: Any, address: str) -> None:
        self._spark = spark
        self._path = spark._jvm.org.apache.hadoop.fs.Path(address)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())
        self.address = address

    def exists(self) -> bool:
        """Whether something is there."""
        return bool(self._files.exists(self._path))

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
def appearing(spark: Any, out: str, *, force: bool) -> Iterator[SparkFolder]:
    """Give a folder that takes its place once all of it is written, or is removed."""
    target = SparkFolder(spark, out.rstrip("/"))
    if target.exists() and not force:
        raise already_there(out)
    draft = SparkFolder(spark, f"{target.address}.unfinished-{token_hex(8)}")
    try:
        yield draft
        target.remove()
        draft.rename(target)
    except BaseException:
        draft.remove()
        raise
