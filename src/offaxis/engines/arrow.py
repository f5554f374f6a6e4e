"""What bulk work does to batches of Arrow records, whoever brings them: one machine or Spark.

Reports are drawn one record at a time from its own stream (sampling/entropy.py), and a
record is encoded alone and on one thread: how records are cut into batches changes no byte, so a
task that is tried again repeats the reports it may already have written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from threadpoolctl import ThreadpoolController

from offaxis.card import guarantee_facts
from offaxis.decoding.aggregate import GroupMoments, positive
from offaxis.engines.columns import (
    arrow,
    column_of,
    ids_of,
    is_binary,
    lists_of,
    present,
    vectors_of,
)
from offaxis.errors import InvalidInput
from offaxis.formats.reports import header
from offaxis.geometry.public import A
from offaxis.privacy.guarantee import ON_DEVICE
from offaxis.randomizers.additive import report_records
from offaxis.release import Release
from offaxis.sampling.entropy import JobKey
from offaxis.vectors import Vectors

Batches = Iterable[Any]
"""pyarrow record batches."""

REPORT: Final = "report"
VECTOR: Final = "vector"
ID: Final = "id"


def privatize_batches(
    release: Release, key: JobKey, batches: Batches, *, ids: str = ID, vectors: str = VECTOR
) -> Iterator[Any]:
    """Yield batches of two columns: the records' ids, and a report of each.

    Every id must come once in a job: who calls checks it. A refused row names its column only.
    """
    pa = arrow()
    threads = ThreadpoolController()
    for batch in some(batches):
        rows, named = vectors_of(batch, vectors, release.input_dim), ids_of(batch, ids)
        with threads.limit(limits=1), np.errstate(all="ignore"):
            drawn = list(_reports(release, key, named, rows))
        columns = [batch.column(ids), pa.array(drawn, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=[ids, REPORT])


def _reports(release: Release, key: JobKey, ids: list[Any], rows: Vectors) -> Iterator[bytes]:
    head = header(release.randomizer.wire_id, release.hash)
    stream = key.streams(release.hash)
    each = [rows[at : at + 1] for at in range(len(rows))]
    sources = [stream(name, row.tobytes()) for name, row in zip(ids, each, strict=True)]
    # A matrix product of many rows may round a row otherwise than a product of it alone.
    encoded = np.concatenate([release.encoder.encode(row) for row in each])
    return (head + payload for payload in report_records(release.randomizer, encoded, sources))


def decode_batches(
    release: Release, batches: Batches, *, reports: str = REPORT, fixed: bool = True
) -> Iterator[Any]:
    """Yield the batches with a column of decoded vectors in place of the reports.

    Parameters
    ----------
    fixed : bool
        Whether the lists are of the Arrow type of constant size, which Spark does not take.
    """
    pa = arrow()
    for batch in some(batches):
        decoded = release.decode(_reports_of(batch, reports))
        at = batch.schema.get_field_index(reports)
        columns, names = batch.columns, batch.schema.names
        columns[at], names[at] = lists_of(decoded, fixed=fixed), VECTOR
        yield pa.RecordBatch.from_arrays(columns, names=names)


def fold_means(
    release: Release,
    batches: Batches,
    *,
    reports: str = REPORT,
    groups: str | None = None,
    weights: str | None = None,
) -> GroupMoments:
    """Return the moments of decoded reports, of all or of each group, as Release.aggregate has."""
    found = GroupMoments(grouped=groups is not None)
    decoder = release.unbiased_decoder
    for batch in some(batches):
        decoded = decoder.decode(release.observe(_reports_of(batch, reports)))
        labels = None if groups is None else present(column_of(batch, groups), groups)
        numbers = None if weights is None else present(column_of(batch, weights), weights)
        found.add(decoded, positive(numbers, len(decoded)), labels)
    return found


def _reports_of(batch: Any, name: str) -> list[bytes]:
    column = column_of(batch, name)
    if not is_binary(column.type):
        raise InvalidInput(f"column {name!r} must hold reports, it is of type {column.type}")
    return present(column, name)


def fold_vectors(total: A, batches: Batches, rows: int, *, vectors: str = VECTOR) -> A:
    """Add public vectors to an accumulator, at most ``rows`` at a time, and return it."""
    for batch in some(batches):
        found = vectors_of(batch, vectors)
        for start in range(0, len(found), rows):
            total.add(found[start : start + rows])
    return total


def some(batches: Batches) -> Iterator[Any]:
    """Leave out batches without rows."""
    return (batch for batch in batches if batch.num_rows)


# ----------------------------------------------------------------------------
# What a bulk job says about itself, publicly, beside the reports it made.

FACTS: Final = "_offaxis.json"
"""Readers of Parquet folders pass over names that begin so."""

_BULK: Final = (
    "the machines of the job see the vectors and are trusted; the promise holds towards whoever "
    "sees the reports alone",
    "HMAC-SHA256 under the job's key, which was drawn from the operating system and destroyed when "
    "the job ended, is a pseudorandom function",
)


def job_facts(release: Release, reports: int) -> dict[str, Any]:
    """Return which release made how many reports, and what each promises towards whom."""
    promise = guarantee_facts(release)
    promise["assumptions"] = [*_BULK, *(a for a in promise["assumptions"] if a != ON_DEVICE)]
    return {
        "release": release.hash,
        "reports": reports,
        "report_bytes": release.report_size,
        "guarantee": promise,
    }


def written(facts: dict[str, Any]) -> bytes:
    """Write the facts as JSON."""
    return (json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode()


def check_ids(name: str, rows: int, present: int, distinct: int) -> None:
    """Refuse records that cannot be told apart: none may be released twice, or under no id.

    The same vector under the same id twice would get the same report, and show that it is there
    twice.
    """
    if rows == 0:
        raise InvalidInput("there are no records to privatize")
    if present < rows:
        raise InvalidInput(
            f"column {name!r} has missing ids ({rows - present:,} of {rows:,}); every record needs "
            f"one, nothing was released"
        )
    if distinct < rows:
        raise InvalidInput(
            f"column {name!r} must name every record once, but {rows:,} records have {distinct:,} "
            f"ids; nothing was released"
        )


def already_there(out: object, *, reports: bool) -> InvalidInput:
    """Say why nothing is written over what is there."""
    again = ", and making its reports again would spend the budget again: send the ones it holds,"
    return InvalidInput(
        f"{out} is already there{again if reports else ':'} choose another place, or use force"
    )


def is_input(out: object) -> InvalidInput:
    """Say why the input is not replaced."""
    return InvalidInput(f"{out} holds records of this job; choose another place")
