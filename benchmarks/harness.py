"""Timing that states its conditions: best of several runs, in one process, on a named machine."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import offaxis


def best_seconds(action: Callable[[], Any], repeats: int = 5) -> float:
    """Return the shortest of several runs, after one to warm up."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def conditions() -> dict[str, Any]:
    """Return what a figure depends on."""
    return {
        "offaxis": offaxis.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "dtype": "float64",
        "load_average": round(os.getloadavg()[0], 2),
    }


def publish(name: str, figures: list[dict[str, Any]], out: str | None) -> None:
    """Print figures as a table and, when asked, write them as JSON."""
    print(f"# {name}: " + ", ".join(f"{k} {v}" for k, v in conditions().items()))
    width = max(len(f["what"]) for f in figures)
    missed = False
    for figure in figures:
        target = figure.get("target", "")
        mark = "" if figure.get("met", True) else "   MISSED"
        missed |= not figure.get("met", True)
        value = f"{figure['value']:>12,.4g} {figure['unit']:<14}"
        print(f"{figure['what']:<{width}}  {value} {target}{mark}")
    record = {"conditions": conditions(), "figures": figures}
    if out:
        Path(out).write_text(json.dumps(record, indent=1, default=bool))
    if missed:
        sys.exit(1)
