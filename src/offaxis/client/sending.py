"""Sending what a device has kept, until the collector takes it or says that it never will.

Waiting grows: the n-th try comes after a time drawn uniformly up to 30 s · 2^n, at most six hours,
behind what the collector asked for. Uniform from zero, so that devices that failed together do not
come back together.
"""

from __future__ import annotations

import random
from typing import Final

from offaxis.client.entry import LONGEST_WAIT, Entry, State, is_due
from offaxis.client.outbox import Outbox
from offaxis.client.transport import Answer, Transport
from offaxis.errors import Unreachable

_FIRST_WAIT: Final = 30.0
_DOUBLINGS: Final = 20
_TAKEN: Final = (200, 201)
_GONE: Final = (200, 204, 404)
_FINAL: Final = (409, 410, 422)
_RANDOM: Final = random.SystemRandom()


def deliver(outbox: Outbox, transport: Transport, *, at_once: bool) -> list[Entry]:
    """Send what is due, or every report that waits; return what was tried, as it is now."""
    tried = set()
    for entry in outbox.entries():
        ready = is_due(entry) or (at_once and entry.state == "queued")
        if ready and outbox.claim(entry, transport.lease):
            _deliver(entry, outbox, transport)
            tried.add(entry.round)
    return [entry for entry in outbox.entries() if entry.round in tried]


def _deliver(entry: Entry, outbox: Outbox, transport: Transport) -> None:
    try:
        answer = _ask(entry, transport)
    except Unreachable as error:
        outbox.settle(entry, entry.state, str(error), backoff(entry.attempts))
        return
    state = _after(entry, answer)
    problem = "" if answer.status < 300 else answer.words
    wait = backoff(entry.attempts, answer.retry_after) if state == entry.state else 0.0
    outbox.settle(entry, state, problem, wait)


def _ask(entry: Entry, transport: Transport) -> Answer:
    path = f"/v1/rounds/{entry.round}/reports/{entry.id.hex()}"
    if entry.state == "withdrawing":
        return transport.ask("DELETE", path)
    headers = {"Content-Type": "application/octet-stream"}
    if entry.group is not None:
        headers["Offaxis-Group"] = entry.group
    return transport.ask("PUT", path, body=entry.report, headers=headers)


def _after(entry: Entry, answer: Answer) -> State:
    """Return what an entry becomes by an answer; what it was, if it is to be tried again.

    A collector that lies here loses a report, or gets the same bytes again.
    """
    final = answer.status in _FINAL and answer.problem_type != "not-open"
    if entry.state == "withdrawing":
        if answer.status in _GONE:
            return "withdrawn"
        return "sent" if final else entry.state
    if answer.status in _TAKEN:
        return "sent"
    return "refused" if final else entry.state


def backoff(attempts: int, asked: float | None = None) -> float:
    """Return seconds until the next try, after so many before the last one."""
    ceiling = min(LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(attempts, _DOUBLINGS))
    return min(LONGEST_WAIT, min(asked or 0.0, LONGEST_WAIT / 2) + _RANDOM.uniform(0.0, ceiling))
