"""Figures of the studies: panels of curves, ours beside the published ones, as SVG and PNG.

A figure is described by panels and drawn twice: in the page's stand-in colours, which follow its
light or dark theme, and in fixed ones for files.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.compare import Line
from experiments.rows import CLEAN, LEAST, LINE, PUBLIC_MEAN
from experiments.scores import Metric
from offaxis.files import replacing
from offaxis.reporting import pages as svg


@dataclass(frozen=True)
class Palette:
    """The colours of a figure."""

    ink: str
    muted: str
    grid: str
    plain: str
    reshaped: str
    card: str
    point: str
    same: str


PAGE: Final = Palette(
    svg.INK, svg.MUTED, svg.GRID, svg.PLAIN, svg.RESHAPED, svg.CARD, svg.POINT, svg.SAME
)
FILE: Final = Palette(
    "#1c2127", "#57606b", "#dfdcd3", "#b8440b", "#0a5fb4", "#ffffff", "#6d7682", "#ece8da"
)


@dataclass(frozen=True)
class Series:
    """One curve: ours as a line with a band of ±1 std, the paper's as hollow marks.

    ``colour`` names a colour of the palette; ``strength`` from 0 to 1 tells curves of one colour
    apart.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    std: Sequence[float] = ()
    paper: Sequence[float | None] = ()
    colour: str = "reshaped"
    strength: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One plot of a figure."""

    title: str
    series: Sequence[Series]
    xlabel: str
    ylabel: str
    logarithmic: bool = False
    xticks: Sequence[float] = ()
    level: tuple[str, float] | None = None
    """A horizontal line, such as the score without privacy."""
    logarithmic_x: bool = False


@contextmanager
def styled(palette: Palette) -> Iterator[None]:
    """Draw in the colours of a palette; nothing global is changed."""
    svg.require_report_extra()
    import matplotlib as mpl

    style: Any = {
        "svg.fonttype": "none",
        "font.size": 9.5,
        "text.color": palette.ink,
        "axes.edgecolor": palette.grid,
        "axes.labelcolor": palette.muted,
        "axes.titlecolor": palette.ink,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "grid.color": palette.grid,
        "grid.linewidth": 0.6,
        "xtick.color": palette.grid,
        "xtick.labelcolor": palette.muted,
        "ytick.color": palette.grid,
        "ytick.labelcolor": palette.muted,
        "figure.facecolor": palette.card,
        "axes.facecolor": "none",
    }
    with mpl.rc_context(style):
        yield


def draw(panels: Sequence[Panel], palette: Palette, columns: int = 3) -> Any:
    """Return a figure of panels that share their axes' ranges."""
    from matplotlib.figure import Figure

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    size = (7.2, 4.4) if len(panels) == 1 else (3.55 * columns, 2.75 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, panel, palette)
    for index, axes in enumerate(grid):
        axes.set_visible(index < len(panels))
        if index % columns:
            axes.set_ylabel("")
        else:
            axes.tick_params(labelleft=True)
    figure.canvas.draw()  # ranges are final now: labels can be moved apart
    for axes, panel in zip(grid, panels, strict=False):
        _label_ends(axes, panel, palette)
    return figure


_TITLE_WIDTH: Final = 36
"""Characters of a title that fit beside the next panel's."""


def _draw_panel(axes: Any, panel: Panel, palette: Palette) -> None:
    for series in panel.series:
        colour = getattr(palette, series.colour)
        x, y = np.asarray(series.x), np.asarray(series.y)
        dashes: Any = (0, (4, 2)) if series.dashed else "-"
        axes.plot(x, y, color=colour, alpha=series.strength, linewidth=1.7, linestyle=dashes)
        if len(series.std):
            low, high = y - np.asarray(series.std), y + np.asarray(series.std)
            axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
        marks = [(at, value) for at, value in zip(x, series.paper, strict=False) if value]
        if marks:
            axes.plot(
                *zip(*marks, strict=True),
                "o",
                color=colour,
                alpha=series.strength,
                mfc="none",
                ms=4.2,
                mew=1.0,
            )
    axes.set_title(textwrap.fill(panel.title, _TITLE_WIDTH))
    axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    if panel.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    if panel.logarithmic_x:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
    if panel.xticks:
        axes.set_xticks(list(panel.xticks))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    right = max(max(series.x) for series in panel.series)
    left = min(min(series.x) for series in panel.series)
    if panel.logarithmic_x:
        axes.set_xlim(left * (left / right) ** 0.04, right * (right / left) ** 0.62)
    else:
        axes.set_xlim(left - 0.04 * (right - left), right + 0.34 * (right - left))
    axes.tick_params(length=0, which="both")
    if panel.level:
        name, height = panel.level
        axes.plot([left, right], [height] * 2, color=palette.muted, linewidth=0.9, linestyle=":")
        axes.annotate(
            name, (left, height), xytext=(0, 3), textcoords="offset points", fontsize=8,
            color=palette.muted,
        )  # fmt: skip


_LABEL_HEIGHT: Final = 11.0
"""Points between two labels, so that they can be read."""


def _label_ends(axes: Any, panel: Panel, palette: Palette) -> None:
    """Write every curve's name at its end, moved apart where ends meet."""
    ends = sorted(panel.series, key=lambda series: series.y[-1])
    scale = axes.figure.dpi / 72
    spots = [axes.transData.transform((s.x[-1], s.y[-1]))[1] / scale for s in ends]
    floor = axes.bbox.y0 / scale
    placed = [
        max(place, floor + (index + 0.4) * _LABEL_HEIGHT)
        for index, place in enumerate(_apart(spots, _LABEL_HEIGHT))
    ]
    for series, spot, place in zip(ends, spots, placed, strict=True):
        axes.annotate(
            series.name,
            (series.x[-1], series.y[-1]),
            xytext=(5, place - spot),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=getattr(palette, series.colour),
            alpha=max(series.strength, 0.6),
            annotation_clip=False,
        )


def _apart(spots: Sequence[float], least: float) -> list[float]:
    """Move ascending places apart to at least a distance, as little as possible."""
    groups: list[tuple[float, int]] = []
    for spot in spots:
        middle, count = spot, 1
        while groups and middle - (count - 1) * least / 2 < (
            groups[-1][0] + (groups[-1][1] + 1) * least / 2
        ):
            other, size = groups.pop()
            middle = (other * size + middle * count) / (size + count)
            count += size
        groups.append((middle, count))
    return [
        middle + (index - (count - 1) / 2) * least
        for middle, count in groups
        for index in range(count)
    ]


def page_svg(panels: Sequence[Panel], name: str, label: str, columns: int = 3) -> str:
    """Return a figure as part of a page."""
    with styled(PAGE):
        return svg.inline(draw(panels, PAGE, columns), name, label)


def write_files(figure: Any, stem: Path) -> list[Path]:
    """Write a figure drawn in file colours as SVG and PNG; return both paths."""
    import matplotlib as mpl

    paths = []
    for ending, options in ((".svg", {"metadata": {"Date": None}}), (".png", {"dpi": 160})):
        stream = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": stem.name}):
            figure.savefig(stream, format=ending[1:], **options)
        path = stem.with_suffix(ending)
        with replacing(path) as file:
            file.write(stream.getvalue())
        paths.append(path)
    return paths


# ----------------------------------------------------------------------------
# Curves against the budget, with the lines that they are to be held against.

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
