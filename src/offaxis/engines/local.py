"""Bulk jobs on Parquet files on one machine, in constant memory.

An output folder appears completely or not at all. Every report of a job is drawn under one key,
which is destroyed when the job ends.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import numpy as np

from offaxis.decoding import Aggregate
from offaxis.engines.arrow import (
    FACTS,
    ID,
    NO_SEQUENCES,
    REPORT,
    VECTOR,
    AnswerColumns,
    check_ids,
    decode_batches,
    exists_error,
    facts_file,
    fold_means,
    input_error,
    job_facts,
    private_columns,
    privatize_batches,
)
from offaxis.engines.columns import arrow, ids_of, same_type, vectors_of
from offaxis.engines.populations import paired, report_values
from offaxis.engines.sums import fold_sums
from offaxis.engines.tallies import fold_tallies
from offaxis.errors import InvalidInput
from offaxis.evaluation import Evaluation
from offaxis.geometry import PublicVectors, as_task_model
from offaxis.learning import PairSums, Population
from offaxis.learning.likelihoods import CELLS
from offaxis.learning.population import estimate
from offaxis.release import Release
from offaxis.sampling.entropy import JobKey, RecordId, canonical, fresh_key
from offaxis.vectors import Vectors

__all__ = [
    "ParquetRecords",
    "decode",
    "evaluate",
    "group_means",
    "number_of",
    "pair_sums",
    "population",
    "privatize",
    "public_vectors",
]

_ROWS: Final = 4096
_FILE_ROWS: Final = 1 << 20
"""Rows per file: few files, each small enough to be read separately."""
_DIGEST: Final = 16
_FILES: Final = 256

Advance = Callable[[int], None]
"""Called with the number of records just finished."""


class ParquetRecords:
    """Records of a Parquet file, or of all files in a folder, in order.

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
        """Yield batches of the named columns, or of all columns if none is named."""
        names = self._dataset.schema.names
        selected = [name for name in columns if name is not None]
        for name in selected:
            if name not in names:
                raise InvalidInput(f"{self.path} has no column {name!r}; it has {', '.join(names)}")
            self._check_types(name)
        try:
            # Little is read ahead, to save memory.
            yield from self._dataset.to_batches(
                columns=selected or None, batch_size=rows, batch_readahead=2, fragment_readahead=1
            )
        except (arrow().ArrowException, OSError) as error:
            # Not its text, which may show the contents.
            raise InvalidInput(
                f"{self.path} could not be read as Parquet ({type(error).__name__}): a file is "
                f"damaged, or changed meanwhile"
            ) from None

    def _check_types(self, name: str) -> None:
        """Raise if files differ in the type of a column: Arrow would convert it, or show a value.

        A conversion may round a vector, depending on which file comes first.
        """
        first = self._dataset.schema.field(name).type
        for fragment in self._dataset.get_fragments():
            schema = fragment.physical_schema
            if name in schema.names and not same_type(schema.field(name).type, first):
                raise InvalidInput(
                    f"column {name!r} has the type {first} in some files of {self.path} and "
                    f"{schema.field(name).type} in others; write them again with one type"
                )


Source = str | Path | ParquetRecords


