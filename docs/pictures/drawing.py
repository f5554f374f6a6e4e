"""Drawings as SVG files: the style of the HTML reports, with light colours on a white card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from offaxis.html.pages import canvas, inline

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


def finish(figure: Any, name: str, description: str) -> str:
    """Return a drawing as the text of its SVG file; the description is read by screen readers."""
    return standalone(inline(figure, name, description))
