"""Drawings as SVG files: the style of the HTML reports, with light colours on a white card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from offaxis.html.pages import CARD, INK, MUTED, canvas, inline

_COLOURS = (
    "svg{--ink:#1c2127;--muted:#57606b;--line:#dfdcd3;--plain:#b8440b;--reshaped:#0a5fb4;"
    "--point:#6d7682;--same:#ece8da;--card:#fff}text{font-family:system-ui,sans-serif}"
)
"""Light colours, for a file viewed on its own. The site sets its own colours, light or dark."""


def standalone(drawing: str) -> str:
    """Return an inline drawing as a standalone file."""
    box = re.search(r'viewBox="0 0 (\S+) (\S+)"', drawing)
    assert box is not None
    head, rest = drawing.split(">", 1)
    size = f'width="{1.4 * float(box[1]):.0f}" height="{1.4 * float(box[2]):.0f}"'
    head = head.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" {size} ')
    card = f'<rect class="card" width="{box[1]}" height="{box[2]}" fill="#fff"/>'
    return f"{head}><style>{_COLOURS}</style>{card}{rest}\n"


@contextmanager
def panels(count: int, width: float, height: float) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a figure with its axes side by side, in the style of the HTML reports."""
    with canvas(width, height) as (figure, axes):
        figure.delaxes(axes)
        panel_axes = figure.subplots(1, count, squeeze=False)[0]
        for panel in panel_axes:
            panel.tick_params(length=0)
        yield figure, list(panel_axes)


def label(axes: Any, text: str, place: tuple[float, float], colour: str, **more: Any) -> None:
    """Label a curve at a point of it."""
    axes.annotate(
        text,
        place,
        xytext=more.pop("shift", (0, 0)),
        textcoords="offset points",
        color=colour,
        **more,
    )


def dots(axes: Any, points: Any, colour: str, size: float, alpha: float) -> None:
    """Draw points as one path of zero-length strokes: a tenth of the file size of markers."""
    gaps = np.full((len(points), 1, 2), np.nan)
    path = np.concatenate([points[:, None], points[:, None], gaps], axis=1).reshape(-1, 2)
    axes.plot(*path.T, color=colour, linewidth=size, solid_capstyle="round", alpha=alpha)


@contextmanager
def sheet(width: float, height: float) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and axes without a frame, for a diagram.

    Coordinates are points from the upper left corner. A sheet of up to 330 points is legible on a
    phone without scrolling.
    """
    with canvas(width / 72, height / 72) as (figure, axes):
        figure.set_layout_engine("none")
        axes.set_position((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        yield figure, axes


Box = tuple[float, float, float, float]
"""Left, top, width and height."""


def box(
    axes: Any,
    place: Box,
    text: str = "",
    note: str = "",
    *,
    edge: str = MUTED,
    fill: str = CARD,
    dashed: bool = False,
) -> None:
    """Draw a rounded box with a title, and a note below it, in its middle."""
    from matplotlib.patches import FancyBboxPatch

    left, top, width, height = place
    style = "round,pad=0,rounding_size=4"
    dashes: Any = (0, (4, 3)) if dashed else "-"
    look = {"facecolor": fill, "edgecolor": edge, "linewidth": 1.1, "linestyle": dashes}
    axes.add_patch(FancyBboxPatch((left, top), width, height, boxstyle=style, **look))
    titles, notes = text.splitlines(), note.splitlines()
    pitch, size = 12.0, 9.5
    lines = [(line, INK, size) for line in titles] + [(line, MUTED, 8.5) for line in notes]
    first = top + height / 2 - pitch * (len(lines) - 1) / 2
    for index, (line, colour, points) in enumerate(lines):
        write(axes, (left + width / 2, first + pitch * index), line, colour, size=points)


def write(
    axes: Any,
    place: tuple[float, float],
    text: str,
    colour: str = INK,
    *,
    size: float = 9.5,
    ha: str = "center",
    **more: Any,
) -> None:
    """Write one line, vertically centred at a place."""
    axes.text(*place, text, color=colour, fontsize=size, ha=ha, va="center_baseline", **more)


def arrow(axes: Any, *points: tuple[float, float], colour: str = MUTED, width: float = 1.1) -> None:
    """Draw an arrow along straight lines; its head is at the last point."""
    path = np.array(points, dtype=float)
    step = path[-1] - path[-2]
    along = step / np.linalg.norm(step)
    across = np.array([-along[1], along[0]])
    path[-1] -= 4 * along
    axes.plot(*path.T, color=colour, linewidth=width, solid_capstyle="butt")
    tip = np.array(points[-1], dtype=float)
    head = np.array([tip, tip - 6 * along + 3 * across, tip - 6 * along - 3 * across])
    axes.fill(*head.T, color=colour, linewidth=0)


def finish(figure: Any, name: str, description: str) -> str:
    """Return a drawing as the text of its SVG file; the description is read by screen readers."""
    return standalone(inline(figure, name, description))
