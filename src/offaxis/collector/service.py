"""The collector's parts, put together, and what it does by itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import datetime
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from offaxis.collector import logs
from offaxis.collector.auth import new_token
from offaxis.collector.catalogue import EVERY, Catalogue
from offaxis.collector.database import connect, is_current, open_database
from offaxis.collector.follower import Follower
from offaxis.collector.limits import Buckets
from offaxis.collector.metrics import Metrics
from offaxis.collector.retention import Retention
from offaxis.collector.settings import Settings
from offaxis.collector.store import Store
from offaxis.collector.writer import Writer

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
