"""What a person's device has spent, kept in a file that survives crashes.

Contract: a report that left the device is in the ledger. The cost is written and flushed to the
disk *before* the report is made, so a crash in between costs budget and releases nothing; the other
way round cannot happen. What would pass a limit is refused, and nothing is written then. Several
processes may share one file: spending is one transaction.

The file is an SQLite database with one row a payment and one a kept report. It holds no vector, but
kept reports and the key they are found by stay on the device.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from offaxis.errors import BudgetExceeded, InvalidInput
from offaxis.privacy.composition import Cost, basic, within
from offaxis.privacy.guarantee import Guarantee, decimal, exact, exact_delta, exact_epsilon

VERSION: Final = 1
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
"""


@dataclass(frozen=True)
class Limit:
    """A budget for all reports together, ever or within any ``seconds``.

    Attributes
    ----------
    epsilon : Fraction
    delta : Fraction
        0 for a pure total; a small δ lets many small budgets be counted by their loss
        distributions, which assumes that no budget is chosen by looking at earlier reports.
    seconds : float or None
        None: for ever. Otherwise a schedule: in any stretch of so many seconds. Such a limit alone
        bounds no lifetime total.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Read the numbers exactly."""
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        delta = exact(self.delta, "delta")
        object.__setattr__(self, "delta", exact_delta(delta) if delta else delta)
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidInput(f"seconds must be positive, got seconds={self.seconds!r}")

    def __str__(self) -> str:
        """Return for example ``ε = 8 in all`` or ``ε = 1, δ = 1e-06 in 86400 s``."""
        tail = f", δ = {decimal(self.delta)}" if self.delta else ""
        return f"ε = {decimal(self.epsilon)}{tail} in " + (
            "all" if self.seconds is None else f"{self.seconds:g} s"
        )


class Ledger:
    """A device's ledger.

    Parameters
    ----------
    path : str or Path
        The file; made if it is not there.
    limits : Limit, one or more
        Each must hold. The limits are not stored: they are the deployment's, and a later version
        may set stricter ones.
    """

    def __init__(self, path: str | Path, *limits: Limit) -> None:
        if not limits:
            raise InvalidInput("a ledger needs at least one limit, for example Limit(8)")
        self.limits = limits
        self._database = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
        # FULL: a payment is on the disk before spend() returns.
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        with self._alone():
            found = self._database.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, VERSION):
                raise InvalidInput(f"{path} is a ledger of version {found}, not {VERSION}")
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version = {VERSION}")

    def __enter__(self) -> Self:
        """Return the ledger itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the only right to write; everything inside is written, or nothing."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def costs(self, since: float | None = None) -> list[Cost]:
        """Return what was paid, all of it or since a time in seconds."""
        rows = self._database.execute(
            "SELECT epsilon, delta, SUM(reports) FROM payment WHERE paid_at > ? "
            "GROUP BY epsilon, delta",
            (float("-inf") if since is None else since,),
        )
        return [Cost(Fraction(e), Fraction(d), int(n)) for e, d, n in rows]

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
        if reports < 1:
            raise InvalidInput(f"reports must be at least 1, got {reports}")
        cost = Cost(guarantee.epsilon, guarantee.delta, reports)
        with self._alone():
            now = time.time()
            for limit in self.limits:
                since = None if limit.seconds is None else now - limit.seconds
                if not within([*self.costs(since), cost], limit.epsilon, limit.delta):
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
        with self._alone():
            kept = self.kept_report(release, key)
            if kept is not None:
                return kept
            self._database.execute("INSERT INTO kept VALUES (?, ?, ?)", (release, key, report))
        return report

    def secret(self, fresh: bytes) -> bytes:
        """Return the device's secret for keys, which is ``fresh`` the first time."""
        with self._alone():
            row: Any = self._database.execute("SELECT key FROM secret").fetchone()
            if row:
                return bytes(row[0])
            self._database.execute("INSERT INTO secret VALUES (?)", (fresh,))
        return fresh
