"""One collector process: settings, an in-memory view of the database, retention, maintenance.

An operator sets only :class:`Settings`; everything else is in the signed documents.
"""

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

from offaxis.collector import monitoring
from offaxis.collector.access import Buckets, Tokens, new_token
from offaxis.collector.database import connect, is_current, open_database, report, writing
from offaxis.collector.means import Follower
from offaxis.collector.models import Evaluations
from offaxis.collector.monitoring import Metrics
from offaxis.collector.populations import Populations
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.store import Store, StoredRound
from offaxis.collector.uploads import Writer
from offaxis.formats.release_file import from_bytes
from offaxis.release import Release


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Settings:
    """Settings of one collector process.

    Attributes
    ----------
    database : str
        ``sqlite:///FILE`` or ``postgresql://…``; several processes may share the latter.
    publisher : str, optional
        Public key that must have signed releases and rounds, 64 hexadecimal digits. Without it any
        admin can publish, and only devices check who signed.
    device_rate : float
        Reports per second that one device token may send; any other request counts as one report.
    reader_rate : float
        Requests per second for any other token.
    largest_release : int
        Largest release file, in bytes.
    body_seconds : float
        Time limit for receiving a request's body.
    retry_seconds : float
        How long the collector reports that it is not ready after it failed to store reports.
    clock : callable
        Returns the time by which rounds open and close.
    extra_pages : mapping of str to Path
        Folders of static files to serve under ``/browser/NAME/``, with the index at ``/NAME``.
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


# ---- Catalogue

REFRESH_SECONDS: Final = 1.0
"""Seconds between two reads of the catalogue."""

_STALE: Final = 10.0
_MOST_RELEASES: Final = 16


class Catalogue:
    """Tokens, rounds and releases in memory, at most a second old while the database responds.

    Everything is read again every second, so a round that another process closes, or a token that
    it revokes, takes effect here a second or two later. If reading fails for too long, nothing is
    accepted: a round that was closed meanwhile must not look open.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._releases: dict[str, Release] = {}
        self._by_key: dict[int, StoredRound] = {}
        self._rounds: dict[str, StoredRound] = {}
        self._tokens: Tokens = {}
        self._read = float("-inf")

    def refresh(self) -> None:
        """Read tokens and rounds again."""
        with self._lock:
            began = time.monotonic()
            tokens = self._store.valid_tokens()
            self._by_key = self._store.rounds(self._by_key)
            self._rounds = {stored.document.name: stored for stored in self._by_key.values()}
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
        """Return a round, or raise a problem if it does not exist."""
        stored = self._rounds.get(name)
        if stored is None:
            raise Problem("not-found", "no such round")
        return stored

    def cached_release(self, hash_: str) -> Release | None:
        """Return a release if it is in memory."""
        return self._releases.get(hash_)

    def release(self, hash_: str) -> Release:
        """Return a release, from memory or from the database."""
        release = self._releases.get(hash_)
        if release is None:
            stored = self._store.release_file(hash_)
            if stored is None:
                raise Problem("not-found", "no such release")
            release = from_bytes(stored[0], expect=hash_, with_plugins=False)
            with self._lock:
                while len(self._releases) >= _MOST_RELEASES:
                    self._releases.pop(next(iter(self._releases)))
                self._releases[hash_] = release
        return release


# ---- Retention

_DELETED_ROWS: Final = 5000


class Retention:
    """Deletes reports when their retention ends or on an admin's request. Their means stay.

    First the population is stored, if there is one. Then the moments are made final and the round
    is marked, in one transaction; from then on none of its reports is accepted, and a withdrawal
    changes no result. If withdrawals kept the population from being stored, it is estimated now.
    Then the rows are deleted, a few thousand per transaction, so that uploads to other rounds do
    not have to wait. If this is interrupted, the next sweep continues it.
    """

    def __init__(
        self,
        engine: Engine,
        catalogue: Catalogue,
        follower: Follower,
        populations: Populations,
    ) -> None:
        self._engine = engine
        self._store = Store(engine)
        self._catalogue = catalogue
        self._follower = follower
        self._populations = populations

    def sweep(self, now: datetime) -> int:
        """Delete the reports of all rounds past their retention; return the number of rounds.

        A round that fails does not keep those of the others; its error is raised in the end.
        """
        deleted, failure = 0, None
        for stored in list(self._catalogue.rounds.values()):
            try:
                deleted += _is_due(stored, now) and self.delete(stored, now) > 0
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure
        return deleted

    def delete(self, stored: StoredRound, now: datetime) -> int:
        """Delete the reports of a closed round, but not its means; return the number of reports."""
        if stored.deleted_at is None:
            release = self._catalogue.release(stored.document.release)
            self._populations.finish(stored, release, now)
            self._follower.finish(stored.key, release, now)
        if self._store.final_count(stored.key) is not None:
            release = self._catalogue.release(stored.document.release)
            self._populations.finish_marked(stored, release)
            self._store.begin_emptying(stored.key, now)
        rows = select(report.c.seq).where(report.c.round == stored.key).limit(_DELETED_ROWS)
        total = 0
        while True:
            with writing(self._engine) as connection:
                deleted = connection.execute(delete(report).where(report.c.seq.in_(rows))).rowcount
            total += deleted
            if deleted < _DELETED_ROWS:
                return total


