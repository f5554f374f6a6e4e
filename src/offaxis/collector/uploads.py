"""Storing uploaded reports: one thread commits the uploads that wait together in one transaction.

Contract: the outcome *accepted* or *repeated* is returned only after the transaction that stores
the row, or that found it stored, was committed. Each (round, id) is stored once, however often and
by whomever it is sent, because of one unique index. If anything fails, every upload of the group
fails with :class:`Unavailable` and can safely be sent again, whether or not the commit succeeded.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from offaxis.collector.database import lock_rounds, writing
from offaxis.collector.database import report as reports
from offaxis.collector.database import round_ as rounds
from offaxis.errors import InvalidReport, OffaxisError
from offaxis.release import Release

Outcome = Literal["accepted", "repeated", "conflict", "closed"]
"""Outcome of a row; *closed* if the reports of its round were deleted meanwhile."""

_IDS_PER_QUERY: Final = 500


@dataclass(frozen=True, eq=False)
class Upload:
    """Reports of one round from one request, all with the same label.

    Attributes
    ----------
    round : int
        Key of the round.
    release : Release
        The release that they must be reports of.
    ids : sequence of bytes
        32 bytes each.
    contents : sequence of bytes
        The reports.
    label : str or None
        Their group.
    checked : bool
        Whether the contents have been validated as reports of the release.
    """

    round: int
    release: Release
    ids: Sequence[bytes]
    contents: Sequence[bytes]
    label: str | None = None
    checked: bool = False


_Row = tuple[int, bytes, str | None, bytes]
"""Round, id, label and content; a plain tuple, because a million are made per minute."""


def find_invalid(uploads: list[Upload]) -> dict[Upload, Any]:
    """Return the error of each upload that contains anything but reports of its release."""
    errors: dict[Upload, Any] = {}
    by_release: dict[str, list[Upload]] = {}
    for upload in uploads:
        if not upload.checked:
            by_release.setdefault(upload.release.hash, []).append(upload)
    for group in by_release.values():
        # Reading many reports at once is much faster; single uploads are read only on failure.
        try:
            group[0].release.observe([report for upload in group for report in upload.contents])
        except InvalidReport:
            for upload in group:
                try:
                    upload.release.observe(upload.contents)
                except InvalidReport as error:
                    errors[upload] = error
    return errors


def store(connection: Connection, uploads: Sequence[Upload]) -> list[list[Outcome]]:
    """Insert all rows whose id is new in its round, and return the outcome of every row."""
    rows: list[_Row] = []
    for upload in uploads:
        rows += zip(repeat(upload.round), upload.ids, repeat(upload.label), upload.contents)
    keys = {upload.round for upload in uploads}
    lock_rounds(connection, keys)
    deleted = _deleted(connection, keys)
    if deleted:
        rows = [row for row in rows if row[0] not in deleted]
    # Under the lock, stored rows of these rounds have seq ≤ mark and new ones a larger seq.
    mark = connection.execute(select(func.max(reports.c.seq))).scalar() or 0
    outcomes: Iterator[Outcome]
    # Sorted as in the index: neighbours are written together, and the order of arrival is lost.
    insert = _INSERT[connection.dialect.name]
    if not rows or insert(connection, sorted(rows, key=itemgetter(0, 1))) == len(rows):
        outcomes = repeat("accepted")
    else:
        outcomes = _outcomes(connection, rows, mark)
    return [
        ["closed"] * len(upload.ids)
        if upload.round in deleted
        else list(islice(outcomes, len(upload.ids)))
        for upload in uploads
    ]


def _deleted(connection: Connection, keys: set[int]) -> set[int]:
    """Return the rounds whose reports were deleted; they accept no more."""
    query = select(rounds.c.id).where(rounds.c.id.in_(keys), rounds.c.deleted_at.is_not(None))
    return set(connection.execute(query).scalars())


def _outcomes(connection: Connection, rows: Sequence[_Row], mark: int) -> Iterator[Outcome]:
    stored = find_stored(connection, (row[:2] for row in rows))
    fresh = {key for key, (seq, _) in stored.items() if seq > mark}
    for round_, id_, _, content in rows:
        key = (round_, id_)
        if stored[key][1] != content:
            yield "conflict"
        elif key in fresh:
            fresh.discard(key)
            yield "accepted"
        else:
            yield "repeated"


def find_stored(
    connection: Connection, keys: Iterable[tuple[int, bytes]]
) -> dict[tuple[int, bytes], tuple[int, bytes | None]]:
    """Return seq and content of the stored reports among these (round, id)."""
    stored = {}
    by_round: dict[int, list[bytes]] = {}
    for round_, id_ in keys:
        by_round.setdefault(round_, []).append(id_)
    for round_, ids in by_round.items():
        for start in range(0, len(ids), _IDS_PER_QUERY):
            part = ids[start : start + _IDS_PER_QUERY]
            query = select(reports.c.id, reports.c.seq, reports.c.content)
            query = query.where(reports.c.round == round_, reports.c.id.in_(part))
            for id_, seq, content in connection.execute(query):
                stored[round_, bytes(id_)] = (seq, None if content is None else bytes(content))
    return stored


def _insert_sqlite(connection: Connection, rows: Sequence[_Row]) -> int:
    return connection.exec_driver_sql(
        "INSERT INTO report (round, id, label, content) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        rows,
    ).rowcount


def _insert_postgresql(connection: Connection, rows: Sequence[_Row]) -> int:
    return connection.exec_driver_sql(
        "INSERT INTO report (round, id, label, content) "
        "SELECT * FROM unnest(%s::int[], %s::bytea[], %s::text[], %s::bytea[]) "
        "ON CONFLICT DO NOTHING",
        tuple(list(column) for column in zip(*rows, strict=True)),
    ).rowcount


_INSERT: Final = {"sqlite": _insert_sqlite, "postgresql": _insert_postgresql}


# ---- Writer

_MOST_ROWS: Final = 32_768
"""Rows per transaction, unless a single upload has more."""

_MOST_WAITING: Final = 200_000
"""Rows that may wait; more are rejected, so that a slow database does not fill the memory."""


class Unavailable(OffaxisError, RuntimeError):
    """The database did not store the upload; send it again later."""


class _Waiting(NamedTuple):
    upload: Upload
    outcomes: asyncio.Future[list[Outcome]]


class Writer:
    """Commits uploads in groups; one per process.

    ``committed`` is called for every group with its number of rows and the seconds it took.
    """

    def __init__(
        self, engine: Engine, committed: Callable[[int, float], None] = lambda rows, seconds: None
    ) -> None:
        self.engine = engine
        self._committed = committed
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        # Two counters, each written by one thread only.
        self._put = self._done = 0
        self.failed_at: float | None = None
        """Monotonic time at which the last group could not be stored."""
        self._thread = threading.Thread(target=self._run, name="offaxis-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Rows that are not settled yet."""
        return self._put - self._done

    async def put(self, upload: Upload) -> list[Outcome]:
        """Queue an upload, and return one outcome per row once they are committed.

        Raises
        ------
        InvalidReport
            If a content is not a report of the release; then nothing of the upload is stored.
        Unavailable
            If the database did not store it, or too many rows wait already.
        """
        if self.waiting > _MOST_WAITING:
            raise Unavailable("too many reports are waiting for the database")
        self._put += len(upload.ids)
        outcomes: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._queue.put(_Waiting(upload, outcomes))
        return await outcomes

    def close(self) -> None:
        """Commit the waiting uploads, and stop."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group, more = self._group(first)
            self._settle(group)
            if not more:
                return

    def _group(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        """Return the waiting uploads that fit one transaction, and whether to continue."""
        group, rows = [first], len(first.upload.ids)
        while rows < _MOST_ROWS:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                break
            if waiting is None:
                return group, False
            group.append(waiting)
            rows += len(waiting.upload.ids)
        return group, True

    def _settle(self, group: list[_Waiting]) -> None:
        uploads = [waiting.upload for waiting in group]
        rows = sum(len(upload.ids) for upload in uploads)
        began = time.perf_counter()
        try:
            results = self._store(uploads)
            self._committed(rows, time.perf_counter() - began)
        except SQLAlchemyError as error:
            self.failed_at = time.monotonic()
            results = dict.fromkeys(
                uploads, Unavailable(f"the database did not store it ({type(error).__name__})")
            )
        except BaseException as error:
            results = dict.fromkeys(uploads, error)
        self._done += rows
        _resolve_all([(waiting.outcomes, results[waiting.upload]) for waiting in group])

    def _store(self, uploads: list[Upload]) -> dict[Upload, Any]:
        errors = find_invalid(uploads)
        valid = [upload for upload in uploads if upload not in errors]
        if not valid:
            return errors
        with writing(self.engine) as connection:
            outcomes = store(connection, valid)
        self.failed_at = None
        return errors | dict(zip(valid, outcomes, strict=True))


_Result = tuple[asyncio.Future[list[Outcome]], Any]
"""A future, with the outcomes or the error to set."""


def _resolve_all(results: list[_Result]) -> None:
    """Resolve all futures with one wake-up per loop: a wake-up is expensive, a group is large."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Result]] = {}
    for result in results:
        by_loop.setdefault(result[0].get_loop(), []).append(result)
    for loop, pending in by_loop.items():
        # Nothing waits on a closed loop.
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, pending)


def _resolve(results: list[_Result]) -> None:
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
