"""Records to reports, and back, on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offaxis.engines.arrow import ID, REPORT, VECTOR, decode_batches, privatize_batches
from offaxis.engines.columns import ids_of
from offaxis.engines.distinct import DistinctIds
from offaxis.engines.job import FACTS, check_ids, job_facts, written
from offaxis.engines.local.files import (
    Advance,
    ParquetRecords,
    Source,
    appearing,
    records_of,
    write,
)
from offaxis.errors import InvalidInput
from offaxis.release import Release
from offaxis.sampling.record_entropy import JobKey


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
    >>> facts = local.privatize("people.parquet", release, "reports")
    >>> facts["reports"], facts["guarantee"]["epsilon"]
    (100, '2')
    >>> local.privatize("people.parquet", release, "reports")
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: reports is already there, and making its reports again ...
    """
    records = records_of(source)
    counted = _count_ids(records, ids)
    check_ids(ids, *counted)
    key = JobKey()
    try:
        with appearing(Path(out), records, force=force, reports=True) as folder:
            drawn = records.batches(ids, vectors)
            made = privatize_batches(release, key, drawn, ids=ids, vectors=vectors)
            write(folder, made, advance)
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
    """Decode the reports of Parquet files into a folder of vectors; return how many there were.

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
    >>> facts = local.privatize("people.parquet", release, "reports")
    >>> local.decode("reports", release, "decoded")
    100
    >>> parquet.read_table("decoded").column_names
    ['id', 'vector']
    """
    records = records_of(source)
    with appearing(Path(out), records, force=force, reports=False) as folder:
        made = decode_batches(release, records.batches(), reports=reports)
        return write(folder, made, advance)
