"""A device that answers rounds: verify, pay, report once, and send until accepted.

    device = Device("my.device", "https://collect.example", publisher=KEY, limits=[Limit(8)])
    for offer in device.rounds():
        device.report(offer.round.name, lambda: encode(today))
    device.send()                       # call it periodically: it sends only what is due

Contract: whatever the collector does, the device sends at most one report per round, always the
same bytes, of a release that its own terms accept, within its own limits. Whether there is a
usable vector changes nothing that an outsider can observe.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from offaxis.client.outbox import LONGEST_WAIT, Entry, Outbox, State, is_due
from offaxis.client.reporter import usable_vector
from offaxis.client.sequences import pay_and_report, vector_needed
from offaxis.client.terms import Offer, Terms, largest_report
from offaxis.client.transport import PATIENCE, SMALL, Response, Transport
from offaxis.errors import InvalidDocument, InvalidInput, RoundRefused, Unreachable
from offaxis.formats.documents import NAME, Round
from offaxis.privacy.guarantee import Unit, exact, exact_epsilon
from offaxis.privacy.ledger import Ledger, Limit
from offaxis.release import Release

SPREAD: Final = 3600.0
"""Seconds over which first sends are spread."""

_LARGEST_EPSILON: Final = 10_000
_MAX_ATTEMPTS: Final = 3
"""Attempts to compute a vector, each of which ended the process, before giving up on it."""
_RANDOM: Final = random.SystemRandom()


class Device:
    """One person's device. Use it from one thread; several processes may share its state.

    Each process opens the device itself: in a forked child every call is an error.

    Parameters
    ----------
    state : str or Path
        A file that holds the ledger and the answers to rounds. Anyone who copies or deletes it can
        start over.
    url : str
        The collector's address.
    publisher : str, optional
        The publisher's public key, 64 hexadecimal digits. Rounds that it signed are answered.
    release : str, optional
        Hash of the only release to report. At least one of ``publisher`` and ``release`` is
        required.
    limits : sequence of Limit
        Limits on all reports together. Each must hold, and so must each limit stored in the state.
    epsilon, delta : numbers, optional
        The largest privacy cost of one report or sequence: by default the smallest limit that is
        not per period, if there is one, with δ = 0.
    unit : {"item", "user"}
        The least unit of privacy that a release must have. A release with unit "user" is answered
        once per study, or as one sequence; no other release is answered in that study.
    token : str, optional
        Authenticates the device to the collector.
    ca_file : str or Path, optional
        Certificates to trust instead of the system's.
    spread : float
        First sends wait a random time of up to this many seconds, so that an observer does not
        learn when a vector was computed.
    patience : float
        Seconds for one exchange with the collector.

    Examples
    --------
    >>> from offaxis.client import Device, Terms
    >>> from offaxis.privacy.ledger import Limit
    >>> from offaxis.formats.documents import new_key
    >>> publisher = new_key().public_key().public_bytes_raw().hex()  # known to all devices
    >>> device = Device("my.device", "http://localhost:1", publisher=publisher, limits=[Limit(8)])
    >>> device.report("energy-7", lambda: [0.1, 0.2, 0.3])  # no collector listens at this address
    Traceback (most recent call last):
        ...
    offaxis.errors.Unreachable: the request to the collector failed: ...
    >>> device.status(), device.ledger.spent()  # so nothing was made and nothing was paid
    ([], (Fraction(0, 1), Fraction(0, 1)))
    >>> device.close()

    Store the setup in the file once, then open the device by its file:

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
        ledger = Ledger(state, *limits)
        if epsilon is None and ledger.limits:
            terms = replace(terms, epsilon=str(largest_report(ledger.limits)))
        self._start(ledger, terms, transport, spread)

    @classmethod
    def create(cls, state: str | Path, terms: Terms, *limits: Limit) -> Self:
        """Create a device whose state stores its terms and limits, for :meth:`open`.

        An existing ledger with the same stored limits becomes the device's ledger; its payments
        continue to count.

        Raises
        ------
        InvalidInput
            If the state already belongs to a device, or is a ledger with other limits.
        """
        transport = terms.transport(PATIENCE)
        try:
            ledger = Ledger.create(state, *limits)
        except InvalidInput:
            # An earlier attempt may have ended between creating the ledger and storing the terms.
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
        """Open a device that :meth:`create` made."""
        ledger = Ledger(state)
        setup = Outbox(ledger).setup()
        if setup is None:
            ledger.close()
            raise InvalidInput(f"{state} is a ledger, not a device made by Device.create")
        terms = Terms.from_json(setup)
        device = cls.__new__(cls)
        device._start(ledger, terms, terms.transport(PATIENCE), SPREAD)
        return device

    def _start(self, ledger: Ledger, terms: Terms, transport: Transport, spread: float) -> None:
        self.ledger, self.terms = ledger, terms
        self._transport, self._spread = transport, spread
        self._outbox = Outbox(ledger)

    def __enter__(self) -> Self:
        """Return the device."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the state."""
        self.close()

    def close(self) -> None:
        """Close the state."""
        self.ledger.close()

    def rounds(self) -> list[Offer]:
        """Return the collector's rounds that this device trusts.

        The others are left out, because a collector may serve several publishers.

        Raises
        ------
        Unreachable
            If the collector does not respond as specified.
        """
        return _fetch_offers(self._transport, self.terms)

    def report(self, round_name: str, vector: Any, group: str | None = None) -> Entry:
        """Answer a round, once: verify it, pay, make the report and keep it for sending.

        A round is answered only once. A second call returns the same entry, pays nothing and does
        not evaluate the vector. :meth:`send` sends the report after a random time, and then the
        device forgets its bytes.

        Parameters
        ----------
        round_name : str
        vector : array (m,), or a callable that returns one
            For a release of pairs, ``{"vector": vector, "answers": answers}``, with answers as in
            :meth:`offaxis.Release.pairs`.

            An unusable vector (None, a callable that raises, NaN, a wrong dimension, an unknown
            answer) becomes a report of the public mean, so that nobody learns of it. So does a
            callable that ended the process three times.
        group : str, optional
            One of the round's groups, if it has any. It is not private.

        Raises
        ------
        RoundRefused, InvalidDocument, InvalidRelease
            If this device does not accept the round or its release.
        BudgetExceeded
            If the report would exceed a limit.
        Unreachable
            If the collector does not respond. In all cases nothing is paid and nothing is sent.
        """
        if not re.fullmatch(NAME, round_name):
            raise InvalidInput(f"{round_name!r} is not a valid name of a round")
        kept = self._outbox.find(round_name)
        if kept is not None and kept.answered:
            return kept
        round_ = _fetch_round(self._transport, self.terms, round_name)
        if group not in (round_.groups or (None,)):
            allowed = f"one of {', '.join(round_.groups)}" if round_.groups else "None"
            raise InvalidInput(
                f"the group for round {round_name} must be {allowed}, got group={group!r}"
            )
        release = self._release(round_.release)
        return self._answer(round_, release, vector, group)

    def _answer(self, round_: Round, release: Release, vector: Any, group: str | None) -> Entry:
        study, number = round_.study, round_.number
        needed = vector_needed(self.ledger, release, study, number)
        attempts = self._outbox.begin(round_, group)
        # An attempt that ends the process here stays counted, so a fatal vector is given up on.
        source = vector if attempts <= _MAX_ATTEMPTS else None
        usable = usable_vector(release, source) if needed else None

        def make() -> bytes:
            return pay_and_report(self.ledger, release, study, number, usable)

        wait = self._first_wait(round_)
        try:
            return self._outbox.answer(round_, make, group=group, wait=wait)
        except BaseException:
            self._outbox.abandon(round_)
            raise

    def _first_wait(self, round_: Round) -> float:
        """Return the seconds until the first send. The clock affects timing and nothing else."""
        left = round_.closes.timestamp() - time.time()
        return _RANDOM.uniform(0.0, min(self._spread, left / 2) if left > 0 else self._spread)

    def _release(self, release_hash: str) -> Release:
        content = self._outbox.release(release_hash)
        if content is not None:
            return self.terms.accept(content, release_hash)
        content = _fetch_release(self._transport, release_hash)
        release = self.terms.accept(content, release_hash)
        self._outbox.keep_release(release_hash, content)
        return release

    def send(self, *, at_once: bool = False) -> list[Entry]:
        """Send what is due, withdraw what is to be withdrawn, and return what was attempted.

        Call it periodically; it never waits. A report that the collector does not accept is sent
        again with the same bytes, at growing intervals, until the collector rejects it for good.

        Parameters
        ----------
        at_once : bool
            Send every queued report, even if it is not due. This reveals to an observer of the
            traffic when the report was made.
        """
        return _deliver_all(self._outbox, self._transport, at_once=at_once)

    def withdraw(self, round_name: str) -> Entry:
        """Withdraw a report; :meth:`send` informs the collector if the bytes may have left.

        The payment stands, and the round is not answered again.
        """
        return self._outbox.withdraw(round_name)

    def status(self) -> list[Entry]:
        """Return every round that was answered or begun, with its state."""
        return self._outbox.entries()