def _is_due(stored: StoredRound, now: datetime) -> bool:
    """Whether reports must be deleted; a marked round may still have rows."""
    retention = timedelta(days=stored.document.keep_days)
    return stored.deleted_at is not None or now >= stored.ends + retention


# ---- Process

_FOLLOW_SECONDS: Final = 10.0
_SWEEP_SECONDS: Final = 60.0
"""Seconds between two updates of means, and between two sweeps of deletion."""


class Collector:
    """One collector process: open it once, and close it to commit pending reports."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = open_database(settings.database)
        self.metrics = Metrics()
        self.store = Store(self.engine)
        self.catalogue = Catalogue(self.store)
        self.follower = Follower(self.engine)
        self.populations = Populations(self.store)
        self.evaluations = Evaluations(self.store)
        self.retention = Retention(self.engine, self.catalogue, self.follower, self.populations)
        # A cache that holds the index of a million ids, so that its pages are not written and read
        # again for every few of them.
        self.writer = Writer(connect(settings.database, cache=32), self.metrics.committed)
        self.metrics.watch_queue(lambda: self.writer.waiting)
        self.device_buckets = Buckets(settings.device_rate)
        self.reader_buckets = Buckets(settings.reader_rate)
        self.catalogue.refresh()

    def now(self) -> datetime:
        """Return the time by which rounds open and close."""
        return self.settings.clock()

    def first_token(self) -> str | None:
        """Return a new admin token if the database has no tokens yet."""
        if self.store.all_tokens():
            return None
        token = new_token()
        self.store.add_token(token, "first admin", "admin", self.now())
        self.catalogue.refresh()
        return token

    def check(self) -> bool:
        """Return whether the database responds, is migrated, and stored the last reports.

        After a failure the collector is not ready until reports are stored again. Because a load
        balancer sends nothing to a collector that is not ready, it becomes ready again after
        ``retry_seconds``.
        """
        failed = self.writer.failed_at
        if failed is not None and time.monotonic() - failed < self.settings.retry_seconds:
            return False
        try:
            return is_current(self.engine)
        except SQLAlchemyError:
            return False

    async def run_maintenance(self) -> None:
        """Refresh the catalogue, follow open rounds and delete what is due, until cancelled."""
        tasks = {
            "refresh": (REFRESH_SECONDS, self.catalogue.refresh),
            "follow": (_FOLLOW_SECONDS, self._follow_open),
            "log": (REFRESH_SECONDS, monitoring.flush),
            "sweep": (_SWEEP_SECONDS, lambda: self.retention.sweep(self.now())),
        }
        # Separate threads: a slow request must not delay the notice that a round was closed.
        with ThreadPoolExecutor(len(tasks), "offaxis-maintenance") as threads:
            await asyncio.gather(
                *(self._repeat(threads, name, *task) for name, task in tasks.items())
            )

    async def _repeat(
        self, threads: Executor, name: str, seconds: float, work: Callable[[], object]
    ) -> None:
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(threads, work)
            except Exception as error:
                # The cause may have passed next time; a task that ended would never run again.
                self.metrics.failures.inc()
                monitoring.event(f"{name} failed", logging.WARNING, **monitoring.error_facts(error))
            await asyncio.sleep(seconds)

    def _follow_open(self) -> None:
        now = self.now()
        for stored in list(self.catalogue.rounds.values()):
            if stored.state(now) == "open":
                self.follower.follow(stored.key, self.catalogue.release(stored.document.release))

    def close(self) -> None:
        """Commit pending reports and close the database."""
        self.populations.close()
        self.evaluations.close()
        self.writer.close()
        self.writer.engine.dispose()
        self.engine.dispose()
