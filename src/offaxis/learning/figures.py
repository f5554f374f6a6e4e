"""Estimates with their intervals as pictures. Only this module's functions import matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from offaxis.errors import MissingExtra, installing
from offaxis.vectors import Vectors

MOST_LABELS: Final = 40
"""More numbers than that have no labels: they are points of a line in a band."""

_COLOUR: Final = "C0"
_LONGEST: Final = 40
_LINE: Final = 80


def new_figure(width: float, height: float) -> tuple[Any, Any]:
    """Return a matplotlib figure that no window shows, and its axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra(f"figures need matplotlib: {installing('html')}") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def saved(figure: Any, path: Any, warning: str = "") -> Any:
    """Write a warning above a figure, save it if there is a path, and return it."""
    if warning:
        lines = [""]
        for word in warning.split():
            fits = len(lines[-1]) + len(word) < _LINE
            lines[-1:] = [f"{lines[-1]} {word}".strip()] if fits else [lines[-1], word]
        figure.suptitle("\n".join(lines), size=8, color="C3", x=0.02, ha="left")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def named(
    names: Sequence[str], estimate: Vectors, low: Vectors, high: Vectors, label: str
) -> tuple[Any, Any]:
    """Return a figure with one row per name: an estimate and its interval."""
    size = len(names)
    figure, axes = new_figure(6.4, 1.2 + 0.3 * size)
    rows = np.arange(size)
    axes.hlines(rows, low, high, color=_COLOUR, alpha=0.4, linewidth=5)
    axes.plot(estimate, rows, "o", color=_COLOUR, markersize=5)
    axes.set_yticks(rows, [shortened(name) for name in names])
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_xlabel(label)
    return figure, axes


def banded(estimate: Vectors, low: Vectors, high: Vectors, label: str) -> tuple[Any, Any]:
    """Return a figure of many numbers as a line in the band of their intervals."""
    figure, axes = new_figure(6.4, 4.0)
    places = np.arange(len(estimate))
    axes.fill_between(places, low, high, color=_COLOUR, alpha=0.2, linewidth=0)
    axes.plot(places, estimate, color=_COLOUR, linewidth=1)
    axes.set_ylabel(label)
    return figure, axes


def binned(
    edges: Vectors, estimate: Vectors, low: Vectors, high: Vectors, label: str
) -> tuple[Any, Any]:
    """Return a figure of the shares of bins with their intervals."""
    figure, axes = new_figure(6.4, 4.0)
    widths = np.diff(edges)
    axes.bar(edges[:-1], estimate, widths, align="edge", color=_COLOUR, alpha=0.35)
    axes.vlines((edges[:-1] + edges[1:]) / 2, low, high, color=_COLOUR, linewidth=2)
    axes.axhline(0, color="0.4", linewidth=1)
    axes.set_ylabel(label)
    return figure, axes


def matrix(estimate: Vectors, low: Vectors, high: Vectors) -> tuple[Any, Any]:
    """Return a figure of a matrix; a cross marks numbers whose interval has no zero in it."""
    figure, axes = new_figure(5.6, 4.6)
    largest = float(np.abs(estimate).max()) or 1.0
    shown = axes.imshow(estimate, cmap="RdBu_r", vmin=-largest, vmax=largest)
    if estimate.size <= MOST_LABELS**2:
        rows, columns = np.nonzero((low > 0) | (high < 0))
        axes.plot(columns, rows, "x", color="0.1", markersize=4)
        axes.set_title("× : the interval leaves out 0", size=8, color="0.3", loc="left")
    figure.colorbar(shown, ax=axes)
    return figure, axes


def shortened(name: str) -> str:
    """Return a name that fits beside an axis."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