# ---- Requests to the collector

LARGEST_RELEASE: Final = 1 << 28
"""Largest release that a device fetches, in bytes."""

_LARGEST_LIST: Final = 8 * SMALL
_RELEASE_PATIENCE: Final = 10.0
"""Multiple of the usual patience, for a release."""


def _fetch_json(collector: Transport, path: str) -> dict[str, Any]:
    """Return the JSON object at a path of the collector.

    Raises
    ------
    Unreachable
        If the collector does not return one.
    """
    response = collector.request("GET", path, largest=_LARGEST_LIST)
    if response.status != 200:
        raise Unreachable(f"the collector did not return {path}: {response.message}")
    try:
        value = json.loads(response.body)
    except (ValueError, RecursionError):
        raise Unreachable(f"the collector's response to {path} is not JSON") from None
    if not isinstance(value, dict):
        raise Unreachable(f"the collector's response to {path} is not a JSON object")
    return value


def _fetch_release(collector: Transport, release_hash: str) -> bytes:
    """Return the bytes that the collector serves for a release; the caller must verify them.

    Raises
    ------
    Unreachable
        If the collector does not return any.
    """
    path = f"/v1/releases/{release_hash}"
    response = collector.request("GET", path, largest=LARGEST_RELEASE, patience=_RELEASE_PATIENCE)
    if response.status != 200:
        raise Unreachable(f"the collector did not return the release: {response.message}")
    return response.body


