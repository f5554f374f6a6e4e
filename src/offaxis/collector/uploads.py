"""Reports as rows: which may be stored, and what became of each."""

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

from offaxis.collector.database import report as reports
from offaxis.collector.database import round_ as rounds
from offaxis.collector.database import take_turns, writing
from offaxis.errors import InvalidReport, OffaxisError
from offaxis.release import Release

Outcome = Literal["accepted", "repeated", "conflict", "closed"]
"""What became of a row; *closed* if the reports of its round were deleted meanwhile."""

_LOOKED_UP: Final = 500
"""Ids in one question to the database."""


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
    checked : bool
        Whether the contents are known to be reports of the release.
    """

    round: int
    release: Release
    ids: Sequence[bytes]
    contents: Sequence[bytes]
    label: str | None = None
    checked: bool = False


_Row = tuple[int, bytes, str | None, bytes]
"""Round, id, label and content; plain, because a million of them are made a minute."""


def refused(uploads: list[Upload]) -> dict[Upload, Any]:
    """Return the uploads that hold something else than reports of their release, and why."""
    found: dict[Upload, Any] = {}
    by_release: dict[str, list[Upload]] = {}
    for upload in uploads:
        if not upload.checked:
            by_release.setdefault(upload.release.hash, []).append(upload)
    for together in by_release.values():
        # Reading many at once is much faster; who is wrong is found only if somebody is.
        try:
            together[0].release.observe([one for each in together for one in each.contents])
        except InvalidReport:
            for upload in together:
                try:
                    upload.release.observe(upload.contents)
                except InvalidReport as error:
                    found[upload] = error
    return found


def store(connection: Connection, uploads: Sequence[Upload]) -> list[list[Outcome]]:
    """Insert all rows whose id is new in its round, and say of each what became of it."""
    rows: list[_Row] = []
    for upload in uploads:
        rows += zip(repeat(upload.round), upload.ids, repeat(upload.label), upload.contents)
    keys = {upload.round for upload in uploads}
    take_turns(connection, keys)
    deleted = _deleted(connection, keys)
    if deleted:
        rows = [row for row in rows if row[0] not in deleted]
    # Under the lock every row of these rounds has a number up to the mark, and new ones a larger.
    mark = connection.execute(select(func.max(reports.c.seq))).scalar() or 0
    outcomes: Iterator[Outcome]
    # In the order of the index: neighbours are written together, and arrival leaves no trace.
    if not rows or _INSERT[connection.dialect.name](connection, sorted(rows, key=_key)) == len(
        rows
    ):
        outcomes = repeat("accepted")
    else:
        outcomes = _outcomes(connection, rows, mark)
    return [
        ["closed"] * len(upload.ids)
        if upload.round in deleted
        else list(islice(outcomes, len(upload.ids)))
        for upload in uploads
    ]


_key = itemgetter(0, 1)


def _deleted(connection: Connection, keys: set[int]) -> set[int]:
    """Return the rounds whose reports were deleted: none may come after that."""
    asked = select(rounds.c.id).where(rounds.c.id.in_(keys), rounds.c.deleted_at.is_not(None))
    return set(connection.execute(asked).scalars())


def _outcomes(connection: Connection, rows: Sequence[_Row], mark: int) -> Iterator[Outcome]:
    stored = stored_under(connection, (row[:2] for row in rows))
    fresh = {key for key, (seq, _) in stored.items() if seq > mark}
    for round_, one, _, content in rows:
        key = (round_, one)
        if stored[key][1] != content:
            yield "conflict"
        elif key in fresh:
            fresh.discard(key)
            yield "accepted"
        else:
            yield "repeated"


def stored_under(
    connection: Connection, keys: Iterable[tuple[int, bytes]]
) -> dict[tuple[int, bytes], tuple[int, bytes | None]]:
    """Return number and content of what is stored under rounds and ids."""
    found = {}
    by_round: dict[int, list[bytes]] = {}
    for round_, one in keys:
        by_round.setdefault(round_, []).append(one)
    for key, ids in by_round.items():
        for start in range(0, len(ids), _LOOKED_UP):
            part = ids[start : start + _LOOKED_UP]
            asked = select(reports.c.id, reports.c.seq, reports.c.content)
            asked = asked.where(reports.c.round == key, reports.c.id.in_(part))
            for one, seq, content in connection.execute(asked):
                found[key, bytes(one)] = (seq, None if content is None else bytes(content))
    return found


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


# ----------------------------------------------------------------------------
# The one thread that writes reports: uploads that wait together are committed together.
#
# Contract: a row is answered *accepted* or *repeated* only after the transaction that stores it, or
# that found it stored, was committed. Each (round, id) is stored once, whoever sends it how often,
# because of one unique index. If anything fails, every upload of the group fails with
# :class:`Unavailable`, and may be sent again without harm, whether the commit went through or not.

_MOST_ROWS: Final = 32_768
"""Rows in one transaction, unless a single upload has more."""

_MOST_WAITING: Final = 200_000
"""Rows that wait; more are refused, so that a slow database does not fill the memory."""


class Unavailable(OffaxisError, RuntimeError):
    """The database did not take it; send it again later."""


class _Waiting(NamedTuple):
    upload: Upload
    answer: asyncio.Future[list[Outcome]]


class Writer:
    """Commits uploads in groups; one for each process.

    ``committed`` hears of every group: its rows, and the seconds it took.
    """

    def __init__(
        self, engine: Engine, committed: Callable[[int, float], None] = lambda rows, seconds: None
    ) -> None:
        self.engine = engine
        self._committed = committed
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        # Two counts, each written by one thread.
        self._put = self._done = 0
        self.failed_at: float | None = None
        """When the last group could not be stored, by the monotonic clock."""
        self._thread = threading.Thread(target=self._run, name="offaxis-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Rows that are not settled yet."""
        return self._put - self._done

    async def put(self, upload: Upload) -> list[Outcome]:
        """Hand over an upload, and return one outcome a row once they are committed.

        Raises
        ------
        InvalidReport
            If a content is no report of the release; then none of the upload is stored.
        Unavailable
            If the database did not take it, or too much waits for it.
        """
        if self.waiting > _MOST_WAITING:
            raise Unavailable("too many reports wait for the database")
        self._put += len(upload.ids)
        answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._queue.put(_Waiting(upload, answer))
        return await answer

    def close(self) -> None:
        """Commit what waits, and stop."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group, more = self._group(first)
            self._settle(group)
            if not more:
                return

    def _group(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        """Return what waits, as far as one transaction takes it, and whether to go on."""
        group, rows = [first], len(first.upload.ids)
        while rows < _MOST_ROWS:
            try:
                one = self._queue.get_nowait()
            except queue.Empty:
                break
            if one is None:
                return group, False
            group.append(one)
            rows += len(one.upload.ids)
        return group, True

    def _settle(self, group: list[_Waiting]) -> None:
        uploads = [one.upload for one in group]
        rows = sum(len(upload.ids) for upload in uploads)
        began = time.perf_counter()
        try:
            found = self._stored(uploads)
            self._committed(rows, time.perf_counter() - began)
        except SQLAlchemyError as error:
            self.failed_at = time.monotonic()
            found = dict.fromkeys(
                uploads, Unavailable(f"the database did not take it ({type(error).__name__})")
            )
        except BaseException as error:
            found = dict.fromkeys(uploads, error)
        self._done += rows
        _answer([(one.answer, found[one.upload]) for one in group])

    def _stored(self, uploads: list[Upload]) -> dict[Upload, Any]:
        wrong = refused(uploads)
        valid = [upload for upload in uploads if upload not in wrong]
        if not valid:
            return wrong
        with writing(self.engine) as connection:
            outcomes = store(connection, valid)
        self.failed_at = None
        return wrong | dict(zip(valid, outcomes, strict=True))


def _answer(answers: list[tuple[asyncio.Future[list[Outcome]], Any]]) -> None:
    """Wake all who wait at once: waking a loop is dear, and a group has hundreds."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Any]] = {}
    for answer in answers:
        by_loop.setdefault(answer[0].get_loop(), []).append(answer)
    for loop, its in by_loop.items():
        # A loop that was closed has nobody left who waits.
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, its)


def _resolve(answers: list[tuple[asyncio.Future[list[Outcome]], Any]]) -> None:
    for future, answer in answers:
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
