"""The rounds that a device has answered, their reports and their state, in the ledger's file.

Contract: a round has one report, ever. It is paid for and kept in one transaction, so a crash
leaves both or neither, and it can be sent only after that. Every attempt sends the same bytes. When
they are not needed any more, they are overwritten: reports of one permanent answer together reveal
it, long after the ledger has forgotten it.

    begun ──▶ queued ──▶ sent, or refused: the collector will never accept it
                └──────▶ withdrawing ──▶ withdrawn       also from sent and refused
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from offaxis.errors import InvalidInput, InvalidRelease, RoundRefused
from offaxis.formats import release_file
from offaxis.formats.documents import Round
from offaxis.privacy.guarantee import Unit
from offaxis.privacy.ledger import Ledger
from offaxis.sampling.entropy import fresh_key

State = Literal["begun", "queued", "sent", "refused", "withdrawing", "withdrawn"]

LONGEST_WAIT: Final = 6 * 3600.0
"""Longest time between two attempts, in seconds. A later ``next_try`` came from a wrong clock."""

_LABEL: Final = b"offaxis report v1\0"


@dataclass(frozen=True)
class Entry:
    """A round that was answered or begun, as :meth:`Device.report` and ``status`` return it.

    Attributes
    ----------
    round, study, number, release, group
        From the round's document; the group is the device's.
    id : bytes
        Identifies the report at the collector, 32 bytes.
    report : bytes
        The bytes to send, while the state is "queued"; empty before and after.
    state : State
    attempts : int
        Number of attempts to send it, counted before its bytes leave.
    next_try : float
        Earliest time of the next attempt, in seconds.
    problem : str
        Why the last attempt failed.

    Examples
    --------
    >>> from offaxis.client import Entry
    >>> document = ("energy-7", "energy", 7, "0af1" * 16, "north")
    >>> sending = {"state": "queued", "attempts": 0, "next_try": 0.0, "problem": ""}
    >>> entry = Entry(*document, id=bytes(32), report=b"OX...", **sending)
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

    @property
    def answered(self) -> bool:
        """Whether a report was made, whatever became of it."""
        return self.state != "begun"


def report_id(secret: bytes, round_name: str) -> bytes:
    """Return HMAC-SHA-256(secret, "offaxis report v1" NUL round): one id per device and round."""
    return hmac.digest(secret, _LABEL + round_name.encode(), hashlib.sha256)


def is_due(entry: Entry) -> bool:
    """Whether an entry waits to be sent or withdrawn and its time has come."""
    if entry.state not in ("queued", "withdrawing"):
        return False
    return not 0 < entry.next_try - time.time() <= LONGEST_WAIT


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


