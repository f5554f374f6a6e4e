"""Bulk work on one machine: Parquet files and folders, a batch at a time, in constant memory.

The same batch functions as on a cluster (arrow.py). What is written is a folder of Parquet files,
which appears whole or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from offaxis.decoding import Aggregate
from offaxis.engines.arrow import (
    ID,
    REPORT,
    VECTOR,
    decode_batches,
    fold_means,
    fold_tallies,
    privatize_batches,
)
from offaxis.engines.columns import arrow, ids_of, vectors_of
from offaxis.engines.distinct import DistinctIds
from offaxis.engines.job import FACTS, already_there, check_ids, is_input, job_facts, written
from offaxis.errors import InvalidInput
from offaxis.evaluation import Evaluation
from offaxis.geometry import PublicVectors, as_task_model
from offaxis.release import Release
from offaxis.sampling.record_entropy import JobKey
from offaxis.vectors import Vectors

Advance = Callable[[int], None]
"""Called with the number of records just finished."""

_ROWS: Final = 4096
_FILE_ROWS: Final = 1 << 20
"""Rows a file: small enough to be read apart, large enough to be few."""


class ParquetRecords:
    """Records of a Parquet file, or of all files of a folder, in their order."""

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


def _records(source: Source) -> ParquetRecords:
    return source if isinstance(source, ParquetRecords) else ParquetRecords(source)


def public_vectors(source: Source, column: str = VECTOR) -> PublicVectors:
    """Return a column of a Parquet file or folder as public vectors, to fit a release to."""
    records = _records(source)

    def batches() -> Iterator[Vectors]:
        for batch in records.batches(column):
            if batch.num_rows:
                yield vectors_of(batch, column)

    return PublicVectors(batches)


def number_of(source: Source) -> int:
    """Return how many records there are."""
    return _records(source).count


def privatize(
    source: Source,
    release: Release,
    out: str | Path,
    *,
    ids: str = ID,
    vectors: str = VECTOR,
    force: bool = False,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """Turn the private vectors of Parquet files into reports, and say what was made.

    Every id is looked at before the first report is drawn. A second job on the same records draws
    a new key and spends the budget again.
    """
    records = _records(source)
    counted = _count_ids(records, ids)
    check_ids(ids, *counted)
    key = JobKey()
    try:
        with _appearing(Path(out), records, force=force, reports=True) as folder:
            drawn = records.batches(ids, vectors)
            made = privatize_batches(release, key, drawn, ids=ids, vectors=vectors)
            _write(folder, made, advance)
            # As on a cluster: what counts is what was written.
            committed = _count_ids(ParquetRecords(folder), ids)
            check_ids(ids, *committed)
            if committed != counted:
                raise InvalidInput(
                    f"{records.path} changed while it was read; nothing was released"
                )
            facts = job_facts(release, counted[0])
            (folder / FACTS).write_bytes(written(facts))
    finally:
        key.destroy()
    return facts


def _count_ids(records: ParquetRecords, ids: str) -> tuple[int, int, int]:
    """Return how many records, ids and different ids there are."""
    rows = present = 0
    with DistinctIds() as seen:
        for batch in records.batches(ids, rows=1 << 16):
            rows += batch.num_rows
            missing = batch.column(ids).null_count
            present += batch.num_rows - missing
            if not missing:
                seen.add(ids_of(batch, ids))
        distinct = rows if present < rows else seen.count()
    return rows, present, distinct


def decode(
    source: Source,
    release: Release,
    out: str | Path,
    *,
    reports: str = REPORT,
    force: bool = False,
    advance: Advance | None = None,
) -> int:
    """Decode the reports of Parquet files into a folder of vectors; return how many there were."""
    records = _records(source)
    with _appearing(Path(out), records, force=force, reports=False) as folder:
        made = decode_batches(release, records.batches(), reports=reports)
        return _write(folder, made, advance)


def group_means(
    source: Source,
    release: Release,
    *,
    reports: str = REPORT,
    groups: str | None = None,
    weights: str | None = None,
    advance: Advance | None = None,
) -> Aggregate:
    """Estimate the mean of all, or of each group, with standard errors; see Release.aggregate."""
    batches = _counted(_records(source).batches(reports, groups, weights), advance)
    found = fold_means(release, batches, reports=reports, groups=groups, weights=weights)
    return found.summary()


def evaluate(
    source: Source,
    releases: Sequence[Release],
    model: Any,
    *,
    vectors: str = VECTOR,
    targets: str | None = None,
    seeds: int = 20,
    seed: int = 0,
    advance: Advance | None = None,
) -> list[Evaluation]:
    """Measure what a model keeps of its answers under each release, in one pass."""
    batches = _counted(_records(source).batches(vectors, targets), advance)
    task = as_task_model(model)
    tallies = fold_tallies(
        releases, task, batches, vectors=vectors, targets=targets, seeds=seeds, seed=seed
    )
    return tallies.evaluations()


def _counted(batches: Iterator[Any], advance: Advance | None) -> Iterator[Any]:
    for batch in batches:
        yield batch
        if advance:
            advance(batch.num_rows)


@contextmanager
def _appearing(out: Path, source: ParquetRecords, *, force: bool, reports: bool) -> Iterator[Path]:
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


def _write(folder: Path, batches: Iterator[Any], advance: Advance | None) -> int:
    """Write batches into files of bounded size; return the number of rows."""
    pq = arrow().parquet
    count, writer = 0, None
    try:
        for batch in _counted(batches, advance):
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
