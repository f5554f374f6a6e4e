"""JSON as release files hold it: one form only to write, and no surprise to read.

Untrusted text is measured before it is parsed, so that time, memory and depth are bounded by this
file and not by settings of the interpreter that a program may have changed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

_MOST_CONTAINERS: Final = 100
"""Objects and lists together, and so the depth too; the largest release has about twenty."""

_MOST_TOKENS: Final = 2000
"""Objects, lists, commas and strings together; the largest release has about two hundred."""

_LONGEST_NUMBER: Final = 40
"""Characters; no float64 and no count of a release needs more."""

# The closing quote is optional so that an unclosed string matches too. Otherwise every escaped
# quote in it would be tried as a beginning, in quadratic time.
_TOKEN: Final = re.compile(r'[\[{,]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def canonical_json(value: Any) -> str:
    """Write JSON in the one form that is hashed: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_json(text: str) -> Any:
    """Read untrusted JSON.

    Raises
    ------
    ValueError
        If the text is not JSON, has a key twice or a number that only Python would accept, or is
        larger or deeper than anything a release needs.
    """
    _measure(text)
    return json.loads(
        text,
        object_pairs_hook=_no_duplicates,
        parse_int=_integer,
        parse_float=_float,
        parse_constant=_refuse,
    )


def _measure(text: str) -> None:
    """Refuse a text of more parts than any release has, at the first one too many."""
    containers = 0
    for index, token in enumerate(_TOKEN.finditer(text)):
        containers += text[token.start()] in "[{"
        if containers > _MOST_CONTAINERS or index >= _MOST_TOKENS:
            raise ValueError("it has more parts than a release needs")


def shown(value: Any) -> str:
    """Return what a message may show of an untrusted value: a short line, nothing that steers."""
    return ascii(value)[:60]


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice")
    return result


def _short(number: str) -> str:
    if len(number) > _LONGEST_NUMBER:
        raise ValueError(f"a number has {len(number)} characters")
    return number


def _integer(number: str) -> int:
    return int(_short(number))


def _float(number: str) -> float:
    return float(_short(number))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")
