"""Finished cells on the disk: a run that is killed goes on where it stopped.

``cells.jsonl`` holds one line a finished cell, appended and synced as soon as it is known. A line
that a kill cut short is no cell and is cut off. A cell is found again by the hash of everything it
depends on, so other data, weights, seeds or versions never meet old figures.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy

from offaxis.errors import InvalidInput
from offaxis.studies.advice import Advice
from offaxis.version import __version__

FILE: Final = "cells.jsonl"
FORMAT: Final = 1
"""Raised when the engine draws other numbers for the same cell."""


def versions() -> dict[str, str]:
    """Return what figures may depend on besides their inputs."""
    return {
        "offaxis": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


@dataclass(frozen=True)
class Cell:
    """One number to be: a mechanism at a budget in a setting.

    Attributes
    ----------
    setting, fingerprint : str
        Where it is measured: the source's name, and the hash of what is in it.
    mechanism : str
        The key of the mechanism.
    epsilon : float
    seeds : int
    """

    setting: str
    fingerprint: str
    mechanism: str
    epsilon: float
    seeds: int

    @property
    def id(self) -> str:
        """The hash by which it is found again."""
        parts = [FORMAT, self.fingerprint, self.mechanism, self.epsilon, self.seeds, versions()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Result:
    """A finished cell: one score a seed, and what was recommended, where something was."""

    runs: tuple[float, ...]
    advice: Advice | None = None


class Store:
    """The cells of a result folder; safe for several threads of one process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE
        self._turn = threading.Lock()
        self._results: dict[str, Result] = {}
        self._read()

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb+") as file:
            text = file.read()
            whole = text.rfind(b"\n") + 1
            if whole < len(text):
                file.truncate(whole)
        for number, line in enumerate(text[:whole].splitlines(), 1):
            try:
                entry = json.loads(line)
                runs = tuple(float(run) for run in entry["runs"])
                advice = Advice(**entry["advice"]) if "advice" in entry else None
                self._results[entry["id"]] = Result(runs, advice)
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInput(
                    f"{self._path} is damaged at line {number}: remove that line, or the file to "
                    f"compute everything again"
                ) from error

    def get(self, cell: Cell) -> Result | None:
        """Return a result, or None where the cell is not finished."""
        return self._results.get(cell.id)

    def add(self, cells: Mapping[Cell, Result]) -> None:
        """Keep finished cells; they are on the disk when this returns."""
        lines = []
        for cell, result in cells.items():
            entry: dict[str, Any] = {
                "id": cell.id,
                "setting": cell.setting,
                "mechanism": cell.mechanism,
                "epsilon": cell.epsilon,
                "runs": list(result.runs),
            }
            if result.advice is not None:
                entry["advice"] = asdict(result.advice)
            lines.append(json.dumps(entry) + "\n")
        with self._turn, self._path.open("ab") as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
            for cell, result in cells.items():
                self._results[cell.id] = result
