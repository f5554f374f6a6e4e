"""A device's rounds and answers as plain facts, and what its options say."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from offaxis.cli.ledger_facts import moment, seconds
from offaxis.client import Entry, Offer
from offaxis.errors import InvalidInput
from offaxis.privacy.composition import Limit
from offaxis.privacy.guarantee import exact_epsilon

_WAITING = ("queued", "withdrawing")


def limits_of(texts: list[str], delta: Fraction) -> list[Limit]:
    """Read limits such as ``8`` and ``1 per 30d``."""
    return [_limit(text, delta) for text in texts]


def _limit(text: str, delta: Fraction) -> Limit:
    epsilon, per, stretch = text.partition(" per ")
    return Limit(exact_epsilon(epsilon), delta, seconds(stretch) if per else None)


def token_of(path: Path) -> str:
    """Read a token from a file, not from the command line, which others can see."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read a token from {path}: {error}") from None


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
