"""What a person's device has spent, kept in a file that survives crashes.

Contract: a report that left the device is in the ledger. The cost is written and flushed to the
disk *before* the report is made, or in one transaction with the report that is kept. So a crash in
between may cost budget and releases nothing; the other way round cannot happen. What would pass a
limit is refused, and nothing is written then. Several processes may share one file: spending is one
transaction.

The file is an SQLite database with one row a payment, one a kept report and one a stored limit. It
holds no vector, but kept reports and the key they are found by stay on the device. Whoever can
delete or replace the file can start over: it counts for a device that wants to keep count.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Self

from offaxis.errors import BudgetExceeded, InvalidInput, MissingExtra
from offaxis.privacy.composition import Cost, Limit, basic, composed_epsilon, within
from offaxis.privacy.guarantee import Guarantee

__all__ = ["Ledger", "Limit"]

VERSION: Final = 2
_READABLE: Final = (1, VERSION)
"""Version 1 had no stored limits; a reader of it must not open a file whose limits it ignores."""
_WAIT: Final = 30.0
"""Seconds to wait for another process that is spending."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS payment (
    id INTEGER PRIMARY KEY, paid_at REAL NOT NULL, release TEXT NOT NULL,
    epsilon TEXT NOT NULL, delta TEXT NOT NULL, reports INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS kept (
    release TEXT NOT NULL, key BLOB NOT NULL, report BLOB NOT NULL, PRIMARY KEY (release, key)
) STRICT;
CREATE TABLE IF NOT EXISTS secret (key BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS stored_limit (
    id INTEGER PRIMARY KEY, epsilon TEXT NOT NULL, delta TEXT NOT NULL, seconds REAL
) STRICT;
"""


@dataclass(frozen=True)
class Spent:
    """What was paid for reports of one release: their cost, and when first and last, in seconds."""

    release: str
    cost: Cost
    first: float
    last: float


@dataclass(frozen=True)
class Balance:
    """What was spent under one limit, and what it leaves.

    Attributes
    ----------
    limit : Limit
    epsilon, delta : Fraction
        The sums over the limit's stretch of time, exactly.
    composed : Fraction or None
        ε at the limit's δ by loss distributions, where the limit has a δ and there is a figure.
    """

    limit: Limit
    epsilon: Fraction
    delta: Fraction
    composed: Fraction | None

    @property
    def left(self) -> Fraction:
        """ε up to the limit, by whichever count is smaller and holds at the limit's δ."""
        counts = [] if self.composed is None else [self.composed]
        if self.delta <= self.limit.delta:
            counts.append(self.epsilon)
        return max(Fraction(0), self.limit.epsilon - min(counts)) if counts else Fraction(0)


def _since(limit: Limit, now: float) -> float | None:
    return None if limit.seconds is None else now - limit.seconds


class Ledger:
    """A device's ledger.

    Parameters
    ----------
    path : str or Path
        The file. It is made if it is not there and limits are given.
    limits : Limit, any number
        The deployment's, not stored; a later version may set stricter ones. Each must hold, and so
        must each that :meth:`create` stored. Without either, nothing can be spent.

    Examples
    --------
    >>> from offaxis.privacy import Guarantee, Ledger, Limit
    >>> ledger = Ledger.create("mine.ledger", Limit(3))
    >>> ledger.spend(Guarantee(1.5), release="energy")  # before the report is made
    >>> with ledger.alone():  # paid with what else is written here, or not at all
    ...     ledger.charge(Guarantee(1), release="steps")
    >>> ledger.spent(), [one.release for one in ledger.by_release()]
    ((Fraction(5, 2), Fraction(0, 1)), ['energy', 'steps'])
    >>> ledger.spend(Guarantee(1), release="energy")
    Traceback (most recent call last):
        ...
    offaxis.errors.BudgetExceeded: 1 more of ε = 1, pure would pass the limit of ε = 3 in all; ...
    >>> len(ledger.costs()), len(ledger.within(Limit(1, seconds=60)))
    (2, 2)
    >>> ledger.keep_report("energy", b"monday", b"bytes") == ledger.kept_report("energy", b"monday")
    True
    >>> from offaxis.sampling.entropy import fresh_key
    >>> len(ledger.secret(fresh_key()))  # by which kept reports are found
    32
    >>> ledger.close()
    """

    def __init__(self, path: str | Path, *limits: Limit) -> None:
        if not limits and not Path(path).is_file():
            raise InvalidInput(
                f"there is no ledger {path}; make one with at least one limit, for example "
                f"Ledger.create({str(path)!r}, Limit(8))"
            )
        self._open(path, limits, store=False)

    @classmethod
    def create(cls, path: str | Path, *limits: Limit) -> Self:
        """Make a new ledger that stores its limits, so that everybody who opens it keeps them.

        Raises
        ------
        InvalidInput
            If the file is a ledger already: its limits stay, and its payments are not forgotten.
        """
        if not limits:
            raise InvalidInput("a ledger needs at least one limit, for example Limit(8)")
        ledger = cls.__new__(cls)
        ledger._open(path, limits, store=True)
        return ledger

    def _open(self, path: str | Path, limits: tuple[Limit, ...], *, store: bool) -> None:
        self._path = path
        try:
            self._database = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
        except sqlite3.Error as error:
            raise InvalidInput(f"cannot open the ledger {path}: {error}") from None
        try:
            self._check_kind(path)
            # FULL: a payment is on the disk before spend() returns.
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            with self.alone():
                self._prepare(path, limits, store=store)
        except sqlite3.Error as error:
            self._database.close()
            raise InvalidInput(f"{path} cannot be used as a ledger: {error}") from None
        except BaseException:
            self._database.close()
            raise

    def _version(self) -> int:
        return int(self._database.execute("PRAGMA user_version").fetchone()[0])

    def _check_kind(self, path: str | Path) -> None:
        """Refuse somebody else's database before anything is changed in it."""
        # Tables first: a ledger that another process is making gets them and its version at once.
        tables = self._database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        version = self._version()
        if tables and not version:
            raise InvalidInput(f"{path} is a database, but not a ledger")
        if version and version not in _READABLE:
            raise InvalidInput(f"{path} is a ledger of version {version}, not {VERSION}")

    def _prepare(self, path: str | Path, limits: tuple[Limit, ...], *, store: bool) -> None:
        """Make the tables of a new ledger or check those of an old one; read the stored limits."""
        version = self._version()
        if version and store:
            raise InvalidInput(f"{path} is a ledger already; its limits are not replaced")
        if not version and not limits:
            raise InvalidInput(f"{path} is empty and no ledger; make one with Ledger.create")
        if version != VERSION:
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version = {VERSION}")
        if store:
            self._database.executemany(
                "INSERT INTO stored_limit (epsilon, delta, seconds) VALUES (?, ?, ?)",
                [(str(limit.epsilon), str(limit.delta), limit.seconds) for limit in limits],
            )
        rows = self._database.execute(
            "SELECT epsilon, delta, seconds FROM stored_limit ORDER BY id"
        )
        stored = [Limit(Fraction(e), Fraction(d), seconds) for e, d, seconds in rows]
        self.limits: tuple[Limit, ...] = tuple(dict.fromkeys([*limits, *stored]))

    def __enter__(self) -> Self:
        """Return the ledger itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """Hold the only right to write; everything inside is written, or nothing.

        Raises
        ------
        InvalidInput
            If the file cannot be written: the disk is full, or others hold it for too long.
        """
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                # Some failures have ended the transaction already.
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise InvalidInput(f"{self._path} cannot be written as a ledger: {error}") from None

    def costs(self, since: float | None = None) -> list[Cost]:
        """Return what was paid, all of it or since a time in seconds."""
        rows = self._database.execute(
            "SELECT epsilon, delta, SUM(reports) FROM payment WHERE paid_at > ? "
            "GROUP BY epsilon, delta",
            (float("-inf") if since is None else since,),
        )
        return [Cost(Fraction(e), Fraction(d), int(n)) for e, d, n in rows]

    def within(self, limit: Limit) -> list[Cost]:
        """Return what was paid in the stretch of time that a limit is about, up to now."""
        return self.costs(_since(limit, time.time()))

    def balances(self) -> list[Balance]:
        """Return what was spent under each limit, and what it leaves."""
        balances = []
        for limit in self.limits:
            costs, composed = self.within(limit), None
            if limit.delta:
                with suppress(MissingExtra):
                    composed = composed_epsilon(costs, limit.delta)
            balances.append(Balance(limit, *basic(costs), composed))
        return balances

    def by_release(self) -> list[Spent]:
        """Return what was paid for each release, in the order of the first payment."""
        rows = self._database.execute(
            "SELECT release, epsilon, delta, SUM(reports), MIN(paid_at), MAX(paid_at) FROM payment "
            "GROUP BY release, epsilon, delta ORDER BY MIN(id)"
        )
        return [
            Spent(release, Cost(Fraction(e), Fraction(d), int(n)), first, last)
            for release, e, d, n, first, last in rows
        ]

    def spent(self) -> tuple[Fraction, Fraction]:
        """Return Σε and Σδ of all payments, exactly."""
        return basic(self.costs())

    def spend(self, guarantee: Guarantee, release: str, reports: int = 1) -> None:
        """Pay for reports that are about to be made.

        Raises
        ------
        BudgetExceeded
            If a limit would be passed. Nothing is paid, and nothing may be reported.
        """
        with self.alone():
            self.charge(guarantee, release, reports)

    def charge(self, guarantee: Guarantee, release: str, reports: int = 1) -> None:
        """Pay as :meth:`spend` does, inside :meth:`alone`: with what else is written or not at all.

        Nothing may leave the device before that transaction has ended.
        """
        if reports < 1:
            raise InvalidInput(f"reports must be at least 1, got {reports}")
        if not self.limits:
            raise InvalidInput("this ledger stores no limit; open it with one, such as Limit(8)")
        assert self._database.in_transaction, "charge() belongs inside alone()"
        cost = Cost(guarantee.epsilon, guarantee.delta, reports)
        now = time.time()
        for limit in self.limits:
            paid = self.costs(_since(limit, now))
            if not within([*paid, cost], limit.epsilon, limit.delta):
                raise BudgetExceeded(
                    f"{reports} more of {guarantee} would pass the limit of {limit}; nothing "
                    f"was paid and nothing may be reported"
                )
        self._database.execute(
            "INSERT INTO payment (paid_at, release, epsilon, delta, reports) "
            "VALUES (?, ?, ?, ?, ?)",
            (now, release, str(cost.epsilon), str(cost.delta), reports),
        )

    def kept_report(self, release: str, key: bytes) -> bytes | None:
        """Return the report kept under a key, if there is one."""
        row = self._database.execute(
            "SELECT report FROM kept WHERE release = ? AND key = ?", (release, key)
        ).fetchone()
        return bytes(row[0]) if row else None

    def keep_report(self, release: str, key: bytes, report: bytes) -> bytes:
        """Keep a report under a key; if another process was first, return that one's."""
        with self.alone():
            kept = self.kept_report(release, key)
            if kept is not None:
                return kept
            self._database.execute("INSERT INTO kept VALUES (?, ?, ?)", (release, key, report))
        return report

    def secret(self, fresh: bytes) -> bytes:
        """Return the device's secret for keys, which is ``fresh`` the first time."""
        with self.alone():
            row: Any = self._database.execute("SELECT key FROM secret").fetchone()
            if row:
                return bytes(row[0])
            self._database.execute("INSERT INTO secret VALUES (?)", (fresh,))
        return fresh
