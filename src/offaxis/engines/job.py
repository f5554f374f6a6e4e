"""What a bulk job says about itself, publicly, beside the reports it made."""

from __future__ import annotations

import json
from typing import Any, Final

from offaxis.card import guarantee_facts
from offaxis.errors import InvalidInput
from offaxis.privacy.assumptions import ON_DEVICE
from offaxis.release import Release

FACTS: Final = "_offaxis.json"
"""Readers of Parquet folders pass over names that begin so."""

_BULK: Final = (
    "the machines of the job see the vectors and are trusted; the promise holds towards whoever "
    "sees the reports alone",
    "HMAC-SHA256 under the job's key, which was drawn from the operating system and destroyed when "
    "the job ended, is a pseudorandom function",
)


def job_facts(release: Release, reports: int) -> dict[str, Any]:
    """Return which release made how many reports, and what each promises towards whom."""
    promise = guarantee_facts(release)
    promise["assumptions"] = [*_BULK, *(a for a in promise["assumptions"] if a != ON_DEVICE)]
    return {
        "release": release.hash,
        "reports": reports,
        "report_bytes": release.report_size,
        "guarantee": promise,
    }


def written(facts: dict[str, Any]) -> bytes:
    """Write the facts as JSON."""
    return (json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode()


def check_ids(name: str, rows: int, present: int, distinct: int) -> None:
    """Refuse records that cannot be told apart: none may be released twice, or under no id.

    The same vector under the same id twice would get the same report, and show that it is there
    twice.
    """
    if rows == 0:
        raise InvalidInput("there are no records to privatize")
    if present < rows:
        raise InvalidInput(
            f"column {name!r} has missing ids ({rows - present:,} of {rows:,}); every record needs "
            f"one, nothing was released"
        )
    if distinct < rows:
        raise InvalidInput(
            f"column {name!r} must name every record once, but {rows:,} records have {distinct:,} "
            f"ids; nothing was released"
        )


def already_there(out: object, *, reports: bool) -> InvalidInput:
    """Say why nothing is written over what is there."""
    again = ", and making its reports again would spend the budget again: send the ones it holds,"
    return InvalidInput(
        f"{out} is already there{again if reports else ':'} choose another place, or use force"
    )


def is_input(out: object) -> InvalidInput:
    """Say why the input is not replaced."""
    return InvalidInput(f"{out} holds records of this job; choose another place")
