"""What every request needs to know, in memory: tokens, rounds and their releases.

All of it is read from the database again every second, so what another process closes or revokes is
known here a second or two later. If that fails for too long, nothing is accepted: a round that was
closed meanwhile must not look open.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import Final

from offaxis.collector.auth import Tokens
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.store import Store, StoredRound
from offaxis.formats.artifact import from_bytes
from offaxis.release import Release

EVERY: Final = 1.0
"""Seconds between two readings."""

_STALE: Final = 10.0
_MOST_RELEASES: Final = 16


class Catalogue:
    """A view of the database that is a second old at most, while the database answers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = threading.Lock()
        self._releases: dict[str, Release] = {}
        self._by_key: dict[int, StoredRound] = {}
        self._rounds: dict[str, StoredRound] = {}
        self._tokens: Tokens = {}
        self._read = float("-inf")

    def refresh(self) -> None:
        """Read tokens and rounds again."""
        with self._turn:
            began = time.monotonic()
            tokens = self._store.valid_tokens()
            self._by_key = self._store.rounds(self._by_key)
            self._rounds = {one.document.name: one for one in self._by_key.values()}
            self._tokens = tokens
            self._read = began

    @property
    def tokens(self) -> Tokens:
        """Valid tokens by hash."""
        if time.monotonic() - self._read > _STALE:
            raise unavailable()
        return self._tokens

    @property
    def rounds(self) -> dict[str, StoredRound]:
        """All rounds by name."""
        return self._rounds

    def round(self, name: str) -> StoredRound:
        """Return a round, or say that there is none."""
        found = self._rounds.get(name)
        if found is None:
            raise Problem("not-found", "there is no such round")
        return found

    def ready(self, hash_: str) -> Release | None:
        """Return a release if it is in memory."""
        return self._releases.get(hash_)

    def release(self, hash_: str) -> Release:
        """Return a release, from the database if need be."""
        found = self._releases.get(hash_)
        if found is None:
            stored = self._store.release_file(hash_)
            if stored is None:
                raise Problem("not-found", "there is no such release")
            found = from_bytes(stored[0], expect=hash_)
            with self._turn:
                while len(self._releases) >= _MOST_RELEASES:
                    self._releases.pop(next(iter(self._releases)))
                self._releases[hash_] = found
        return found


def state_facts(one: StoredRound, now: datetime) -> dict[str, str | None]:
    """Return what changes about a round."""
    closed = None if one.closed_at is None else one.closed_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"state": one.state(now), "closed_at": closed}