class Outbox:
    """The answers of one device to rounds."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        with ledger.alone() as database:
            for statement in _SCHEMA.split(";"):
                database.execute(statement)
            if ledger.take_pending_studies():
                self._keep_studies(database)
                # Older versions kept the bytes of every report.
                database.execute(
                    "UPDATE answer SET report = NULL WHERE state NOT IN ('begun', 'queued')"
                )
        self._secret = ledger.secret(fresh_key())

    def _keep_studies(self, database: sqlite3.Connection) -> None:
        """Record the studies that older versions answered, and whether per person or per report."""
        answered = database.execute(
            "SELECT answer.study, hash, content FROM answer JOIN release ON release = hash "
            "WHERE state <> 'begun' ORDER BY answer.rowid"
        ).fetchall()
        for study, release_hash, content in answered:
            if self._ledger.study(study) is not None:
                continue
            if _unit(bytes(content)) == "user":
                self._ledger.keep_study(study, release_hash)
            else:
                self._ledger.keep_items(study)

    def find(self, round_name: str) -> Entry | None:
        """Return the entry of a round, if there is one."""
        with self._ledger.alone() as database:
            return _find(database, round_name)

    def entries(self) -> list[Entry]:
        """Return all entries, in the order in which they were begun."""
        with self._ledger.alone() as database:
            rows = database.execute(f"SELECT {_FIELDS} FROM answer ORDER BY rowid").fetchall()
        return [_entry(row) for row in rows]

    def begin(self, round_: Round, group: str | None) -> int:
        """Record that a round is about to be answered; return how many times it was begun.

        Raises
        ------
        RoundRefused
            If the round had another document before, or a later round of its study was answered.
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
                "UPDATE answer SET begun = begun + 1 WHERE round = ? AND state = 'begun'",
                (round_.name,),
            )
            row = database.execute(
                "SELECT begun FROM answer WHERE round = ?", (round_.name,)
            ).fetchone()
        return int(row[0])

    def abandon(self, round_: Round) -> None:
        """Reset the count of a round that ended in an error, as opposed to a crash."""
        with self._ledger.alone() as database:
            database.execute("UPDATE answer SET begun = 0 WHERE round = ?", (round_.name,))

    def answer(
        self, round_: Round, make: Callable[[], bytes], *, group: str | None, wait: float
    ) -> Entry:
        """Keep a round's report, or return the report already kept.

        Parameters
        ----------
        make : callable
            Pays for the report in the ledger and makes it, in the same transaction.

        Raises
        ------
        RoundRefused
            As :meth:`begin`, or if the person already reported under one promise per person.
        BudgetExceeded
            If the report would exceed a limit. Nothing is paid and nothing is made.
        """
        with self._ledger.alone() as database:
            self._check(database, round_)
            begun = _find(database, round_.name)
            if begun is None:
                raise InvalidInput(f"round {round_.name} was not begun")
            if begun.answered:
                return begun
            report = make()
            self._ledger.check_process()  # again: what makes the report may fork
            database.execute(
                "UPDATE answer SET report = ?, label = ?, state = 'queued', next_try = ? "
                "WHERE round = ?",
                (report, group, time.time() + wait, round_.name),
            )
            answered = _find(database, round_.name)
        assert answered is not None, "the same transaction found it before"
        return answered

    def _check(self, database: sqlite3.Connection, round_: Round) -> None:
        """Raise RoundRefused for a round that was replaced or rolled back."""
        row = database.execute(
            "SELECT document, state <> 'begun' FROM answer WHERE round = ?", (round_.name,)
        ).fetchone()
        if row is not None and bytes(row[0]) != round_.to_bytes():
            raise RoundRefused(f"round {round_.name} was replaced: its document has changed")
        if row is not None and row[1]:
            return
        (highest,) = database.execute(
            "SELECT MAX(number) FROM answer WHERE study = ? AND state <> 'begun'", (round_.study,)
        ).fetchone()
        if highest is not None and round_.number <= highest:
            raise RoundRefused(
                f"round {round_.name} is number {round_.number} of study {round_.study}, in which "
                f"number {highest} was already answered"
            )

    def claim(self, entry: Entry, lease: float) -> bool:
        """Record that an entry is about to be sent; return False if another process was first."""
        with self._ledger.alone() as database:
            update = database.execute(
                "UPDATE answer SET attempts = attempts + 1, next_try = ? "
                "WHERE round = ? AND state = ? AND attempts = ?",
                (time.time() + lease, entry.round, entry.state, entry.attempts),
            )
            return update.rowcount == 1

    def settle(self, entry: Entry, state: State, problem: str = "", wait: float = 0.0) -> None:
        """Record the outcome of a claimed entry, unless it was withdrawn meanwhile.

        The bytes of a report that is not sent again are overwritten.
        """
        with self._ledger.alone() as database:
            database.execute(
                "UPDATE answer SET state = ?, problem = ?, next_try = ?, "
                "report = CASE WHEN ? THEN report END WHERE round = ? AND state = ?",
                (
                    state,
                    problem,
                    time.time() + wait,
                    state == "queued",
                    entry.round,
                    entry.state,
                ),
            )

    def withdraw(self, round_name: str) -> Entry:
        """Withdraw a report: at once if its bytes never left, else through the collector.

        Its bytes are overwritten; the collector finds it by its id.

        Raises
        ------
        InvalidInput
            If the round was not answered.
        """
        with self._ledger.alone() as database:
            answered = _find(database, round_name)
            if answered is None or not answered.answered:
                raise InvalidInput(f"round {round_name} was not answered; no report to withdraw")
            if answered.state in ("queued", "sent", "refused"):
                # next_try stays: another process may be sending right now, under a lease.
                database.execute(
                    "UPDATE answer SET state = ?, report = NULL WHERE round = ?",
                    ("withdrawing" if answered.attempts else "withdrawn", round_name),
                )
            withdrawn = _find(database, round_name)
        assert withdrawn is not None, "the same transaction found it before"
        return withdrawn

    def release(self, release_hash: str) -> bytes | None:
        """Return the file of a release that :meth:`keep_release` kept."""
        with self._ledger.alone() as database:
            row = database.execute(
                "SELECT content FROM release WHERE hash = ?", (release_hash,)
            ).fetchone()
        return bytes(row[0]) if row else None

    def keep_release(self, release_hash: str, content: bytes) -> None:
        """Keep the file of a release; the first one kept under a hash stays."""
        with self._ledger.alone() as database:
            database.execute(
                "INSERT INTO release VALUES (?, ?) ON CONFLICT DO NOTHING", (release_hash, content)
            )

    def setup(self) -> str | None:
        """Return the terms that :meth:`keep_setup` kept."""
        with self._ledger.alone() as database:
            row = database.execute("SELECT setup FROM device").fetchone()
        return str(row[0]) if row else None

    def keep_setup(self, setup: str) -> None:
        """Keep the terms that the device was set up with."""
        with self._ledger.alone() as database:
            database.execute("INSERT INTO device VALUES (?)", (setup,))


def _unit(content: bytes) -> Unit:
    """Return the unit of a stored release; one that cannot be read counts as per person."""
    try:
        return release_file.from_bytes(content, with_plugins=False).unit
    except InvalidRelease:
        return "user"


def _find(database: sqlite3.Connection, round_name: str) -> Entry | None:
    row = database.execute(
        f"SELECT {_FIELDS} FROM answer WHERE round = ?", (round_name,)
    ).fetchone()
    return None if row is None else _entry(row)


def _entry(row: Any) -> Entry:
    fields = list(row)
    fields[6] = bytes(fields[6] or b"")
    return Entry(*fields)
