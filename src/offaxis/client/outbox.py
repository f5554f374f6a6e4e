"""One answered round of a device: its report, and what became of it."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from offaxis.errors import InvalidInput, RoundRefused
from offaxis.formats.documents import Round
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger
from offaxis.sampling.entropy import fresh_key

State = Literal["begun", "queued", "sent", "refused", "withdrawing", "withdrawn"]

LONGEST_WAIT: Final = 6 * 3600.0
"""Seconds between two tries. A time further ahead was written by a clock that was wrong."""

_LABEL: Final = b"offaxis report v1\0"


@dataclass(frozen=True)
class Entry:
    """A round that was answered, or begun to be.

    Attributes
    ----------
    round, study, number, release, group
        From the round's document; the group is the device's.
    id : bytes
        Under which the collector knows the report, 32 bytes.
    report : bytes
        Empty while it is only begun.
    state : State
    attempts : int
        Times its bytes were about to be sent.
    next_try : float
        Not to be sent before this time, in seconds.
    problem : str
        Why it was not taken, the last time.

    Examples
    --------
    >>> from offaxis.client import Entry
    >>> about = ("energy-7", "energy", 7, "0af1" * 16, "north")
    >>> sending = {"state": "queued", "attempts": 0, "next_try": 0.0, "problem": ""}
    >>> entry = Entry(*about, id=bytes(32), report=b"OX...", **sending)  # as Device.report() has it
    >>> entry.round, entry.state, entry.group
    ('energy-7', 'queued', 'north')
    """

    round: str
    study: str
    number: int
    release: str
    group: str | None
    id: bytes
    report: bytes
    state: State
    attempts: int
    next_try: float
    problem: str


def report_id(secret: bytes, round_name: str) -> bytes:
    """Return HMAC-SHA-256(secret, "offaxis report v1" NUL round): one id a device and round."""
    return hmac.digest(secret, _LABEL + round_name.encode(), hashlib.sha256)


def is_due(entry: Entry) -> bool:
    """Whether an entry waits to be sent or withdrawn, and its time has come."""
    if entry.state not in ("queued", "withdrawing"):
        return False
    return not 0 < entry.next_try - time.time() <= LONGEST_WAIT


# ----------------------------------------------------------------------------
# Which rounds a device has answered, with what, and what became of it; in the ledger's own file.
#
# Contract: a round has one report, ever. It is paid for and kept in one transaction, so a crash
# leaves both or neither, and it can be sent only after that. What is sent again is the same bytes.
#
#     begun ──▶ queued ──▶ sent, or refused: the collector will never take it
#                 └──────▶ withdrawing ──▶ withdrawn       also from sent and refused

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS answer (
    round TEXT PRIMARY KEY, study TEXT NOT NULL, number INTEGER NOT NULL, document BLOB NOT NULL,
    release TEXT NOT NULL, label TEXT, id BLOB NOT NULL, report BLOB, state TEXT NOT NULL,
    begun INTEGER NOT NULL, attempts INTEGER NOT NULL, next_try REAL NOT NULL, problem TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS release (hash TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS device (setup TEXT NOT NULL) STRICT
"""
_FIELDS: Final = (
    "round, study, number, release, label, id, report, state, attempts, next_try, problem"
)


def reserve(state: str | Path) -> None:
    """Make the file before SQLite does, readable by its owner only."""
    try:
        Path(state).touch(mode=0o600)
    except OSError as error:
        raise InvalidInput(f"cannot write {state}: {error.strerror or error}") from None


