"""Operations of bulk jobs on batches of Arrow records, shared by both engines.

Each report is drawn from a random stream of its record (sampling/entropy.py). Each record is
encoded alone and on one thread, and randomizers compute row by row (vectors.row_norms). So the
reports do not depend, byte for byte, on how records are cut into batches, on their order or on the
number of threads, and a task that is retried repeats the reports it may already have written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final

import numpy as np
from threadpoolctl import ThreadpoolController

from offaxis.card import guarantee_facts
from offaxis.decoding.aggregate import GroupMoments, positive
from offaxis.encoding.pairs import PairEncoder
from offaxis.encoding.questions import AnswersEncoder, check_rows
from offaxis.engines.columns import (
    arrow,
    column_of,
    ids_of,
    is_binary,
    lists_of,
    values_of,
    vectors_of,
)
from offaxis.errors import InvalidInput
from offaxis.formats.reports import header
from offaxis.geometry.public import A
from offaxis.privacy.guarantee import ON_DEVICE
from offaxis.randomizers.laplace import report_records
from offaxis.release import BY_TREND, Release
from offaxis.sampling.entropy import JobKey
from offaxis.vectors import Vectors

Batches = Iterable[Any]
"""pyarrow record batches."""

REPORT: Final = "report"
VECTOR: Final = "vector"
ID: Final = "id"

FACTS: Final = "_offaxis.json"
"""Readers of Parquet folders skip names that begin with an underscore."""

_BULK: Final = (
    "the machines of the job see the vectors and are trusted; the promise holds towards whoever "
    "sees the reports alone",
    "HMAC-SHA256 under the job's key, which was drawn from the operating system and destroyed when "
    "the job ended, is a pseudorandom function",
)


AnswerColumns = str | Mapping[str, str] | None
"""The column of the only private answer, or the column of each by its name."""


def answer_columns(release: Release, answers: AnswerColumns) -> dict[str, str]:
    """Return the column of each private answer by its name.

    Without ``answers`` it is empty: then the vectors are the rows of pairs (Release.pairs).

    Raises
    ------
    InvalidInput
        If the release asks for other answers.
    """
    if answers is None:
        return {}
    asked = [part.name for part in release.asked]
    if not asked:
        raise InvalidInput("this release asks for no answer: leave out answers")
    if len(asked) == 1 and not isinstance(answers, Mapping):
        return {asked[0]: answers}
    if not isinstance(answers, Mapping) or set(answers) != set(asked):
        raise InvalidInput(f"answers must map the names {', '.join(map(repr, asked))} to columns")
    return {name: answers[name] for name in asked}


def private_columns(
    release: Release, ids: str, vectors: str, answers: AnswerColumns
) -> tuple[str, ...]:
    """Return the columns of vectors and answers; raise if the ids are one, or named as reports."""
    if ids == REPORT:
        raise InvalidInput(f"the column of ids may not be named {REPORT!r}, as that of the reports")
    of_answers = tuple(answer_columns(release, answers).values())
    alone = isinstance(release.encoder, AnswersEncoder) and bool(of_answers)
    private = of_answers if alone else (vectors, *of_answers)
    if ids in of_answers:
        raise InvalidInput(f"column {ids!r} is private and cannot be the column of ids")
    return private


NO_SEQUENCES: Final = (
    "a bulk job would start new sequences; make reports with offaxis.client, or use the release "
    "that was memoised"
)


def privatize_batches(
    release: Release,
    key: JobKey,
    batches: Batches,
    *,
    ids: str = ID,
    vectors: str = VECTOR,
    answers: AnswerColumns = None,
) -> Iterator[Any]:
    """Yield batches of two columns: the records' ids and their reports.

    Ids must be unique within a job; the caller checks that. An error names the column of a rejected
    row, never its contents.
    """
    release.require_single_reports(NO_SEQUENCES)
    columns = answer_columns(release, answers)
    pa = arrow()
    for batch in nonempty(batches):
        rows, names = private_rows(batch, release, vectors, columns), ids_of(batch, ids)
        with _one_thread(), np.errstate(all="ignore"):
            reports = list(_draw_reports(release, key, names, rows))
        made = [batch.column(ids), pa.array(reports, pa.binary())]
        yield pa.RecordBatch.from_arrays(made, names=[ids, REPORT])


def private_rows(batch: Any, release: Release, vectors: str, answers: Mapping[str, str]) -> Vectors:
    """Return a column of vectors, joined with the columns of answers if there are any."""
    encoder = release.encoder
    if isinstance(encoder, AnswersEncoder) and answers:
        given = {name: column_of(batch, column).to_pylist() for name, column in answers.items()}
        return release.pairs(None, given)
    if not isinstance(encoder, PairEncoder) or not release.asked:
        rows = vectors_of(batch, vectors, release.input_dim)
        check_rows(encoder, rows)
        return rows
    if answers:
        given = {name: column_of(batch, column).to_pylist() for name, column in answers.items()}
        return release.pairs(vectors_of(batch, vectors, encoder.vector_dim), given)
    rows = vectors_of(batch, vectors)
    if rows.shape[1] == encoder.vector_dim:
        names = ", ".join(repr(part.name) for part in release.asked)
        raise InvalidInput(f"this release asks for {names}: pass answers=..., the column of each")
    return vectors_of(batch, vectors, release.input_dim)


_alone = RLock()


def _new_lock() -> None:
    """Replace the lock in a forked process, where its holder does not exist."""
    global _alone
    _alone = RLock()


os.register_at_fork(after_in_child=_new_lock)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread, or raise: several may round a product differently.

    The limit is one of the process, and it has no effect while another thread controls it, nor on
    libraries that are loaded later. So only one batch at a time is privatized, and what holds is
    checked before and after, for all libraries that are then loaded.
    """
    with _alone, ThreadpoolController().limit(limits=1):
        _check_one_thread()
        yield
        _check_one_thread()


