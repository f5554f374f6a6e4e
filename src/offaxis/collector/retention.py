"""Deleting reports: when their time is over, or when an admin says so. Their means stay.

First the moments are made final and the round is marked, in one transaction; from then on none of
its reports is accepted or read. Then the rows go, a few thousand in a transaction, so that uploads
to other rounds are not held up. If that is interrupted, the next sweep goes on with it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Engine, delete, select

from offaxis.collector.catalogue import Catalogue
from offaxis.collector.database import writing
from offaxis.collector.follower import Follower
from offaxis.collector.store import StoredRound
from offaxis.collector.tables import report

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
