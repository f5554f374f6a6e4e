"""The one thread that writes reports: uploads that wait together are committed together.

Contract: a row is answered *accepted* or *repeated* only after the transaction that stores it, or
that found it stored, was committed. Each (round, id) is stored once, whoever sends it how often,
because of one unique index. If anything fails, every upload of the group fails with
:class:`Unavailable`, and may be sent again without harm, whether the commit went through or not.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from offaxis.collector.database import writing
from offaxis.collector.uploads import Outcome, Upload, refused, store
from offaxis.errors import OffaxisError

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
