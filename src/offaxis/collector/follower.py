"""Means that grow: moments of a round's reports up to a mark, stored with the mark.

Contract: what is stored are the moments of exactly the reports with numbers up to the mark that
were not withdrawn. Mark and moments change in one transaction, and only if nobody else moved the
mark and no report was withdrawn since it was read. So any number of processes may follow a round.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, insert, select, update

from offaxis.collector.database import take_turns, writing
from offaxis.collector.means import Totals
from offaxis.collector.tables import moments, report, round_
from offaxis.release import Release

_PAGE_ROWS: Final = 65_536
_PAGE_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class _Reading:
    withdrawn: int
    mark: int
    state: bytes | None
    rows: list[tuple[bytes, str | None]]
    last: int


class Follower:
    """Keeps the moments of rounds up to date."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def follow(self, key: int, release: Release) -> Totals:
        """Bring the moments of a round up to the last report, and return them."""
        with self._turns[key]:
            return self._follow(key, release)[0]

    def finish(self, key: int, release: Release, now: datetime) -> None:
        """Make the moments final, and let no report be read or stored after that."""
        with self._turns[key]:
            while True:
                _, mark = self._follow(key, release)
                with writing(self._engine) as connection:
                    take_turns(connection, [key])
                    # A withdrawal meanwhile takes the moments away; then they are made again.
                    whole = _mark(connection, key)[0] == mark
                    if whole and not _after(connection, key, mark, 1):
                        its = update(round_).where(
                            round_.c.id == key, round_.c.deleted_at.is_(None)
                        )
                        connection.execute(its.values(deleted_at=now))
                        return

    def _follow(self, key: int, release: Release) -> tuple[Totals, int]:
        rows = max(1, min(_PAGE_ROWS, _PAGE_BYTES // release.report_size))
        totals, known = None, None
        while True:
            found = self._read(key, rows)
            if totals is None or known != (found.mark, found.withdrawn):
                # The first reading, or somebody else moved the mark or withdrew a report.
                totals = Totals() if found.state is None else Totals.from_bytes(found.state)
            if found.last == found.mark:
                return totals, found.mark
            if found.rows:
                totals.add(release, found.rows)
            stored = self._store(key, found, totals)
            known = (found.last, found.withdrawn) if stored else None

    def _read(self, key: int, rows: int) -> _Reading:
        with self._engine.connect() as connection:
            withdrawn = connection.execute(
                select(round_.c.withdrawn).where(round_.c.id == key)
            ).scalar_one()
            mark, state = _mark(connection, key)
            page = _after(connection, key, mark, rows)
        kept = [(bytes(content), label) for content, label, _ in page if content is not None]
        last = page[-1].seq if page else mark
        return _Reading(withdrawn, mark, state, kept, last)

    def _store(self, key: int, found: _Reading, totals: Totals) -> bool:
        """Store moments unless they are about something that has changed since."""
        state = totals.to_bytes()
        with writing(self._engine) as connection:
            take_turns(connection, [key])
            asked = select(round_.c.withdrawn).where(round_.c.id == key)
            its = moments.c.round == key
            mark = connection.execute(select(moments.c.upto).where(its)).scalar()
            expected = None if found.state is None else found.mark
            if connection.execute(asked).scalar_one() != found.withdrawn or mark != expected:
                return False
            values = {
                "upto": found.last,
                "state": state,
                "counted": totals.observed.count,
            }
            if found.state is None:
                connection.execute(insert(moments).values(round=key, **values))
            else:
                connection.execute(update(moments).where(its).values(**values))
            return True


def _mark(connection: Connection, key: int) -> tuple[int, bytes | None]:
    """Return up to which number reports are in the moments, and these; before any, the base."""
    asked = select(moments.c.upto, moments.c.state).where(moments.c.round == key)
    stored = connection.execute(asked).first()
    if stored is not None:
        return int(stored.upto), bytes(stored.state)
    base = connection.execute(select(round_.c.base).where(round_.c.id == key)).scalar_one()
    return int(base), None


def _after(connection: Connection, key: int, mark: int, rows: int) -> Sequence[Any]:
    asked = select(report.c.content, report.c.label, report.c.seq)
    # The sum keeps databases from choosing the index by id, behind which they would have to sort.
    asked = asked.where(report.c.round + 0 == key, report.c.seq > mark)
    return connection.execute(asked.order_by(report.c.seq).limit(rows)).all()
