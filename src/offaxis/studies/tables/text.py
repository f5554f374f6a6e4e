"""Tables as texts, ready to be shown: for pages and documents alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """A table of texts; the first column names the row."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
