"""What an operator may set. Everything else is in the signed documents."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, delete, select
from sqlalchemy.exc import SQLAlchemyError

from offaxis.collector import monitoring as logs
from offaxis.collector.access import Buckets, Tokens, new_token
from offaxis.collector.database import connect, is_current, open_database, report, writing
from offaxis.collector.means import Follower
from offaxis.collector.monitoring import Metrics
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.store import Store, StoredRound
from offaxis.collector.uploads import Writer
from offaxis.formats.release_file import from_bytes
from offaxis.release import Release


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Settings:
    """Settings of one collector process.

    Attributes
    ----------
    database : str
        ``sqlite:///FILE`` or ``postgresql://…``; several processes may share the latter.
    publisher : str, optional
        Public key whose signatures are wanted, 64 hexadecimal digits. Without it any admin
        publishes, and only devices check who signed.
    device_rate : float
        Reports a second that one device's token may send; what it asks counts as one.
    reader_rate : float
        Requests a second of any other token.
    largest_release : int
        Bytes of a release file.
    body_seconds : float
        How long a request's body may take to come.
    retry_seconds : float
        How long the collector says that it is not ready after a failure to store.
    clock : callable
        The time by which rounds open and close.
    extra_pages : mapping of str to Path
        Folders of static files that are served under ``/browser/NAME/``, the index at ``/NAME``.
    """

    database: str = "sqlite:///collector.db"
    publisher: str | None = None
    device_rate: float = 100_000.0
    reader_rate: float = 50.0
    largest_release: int = 256 << 20
    body_seconds: float = 30.0
    retry_seconds: float = 15.0
    clock: Callable[[], datetime] = now
    extra_pages: Mapping[str, Path] = field(default_factory=dict)


# ----------------------------------------------------------------------------
# What every request needs to know, in memory: tokens, rounds and their releases.
#
# All of it is read from the database again every second, so what another process closes or revokes
# is known here a second or two later. If that fails for too long, nothing is accepted: a round that
# was closed meanwhile must not look open.

EVERY: Final = 1.0
"""Seconds between two readings."""

_STALE: Final = 10.0
_MOST_RELEASES: Final = 16


class Catalogue:
    """A view of the database that is a second old at most, while the database answers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = threading.Lock()
        self._releases: dict[str, Release] = {}
        self._by_key: dict[int, StoredRound] = {}
        self._rounds: dict[str, StoredRound] = {}
        self._tokens: Tokens = {}
        self._read = float("-inf")

    def refresh(self) -> None:
        """Read tokens and rounds again."""
        with self._turn:
            began = time.monotonic()
            tokens = self._store.valid_tokens()
            self._by_key = self._store.rounds(self._by_key)
            self._rounds = {one.document.name: one for one in self._by_key.values()}
            self._tokens = tokens
            self._read = began

    @property
    def tokens(self) -> Tokens:
        """Valid tokens by hash."""
        if time.monotonic() - self._read > _STALE:
            raise unavailable()
        return self._tokens

    @property
    def rounds(self) -> dict[str, StoredRound]:
        """All rounds by name."""
        return self._rounds

    def round(self, name: str) -> StoredRound:
        """Return a round, or say that there is none."""
        found = self._rounds.get(name)
        if found is None:
            raise Problem("not-found", "there is no such round")
        return found

    def ready(self, hash_: str) -> Release | None:
        """Return a release if it is in memory."""
        return self._releases.get(hash_)

    def release(self, hash_: str) -> Release:
        """Return a release, from the database if need be."""
        found = self._releases.get(hash_)
        if found is None:
            stored = self._store.release_file(hash_)
            if stored is None:
                raise Problem("not-found", "there is no such release")
            found = from_bytes(stored[0], expect=hash_)
            with self._turn:
                while len(self._releases) >= _MOST_RELEASES:
                    self._releases.pop(next(iter(self._releases)))
                self._releases[hash_] = found
        return found


def state_facts(one: StoredRound, now: datetime) -> dict[str, str | None]:
    """Return what changes about a round."""
    closed = None if one.closed_at is None else one.closed_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"state": one.state(now), "closed_at": closed}


# ----------------------------------------------------------------------------
# Deleting reports: when their time is over, or when an admin says so. Their means stay.
#
# First the moments are made final and the round is marked, in one transaction; from then on none of
# its reports is accepted or read. Then the rows go, a few thousand in a transaction, so that
# uploads to other rounds are not held up. If that is interrupted, the next sweep goes on with it.