class Outbox:
    """The answers of one device."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        with ledger.alone() as database:
            for statement in _SCHEMA.split(";"):
                database.execute(statement)
        self._secret = ledger.secret(fresh_key())

    def find(self, round_name: str) -> Entry | None:
        """Return what is known of a round."""
        with self._ledger.alone() as database:
            return _find(database, round_name)

    def entries(self) -> list[Entry]:
        """Return everything, in the order it was begun."""
        with self._ledger.alone() as database:
            rows = database.execute(f"SELECT {_FIELDS} FROM answer ORDER BY rowid").fetchall()
        return [_entry(row) for row in rows]

    def begin(self, round_: Round, group: str | None) -> int:
        """Write down that a round is about to be answered; return how often that was begun.

        Raises
        ------
        RoundRefused
            If the round was known with another document, or its study has gone on.
        """
        with self._ledger.alone() as database:
            self._check(database, round_)
            database.execute(
                "INSERT INTO answer VALUES (?, ?, ?, ?, ?, ?, ?, NULL, 'begun', 0, 0, 0.0, '') "
                "ON CONFLICT DO NOTHING",
                (
                    round_.name,
                    round_.study,
                    round_.number,
                    round_.to_bytes(),
                    round_.release,
                    group,
                    report_id(self._secret, round_.name),
                ),
            )
            database.execute(
                "UPDATE answer SET begun = begun + 1 WHERE round = ? AND report IS NULL",
                (round_.name,),
            )
            row = database.execute(
                "SELECT begun FROM answer WHERE round = ?", (round_.name,)
            ).fetchone()
        return int(row[0])

    def abandon(self, round_: Round) -> None:
        """Forget how often a round was begun: this time it ended in an error, not in silence."""
        with self._ledger.alone() as database:
            database.execute("UPDATE answer SET begun = 0 WHERE round = ?", (round_.name,))

    def answer(
        self,
        round_: Round,
        guarantee: Guarantee,
        make: Callable[[], bytes],
        *,
        group: str | None,
        wait: float,
    ) -> Entry:
        """Pay for a round's report, make it and keep it, or return the one that is kept.

        Raises
        ------
        RoundRefused
            As :meth:`begin`, or if its release may be answered only once and was.
        BudgetExceeded
            If the ledger does not allow it. Nothing is paid and nothing made.
        """
        with self._ledger.alone() as database:
            self._check(database, round_)
            known = _find(database, round_.name)
            if known is None:
                raise InvalidInput(f"round {round_.name} was not begun")
            if known.report:
                return known
            if guarantee.unit == "user":
                _check_only(database, round_)
            self._ledger.charge(guarantee, round_.release)
            database.execute(
                "UPDATE answer SET report = ?, label = ?, state = 'queued', next_try = ? "
                "WHERE round = ?",
                (make(), group, time.time() + wait, round_.name),
            )
            found = _find(database, round_.name)
        assert found is not None, "it was there before"
        return found

    def _check(self, database: sqlite3.Connection, round_: Round) -> None:
        """Refuse a round that was replaced, or that leads back."""
        row = database.execute(
            "SELECT document, report IS NOT NULL FROM answer WHERE round = ?", (round_.name,)
        ).fetchone()
        if row is not None and bytes(row[0]) != round_.to_bytes():
            raise RoundRefused(f"round {round_.name} was replaced: it is not what it was before")
        if row is not None and row[1]:
            return
        (highest,) = database.execute(
            "SELECT MAX(number) FROM answer WHERE study = ? AND report IS NOT NULL", (round_.study,)
        ).fetchone()
        if highest is not None and round_.number <= highest:
            raise RoundRefused(
                f"round {round_.name} is number {round_.number} of study {round_.study}, in which "
                f"number {highest} was answered already"
            )

    def claim(self, entry: Entry, lease: float) -> bool:
        """Write down that an entry is about to be sent; False if another process was first."""
        with self._ledger.alone() as database:
            done = database.execute(
                "UPDATE answer SET attempts = attempts + 1, next_try = ? "
                "WHERE round = ? AND state = ? AND attempts = ?",
                (time.time() + lease, entry.round, entry.state, entry.attempts),
            )
            return done.rowcount == 1

    def settle(self, entry: Entry, state: State, problem: str = "", wait: float = 0.0) -> None:
        """Write down what became of a claimed entry, unless it was withdrawn meanwhile."""
        with self._ledger.alone() as database:
            database.execute(
                "UPDATE answer SET state = ?, problem = ?, next_try = ? "
                "WHERE round = ? AND state = ?",
                (state, problem, time.time() + wait, entry.round, entry.state),
            )

    def withdraw(self, round_name: str) -> Entry:
        """Withdraw a report: at once if its bytes never left, else the collector is to be told.

        Raises
        ------
        InvalidInput
            If the round was not answered.
        """
        with self._ledger.alone() as database:
            known = _find(database, round_name)
            if known is None or not known.report:
                raise InvalidInput(f"round {round_name} was not answered; there is no report")
            if known.state in ("queued", "sent", "refused"):
                # The time stays: somebody may be sending just now, under a lease.
                database.execute(
                    "UPDATE answer SET state = ? WHERE round = ?",
                    ("withdrawing" if known.attempts else "withdrawn", round_name),
                )
            found = _find(database, round_name)
        assert found is not None, "it was there before"
        return found

    def release(self, release_hash: str) -> bytes | None:
        """Return the file of a release that was fetched before."""
        with self._ledger.alone() as database:
            row = database.execute(
                "SELECT content FROM release WHERE hash = ?", (release_hash,)
            ).fetchone()
        return bytes(row[0]) if row else None

    def keep_release(self, release_hash: str, content: bytes) -> None:
        """Keep the file of a release, which stays what it is."""
        with self._ledger.alone() as database:
            database.execute(
                "INSERT INTO release VALUES (?, ?) ON CONFLICT DO NOTHING", (release_hash, content)
            )

    def setup(self) -> str | None:
        """Return what :meth:`keep_setup` kept."""
        with self._ledger.alone() as database:
            row = database.execute("SELECT setup FROM device").fetchone()
        return str(row[0]) if row else None

    def keep_setup(self, setup: str) -> None:
        """Keep how the device was set up."""
        with self._ledger.alone() as database:
            database.execute("INSERT INTO device VALUES (?)", (setup,))


def _check_only(database: sqlite3.Connection, round_: Round) -> None:
    row = database.execute(
        "SELECT round FROM answer WHERE release = ? AND report IS NOT NULL", (round_.release,)
    ).fetchone()
    if row is not None:
        raise RoundRefused(
            f"the release of round {round_.name} is for one report a person, and round {row[0]} "
            f"was answered with it"
        )


def _find(database: sqlite3.Connection, round_name: str) -> Entry | None:
    row = database.execute(
        f"SELECT {_FIELDS} FROM answer WHERE round = ?", (round_name,)
    ).fetchone()
    return None if row is None else _entry(row)


def _entry(row: Any) -> Entry:
    fields = list(row)
    fields[6] = bytes(fields[6] or b"")
    return Entry(*fields)