def _fetch_offers(collector: Transport, terms: Terms) -> list[Offer]:
    """Return the collector's rounds that the terms accept.

    Raises
    ------
    Unreachable
        If the collector does not respond as specified.
    """
    listed = _fetch_json(collector, "/v1/rounds").get("rounds")
    if not isinstance(listed, list):
        raise Unreachable("the collector's response has no list of rounds")
    offers = []
    for entry in listed:
        try:
            offers.append(terms.offer(entry))
        except (InvalidDocument, RoundRefused):
            # A collector may serve several publishers.
            continue
    return offers


def _fetch_round(collector: Transport, terms: Terms, name: str) -> Round:
    """Return the round with this name if the terms accept it and it is not closed.

    Raises
    ------
    RoundRefused, InvalidDocument
        If the collector returns another round, a closed one, or one that the terms do not accept.
    Unreachable
        If the collector does not respond as specified.
    """
    offer = terms.offer(_fetch_json(collector, f"/v1/rounds/{name}"))
    if offer.round.name != name:
        raise RoundRefused(f"the collector returned round {offer.round.name} for {name}")
    if offer.state == "closed":
        raise RoundRefused(f"round {name} is closed")
    return offer.round


# ---- Sending

_FIRST_WAIT: Final = 30.0
_DOUBLINGS: Final = 20
_ACCEPTED: Final = (200, 201)
_GONE: Final = (200, 204, 404)
_FINAL: Final = (409, 410, 422)


def _deliver_all(outbox: Outbox, transport: Transport, *, at_once: bool) -> list[Entry]:
    """Send what is due, or every queued report; return the attempted entries as they are now."""
    attempted = set()
    for entry in outbox.entries():
        ready = is_due(entry) or (at_once and entry.state == "queued")
        if ready and outbox.claim(entry, transport.lease):
            _deliver(entry, outbox, transport)
            attempted.add(entry.round)
    return [entry for entry in outbox.entries() if entry.round in attempted]


def _deliver(entry: Entry, outbox: Outbox, transport: Transport) -> None:
    try:
        response = _request(entry, transport)
    except Unreachable as error:
        outbox.settle(entry, entry.state, str(error), backoff(entry.attempts))
        return
    state = _next_state(entry, response)
    problem = "" if response.status < 300 else response.message
    wait = backoff(entry.attempts, response.retry_after) if state == entry.state else 0.0
    outbox.settle(entry, state, problem, wait)


def _request(entry: Entry, transport: Transport) -> Response:
    path = f"/v1/rounds/{entry.round}/reports/{entry.id.hex()}"
    if entry.state == "withdrawing":
        return transport.request("DELETE", path)
    headers = {"Content-Type": "application/octet-stream"}
    if entry.group is not None:
        headers["Offaxis-Group"] = entry.group
    return transport.request("PUT", path, body=entry.report, headers=headers)


def _next_state(entry: Entry, response: Response) -> State:
    """Return an entry's state after a response; the same state means that it is tried again.

    A collector that lies here loses a report, or gets the same bytes again.
    """
    final = response.status in _FINAL and response.problem_type != "not-open"
    if entry.state == "withdrawing":
        if response.status in _GONE:
            return "withdrawn"
        return "sent" if final else entry.state
    if response.status in _ACCEPTED:
        return "sent"
    return "refused" if final else entry.state


def backoff(attempts: int, retry_after: float | None = None) -> float:
    """Return the seconds until the next attempt, given the number of attempts before the last.

    The wait after attempt n is uniform on [0, 30 s · 2^n], at most six hours in total, and is added
    to the collector's Retry-After. It starts at zero so that devices that failed together do not
    return together.
    """
    ceiling = min(LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(attempts, _DOUBLINGS))
    requested = min(retry_after or 0.0, LONGEST_WAIT / 2)
    return min(LONGEST_WAIT, requested + _RANDOM.uniform(0.0, ceiling))
