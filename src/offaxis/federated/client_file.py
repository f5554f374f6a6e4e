"""A masked client in a file: its keys, its roster and its progress, on the disk before it answers.

Contract: a client takes one step at a time, whoever asks: threads, processes, a program that was
started anew. Progress is written and flushed when the block ends in which a step was taken, and its
answer may be sent behind that: what crashes in between costs a round, and no step is taken twice. A
file belongs to one roster, ever. Whoever copies the file or brings an older one back makes two
clients of one, which may sign twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from offaxis.errors import InvalidInput, RoundRefused
from offaxis.federated.masked_client import MaskedClient
from offaxis.federated.members import ClientKeys, Member
from offaxis.federated.roster import Roster

_KIND: Final = 0x6F66_6D63
"""SQLite's mark of whose file it is."""
_WAIT: Final = 30.0
"""Seconds to wait for another step of the same client."""

Notes = dict[str, bytes]


class ClientFile:
    """One client of masked sums, kept in a file.

    Parameters
    ----------
    path : str or Path
        Made when it is first used, readable by its owner only. As secret as the keys in it.

    Examples
    --------
    >>> from offaxis.federated import ClientFile, MaskedRound, MaskingPlan, Roster
    >>> files = [ClientFile(f"{name}.client") for name in "abc"]
    >>> plan = MaskingPlan(dim=2, clip=1, epsilon=4, delta="1e-5", rounds=1, threshold=2)
    >>> roster = Roster(plan, [file.member() for file in files])  # keys are drawn here, once
    >>> for file in files:
    ...     file.join(roster)  # after its hash was compared
    >>> round_ = MaskedRound(roster, 1)
    >>> for file in files:
    ...     with file.client() as client:  # on the disk when the block ends: send behind it
    ...         masked = client.mask(1, [0.6, 0.8])
    ...     round_.add(masked)
    >>> with ClientFile("a.client").client() as again:  # another program, perhaps
    ...     consent = again.consent(round_.survivors())
    >>> consent.name == files[0].member().name, files[0].roster_hash == roster.hash
    (True, True)
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def member(self, weight: Any = 1) -> Member:
        """Return the public side, for a roster; keys are drawn the first time.

        The name is the beginning of the public key, so that it says nothing about anybody.
        """
        with self._alone() as notes:
            keys = ClientKeys.from_bytes(notes.setdefault("keys", ClientKeys.generate().to_bytes()))
            member = _member(keys, weight)
            if "roster" not in notes:
                notes["weight"] = str(member.weight).encode()
            elif notes["weight"].decode() != str(member.weight):
                raise RoundRefused(f"this client joined with the weight {notes['weight'].decode()}")
        return member

    @property
    def roster_hash(self) -> str | None:
        """The hash of the roster that this client has joined, if any."""
        with self._alone() as notes:
            return _roster(notes["roster"]).hash if "roster" in notes else None

    def join(self, roster: Roster) -> None:
        """Take part in the sums of a roster, and of no other.

        Raises
        ------
        RoundRefused
            If the client is not in it as it said it would be, or belongs to another one.
        """
        document = roster.to_bytes()
        with self._alone() as notes:
            if "keys" not in notes:
                raise RoundRefused("this client has not enrolled; member() comes first")
            keys, weight = ClientKeys.from_bytes(notes["keys"]), Fraction(notes["weight"].decode())
            if _member(keys, weight) not in roster.members:
                raise RoundRefused("the roster does not have this client with its keys and weight")
            if notes.get("roster", document) != document:
                raise RoundRefused(
                    "this client belongs to another roster already; a new roster needs a new "
                    "file, and what it promises comes on top of what was spent"
                )
            notes["roster"] = document

    @contextmanager
    def client(self) -> Iterator[MaskedClient]:
        """Lend the client for a step; no other step is taken until the block ends.

        An answer may be sent behind the block, not inside it. A step stays taken if the block then
        fails; behind it the client that was lent takes none.
        """
        with self._alone() as notes:
            if "roster" not in notes:
                raise RoundRefused("this client has agreed to no roster")
            keys = ClientKeys.from_bytes(notes["keys"])
            roster, state = _roster(notes["roster"]), notes.get("progress")
            lent = MaskedClient(_member(keys).name, keys, roster, state=state)
            try:
                yield lent
            finally:
                lent.retire()
                notes["progress"] = lent.state()

    @contextmanager
    def _alone(self) -> Iterator[Notes]:
        """Lend all notes; what was changed is on the disk when the block ends, however it ends."""
        with self._told():
            # Opened by SQLite alone: closing a file drops all locks that a process has on it.
            with suppress(FileExistsError):
                self._path.touch(mode=0o600, exist_ok=False)
            database = sqlite3.connect(self._path, timeout=_WAIT)
        with closing(database):
            with self._told():
                # EXTRA: a step that was taken stays taken, whenever the power fails.
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("BEGIN IMMEDIATE")
                _prepare(database)
                notes: Notes = dict(database.execute("SELECT name, value FROM note"))
            before = dict(notes)
            try:
                yield notes
            finally:
                changed = [item for item in notes.items() if before.get(item[0]) != item[1]]
                with self._told():
                    database.executemany("REPLACE INTO note VALUES (?, ?)", changed)
                    database.commit()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell an error of the file as one of ours."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise InvalidInput(f"cannot use {self._path} as a client's file: {error}") from None


def _prepare(database: sqlite3.Connection) -> None:
    """Make the table in a new file; refuse a file of something else."""
    (kind,) = database.execute("PRAGMA application_id").fetchone()
    if kind == _KIND:
        return
    if kind or database.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise sqlite3.DatabaseError("it is a database of something else")
    database.execute("CREATE TABLE note (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT")
    database.execute(f"PRAGMA application_id = {_KIND}")


def _member(keys: ClientKeys, weight: Any = 1) -> Member:
    return keys.member(keys.fingerprint, weight)


@lru_cache(maxsize=4)
def _roster(document: bytes) -> Roster:
    """Read a roster; in a simulation all clients hold the same one."""
    return Roster.from_bytes(document)
