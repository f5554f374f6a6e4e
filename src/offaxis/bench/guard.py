"""A guard against getting slower: ratios of a run beside recorded ones, never seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from offaxis.errors import InvalidInput

FRACTION: Final = 0.5
"""Machines differ and are shared: a ratio may fall to half before the guard speaks."""

MEASUREMENTS: Final = 3
"""So many times something must be found slower before the guard says so."""

Ratios = Mapping[str, float]


class Fallen(NamedTuple):
    """A ratio that is too far below the recorded one."""

    name: str
    recorded: float
    now: float


def read_ratios(path: Path) -> dict[str, float]:
    """Read the ratios of a file that ``offaxis bench --record`` or ``--json`` wrote."""
    try:
        ratios = json.loads(path.read_text(encoding="utf-8"))["ratios"]
        found = {str(name): float(ratio) for name, ratio in ratios.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInput(
            f"{path} holds no recorded ratios; write such a file with offaxis bench --record FILE"
        ) from error
    if not all(0 < ratio < float("inf") for ratio in found.values()):
        raise InvalidInput(f"{path} holds a ratio that is not positive; record it again")
    return found


def fallen(now: Ratios, recorded: Ratios, fraction: float = FRACTION) -> list[Fallen]:
    """Return the ratios below ``fraction`` of the recorded ones.

    Only what was measured both times is compared: a rival may be missing here.

    Raises
    ------
    InvalidInput
        If nothing was measured both times, because then nothing is guarded.
    """
    both = [name for name in recorded if name in now]
    if not both:
        raise InvalidInput(
            "no recorded ratio was measured in this run, so nothing is guarded; "
            "measure the groups that were recorded, or record again"
        )
    return [
        Fallen(name, recorded[name], now[name])
        for name in both
        if now[name] < fraction * recorded[name]
    ]


def judge(
    groups: Mapping[str, Ratios],
    recorded: Ratios,
    again: Callable[[str], Ratios],
    fraction: float = FRACTION,
) -> list[Fallen]:
    """Return what fell, and fell again whenever its group was measured once more.

    Other work on the machine may slow one run. What became slower is slow in all.
    """
    now = {name: ratio for ratios in groups.values() for name, ratio in ratios.items()}
    for _ in range(MEASUREMENTS - 1):
        suspects = {entry.name for entry in fallen(now, recorded, fraction)}
        for group in [name for name, ratios in groups.items() if suspects & ratios.keys()]:
            now |= {name: max(ratio, now.get(name, 0.0)) for name, ratio in again(group).items()}
    return fallen(now, recorded, fraction)
