"""Parquet files and folders, a batch at a time; what is written appears whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from offaxis.engines.arrow import VECTOR
from offaxis.engines.columns import arrow, vectors_of
from offaxis.engines.job import already_there, is_input
from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors
from offaxis.vectors import Vectors

Advance = Callable[[int], None]
"""Called with the number of records just finished."""

_ROWS: Final = 4096
_FILE_ROWS: Final = 1 << 20
"""Rows a file: small enough to be read apart, large enough to be few."""


class ParquetRecords:
    """Records of a Parquet file, or of all files of a folder, in their order.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> records = local.ParquetRecords("people.parquet")
    >>> records.count, [batch.num_rows for batch in records.batches("id", rows=60)]
    (100, [60, 40])
    """

    def __init__(self, path: str | Path) -> None:
        pa = arrow()
        import pyarrow.dataset

        self.path = Path(path)
        if not self.path.exists():
            raise InvalidInput(f"there is no file or folder {path}")
        try:
            self._dataset = pyarrow.dataset.dataset(path, format="parquet")
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(
                f"{path} is not a readable Parquet file or folder: {error}"
            ) from None

    @property
    def count(self) -> int:
        """Number of records."""
        return int(self._dataset.count_rows())

    def batches(self, *columns: str | None, rows: int = _ROWS) -> Iterator[Any]:
        """Yield batches of the named columns, or of all if none is named."""
        names = self._dataset.schema.names
        wanted = [name for name in columns if name is not None]
        for name in wanted:
            if name not in names:
                raise InvalidInput(f"{self.path} has no column {name!r}; it has {', '.join(names)}")
        # Little is read ahead: memory is what one machine has least of.
        yield from self._dataset.to_batches(
            columns=wanted or None, batch_size=rows, batch_readahead=2, fragment_readahead=1
        )


Source = str | Path | ParquetRecords


def records_of(source: Source) -> ParquetRecords:
    """Return records by their path, or as they are."""
    return source if isinstance(source, ParquetRecords) else ParquetRecords(source)


def public_vectors(source: Source, column: str = VECTOR) -> PublicVectors:
    """Return a column of a Parquet file or folder as public vectors, to fit a release to.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none")
    >>> public = local.public_vectors("people.parquet")  # a batch at a time, never all in memory
    >>> offaxis.fit(None, public, epsilon=2, reshaping="none").hash == release.hash
    True
    """
    records = records_of(source)

    def batches() -> Iterator[Vectors]:
        for batch in records.batches(column):
            if batch.num_rows:
                yield vectors_of(batch, column)

    return PublicVectors(batches)


def number_of(source: Source) -> int:
    """Return how many records there are.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> local.number_of("people.parquet")
    100
    """
    return records_of(source).count


def counted(batches: Iterator[Any], advance: Advance | None) -> Iterator[Any]:
    """Yield batches, and tell of each when it is finished."""
    for batch in batches:
        yield batch
        if advance:
            advance(batch.num_rows)


@contextmanager
def appearing(out: Path, source: ParquetRecords, *, force: bool, reports: bool) -> Iterator[Path]:
    """Give a folder that takes its place once all of it is written, or is removed."""
    if source.path.resolve().is_relative_to(out.resolve()):
        raise is_input(out)
    if out.exists() and not force:
        raise already_there(out, reports=reports)
    draft = out.with_name(f"{out.name}.unfinished-{token_hex(8)}")
    try:
        draft.mkdir()
        yield draft
        if out.is_dir():
            shutil.rmtree(out)
        draft.rename(out)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError):
            raise InvalidInput(f"cannot write {out}: {error.strerror or error}") from error
        raise


def write(folder: Path, batches: Iterator[Any], advance: Advance | None) -> int:
    """Write batches into files of bounded size; return the number of rows."""
    pq = arrow().parquet
    count, writer = 0, None
    try:
        for batch in counted(batches, advance):
            if writer is None or count % _FILE_ROWS + batch.num_rows > _FILE_ROWS:
                if writer is not None:
                    writer.close()
                path = folder / f"part-{len(list(folder.iterdir())):05}.parquet"
                writer = pq.ParquetWriter(path, batch.schema)
            writer.write_batch(batch)
            count += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    return count
