"""Ledgers by name, and what their limits look like on a command line."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from offaxis.errors import InvalidInput
from offaxis.privacy.composition import Limit
from offaxis.privacy.guarantee import exact_epsilon

if TYPE_CHECKING:
    from offaxis.privacy.ledger import Ledger

_UNITS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STRETCH: Final = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|d|w)", re.ASCII)


def open_ledger(path: Path) -> Ledger:
    """Open a ledger that is there; a mistyped name must not begin a fresh budget."""
    from offaxis.privacy.ledger import Ledger

    if not path.is_file():
        raise InvalidInput(f"there is no ledger {path}; make one with: offaxis ledger create")
    return Ledger(path)


def seconds(text: str) -> float:
    """Read a stretch of time such as 30d, 12h, 45min, 90s or 2w."""
    match = _STRETCH.fullmatch(text.strip())
    if match is None or not float(match[1]) > 0:
        raise InvalidInput(f"a stretch of time is written 30d, 12h, 45min, 90s or 2w, got {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def read_limits(texts: list[str], delta: Fraction) -> list[Limit]:
    """Read limits such as ``8`` and ``1 per 30d``."""
    return [_limit(text, delta) for text in texts]


def _limit(text: str, delta: Fraction) -> Limit:
    epsilon, per, stretch = text.partition(" per ")
    return Limit(exact_epsilon(epsilon), delta, seconds(stretch) if per else None)
