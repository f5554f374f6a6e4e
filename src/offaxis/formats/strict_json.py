"""Strict JSON for release files and documents: one canonical form to write, bounded to read.

Contract: untrusted text is measured before it is parsed. Time, memory and depth are bounded by this
module, not by settings of the interpreter that a program may have changed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

_MOST_CONTAINERS: Final = 100
"""The most objects and lists, and so the greatest depth; the largest release has about twenty."""

_MOST_TOKENS: Final = 2000
"""The most objects, lists, commas and strings; the largest release has about two hundred."""

_LONGEST_NUMBER: Final = 40
"""The most characters of a number; no float64 and no count of a release needs more."""

# The closing quote is optional so that an unclosed string matches too. Otherwise every escaped
# quote in it would be tried as the start of a string, in quadratic time.
_TOKEN: Final = re.compile(r'[\[{,]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def canonical_json(value: Any) -> str:
    """Write JSON in the canonical form that is hashed: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_json(text: str) -> Any:
    """Read untrusted JSON.

    Raises
    ------
    ValueError
        If the text is not JSON, has a duplicate key or a number that only Python accepts, or is
        larger or deeper than any release needs.
    """
    _measure(text)
    return json.loads(
        text,
        object_pairs_hook=_no_duplicates,
        parse_int=lambda number: int(_check_length(number)),
        parse_float=lambda number: float(_check_length(number)),
        parse_constant=_reject_constant,
    )


def _measure(text: str) -> None:
    """Reject a text with more parts than any release has, at the first part too many."""
    containers = 0
    for index, token in enumerate(_TOKEN.finditer(text)):
        containers += text[token.start()] in "[{"
        if containers > _MOST_CONTAINERS or index >= _MOST_TOKENS:
            raise ValueError("it has more parts than a release needs")


def shown(value: Any, most: int = 60) -> str:
    """Return a short, printable ASCII form of an untrusted value, safe for messages."""
    return ascii(value)[:most]


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("it has a duplicate key")
    return result


def _check_length(number: str) -> str:
    if len(number) > _LONGEST_NUMBER:
        raise ValueError(f"a number has {len(number)} characters")
    return number


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")
