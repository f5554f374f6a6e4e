"""The numbers of the paper's fifteen tables, as published.

Ha et al., "Jacobian-Guided Anisotropic Noise Reshaping for Enhancing Representation Utility under
Local Differential Privacy". The numbers are read, never computed; studies compare their figures
with them. One line of ``data/published.csv`` is one row of a table; a cell is "mean" or "mean std".
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from offaxis.errors import InvalidInput

_FILE: Final = "published.csv"


@dataclass(frozen=True)
class PublishedNumber:
    """One published number; ``std`` is None if the paper states none."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class PublishedRow:
    """One row of a published table.

    Attributes
    ----------
    table : str
    label : str
        The paper's name of the row.
    level : str
        Severity, cap or dimension if the table has several rows of that name; else empty.
    numbers : mapping
        Budget → number.
    """

    table: str
    label: str
    level: str
    numbers: Mapping[float, PublishedNumber]


@cache
def _rows() -> tuple[PublishedRow, ...]:
    text = resources.files("experiments").joinpath("data", _FILE).read_text("utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    rows = []
    for line in csv.DictReader(lines):
        table, label, level = line.pop("table"), line.pop("mechanism"), line.pop("level")
        numbers = {
            float(budget): PublishedNumber(*(float(number) for number in cell.split()))
            for budget, cell in line.items()
        }
        rows.append(PublishedRow(table, label, level, numbers))
    return tuple(rows)


def tables() -> tuple[str, ...]:
    """Return the names of the published tables, in the paper's order."""
    return tuple(dict.fromkeys(row.table for row in _rows()))


def published(table: str) -> tuple[PublishedRow, ...]:
    """Return the rows of a published table, in its order."""
    rows = tuple(row for row in _rows() if row.table == table)
    if not rows:
        raise InvalidInput(f"the table must be one of {', '.join(tables())}, got {table!r}")
    return rows


@cache
def _lookup() -> dict[tuple[str, str, str], PublishedRow]:
    return {(row.table, row.label, row.level): row for row in _rows()}


def published_number(table: str, label: str, level: str, epsilon: float) -> PublishedNumber | None:
    """Return the published number of a cell, or None if the paper has none."""
    row = _lookup().get((table, label, level))
    return None if row is None else row.numbers.get(epsilon)
