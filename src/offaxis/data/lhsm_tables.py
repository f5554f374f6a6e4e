"""Reading the daily tables of Kaggle's ``smart-meters-in-london`` into one grid.

A line is a household's day. Days that lack one of their 48 half-hours are NaN; households without
any whole day are left out. Rows are households by name, columns all days from the first line's to
the last line's, whole or not.
"""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path
from typing import Final

import numpy as np

from offaxis.data.lhsm import OWN_COPY
from offaxis.data.parts import Progress
from offaxis.data.sets import MeterReadings
from offaxis.errors import InvalidInput

COLUMNS: Final = ("LCLid", "day", "energy_mean", "energy_count")

_WHOLE_DAY = 48
_TABLE = "daily_dataset.csv"


def tables(path: Path) -> list[Path]:
    """Return the tables of an own copy: the one file, or all blocks of a folder."""
    if not path.is_dir():
        return [path]
    for folder in (path, path / "daily_dataset", path / "daily_dataset" / "daily_dataset"):
        if (folder / _TABLE).is_file():
            return [folder / _TABLE]
        if blocks := sorted(folder.glob("block_*.csv")):
            return blocks
    raise InvalidInput(f"{path} has neither {_TABLE} nor block_*.csv; give {OWN_COPY}")


def read_tables(path: Path, progress: Progress) -> MeterReadings:
    """Build the grid of whole days from an own copy."""
    found: dict[str, dict[int, float]] = {}
    ordinals: dict[str, int] = {}
    sources = tables(path)
    for done, source in enumerate(sources):
        progress(f"reading {source.name}", done, len(sources))
        _read_table(source, found, ordinals)
    if not found:
        raise InvalidInput(f"{path} has no day with {_WHOLE_DAY} half-hours; give {OWN_COPY}")
    households = sorted(found)
    first, last = min(ordinals.values()), max(ordinals.values())
    energy = np.full((len(households), last - first + 1), np.nan, np.float32)
    for row, household in enumerate(households):
        days = found[household]
        energy[row, np.fromiter(days, np.int64) - first] = list(days.values())
    return MeterReadings(tuple(households), date.fromordinal(first), energy)


def _read_table(source: Path, found: dict[str, dict[int, float]], ordinals: dict[str, int]) -> None:
    """Add the whole days of a table to ``found``, and the numbers of all its days to the rest."""
    try:
        with source.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            if missing := [column for column in COLUMNS if column not in header]:
                raise InvalidInput(f"{source} has no column {missing[0]}; give {OWN_COPY}")
            at_name, at_day, at_mean, at_count = (header.index(column) for column in COLUMNS)
            for line in lines:
                day = line[at_day]
                if day not in ordinals:
                    ordinals[day] = date.fromisoformat(day[:10]).toordinal()
                if float(line[at_count] or 0) == _WHOLE_DAY:
                    found.setdefault(line[at_name], {})[ordinals[day]] = float(line[at_mean])
    except (ValueError, IndexError, csv.Error, UnicodeError) as error:
        # InvalidInput is a ValueError, and already says what is wrong.
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"cannot read {source}, line {lines.line_num}: {error}") from error
