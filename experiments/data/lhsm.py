"""London household smart meters: mean half-hourly energy by household and day, bundled.

The bundled file contains every reading rounded to 0.002 kWh (``STEP``), so each is within 0.001 kWh
of the source; the README next to it states the effect on a forecast. A local copy of the Kaggle
tables is stored unrounded in the cache and then replaces the bundled file.
"""

from __future__ import annotations

import csv
import zipfile
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import IO, Final

import numpy as np

from experiments.data.cache import Arrays, Progress, fingerprint, read_sealed, write_sealed
from experiments.data.sets import MeterReadings
from offaxis.errors import InvalidInput

BUNDLED: Final = "lhsm.npz"
FINGERPRINT: Final = "38fe849bbad3c59104a00b1fff30fe9230267dbc5f78c8cf3a53c90c092463c4"
"""Fingerprint of the arrays in the bundled file."""
STEP: Final = 0.002
LOCAL_COPY: Final = (
    "Kaggle's smart-meters-in-london: daily_dataset.csv, or the folder with its block_*.csv"
)

_CACHED = "lhsm.safetensors"


def pack(readings: MeterReadings, file: IO[bytes]) -> None:
    """Write readings rounded to ``STEP``, as differences from day to day, byte by byte.

    ``numpy.load`` reads the result; its arrays are packed with LZMA.
    """
    present = ~np.isnan(readings.energy)
    steps = np.rint(readings.energy[present].astype(np.float64) / STEP).astype(np.int64)
    change = np.diff(steps, prepend=0)
    # The sign is the lowest bit, so that small changes are small numbers.
    folded = np.where(change >= 0, 2 * change, -2 * change - 1).astype(np.uint16)
    numbers = [int(household.removeprefix("MAC")) for household in readings.households]
    arrays: Arrays = {
        "households": np.array(numbers, np.uint16),
        "first_day": np.array(readings.first_day.isoformat()),
        "days": np.array(readings.energy.shape[1], np.int64),
        "present": np.packbits(present),
        "low": (folded & 255).astype(np.uint8),
        "high": (folded >> 8).astype(np.uint8),
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            # ZipInfo has a fixed date: the same readings give the same file.
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = zipfile.ZIP_LZMA
            with archive.open(entry, "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def unpack(file: IO[bytes], expected: str) -> MeterReadings:
    """Read what ``pack`` wrote; an error unless it has the expected fingerprint."""
    with np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if fingerprint(arrays) != expected:
        raise InvalidInput(
            "the bundled smart-meter readings are damaged; restore experiments/data/lhsm.npz"
        )
    folded = arrays["high"].astype(np.int64) << 8 | arrays["low"]
    steps = np.cumsum(np.where(folded & 1, -((folded + 1) >> 1), folded >> 1))
    households, days = len(arrays["households"]), int(arrays["days"])
    present = np.unpackbits(arrays["present"], count=households * days).astype(bool)
    energy = np.full(households * days, np.nan, np.float32)
    energy[present] = (steps * STEP).astype(np.float32)
    return MeterReadings(
        tuple(f"MAC{number:06d}" for number in arrays["households"]),
        date.fromisoformat(str(arrays["first_day"])),
        energy.reshape(households, days),
        step=STEP,
    )


def store_local(cache: Path, readings: MeterReadings) -> Path:
    """Store a local copy, unrounded, in the cache."""
    names = np.array([household.encode() for household in readings.households])
    arrays: Arrays = {
        "energy": readings.energy,
        "households": names.view(np.uint8).reshape(len(names), -1),
        "first_day": np.array(readings.first_day.toordinal()),
    }
    write_sealed(cache / _CACHED, arrays)
    return cache / _CACHED


def local_path(cache: Path) -> Path | None:
    """Return the path of the local copy in the cache, or None."""
    path = cache / _CACHED
    return path if path.exists() else None


def load_lhsm(cache: Path) -> MeterReadings:
    """Return the local copy in the cache if there is one, else the bundled readings."""
    if local_path(cache) is None:
        with files("experiments").joinpath("data", BUNDLED).open("rb") as file:
            return unpack(file, FINGERPRINT)
    arrays = read_sealed(cache / _CACHED)
    if arrays is None:
        raise InvalidInput(
            f"{cache / _CACHED} is damaged; delete it to use the bundled readings, or run "
            "python -m experiments data get lhsm --from PATH again"
        )
    return MeterReadings(
        tuple(bytes(name).rstrip(b"\0").decode() for name in arrays["households"]),
        date.fromordinal(int(arrays["first_day"])),
        arrays["energy"],
    )


# ---- The daily tables of Kaggle's ``smart-meters-in-london``
#
# One line is one day of one household. Days without all of their 48 half-hours are NaN; households
# without any complete day are left out. Rows are households by name; columns are all days from the
# first one in the tables to the last, complete or not.

COLUMNS: Final = ("LCLid", "day", "energy_mean", "energy_count")

_WHOLE_DAY = 48
_TABLE = "daily_dataset.csv"


def tables(path: Path) -> list[Path]:
    """Return the tables of a local copy: the one file, or all blocks of a folder."""
    if not path.is_dir():
        return [path]
    for folder in (path, path / "daily_dataset", path / "daily_dataset" / "daily_dataset"):
        if (folder / _TABLE).is_file():
            return [folder / _TABLE]
        if blocks := sorted(folder.glob("block_*.csv")):
            return blocks
    raise InvalidInput(f"{path} has neither {_TABLE} nor block_*.csv; give {LOCAL_COPY}")


def read_tables(path: Path, progress: Progress) -> MeterReadings:
    """Build the grid of complete days from a local copy."""
    readings: dict[str, dict[int, float]] = {}
    ordinals: dict[str, int] = {}
    sources = tables(path)
    for done, source in enumerate(sources):
        progress(f"reading {source.name}", done, len(sources))
        _read_table(source, readings, ordinals)
    if not readings:
        raise InvalidInput(f"{path} has no day with {_WHOLE_DAY} half-hours; give {LOCAL_COPY}")
    households = sorted(readings)
    first, last = min(ordinals.values()), max(ordinals.values())
    energy = np.full((len(households), last - first + 1), np.nan, np.float32)
    for row, household in enumerate(households):
        days = readings[household]
        energy[row, np.fromiter(days, np.int64) - first] = list(days.values())
    return MeterReadings(tuple(households), date.fromordinal(first), energy)


def _read_table(
    source: Path, readings: dict[str, dict[int, float]], ordinals: dict[str, int]
) -> None:
    """Add the complete days of a table to ``readings``, and all its days to ``ordinals``."""
    try:
        with source.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            if missing := [column for column in COLUMNS if column not in header]:
                raise InvalidInput(f"{source} has no column {missing[0]}; give {LOCAL_COPY}")
            at_name, at_day, at_mean, at_count = (header.index(column) for column in COLUMNS)
            for line in lines:
                day = line[at_day]
                if day not in ordinals:
                    ordinals[day] = date.fromisoformat(day[:10]).toordinal()
                if float(line[at_count] or 0) == _WHOLE_DAY:
                    readings.setdefault(line[at_name], {})[ordinals[day]] = float(line[at_mean])
    except (ValueError, IndexError, csv.Error, UnicodeError) as error:
        # InvalidInput is a ValueError with a message of ours.
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"cannot read {source}, line {lines.line_num}: {error}") from error
