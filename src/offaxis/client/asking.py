"""What a device asks a collector for, and what it takes for an answer."""

from __future__ import annotations

import json
from typing import Any, Final

from offaxis.client.terms import Offer, Terms
from offaxis.client.transport import SMALL, Transport
from offaxis.errors import InvalidDocument, RoundRefused, Unreachable
from offaxis.formats.documents import Round

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
