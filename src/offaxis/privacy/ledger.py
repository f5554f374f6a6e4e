"""The privacy ledger of a device: what it has spent, in a file that survives crashes.

Contract: every report that has left the device is in the ledger. The cost is written and flushed to
the disk *before* the report is made, or in one transaction with a report that is kept. A crash in
between may therefore cost budget without releasing anything, but a report is never released without
being paid for. A payment that would exceed a limit is refused, and nothing is written. Several
processes may share one file: a payment is one transaction, under a lock in ``<path>.lock``. Each
opens the file itself: a ledger is refused in a forked child, and after its file was replaced.

The file is an SQLite database with one row per payment, per stored limit and per study in which the
person takes part; only its owner can read it. All that was committed is in this one file: the
rollback journal ``<path>-journal`` exists during a transaction and after a crash in one. The file
holds no vectors, no hashes of vectors, and no report that was sent. Of a sequence it holds the
permanent answer in force, which reveals up to ε of one answer. Anyone who can delete the file, or
replace it between two programs, can start over: the ledger serves a device that wants to keep
count.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from weakref import WeakSet

from offaxis.errors import BudgetExceeded, InvalidInput
from offaxis.files import Confined, create_private, exclusive, make_private
from offaxis.privacy.composition import Cost, Limit, basic, filtered_epsilon
from offaxis.privacy.guarantee import Guarantee
from offaxis.vectors import as_integer

__all__ = ["Ledger", "Limit"]

VERSION: Final = 4
_READABLE: Final = (1, 2, 3, VERSION)
"""Version 1 had no stored limits, version 2 no studies; version 3 had a write-ahead log, and kept
reports that were sent. Their readers must not open a newer file: they would ignore its limits, or
answer its rounds again."""
_WAIT: Final = 30.0
"""Seconds to wait for another process that is spending."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS payment (
    id INTEGER PRIMARY KEY, paid_at REAL NOT NULL, release TEXT NOT NULL,
    epsilon TEXT NOT NULL, delta TEXT NOT NULL, reports INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS secret (key BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS stored_limit (
    id INTEGER PRIMARY KEY, epsilon TEXT NOT NULL, delta TEXT NOT NULL, seconds REAL
) STRICT;
CREATE TABLE IF NOT EXISTS study (
    name TEXT PRIMARY KEY, release TEXT NOT NULL, state BLOB
) STRICT;
CREATE TABLE IF NOT EXISTS study_of_items (name TEXT PRIMARY KEY) STRICT;
DROP TABLE IF EXISTS pending_wipe;
"""
_SINCE_2: Final = """
ALTER TABLE stored_limit ADD COLUMN slack TEXT NOT NULL DEFAULT '0';
DROP TABLE IF EXISTS kept;
"""
"""Table ``kept`` found earlier reports by a keyed hash of the vector, with the key in the same
file: a copy of the file confirmed guesses of vectors."""
_RESERVED: Final = -1.0
"""The time of payments for reports that are made later: before every period."""
_PENDING: Final = "CREATE TABLE IF NOT EXISTS pending_studies (id INTEGER) STRICT"

_open_ledgers: WeakSet[Ledger] = WeakSet()


def _forked() -> None:
    """Keep the parent's databases open in a forked child, to the end of the process.

    Closing one inside a transaction would delete the journal that the parent is writing.
    """
    for ledger in list(_open_ledgers):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(ledger._connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


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
    filtered : Fraction or None
        ε at the limit's slack by the filter; None if the limit has no slack.
    left : Fraction
        The largest ε of one more pure report, rounded down.
    """

    limit: Limit
    epsilon: Fraction
    delta: Fraction
    filtered: Fraction | None
    left: Fraction


class Ledger(Confined):
    """A device's record of the privacy budget it has spent, with limits that it enforces.

    Open it in the process that uses it: in a forked child every call is an error, and the child
    opens the file itself. The same holds after the file was moved, deleted or replaced.

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

    _why: ClassVar[str] = "payments of the one would be lost to the other"
    _instead: ClassVar[str] = "open the file anew, with Ledger(path) or Device.open(path),"

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
        super().__init__()
        self._path = path
        if str(path) in ("", ":memory:"):
            raise InvalidInput(f"a ledger needs a file that stays, got {str(path)!r}")
        # A program may change its folder, or a link its target.
        self._file = Path(os.path.realpath(path))
        if limits:
            create_private(path)
        with self._file_errors(), exclusive(self._file, _WAIT):
            self._identity = self._file.stat()
            self._connection = sqlite3.connect(self._file, timeout=_WAIT, isolation_level=None)
            try:
                self._check_file()
                self._check_kind(path)
                make_private(self._file)
                self._leave_wal()
                # EXTRA: a payment is on disk before spend() returns, whenever the power fails.
                self._connection.execute("PRAGMA synchronous = EXTRA")
                # What is deleted from the file is overwritten.
                self._connection.execute("PRAGMA secure_delete = ON")
                with self._transaction():
                    self._prepare(path, limits, store=store)
            except BaseException:
                self.close()
                raise
        _open_ledgers.add(self)

    def _leave_wal(self) -> None:
        """Move what versions up to 3 kept in a write-ahead log into the file, and remove the log.

        Payments in a log are lost with it: when its file is moved without it, and when SQLite takes
        the last process that uses the log for gone, as it does after a fork.
        """
        until = time.monotonic() + _WAIT
        while True:
            try:
                (mode,) = self._connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                mode = "wal"
            if mode == "delete":
                return
            if time.monotonic() > until:
                raise InvalidInput(
                    f"{self._path} is open in another program, as a ledger of an earlier version "
                    f"of offaxis; close that program first"
                )
            time.sleep(0.01)

    def _has_table(self, name: str) -> bool:
        return bool(self._rows("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)))

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _check_kind(self, path: str | Path) -> None:
        """Refuse another application's database before changing anything in it."""
        tables = self._connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        version = self._version()
        if version and version not in _READABLE:
            raise InvalidInput(f"{path} is a ledger of version {version}, not {VERSION}")
        if tables and not version:
            raise InvalidInput(f"{path} is a database, but not a ledger")
        if not tables and self._file.stat().st_size:
            raise InvalidInput(
                f"{path} is a database without tables: what it held may be in {path}-wal or "
                f"{path}-journal, in the folder from which the file was moved. Put them beside it "
                f"and open it again; if nothing was ever paid, delete it"
            )

    def _prepare(self, path: str | Path, limits: tuple[Limit, ...], *, store: bool) -> None:
        """Create the tables of a new ledger or upgrade an old one; read the stored limits."""
        version = self._version()
        if version and store:
            raise InvalidInput(f"{path} is a ledger already; its limits are not replaced")
        if not version and not limits:
            raise InvalidInput(f"{path} is empty, not a ledger; make one with Ledger.create")
        if version != VERSION:
            since_2 = _SINCE_2 if version < 3 else ""
            for statement in (_SCHEMA + since_2).split(";"):
                self._database.execute(statement)
            if version:
                self._database.execute(_PENDING)
            self._database.execute(f"PRAGMA user_version = {VERSION}")
        if store:
            self._database.executemany(
                "INSERT INTO stored_limit (epsilon, delta, seconds, slack) VALUES (?, ?, ?, ?)",
                [(str(x.epsilon), str(x.delta), x.seconds, str(x.slack)) for x in limits],
            )
        query = "SELECT epsilon, delta, seconds, slack FROM stored_limit ORDER BY id"
        rows = self._database.execute(query)
        stored = [Limit(Fraction(e), Fraction(d), since, Fraction(s)) for e, d, since, s in rows]
        self.limits: tuple[Limit, ...] = tuple(dict.fromkeys([*limits, *stored]))

    def __enter__(self) -> Self:
        """Return the ledger itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file. In a forked child, it stays open: it is the parent's."""
        _open_ledgers.discard(self)
        with suppress(InvalidInput):
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
        with self._file_errors():
            if self._database.in_transaction:
                raise InvalidInput("alone() does not nest: this ledger has an open transaction")
            with self._locked(), self._transaction():
                yield self._database

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            # Some failures have ended the transaction already, and after a fork inside it, it is
            # the parent's.
            with suppress(InvalidInput):
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file, which is the one that was opened, from beginning to end."""
        with exclusive(self._file, _WAIT):
            self._check_file()
            yield
            self._check_file()  # again: what was written to another file does not count

    @property
    def _database(self) -> sqlite3.Connection:
        """The open database, in the process that opened it."""
        self.check_process()
        return self._connection

    def _check_file(self) -> None:
        """Raise InvalidInput unless the path alone names the file: names share no journal."""
        try:
            file = self._file.stat()
            same = os.path.samestat(self._identity, file) and file.st_nlink == 1
        except FileNotFoundError:
            same = False
        if not same:
            raise InvalidInput(
                f"{self._path} was moved, deleted or replaced while this ledger was open, or has "
                f"another name. Put the file itself back, not a copy, and open it again"
            )

    def _rows(self, query: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Return the rows of a query, in the transaction if there is one."""
        with self._file_errors():
            if self._database.in_transaction:
                return self._database.execute(query, parameters).fetchall()
            with self._locked():
                return self._database.execute(query, parameters).fetchall()

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        """Raise errors of the file as InvalidInput."""
        try:
            yield
        except sqlite3.Error as error:
            raise InvalidInput(f"{self._path} cannot be used as a ledger: {error}") from None

    def costs(
        self, since: float | None = None, *, without: int = 0, reserved: bool = True
    ) -> list[Cost]:
        """Return the payments, all of them or those after a time in seconds since the epoch.

        ``without`` is the number of a payment to leave out. Payments for reports that are made
        later count as long as no time is given, unless ``reserved`` is False.
        """
        rows = self._rows(
            "SELECT epsilon, delta, SUM(reports) FROM payment WHERE paid_at > ? AND id <> ? "
            "AND (? OR paid_at <> ?) GROUP BY epsilon, delta",
            (
                float("-inf") if since is None else since,
                without,
                reserved and since is None,
                _RESERVED,
            ),
        )
        return [Cost(Fraction(e), Fraction(d), int(n)) for e, d, n in rows]

    def within(self, limit: Limit) -> list[Cost]:
        """Return the payments in a limit's period, up to now."""
        return self.costs(_since(limit, time.time()))

    def balances(self) -> list[Balance]:
        """Return what was spent under each limit, and what remains."""
        paid = [(limit, self.within(limit)) for limit in self.limits]
        return [
            Balance(limit, *basic(costs), filtered_epsilon(costs, limit.slack), limit.left(costs))
            for limit, costs in paid
        ]

    def by_release(self) -> list[Spent]:
        """Return the payments for each release, in the order of the first payment."""
        rows = self._rows(
            "SELECT release, epsilon, delta, SUM(reports), "
            "MIN(CASE WHEN paid_at = ? THEN 1e300 ELSE paid_at END), MAX(paid_at) FROM payment "
            "GROUP BY release, epsilon, delta ORDER BY MIN(id)",
            (_RESERVED,),
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

    def record(self, guarantee: Guarantee, release: str, reports: int = 1) -> None:
        """Record what was spent already, within the limits or not.

        For reports that were made elsewhere, or that turned out to cost more than was paid.

        Examples
        --------
        >>> from offaxis.privacy import Guarantee, Ledger, Limit
        >>> ledger = Ledger("other.ledger", Limit(3))
        >>> ledger.record(Guarantee(5), "from the device before this one")
        >>> ledger.balances()[0].left
        Fraction(0, 1)
        """
        as_integer(reports, "reports", 1)
        with self.alone():
            self._write(guarantee, release, reports, time.time())

    def charge(
        self, guarantee: Guarantee, release: str, reports: int = 1, *, reserved: int = 0
    ) -> int:
        """Pay like :meth:`spend`, as part of a transaction opened with :meth:`alone`.

        The payment is written together with everything else in that transaction, or not at all.
        Nothing may leave the device before the transaction has ended. Returns its number.

        ``reserved`` further reports are paid for, too, and made later: they count under lifetime
        limits now, and under limits per period from :meth:`use_reserved` on.
        """
        as_integer(reports, "reports", 1)
        if not self.limits:
            raise InvalidInput("this ledger stores no limit; open it with one, such as Limit(8)")
        now = time.time()
        self._check(guarantee, now, reports, reserved)
        if reserved:
            self._write(guarantee, release, reserved, _RESERVED)
        return self._write(guarantee, release, reports, now)

    def use_reserved(self, guarantee: Guarantee, release: str) -> int:
        """Make one reserved payment of a release count from now on; return its number.

        Part of a transaction, like :meth:`charge`.

        Raises
        ------
        BudgetExceeded
            If a limit does not admit it now, or nothing is reserved. Under limits in all, payments
            that are still reserved do not count here: a limit that was set later is kept, too.
        """
        row = self._database.execute(
            "SELECT id FROM payment WHERE release = ? AND paid_at = ?", (release, _RESERVED)
        ).fetchone()
        if row is None:
            raise BudgetExceeded(f"no payment is reserved for release {release[:8]}…")
        now = time.time()
        self._check(guarantee, now, reserved_too=False)
        self._database.execute("UPDATE payment SET reports = reports - 1 WHERE id = ?", row)
        self._database.execute("DELETE FROM payment WHERE reports = 0")
        return self._write(guarantee, release, 1, now)

    def use_again(self, guarantee: Guarantee, payment: int) -> None:
        """Make a payment count under limits per period from now on, instead of at its old time.

        For another report of a permanent answer, which adds nothing to the cost of all reports
        together, but counts in every period in which it is reported (docs/proofs.md §23). Part of a
        transaction, like :meth:`charge`.

        Raises
        ------
        BudgetExceeded
            If a limit per period does not admit it now.
        """
        now = time.time()
        self._check(guarantee, now, periods_only=True, without=payment)
        # A clock that was set back must not make it older.
        self._database.execute(
            "UPDATE payment SET paid_at = MAX(paid_at, ?) WHERE id = ?", (now, payment)
        )

    def _check(
        self,
        guarantee: Guarantee,
        now: float,
        reports: int = 1,
        reserved: int = 0,
        *,
        periods_only: bool = False,
        reserved_too: bool = True,
        without: int = 0,
    ) -> None:
        """Raise BudgetExceeded if more reports would exceed a limit."""
        if not self._database.in_transaction:
            raise InvalidInput("a payment belongs inside alone()")
        for limit in self.limits:
            if periods_only and limit.seconds is None:
                continue
            count = reports + (reserved if limit.seconds is None else 0)
            paid = self.costs(_since(limit, now), without=without, reserved=reserved_too)
            if not limit.admits([*paid, Cost(guarantee.epsilon, guarantee.delta, count)]):
                raise BudgetExceeded(
                    f"{count} more of {guarantee} would exceed the limit of {limit}; nothing "
                    f"was paid and nothing may be reported"
                )

    def _write(self, guarantee: Guarantee, release: str, reports: int, at: float) -> int:
        cursor = self._database.execute(
            "INSERT INTO payment (paid_at, release, epsilon, delta, reports) "
            "VALUES (?, ?, ?, ?, ?)",
            (at, release, str(guarantee.epsilon), str(guarantee.delta), reports),
        )
        assert cursor.lastrowid is not None, "the row was inserted"
        return cursor.lastrowid

    def has_paid_for(self, release: str) -> bool:
        """Whether any report of a release was paid for."""
        return bool(self._rows("SELECT 1 FROM payment WHERE release = ? LIMIT 1", (release,)))

    def study(self, name: str) -> tuple[str, bytes | None] | None:
        """Return the release that the person reports in a study, and the state of its sequence.

        None if the person has not sent a report per person, or of a sequence, in this study.
        """
        rows = self._rows("SELECT release, state FROM study WHERE name = ?", (name,))
        for release, state in rows:
            return str(release), None if state is None else bytes(state)
        return None

    def has_items(self, name: str) -> bool:
        """Whether the person has sent reports in a study whose promises are per report."""
        return bool(self._rows("SELECT 1 FROM study_of_items WHERE name = ?", (name,)))

    def keep_items(self, name: str) -> None:
        """Record that the person sends reports per item in a study; part of a transaction."""
        assert self._database.in_transaction, "keep_items() belongs inside alone()"
        self._database.execute(
            "INSERT INTO study_of_items VALUES (?) ON CONFLICT DO NOTHING", (name,)
        )

    @property
    def has_pending_studies(self) -> bool:
        """Whether a device must still record the studies that an older version answered."""
        return self._has_table("pending_studies") and self._has_table("answer")

    def take_pending_studies(self) -> bool:
        """Whether a device must still record the studies that an older version answered; once."""
        assert self._database.in_transaction, "take_pending_studies() belongs inside alone()"
        if not self._has_table("pending_studies"):
            return False
        self._database.execute("DROP TABLE pending_studies")
        return True

    def keep_study(self, name: str, release: str, state: bytes | None = None) -> None:
        """Record that the person reports a release in a study; part of a transaction.

        The state before is overwritten in the file.
        """
        assert self._database.in_transaction, "keep_study() belongs inside alone()"
        self._database.execute(
            "INSERT INTO study VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET release = excluded.release, state = excluded.state",
            (name, release, state),
        )

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
