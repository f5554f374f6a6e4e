"""A device that answers rounds: it verifies, pays, reports once, and sends until it is accepted."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from offaxis.client.outbox import LONGEST_WAIT, Entry, Outbox, State, is_due, reserve
from offaxis.client.reporter import usable_vector
from offaxis.client.terms import Offer, Terms
from offaxis.client.transport import PATIENCE, SMALL, Answer, Transport
from offaxis.errors import InvalidDocument, InvalidInput, RoundRefused, Unreachable
from offaxis.formats.documents import NAME, Round
from offaxis.privacy.guarantee import Unit, exact, exact_epsilon
from offaxis.privacy.ledger import Ledger, Limit
from offaxis.release import Release

# ----------------------------------------------------------------------------
# What a device asks a collector for, and what it takes for an answer.

LARGEST_RELEASE: Final = 1 << 28
"""Bytes of a release that a device fetches."""

_LISTED: Final = 8 * SMALL
_SLOW: Final = 10.0
"""Times the usual patience, for a release."""


def ask_json(collector: Transport, path: str) -> dict[str, Any]:
    """Return the object that the collector gives at a path.

    Raises
    ------
    Unreachable
        If it does not answer as a collector does.
    """
    answer = collector.ask("GET", path, largest=_LISTED)
    if answer.status != 200:
        raise Unreachable(f"the collector does not give {path}: {answer.words}")
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise Unreachable(f"the collector answers no JSON to {path}") from None
    if not isinstance(found, dict):
        raise Unreachable(f"the collector answers no object to {path}")
    return found


def ask_release(collector: Transport, release_hash: str) -> bytes:
    """Return the bytes that the collector gives for a release; whoever uses them checks them.

    Raises
    ------
    Unreachable
        If it gives none.
    """
    path = f"/v1/releases/{release_hash}"
    answer = collector.ask("GET", path, largest=LARGEST_RELEASE, patience=_SLOW)
    if answer.status != 200:
        raise Unreachable(f"the collector does not give the release: {answer.words}")
    return answer.body


def ask_offers(collector: Transport, terms: Terms) -> list[Offer]:
    """Return the rounds that the collector offers and the terms believe; others are left out.

    Raises
    ------
    Unreachable
        If the collector does not answer as one does.
    """
    listed = ask_json(collector, "/v1/rounds").get("rounds")
    if not isinstance(listed, list):
        raise Unreachable("the collector lists no rounds")
    offers = []
    for entry in listed:
        try:
            offers.append(terms.offer(entry))
        except (InvalidDocument, RoundRefused):
            # A collector may serve several publishers.
            continue
    return offers


def ask_round(collector: Transport, terms: Terms, name: str) -> Round:
    """Return the round of that name, if the terms believe it and it is not closed.

    Raises
    ------
    RoundRefused, InvalidDocument
        If it is another round, a closed one, or not to be believed.
    Unreachable
        If the collector does not answer as one does.
    """
    offer = terms.offer(ask_json(collector, f"/v1/rounds/{name}"))
    if offer.round.name != name:
        raise RoundRefused(f"the collector gives round {offer.round.name} for {name}")
    if offer.state == "closed":
        raise RoundRefused(f"round {name} is closed")
    return offer.round


# ----------------------------------------------------------------------------
# Sending what a device has kept, until the collector takes it or says that it never will.
#
# Waiting grows: the n-th try comes after a time drawn uniformly up to 30 s · 2^n, at most six
# hours, behind what the collector asked for. Uniform from zero, so that devices that failed
# together do not come back together.

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


# ----------------------------------------------------------------------------
# A device that answers rounds: it verifies, pays, reports once, and sends until it is taken.
#
#     device = Device("my.device", "https://collect.example", publisher=KEY, limits=[Limit(8)])
#     for offer in device.rounds():
#         device.report(offer.round.name, lambda: encode(today))
#     device.send()                       # again and again: what is due, and only that
#
# Contract: whatever the collector does, the device sends at most one report a round, always the
# same bytes, of a release that its own terms accept, within its own limits. Whether there is a
# usable vector changes nothing that can be seen from outside.

SPREAD: Final = 3600.0
"""Seconds over which first sends are spread."""

_LARGEST_EPSILON: Final = 10_000
_TRIES: Final = 3


class Device:
    """One person's device. Use it from one thread; processes may share its state.

    Parameters
    ----------
    state : str or Path
        A file: the ledger, and beside it what was answered. Whoever copies or deletes it can
        start over.
    url : str
        The collector's address.
    publisher : str, optional
        The publisher's public key, 64 hexadecimal digits: its rounds are answered.
    release : str, optional
        Hash of the only release that is reported. One of the two must be given.
    limits : sequence of Limit
        For all reports together; with those the state stores, each must hold.
    epsilon, delta : numbers, optional
        The most that one report may promise away: by default the smallest limit, and pure.
    unit : {"item", "user"}
        What a release must be made for. Of one "for users" a single round is answered, ever.
    token : str, optional
        By which the collector knows its devices.
    ca_file : str or Path, optional
        Certificates to trust instead of the system's.
    spread : float
        First sends wait a random time of up to so many seconds: nobody sees when a vector was made.
    patience : float
        Seconds for one exchange with the collector.

    Examples
    --------
    >>> from offaxis.client import Device, Terms
    >>> from offaxis.privacy.ledger import Limit
    >>> from offaxis.formats.documents import new_key
    >>> publisher = new_key().public_key().public_bytes_raw().hex()  # known to all devices
    >>> device = Device("my.device", "http://localhost:1", publisher=publisher, limits=[Limit(8)])
    >>> device.rounds()  # nobody listens there
    Traceback (most recent call last):
        ...
    offaxis.errors.Unreachable: the collector could not be asked: ...
    >>> device.report("energy-7", lambda: [0.1, 0.2, 0.3])  # so nothing is made, nor paid for
    Traceback (most recent call last):
        ...
    offaxis.errors.Unreachable: the collector could not be asked: ...
    >>> device.withdraw("energy-7")
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: round energy-7 was not answered; there is no report
    >>> device.send(), device.status(), device.ledger.spent()
    ([], [], (Fraction(0, 1), Fraction(0, 1)))
    >>> device.close()

    Set up once, and opened by its file ever after:

    >>> terms = Terms("https://collect.example", epsilon="3", publisher=publisher)
    >>> Device.create("stored.device", terms, Limit(8)).close()
    >>> with Device.open("stored.device") as device:
    ...     device.terms == terms
    True
    """

    def __init__(
        self,
        state: str | Path,
        url: str,
        *,
        publisher: str | None = None,
        release: str | None = None,
        limits: Sequence[Limit] = (),
        epsilon: Any = None,
        delta: Any = 0,
        unit: Unit = "item",
        token: str | None = None,
        ca_file: str | Path | None = None,
        spread: float = SPREAD,
        patience: float = PATIENCE,
    ) -> None:
        terms = Terms(
            url,
            str(exact_epsilon(_LARGEST_EPSILON if epsilon is None else epsilon)),
            str(exact(delta, "delta")),
            unit,
            publisher,
            release,
            token,
            None if ca_file is None else str(ca_file),
        )
        transport = terms.transport(patience)
        if limits:
            reserve(state)
        ledger = Ledger(state, *limits)
        if epsilon is None and ledger.limits:
            smallest = min(limit.epsilon for limit in ledger.limits)
            terms = replace(terms, epsilon=str(smallest))
        self._start(ledger, terms, transport, spread)

    @classmethod
    def create(cls, state: str | Path, terms: Terms, *limits: Limit) -> Self:
        """Make a device whose state stores its terms and limits, for :meth:`open`.

        A ledger with the same stored limits becomes the device's: what it has paid counts on.

        Raises
        ------
        InvalidInput
            If the state is a device's already, or a ledger with other limits.
        """
        transport = terms.transport(PATIENCE)
        if limits:
            reserve(state)
        try:
            ledger = Ledger.create(state, *limits)
        except InvalidInput:
            # Perhaps an earlier attempt ended between making the ledger and keeping the terms.
            ledger = Ledger(state)
            if ledger.limits != limits or Outbox(ledger).setup() is not None:
                ledger.close()
                raise
        device = cls.__new__(cls)
        device._start(ledger, terms, transport, SPREAD)
        device._outbox.keep_setup(terms.to_json())
        return device

    @classmethod
    def open(cls, state: str | Path) -> Self:
        """Open what :meth:`create` made."""
        ledger = Ledger(state)
        setup = Outbox(ledger).setup()
        if setup is None:
            ledger.close()
            raise InvalidInput(f"{state} is a ledger, but no device that Device.create made")
        terms = Terms.from_json(setup)
        device = cls.__new__(cls)
        device._start(ledger, terms, terms.transport(PATIENCE), SPREAD)
        return device

    def _start(self, ledger: Ledger, terms: Terms, transport: Transport, spread: float) -> None:
        self.ledger, self.terms = ledger, terms
        self._transport, self._spread = transport, spread
        self._outbox = Outbox(ledger)

    def __enter__(self) -> Self:
        """Return the device itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the state."""
        self.close()

    def close(self) -> None:
        """Close the state."""
        self.ledger.close()

    def rounds(self) -> list[Offer]:
        """Return the rounds that the collector offers and this device believes.

        Others are left out: a collector may serve several publishers.

        Raises
        ------
        Unreachable
            If the collector does not answer as one does.
        """
        return ask_offers(self._transport, self.terms)

    def report(self, round_name: str, vector: Any, group: str | None = None) -> Entry:
        """Answer a round, once: verify it, pay, make the report and keep it to be sent.

        A round that was answered is not answered again: what was kept is returned, nothing is
        paid, and the vector is not looked at. :meth:`send` sends it, after a random time.

        Parameters
        ----------
        round_name : str
        vector : array (m,), or a callable that returns one
            What cannot be used (None, a callable that fails, NaN, another dimension) becomes a
            report of the public mean, so that nobody learns of it. So does a callable that ended
            the process three times.
        group : str, optional
            One of the round's, if it has any; everybody may know it.

        Raises
        ------
        RoundRefused, InvalidDocument, InvalidRelease
            If the round or its release is not what this device accepts.
        BudgetExceeded
            If a limit does not allow it.
        Unreachable
            If the collector does not answer. In all cases nothing is paid and nothing sent.
        """
        if not re.fullmatch(NAME, round_name):
            raise InvalidInput(f"{round_name!r} is no name of a round")
        known = self._outbox.find(round_name)
        if known is not None and known.report:
            return known
        round_ = ask_round(self._transport, self.terms, round_name)
        if group not in (round_.groups or (None,)):
            wanted = f"is one of {', '.join(round_.groups)}" if round_.groups else "is not wanted"
            raise InvalidInput(f"the group for round {round_name} {wanted}, got group={group!r}")
        release = self._release(round_.release)
        return self._answered(round_, release, vector, group)

    def _answered(self, round_: Round, release: Release, vector: Any, group: str | None) -> Entry:
        begun = self._outbox.begin(round_, group)
        # Whatever ends the process here has been begun and not ended: it is given up after a while.
        usable = usable_vector(release, vector if begun <= _TRIES else None)

        def make() -> bytes:
            report = release.privatize(usable)
            assert isinstance(report, bytes), "one vector gives one report"
            return report

        wait = self._first_wait(round_)
        try:
            return self._outbox.answer(round_, release.guarantee, make, group=group, wait=wait)
        except BaseException:
            self._outbox.abandon(round_)
            raise

    def _first_wait(self, round_: Round) -> float:
        """Return how long to wait; the clock only paces, it decides nothing."""
        left = round_.closes.timestamp() - time.time()
        return _RANDOM.uniform(0.0, min(self._spread, left / 2) if left > 0 else self._spread)

    def _release(self, release_hash: str) -> Release:
        kept = self._outbox.release(release_hash)
        if kept is not None:
            return self.terms.accept(kept, release_hash)
        found = ask_release(self._transport, release_hash)
        release = self.terms.accept(found, release_hash)
        self._outbox.keep_release(release_hash, found)
        return release

    def send(self, *, at_once: bool = False) -> list[Entry]:
        """Send what is due, and withdraw what is to be withdrawn; return what was tried.

        Call it now and then; it never waits. What the collector does not take is tried again
        later and later, with the same bytes, until it says that it never will.

        Parameters
        ----------
        at_once : bool
            Send every report that waits, even if its time has not come: whoever sees the traffic
            then learns when it was made.
        """
        return deliver(self._outbox, self._transport, at_once=at_once)

    def withdraw(self, round_name: str) -> Entry:
        """Ask for a report back; :meth:`send` tells the collector if its bytes may have left.

        What was paid stays paid, and the round is not answered again.
        """
        return self._outbox.withdraw(round_name)

    def status(self) -> list[Entry]:
        """Return every round that was answered or begun, and what became of it."""
        return self._outbox.entries()
