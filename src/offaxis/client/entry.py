"""One answered round of a device: its report, and what became of it."""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass
from typing import Final, Literal

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
