"""Timing that states its conditions: the best of several turns, in one process, on one machine."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from offaxis.version import __version__

_ROUNDS = 3
"""Fewest turns of every contender."""


def best_seconds(action: Callable[[], Any], repeats: int = 5) -> float:
    """Return the shortest of several runs, after one to warm up."""
    action()
    return min(_seconds(action) for _ in range(repeats))


def take_turns(
    actions: Mapping[str, Callable[[], Any]], seconds: float, rounds: int = _ROUNDS
) -> dict[str, float]:
    """Return the shortest run of each action; they take turns, so that a busy spell hits them all.

    One run of each warms up. Then there are at least ``rounds`` rounds, and more while ``seconds``
    have not passed.
    """
    for action in actions.values():
        action()
    best = dict.fromkeys(actions, float("inf"))
    started, done = time.perf_counter(), 0
    while done < rounds or time.perf_counter() - started < seconds:
        for name, action in actions.items():
            best[name] = min(best[name], _seconds(action))
        done += 1
    return best


def _seconds(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def conditions() -> dict[str, Any]:
    """Return what a figure depends on."""
    return {
        "offaxis": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": platform.machine(),
        "cores": _cores(),
        "dtype": "float64",
        # Windows keeps no such average.
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _cores() -> int | None:
    """Return how many cores this process may use; a machine may have more."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def publish(name: str, figures: list[dict[str, Any]], out: str | None) -> None:
    """Print a script's figures as a table and, when asked, write them as JSON.

    Raises
    ------
    SystemExit
        With status 1, if a figure missed its target.
    """
    record: dict[str, Any] = {"conditions": conditions(), "figures": figures}
    lines = [f"# {name}: " + ", ".join(f"{k} {v}" for k, v in record["conditions"].items())]
    width = max(len(f["what"]) for f in figures)
    for figure in figures:
        value = f"{figure['value']:>12,.4g} {figure['unit']:<14}"
        mark = "" if figure.get("met", True) else "   MISSED"
        lines.append(f"{figure['what']:<{width}}  {value} {figure.get('target', '')}{mark}")
    sys.stdout.write("\n".join(lines) + "\n")
    if out:
        Path(out).write_text(json.dumps(record, indent=1, default=bool))
    if not all(figure.get("met", True) for figure in figures):
        raise SystemExit(1)
