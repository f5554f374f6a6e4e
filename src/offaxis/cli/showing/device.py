"""A device's rounds and answers as plain facts."""

from __future__ import annotations

from typing import Any

from offaxis.cli.showing.ledger import moment
from offaxis.client import Entry, Offer

_WAITING = ("queued", "withdrawing")


def round_facts(offer: Offer, answered: bool) -> dict[str, Any]:
    """Return a round for ``--json``."""
    round_ = offer.round
    return {
        "round": round_.name,
        "study": round_.study,
        "number": round_.number,
        "state": offer.state,
        "answered": answered,
        "opens": moment(round_.opens.timestamp())[:16],
        "closes": moment(round_.closes.timestamp())[:16],
        "groups": list(round_.groups),
        "release": round_.release,
    }


def entry_facts(entry: Entry) -> dict[str, Any]:
    """Return an answer for ``--json``, without the report itself."""
    return {
        "round": entry.round,
        "study": entry.study,
        "number": entry.number,
        "release": entry.release,
        "group": entry.group,
        "id": entry.id.hex(),
        "state": entry.state,
        "attempts": entry.attempts,
        "next_try": moment(entry.next_try) if entry.state in _WAITING else None,
        "problem": entry.problem,
    }
