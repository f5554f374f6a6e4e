"""The one thread that writes reports: uploads that wait together are committed together.

Contract: a row is answered *accepted* or *repeated* only after the transaction that stores it, or
that found it stored, was committed. Each (round, id) is stored once, whoever sends it how often,
because of one unique index. If anything fails, every upload of the group fails with
:class:`Unavailable`, and may be sent again without harm, whether the commit went through or not.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from offaxis.collector.database import writing
from offaxis.collector.tables import report as reports
from offaxis.errors import InvalidReport, OffaxisError
from offaxis.release import Release

Outcome = Literal["accepted", "repeated", "conflict"]

_MOST_ROWS: Final = 8192
"""Rows in one transaction, unless a single upload has more."""

_LOOKED_UP: Final = 500
"""Ids in one question to the database."""

_LOCK: Final = 7080
"""First half of PostgreSQL's advisory locks on rounds."""


class Unavailable(OffaxisError, RuntimeError):
    """The database did not take it; send it again later."""


@dataclass(frozen=True, eq=False)
class Upload:
    """Reports of one round that came in one request, all with one label.

    Attributes
    ----------
    round : int
        Key of the round.
    release : Release
        What they must be reports of.
    ids : sequence of bytes
        32 each.
    contents : sequence of bytes
        The reports.
    label : str or None
        Their group.
    """

    round: int
    release: Release
    ids: Sequence[bytes]
    contents: Sequence[bytes]
    label: str | None = None
    answer: Future[list[Outcome]] = field(default_factory=Future)


class _Row(NamedTuple):
    round: int
    id: bytes
    label: str | None
    content: bytes


class Writer:
    """Commits uploads in groups; one for each process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: queue.SimpleQueue[Upload | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="offaxis-writer", daemon=True)
        self._thread.start()

    def put(self, upload: Upload) -> Future[list[Outcome]]:
        """Hand over an upload; the future has one outcome a row once they are committed.

        It fails with :class:`InvalidReport` if a content is no report of the release; then none
        of the upload is stored.
        """
        self._waiting.put(upload)
        return upload.answer

    def close(self) -> None:
        """Commit what waits, and stop."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            group, more = self._group(first)
            self._settle(group)
            if not more:
                return

    def _group(self, first: Upload) -> tuple[list[Upload], bool]:
        """Return what waits, as far as one transaction takes it, and whether to go on."""
        group, rows = [first], len(first.ids)
        while rows < _MOST_ROWS:
            try:
                upload = self._waiting.get_nowait()
            except queue.Empty:
                break
            if upload is None:
                return group, False
            group.append(upload)
            rows += len(upload.ids)
        return group, True

    def _settle(self, group: list[Upload]) -> None:
        answers: list[tuple[Upload, Any]] = []
        try:
            valid = list(_valid(group, answers))
            if valid:
                with writing(self._engine) as connection:
                    found = _store(connection, valid)
                answers += zip(valid, found, strict=True)
        except SQLAlchemyError as error:
            refused = Unavailable(f"the database did not take it ({type(error).__name__})")
            answers = [(upload, refused) for upload in group]
        except BaseException as error:
            answers = [(upload, error) for upload in group]
        _answer(answers)


def _answer(answers: Iterable[tuple[Upload, Any]]) -> None:
    for upload, answer in answers:
        if upload.answer.set_running_or_notify_cancel():
            if isinstance(answer, BaseException):
                upload.answer.set_exception(answer)
            else:
                upload.answer.set_result(answer)


def _valid(group: list[Upload], answers: list[tuple[Upload, Any]]) -> Iterable[Upload]:
    """Yield the uploads whose contents are reports of their release, and answer the others."""
    by_release: dict[str, list[Upload]] = {}
    for upload in group:
        by_release.setdefault(upload.release.hash, []).append(upload)
    for uploads in by_release.values():
        # Reading many at once is much faster; who is wrong is found only if somebody is.
        try:
            uploads[0].release.observe([one for each in uploads for one in each.contents])
        except InvalidReport:
            for upload in uploads:
                try:
                    upload.release.observe(upload.contents)
                except InvalidReport as error:
                    answers.append((upload, error))
                else:
                    yield upload
        else:
            yield from uploads


def _store(connection: Connection, uploads: Sequence[Upload]) -> list[list[Outcome]]:
    """Insert all rows whose id is new in its round, and say of each what became of it."""
    rows = [
        _Row(upload.round, one, upload.label, content)
        for upload in uploads
        for one, content in zip(upload.ids, upload.contents, strict=True)
    ]
    if connection.dialect.name == "postgresql":
        _take_turns(connection, {upload.round for upload in uploads})
    # Under the lock every row of these rounds has a number up to the mark, and new ones a larger.
    mark = connection.execute(select(func.max(reports.c.seq))).scalar() or 0
    if _INSERT[connection.dialect.name](connection, rows) == len(rows):
        return [["accepted"] * len(upload.ids) for upload in uploads]
    outcomes = iter(_outcomes(connection, rows, mark))
    return [list(islice(outcomes, len(upload.ids))) for upload in uploads]


def _outcomes(connection: Connection, rows: Sequence[_Row], mark: int) -> Iterator[Outcome]:
    stored = _stored(connection, rows)
    fresh = {key for key, (seq, _) in stored.items() if seq > mark}
    for row in rows:
        key = (row.round, row.id)
        if stored[key][1] != row.content:
            yield "conflict"
        elif key in fresh:
            fresh.discard(key)
            yield "accepted"
        else:
            yield "repeated"


def _stored(
    connection: Connection, rows: Sequence[_Row]
) -> dict[tuple[int, bytes], tuple[int, bytes | None]]:
    """Return number and content of what is stored under the ids of the rows."""
    found = {}
    by_round: dict[int, list[bytes]] = {}
    for row in rows:
        by_round.setdefault(row.round, []).append(row.id)
    for key, ids in by_round.items():
        for start in range(0, len(ids), _LOOKED_UP):
            part = ids[start : start + _LOOKED_UP]
            asked = select(reports.c.id, reports.c.seq, reports.c.content)
            asked = asked.where(reports.c.round == key, reports.c.id.in_(part))
            for one, seq, content in connection.execute(asked):
                found[key, bytes(one)] = (seq, None if content is None else bytes(content))
    return found


def _take_turns(connection: Connection, rounds: Iterable[int]) -> None:
    """Let one transaction at a time write to a round: numbers are then committed in order."""
    for key in sorted(rounds):
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, %s)", (_LOCK, key))


def _insert_sqlite(connection: Connection, rows: Sequence[_Row]) -> int:
    return connection.exec_driver_sql(
        "INSERT INTO report (round, id, label, content) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [tuple(row) for row in rows],
    ).rowcount


def _insert_postgresql(connection: Connection, rows: Sequence[_Row]) -> int:
    return connection.exec_driver_sql(
        "INSERT INTO report (round, id, label, content) "
        "SELECT * FROM unnest(%s::int[], %s::bytea[], %s::text[], %s::bytea[]) "
        "ON CONFLICT DO NOTHING",
        tuple(list(column) for column in zip(*rows, strict=True)),
    ).rowcount


_INSERT: Final = {"sqlite": _insert_sqlite, "postgresql": _insert_postgresql}
