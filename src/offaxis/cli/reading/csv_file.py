"""Numbers from a .csv file, with or without a header row; what is ambiguous is an error."""

from __future__ import annotations

import csv
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput

_BLOCK = 1 << 20
_EXACT = 2.0**53
"""Whole numbers below this are exact in float64."""


def read_csv(path: Path, name: str | None = None) -> NDArray[Any]:
    """Return the rows of a file, (n, columns): int64 if no number has a point, else float64."""
    skip = 0
    try:
        skip = _lines_before_data(path)
        with path.open(encoding="utf-8-sig") as file, warnings.catch_warnings():
            # A file without rows is refused later, by those who know what they wanted to read.
            warnings.filterwarnings("ignore", "loadtxt: input contained no data", UserWarning)
            table = np.loadtxt(
                file, delimiter=",", skiprows=skip, ndmin=2, comments=None, dtype=np.float64
            )
        whole = _only_whole_numbers(path, skip)
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"{path} is not a table of numbers separated by commas{_place(str(error), skip)}"
        ) from None
    if whole and np.abs(table).max(initial=0.0) < _EXACT:
        return table.astype(np.int64)
    return table


def _place(message: str, skip: int) -> str:
    """Say where NumPy stumbled, without the cell itself: it may be private."""
    found = re.search(r"row (\d+), column (\d+)", message)
    if found:
        # NumPy counts data rows from 0 and columns from 1.
        return f": see row {int(found[1]) + skip + 1}, column {found[2]} of the file"
    found = re.search(r"columns changed from (\d+) to (\d+)", message)
    return f": rows have {found[1]} and {found[2]} columns" if found else ""


def _lines_before_data(path: Path) -> int:
    """Count the lines up to the first row of numbers."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for index, line in enumerate(file):
            if line.strip():
                return index + _is_header(path, next(csv.reader([line])))
    raise InvalidInput(f"{path} is empty")


def _is_header(path: Path, cells: list[str]) -> bool:
    """Tell a header from numbers, or refuse to guess: no row may be lost or made up."""
    numbers = [_is_number(cell) for cell in cells]
    if len(cells) > 2 and cells == [str(index) for index in range(len(cells))]:
        raise InvalidInput(
            f"the first row of {path} is 0, 1, … {len(cells) - 1}: column names or a vector? "
            f"Save the file without column names (pandas: header=False, index=False)"
        )
    if all(numbers):
        return False
    if any(numbers) or not all(cell.strip() for cell in cells):
        raise InvalidInput(
            f"the first row of {path} is neither numbers nor column names: only columns "
            f"{', '.join(str(i + 1) for i, is_number in enumerate(numbers) if is_number) or 'none'}"
            f" hold numbers. Fill in what is missing, and save without row numbers "
            f"(pandas: index=False)"
        )
    return True


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _only_whole_numbers(path: Path, skip: int) -> bool:
    """Tell whether every number is written without a point or an exponent, as labels are."""
    with path.open("rb") as file:
        for _ in range(skip):
            file.readline()
        seen = False
        while block := file.read(_BLOCK):
            if block.translate(None, b"0123456789-+, \r\n\t\xef\xbb\xbf"):
                return False
            seen = True
    return seen
