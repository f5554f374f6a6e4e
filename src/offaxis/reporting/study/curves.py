"""Curves against the budget, with the lines that they are to be held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from offaxis.reporting.study.figures import Panel, Series
from offaxis.studies.compare import Line
from offaxis.studies.mechanisms import CLEAN, LEAST, LINE, PUBLIC_MEAN
from offaxis.studies.scores import Metric

BUDGET_TICKS: Final = (1.0, 2.5, 5.0, 7.5, 10.0)
YLABEL: Final[dict[Metric, str]] = {
    "accuracy": "right answers",
    "rmse": "error, kWh (log scale)",
    "explained": "share kept",
    "mean error": "error of a mean (log scale)",
}
_NAMES: Final = {LINE: "line", PUBLIC_MEAN: "public mean", LEAST: "least"}


def columns_for(count: int) -> int:
    """Return three or four, whichever leaves fewer places empty."""
    return min((4, 3), key=lambda columns: -count % columns)


def series_of(lines: Sequence[Line], name: str, **look: object) -> Series:
    """Return the curve of a row."""
    return Series(
        name,
        [line.outcome.epsilon for line in lines],
        [line.outcome.mean for line in lines],
        [line.outcome.std for line in lines],
        [None if line.paper is None else line.paper.mean for line in lines],
        **look,  # type: ignore[arg-type]
    )


def by_label(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return the cells row by row."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.outcome.row.label, []).append(line)
    return found


def reported(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return the cells row by row, but for those without privacy and the lines."""
    return by_label([line for line in lines if line.outcome.row.mechanism.reports])


def drawn_lines(lines: Sequence[Line]) -> list[Series]:
    """Return the lines that curves of these cells are to be held against."""
    return [
        Series(
            _NAMES[label],
            [line.outcome.epsilon for line in found],
            [line.outcome.mean for line in found],
            colour="muted",
            dashed=True,
        )
        for label, found in by_label(lines).items()
        if label in _NAMES
    ]


def budget_panel(title: str, series: Sequence[Series], lines: Sequence[Line]) -> Panel:
    """Return a plot against the budget, with the lines and the score without privacy."""
    metric = lines[0].outcome.metric
    clean = next((o.outcome.mean for o in lines if o.outcome.row.label == CLEAN), None)
    return Panel(
        title,
        [*drawn_lines(lines), *series],
        "budget ε",
        YLABEL[metric],
        metric in ("rmse", "mean error"),
        BUDGET_TICKS,
        None if clean is None else ("without privacy", clean),
    )