def _check_one_thread() -> None:
    pools = ThreadpoolController().info()
    most = max((pool["num_threads"] or 1 for pool in pools), default=1)
    if most > 1:
        raise InvalidInput(
            f"a bulk job must compute on one thread, but BLAS or OpenMP uses {most}: another "
            f"thread of this process controls it (threadpoolctl), or it was loaded by the model. "
            f"Set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1; nothing was released"
        )


def _draw_reports(release: Release, key: JobKey, ids: list[Any], rows: Vectors) -> Iterator[bytes]:
    head = header(release.randomizer.wire_id, release.hash)
    stream = key.streams(release.hash)
    single_rows = [rows[at : at + 1] for at in range(len(rows))]
    sources = [stream(name, row.tobytes()) for name, row in zip(ids, single_rows, strict=True)]
    # A matrix product of many rows may round a row differently from a product of that row alone.
    encoded = np.concatenate([release.encode_private(row) for row in single_rows])
    return (head + payload for payload in report_records(release.randomizer, encoded, sources))


def decode_batches(
    release: Release, batches: Batches, *, reports: str = REPORT, fixed: bool = True
) -> Iterator[Any]:
    """Yield the batches with a column of decoded vectors in place of the reports.

    Parameters
    ----------
    fixed : bool
        Whether to use Arrow's list type of fixed size, which Spark does not support.
    """
    pa = arrow()
    for batch in nonempty(batches):
        decoded = release.decode(reports_of(batch, reports))
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
    """Return the moments of decoded reports, in total or per group; see Release.aggregate."""
    release.require_single_reports(BY_TREND)
    moments = GroupMoments(grouped=groups is not None)
    decoder = release.unbiased_decoder
    for batch in nonempty(batches):
        decoded = decoder.decode(release.observe(reports_of(batch, reports)))
        labels = None if groups is None else values_of(column_of(batch, groups), groups)
        values = None if weights is None else values_of(column_of(batch, weights), weights)
        moments.add(decoded, positive(values, len(decoded)), labels)
    return moments


def reports_of(batch: Any, name: str) -> list[bytes]:
    """Return a column of reports."""
    column = column_of(batch, name)
    if not is_binary(column.type) and not arrow().types.is_fixed_size_binary(column.type):
        raise InvalidInput(f"column {name!r} must hold reports, its type is {column.type}")
    return values_of(column, name)


def fold_vectors(total: A, batches: Batches, rows: int, *, vectors: str = VECTOR) -> A:
    """Add public vectors to an accumulator, at most ``rows`` at a time, and return it."""
    for batch in nonempty(batches):
        values = vectors_of(batch, vectors)
        for start in range(0, len(values), rows):
            total.add(values[start : start + rows])
    return total


def nonempty(batches: Batches) -> Iterator[Any]:
    """Skip batches without rows."""
    return (batch for batch in batches if batch.num_rows)


# ---- Facts and checks of a job


def job_facts(release: Release, reports: int) -> dict[str, Any]:
    """Return the public facts of a job: the release, the number of reports, the guarantee."""
    guarantee = guarantee_facts(release)
    guarantee["assumptions"] = [*_BULK, *(a for a in guarantee["assumptions"] if a != ON_DEVICE)]
    return {
        "release": release.hash,
        "reports": reports,
        "report_bytes": release.report_size,
        "guarantee": guarantee,
    }


def facts_file(facts: dict[str, Any]) -> bytes:
    """Return the facts as the contents of a JSON file."""
    return (json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode()


def check_ids(name: str, rows: int, present: int, distinct: int) -> None:
    """Raise for missing or repeated ids: no record may be released twice, or without an id.

    The same vector under the same id would get the same report twice, and reveal that it occurs
    twice.
    """
    if rows == 0:
        raise InvalidInput("there are no records to privatize")
    if present < rows:
        raise InvalidInput(
            f"column {name!r} has missing ids ({rows - present:,} of {rows:,}); every record needs "
            f"one; nothing was released"
        )
    if distinct < rows:
        raise InvalidInput(
            f"column {name!r} must name every record once, but {rows:,} records have {distinct:,} "
            f"ids; nothing was released"
        )


def exists_error(out: object, *, reports: bool) -> InvalidInput:
    """Return the error for an output that already exists."""
    budget = "; drawing reports again would spend the budget again, so send the existing ones"
    return InvalidInput(
        f"{out} already exists{budget if reports else ''}; choose another folder, or use force"
    )


def input_error(out: object) -> InvalidInput:
    """Return the error for an output that would replace the input."""
    return InvalidInput(f"{out} holds records of this job; choose another folder")
