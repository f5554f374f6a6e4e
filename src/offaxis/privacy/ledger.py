"""The privacy ledger of a device: what it has spent, in a file that survives crashes.

Contract: every report that has left the device is in the ledger. The cost is written and flushed to
the disk *before* the report is made, or in one transaction with a report that is kept. A crash in
between may therefore cost budget without releasing anything, but a report is never released without
being paid for. A payment that would exceed a limit is refused, and nothing is written. Several
processes may share one file: a payment is one transaction.

The file is an SQLite database with one row per payment, per kept report and per stored limit. It
holds no vectors. Kept reports and the key under which they are found stay on the device. Anyone who
can delete or replace the file can start over: the ledger serves a device that wants to keep count.
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
"""Version 1 had no stored limits. Its readers must not open a file whose limits they ignore."""
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
    """Payments for reports of one release: their cost, and the times of the first and the last.

    Times are in seconds since the epoch.
    """

    release: str
    cost: Cost
    first: float
    last: float


@dataclass(frozen=True)
class Balance:
    """What was spent under one limit, and what remains.

    Attributes
    ----------
    limit : Limit
    epsilon, delta : Fraction
        Σε and Σδ of the payments in the limit's period, exactly.
    composed : Fraction or None
        ε at the limit's δ by loss distributions. None if the limit has no δ, dp-accounting is not
        installed, or :func:`~offaxis.privacy.composition.composed_epsilon` is unknown.
    """

    limit: Limit
    epsilon: Fraction
    delta: Fraction
    composed: Fraction | None

    @property
    def left(self) -> Fraction:
        """The ε that remains: the limit less the smaller total that holds at the limit's δ."""
        totals = [] if self.composed is None else [self.composed]
        if self.delta <= self.limit.delta:
            totals.append(self.epsilon)
        return max(Fraction(0), self.limit.epsilon - min(totals)) if totals else Fraction(0)


class Ledger:
    """A device's record of the privacy budget it has spent, with limits that it enforces.

    Parameters
    ----------
    path : str or Path
        The file. It is created if it does not exist and limits are given.
    limits : Limit, any number
        Limits set by the deployment. They are not stored, so a later version may set stricter
        ones. Each must hold, as must every limit stored by :meth:`create`. With neither, nothing
        can be spent.

    Examples
    --------
    >>> from offaxis.privacy import Guarantee, Ledger, Limit
    >>> ledger = Ledger.create("mine.ledger", Limit(3))
    >>> ledger.spend(Guarantee(1.5), release="energy")  # before the report is made
    >>> ledger.spend(Guarantee(1), release="steps")
    >>> ledger.spent()
    (Fraction(5, 2), Fraction(0, 1))
    >>> ledger.balances()[0].left
    Fraction(1, 2)
    >>> ledger.spend(Guarantee(1), release="energy")
    Traceback (most recent call last):
        ...
    offaxis.errors.BudgetExceeded: 1 more of ε = 1, pure would exceed the limit of ε = 3 in all; ...
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
        """Create a new ledger that stores its limits, so that they hold for every process.

        Raises
        ------
        InvalidInput
            If the file is a ledger already. Its limits and its payments stay.
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
            # FULL: a payment is on disk before spend() returns.
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
        """Refuse another application's database before changing anything in it."""
        # Read the tables first: when another process creates a ledger, its tables and its version
        # appear in one transaction.
        tables = self._database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        version = self._version()
        if tables and not version:
            raise InvalidInput(f"{path} is a database, but not a ledger")
        if version and version not in _READABLE:
            raise InvalidInput(f"{path} is a ledger of version {version}, not {VERSION}")

    def _prepare(self, path: str | Path, limits: tuple[Limit, ...], *, store: bool) -> None:
        """Create the tables of a new ledger or upgrade an old one; read the stored limits."""
        version = self._version()
        if version and store:
            raise InvalidInput(f"{path} is a ledger already; its limits are not replaced")
        if not version and not limits:
            raise InvalidInput(f"{path} is empty, not a ledger; make one with Ledger.create")
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
        """Hold the write lock for one transaction: everything inside is written, or nothing.

        Raises
        ------
        InvalidInput
            If the file cannot be written: the disk is full, or another process holds the lock for
            too long.
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
        """Return the payments, all of them or those after a time in seconds since the epoch."""
        rows = self._database.execute(
            "SELECT epsilon, delta, SUM(reports) FROM payment WHERE paid_at > ? "
            "GROUP BY epsilon, delta",
            (float("-inf") if since is None else since,),
        )
        return [Cost(Fraction(e), Fraction(d), int(n)) for e, d, n in rows]

    def within(self, limit: Limit) -> list[Cost]:
        """Return the payments in a limit's period, up to now."""
        return self.costs(_since(limit, time.time()))

    def balances(self) -> list[Balance]:
        """Return what was spent under each limit, and what remains."""
        balances = []
        for limit in self.limits:
            costs, composed = self.within(limit), None
            if limit.delta:
                with suppress(MissingExtra):
                    composed = composed_epsilon(costs, limit.delta)
            balances.append(Balance(limit, *basic(costs), composed))
        return balances

    def by_release(self) -> list[Spent]:
        """Return the payments for each release, in the order of the first payment."""
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
            If a limit would be exceeded. Nothing is paid, and nothing may be reported.
        """
        with self.alone():
            self.charge(guarantee, release, reports)

    def charge(self, guarantee: Guarantee, release: str, reports: int = 1) -> None:
        """Pay like :meth:`spend`, as part of a transaction opened with :meth:`alone`.

        The payment is written together with everything else in that transaction, or not at all.
        Nothing may leave the device before the transaction has ended.
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
                    f"{reports} more of {guarantee} would exceed the limit of {limit}; nothing "
                    f"was paid and nothing may be reported"
                )
        self._database.execute(
            "INSERT INTO payment (paid_at, release, epsilon, delta, reports) "
            "VALUES (?, ?, ?, ?, ?)",
            (now, release, str(cost.epsilon), str(cost.delta), reports),
        )

    def kept_report(self, release: str, key: bytes) -> bytes | None:
        """Return the report kept under a key, or None."""
        row = self._database.execute(
            "SELECT report FROM kept WHERE release = ? AND key = ?", (release, key)
        ).fetchone()
        return bytes(row[0]) if row else None

    def keep_report(self, release: str, key: bytes, report: bytes) -> bytes:
        """Keep a report under a key and return it; if one is already kept there, return that."""
        with self.alone():
            kept = self.kept_report(release, key)
            if kept is not None:
                return kept
            self._database.execute("INSERT INTO kept VALUES (?, ?, ?)", (release, key, report))
        return report

    def secret(self, fresh: bytes) -> bytes:
        """Return the device's secret for deriving keys; the first call stores ``fresh``."""
        with self.alone():
            row: Any = self._database.execute("SELECT key FROM secret").fetchone()
            if row:
                return bytes(row[0])
            self._database.execute("INSERT INTO secret VALUES (?)", (fresh,))
        return fresh


def _since(limit: Limit, now: float) -> float | None:
    """Return the start of a limit's period that ends now; None for a lifetime limit."""
    return None if limit.seconds is None else now - limit.seconds