def privatize(
    source: Source,
    release: Release,
    out: str | Path,
    *,
    ids: str = ID,
    vectors: str = VECTOR,
    answers: AnswerColumns = None,
    force: bool = False,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """Turn the private vectors of Parquet files into reports; return the facts of the job.

    All ids are checked before the first report is drawn. A second job on the same records draws a
    new key and spends the budget again.

    For a release of pairs, ``answers`` is the column of the private answer, or a mapping from the
    names of several answers to their columns.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none", mechanism="laplace")
    >>> facts = local.privatize("people.parquet", release, "reports")
    >>> facts["reports"], facts["guarantee"]["epsilon"]
    (100, '2')
    >>> local.privatize("people.parquet", release, "reports")
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: reports already exists; drawing reports again would spend ...
    """
    release.require_single_reports(NO_SEQUENCES)
    private = private_columns(release, ids, vectors, answers)
    records = _records_of(source)
    counts = _count_ids(records, ids)
    check_ids(ids, *counts)
    key = JobKey()
    try:
        with _complete_folder(Path(out), records, force=force, reports=True) as folder:
            batches = records.batches(*dict.fromkeys((ids, *private)))
            reports = privatize_batches(
                release, key, batches, ids=ids, vectors=vectors, answers=answers
            )
            _write(folder, reports, advance)
            # As on a cluster, the written records are checked again.
            committed = _count_ids(ParquetRecords(folder), ids)
            check_ids(ids, *committed)
            if committed != counts:
                raise InvalidInput(
                    f"{records.path} changed while it was read; nothing was released"
                )
            facts = job_facts(release, counts[0])
            (folder / FACTS).write_bytes(facts_file(facts))
    finally:
        key.destroy()
    return facts


def decode(
    source: Source,
    release: Release,
    out: str | Path,
    *,
    reports: str = REPORT,
    force: bool = False,
    advance: Advance | None = None,
) -> int:
    """Decode the reports of Parquet files into a folder of vectors; return their number.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none", mechanism="laplace")
    >>> facts = local.privatize("people.parquet", release, "reports")
    >>> local.decode("reports", release, "decoded")
    100
    >>> parquet.read_table("decoded").column_names
    ['id', 'vector']
    """
    records = _records_of(source)
    with _complete_folder(Path(out), records, force=force, reports=False) as folder:
        decoded = decode_batches(release, records.batches(), reports=reports)
        return _write(folder, decoded, advance)


def group_means(
    source: Source,
    release: Release,
    *,
    reports: str = REPORT,
    groups: str | None = None,
    weights: str | None = None,
    advance: Advance | None = None,
) -> Aggregate:
    """Estimate the mean of all reports or of each group; see Release.aggregate.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none", mechanism="laplace")
    >>> facts = local.privatize("people.parquet", release, "reports")
    >>> mean = local.group_means("reports", release)
    >>> mean.estimate.shape, mean.standard_error.shape, int(mean.count)
    ((3,), (3,), 100)
    """
    batches = _counted(_records_of(source).batches(reports, groups, weights), advance)
    moments = fold_means(release, batches, reports=reports, groups=groups, weights=weights)
    return replace(moments.summary(), known_error=release.known_error)


def pair_sums(
    source: Source,
    release: Release,
    *,
    reports: str = REPORT,
    labels: str | None = None,
    answers: Any = None,
    advance: Advance | None = None,
) -> PairSums:
    """Sum reports of pairs, for :func:`offaxis.learn`.

    Parameters
    ----------
    source : path or ParquetRecords
    release : Release
        Of pairs.
    reports : str
        The column of reports.
    labels : str, optional
        The column of public labels, if the release asks for no answer.
    answers : Classes, Number, int or list of str, optional
        What the public labels are.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> from offaxis.learning import fit_pairs, principal
    >>> vectors = np.random.default_rng(0).standard_normal((2000, 3))
    >>> answers = np.where(vectors[:, 0] > 0, "yes", "no")
    >>> table = pa.table({"id": np.arange(2000), "vector": list(vectors), "reply": answers})
    >>> parquet.write_table(table, "people.parquet")
    >>> release = fit_pairs(principal(vectors), ["no", "yes"], epsilon=4)
    >>> facts = local.privatize("people.parquet", release, "reports", answers="reply")
    >>> model = offaxis.learn(release, local.pair_sums("reports", release))
    >>> bool(model.score(vectors, answers) > 0.8)
    True
    """
    batches = _counted(_records_of(source).batches(reports, labels), advance)
    return fold_sums(release, batches, reports=reports, labels=labels, answers=answers)


def population(
    sources: Source | Sequence[Source],
    releases: Release | Sequence[Release],
    support: Any,
    *,
    reports: str = REPORT,
    cells: int = CELLS,
    advance: Advance | None = None,
) -> Population:
    """Weight public vectors so that they stand for the people who reported, in constant memory.

    The population of :func:`offaxis.population`.

    Parameters
    ----------
    sources : path or ParquetRecords, or list of them
        One report per person; for several releases, one source each. Several rounds of one release
        are several entries.
    releases : Release, or list of them
        Of vectors or of symbols.
    support : array (n, m), or callable returning an iterator of batches
        Public vectors, such as of :func:`public_vectors`. At most 5,000 of them are used, evenly
        spaced.
    reports : str
        The column of reports.
    cells : int
        At most so many cells of public vectors.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> rng = np.random.default_rng(0)
    >>> public = 4 * np.eye(3)[rng.integers(3, size=900)] + rng.standard_normal((900, 3))
    >>> release = offaxis.fit(None, public, epsilon=4, goal="vectors")
    >>> parquet.write_table(pa.table({"report": release.privatize(public)}), "reports.parquet")
    >>> crowd = local.population("reports.parquet", release, public)
    >>> crowd.fit.count, bool(abs(crowd.share(np.eye(3)).estimate[0] - 1 / 3) < 0.1)
    (900, True)
    """

    def values(source: Source) -> Iterator[bytes]:
        return report_values(_counted(_records_of(source).batches(reports), advance), reports)

    pairs = [(release, values(source)) for release, source in paired(releases, sources)]
    return estimate(pairs, support, cells)


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
    """Measure the utility of a model under each release, on public records, in one pass.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none", mechanism="laplace")
    >>> task = np.random.default_rng(1).standard_normal((2, 3))
    >>> (scores,) = local.evaluate("people.parquet", [release], task, seeds=4)
    >>> scores.clean["agreement"], scores.runs["agreement"].shape
    (1.0, (4,))
    """
    batches = _counted(_records_of(source).batches(vectors, targets), advance)
    task = as_task_model(model)
    tallies = fold_tallies(
        releases, task, batches, vectors=vectors, targets=targets, seeds=seeds, seed=seed
    )
    return tallies.evaluations()


def public_vectors(source: Source, column: str = VECTOR) -> PublicVectors:
    """Return a column of a Parquet file or folder as public vectors for ``offaxis.fit``.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none", mechanism="laplace")
    >>> public = local.public_vectors("people.parquet")  # read in batches
    >>> offaxis.fit(
    ...     None, public, epsilon=2, reshaping="none", mechanism="laplace"
    ... ).hash == release.hash
    True
    """
    records = _records_of(source)

    def batches() -> Iterator[Vectors]:
        for batch in records.batches(column):
            if batch.num_rows:
                yield vectors_of(batch, column)

    return PublicVectors(batches)


def number_of(source: Source) -> int:
    """Return the number of records.

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
    return _records_of(source).count


# ---- Reading and writing


def _records_of(source: Source) -> ParquetRecords:
    """Open the records of a path; return opened records unchanged."""
    return source if isinstance(source, ParquetRecords) else ParquetRecords(source)


def _counted(batches: Iterator[Any], advance: Advance | None) -> Iterator[Any]:
    """Yield batches, and report the progress after each."""
    for batch in batches:
        yield batch
        if advance:
            advance(batch.num_rows)


@contextmanager
def _complete_folder(
    out: Path, source: ParquetRecords, *, force: bool, reports: bool
) -> Iterator[Path]:
    """Yield a draft folder, renamed to ``out`` at the end of the block or removed on an error."""
    if source.path.resolve().is_relative_to(out.resolve()):
        raise input_error(out)
    if out.exists() and not force:
        raise exists_error(out, reports=reports)
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


# ---- Unique ids


def _count_ids(records: ParquetRecords, ids: str) -> tuple[int, int, int]:
    """Return the numbers of records, of ids and of distinct ids."""
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


class DistinctIds:
    """Counts distinct ids in memory that does not grow with their number.

    Ids are hashed under a fresh key and written to temporary files by the first byte of the hash,
    so equal ids are in the same file. The files reveal nothing without the key. They exist within
    the ``with`` block.
    """

    def __enter__(self) -> Self:
        """Create the files."""
        self._folder = TemporaryDirectory(prefix="offaxis-ids-")
        paths = [Path(self._folder.name, f"{number:03}") for number in range(_FILES)]
        self._files = [path.open("w+b", buffering=1 << 14) for path in paths]
        self._keyed = hashlib.blake2b(key=fresh_key(), digest_size=_DIGEST)
        return self

    def __exit__(self, *failure: Any) -> None:
        """Remove the files."""
        for file in self._files:
            file.close()
        self._folder.cleanup()

    def add(self, ids: Iterable[RecordId]) -> None:
        """Add some ids."""
        for name in ids:
            keyed = self._keyed.copy()
            keyed.update(canonical(name))
            digest = keyed.digest()
            self._files[digest[0]].write(digest)

    def count(self) -> int:
        """Return the number of distinct ids; collisions of 128-bit hashes are negligible."""
        distinct = 0
        for file in self._files:
            file.seek(0)
            digests = np.frombuffer(file.read(), dtype=f"V{_DIGEST}")
            distinct += len(np.unique(digests))
        return distinct
