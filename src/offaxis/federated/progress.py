"""How far a client of masked sums has come: what it must never forget."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from offaxis.errors import InvalidDocument, RoundRefused
from offaxis.federated.roster import Roster
from offaxis.formats.strict_json import canonical_json


@dataclass(frozen=True)
class Progress:
    """What a client must remember; every step replaces it before its answer is returned."""

    roster: str
    round_number: int = -1
    stage: Literal["idle", "masked", "signed"] = "idle"
    opened: int = 0
    self_seed: str = ""
    survivors: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Write it down; secret while a round is under way."""
        return canonical_json(asdict(self)).encode()


def read_progress(state: bytes, roster: Roster) -> Progress:
    """Read what :meth:`Progress.to_bytes` wrote; refuse that of another roster."""
    try:
        fields = json.loads(state)
        fields["survivors"] = tuple(fields["survivors"])
        found = Progress(**fields)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidDocument(f"this is no state of a masked client: {error}") from None
    if found.roster != roster.hash:
        raise RoundRefused(
            "this client belongs to another roster; a changed roster needs new clients, and its "
            "budget comes on top of what was spent"
        )
    return found
