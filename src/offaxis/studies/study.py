"""What a study is: rows for the engine, and a way to show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offaxis.studies.engine import Row

Show = Literal[
    "table", "levels", "clipping", "recovery", "curve", "ellipse", "standing", "predicted", "people"
]


@dataclass(frozen=True)
class Study:
    """One experiment.

    Attributes
    ----------
    name, title : str
    about : str
        What is measured on what, in a sentence or two.
    rows : tuple of Row
    show : str
        How it is shown: a table, a table with levels, where the recommended release stands, what
        was predicted and what came, or one of the figures.
    table : str
        Whose published numbers it is held against; empty where there are none.
    level : str
        What the levels of the rows are.
    """

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    show: Show = "table"
    table: str = ""
    level: str = ""

    @property
    def cells(self) -> int:
        """How many numbers it has."""
        return sum(len(row.epsilons) for row in self.rows)