_ROWS: Final = 5000


class Retention:
    """Deletes what should not be kept."""

    def __init__(self, engine: Engine, catalogue: Catalogue, follower: Follower) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._follower = follower

    def sweep(self, now: datetime) -> int:
        """Delete the reports of all rounds whose time is over; return of how many rounds."""
        due = [one for one in self._catalogue.rounds.values() if _is_due(one, now)]
        return sum(self.delete(one, now) > 0 for one in due)

    def delete(self, one: StoredRound, now: datetime) -> int:
        """Delete the reports of a closed round, but not its means; return how many."""
        if one.deleted_at is None:
            release = self._catalogue.release(one.document.release)
            self._follower.finish(one.key, release, now)
        its = select(report.c.seq).where(report.c.round == one.key).limit(_ROWS)
        deleted = 0
        while True:
            with writing(self._engine) as connection:
                gone = connection.execute(delete(report).where(report.c.seq.in_(its))).rowcount
            deleted += gone
            if gone < _ROWS:
                return deleted


def _is_due(one: StoredRound, now: datetime) -> bool:
    """Say whether reports must go; of rounds that are marked, rows may be left."""
    kept = timedelta(days=one.document.keep_days)
    return one.deleted_at is not None or now >= one.ends + kept


# ----------------------------------------------------------------------------
# The collector's parts, put together, and what it does by itself.

_FOLLOW: Final = 10.0
_SWEEP: Final = 60.0
"""Seconds between two rounds of means, and of deletion."""


class Collector:
    """One collector process: open it once, close it to commit what waits."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = open_database(settings.database)
        self.metrics = Metrics()
        self.store = Store(self.engine)
        self.catalogue = Catalogue(self.store)
        self.follower = Follower(self.engine)
        self.retention = Retention(self.engine, self.catalogue, self.follower)
        # The index of a million ids fits, and is not written back and forth for every few of them.
        self.writer = Writer(connect(settings.database, cache=32), self.metrics.committed)
        self.metrics.watch_queue(lambda: self.writer.waiting)
        self.device_buckets = Buckets(settings.device_rate)
        self.reader_buckets = Buckets(settings.reader_rate)
        self.catalogue.refresh()

    def now(self) -> datetime:
        """Return the time by which rounds open and close."""
        return self.settings.clock()

    def first_token(self) -> str | None:
        """Return a new admin token if there is no token at all yet."""
        if self.store.all_tokens():
            return None
        token = new_token()
        self.store.add_token(token, "first admin", "admin", self.now())
        self.catalogue.refresh()
        return token

    def check(self) -> bool:
        """Say whether the database answers, is up to date, and has taken what it was last given.

        After a failure the collector is not ready until something is stored. Who sends nothing to
        one that is not ready would never learn, so it is tried again after a while.
        """
        failed = self.writer.failed_at
        if failed is not None and time.monotonic() - failed < self.settings.retry_seconds:
            return False
        try:
            return is_current(self.engine)
        except SQLAlchemyError:
            return False

    async def keep_house(self) -> None:
        """Refresh what is known, follow open rounds and delete what is due, until cancelled."""
        chores = {
            "refresh": (EVERY, self.catalogue.refresh),
            "follow": (_FOLLOW, self._follow_open),
            "log": (EVERY, logs.flush),
            "sweep": (_SWEEP, lambda: self.retention.sweep(self.now())),
        }
        # Threads of their own: no slow request may keep a closing from being noticed.
        with ThreadPoolExecutor(len(chores), "offaxis-house") as threads:
            await asyncio.gather(
                *(self._repeat(threads, name, *chore) for name, chore in chores.items())
            )

    async def _repeat(
        self, threads: Executor, name: str, seconds: float, work: Callable[[], object]
    ) -> None:
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(threads, work)
            except Exception as error:
                # Whatever it was, it may be over next time; a chore that ended would stay undone.
                self.metrics.failures.inc()
                logs.event(f"{name} failed", logging.WARNING, **logs.error_facts(error))
            await asyncio.sleep(seconds)

    def _follow_open(self) -> None:
        now = self.now()
        for one in list(self.catalogue.rounds.values()):
            if one.state(now) == "open":
                self.follower.follow(one.key, self.catalogue.release(one.document.release))

    def close(self) -> None:
        """Commit what waits, and let go of the database."""
        self.writer.close()
        self.writer.engine.dispose()
        self.engine.dispose()
