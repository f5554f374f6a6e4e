"""Figures of the studies: panels with our curves and the published points, as SVG and PNG.

A figure is described by panels and drawn twice: for the page in placeholder colours, which follow
its light or dark theme, and for files in fixed colours.
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

from experiments.compare import ComparedCell
from experiments.engine import Outcome, Row
from experiments.methods import CLEAN, LEAST, LINE, PUBLIC_MEAN
from experiments.scores import Metric
from experiments.sources import Source
from offaxis.decoding import LinearDecoder
from offaxis.files import replacing
from offaxis.html import pages as svg
from offaxis.release import Release
from offaxis.vectors import Vectors


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
    """One curve: ours as a line with a band of ±1 std, the paper's as hollow circles.

    ``colour`` names a colour of the palette; ``strength``, from 0 to 1, distinguishes curves of one
    colour.
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
    """Draw in the colours of a palette, without changing global settings."""
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
    figure.draw_without_rendering()  # fixes ranges and layout, so that labels can be moved apart
    for axes, panel in zip(grid, panels, strict=False):
        _label_ends(axes, panel, palette)
    return figure


_TITLE_WIDTH: Final = 36
"""Characters per line of a panel's title."""


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
"""Least distance of two labels, in points."""


def _label_ends(axes: Any, panel: Panel, palette: Palette) -> None:
    """Write every curve's name at its end; move names apart where ends meet."""
    ends = sorted((s for s in panel.series if s.name), key=lambda series: series.y[-1])
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
    """Move ascending positions as little as possible so that each two are ``least`` apart."""
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
    """Return a figure as inline SVG for a page."""
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


# ---- Curves against the budget, with reference lines

BUDGET_TICKS: Final = (1.0, 2.5, 5.0, 7.5, 10.0)
YLABEL: Final[dict[Metric, str]] = {
    "accuracy": "right answers",
    "rmse": "error, kWh (log scale)",
    "explained": "share kept",
    "mean error": "error of a mean (log scale)",
}
_NAMES: Final = {LINE: "line", PUBLIC_MEAN: "public mean", LEAST: "least"}


def columns_for(count: int) -> int:
    """Return three or four columns, whichever leaves fewer places empty."""
    return min((4, 3), key=lambda columns: -count % columns)


def series_of(cells: Sequence[ComparedCell], name: str, **look: object) -> Series:
    """Return the curve of a row."""
    return Series(
        name,
        [cell.outcome.epsilon for cell in cells],
        [cell.outcome.mean for cell in cells],
        [band(cell.outcome) for cell in cells],
        [None if cell.paper is None else cell.paper.mean for cell in cells],
        **look,  # type: ignore[arg-type]
    )


def band(outcome: Outcome) -> float:
    """Return half the width of a curve's band: the spread over heads, or over seeds."""
    return outcome.spread if outcome.heads > 1 else outcome.std


def by_label(cells: Sequence[ComparedCell]) -> dict[str, list[ComparedCell]]:
    """Return the cells row by row."""
    rows: dict[str, list[ComparedCell]] = {}
    for cell in cells:
        rows.setdefault(cell.outcome.row.label, []).append(cell)
    return rows


def reported(cells: Sequence[ComparedCell]) -> dict[str, list[ComparedCell]]:
    """Return the cells row by row, for the methods that report."""
    return by_label([cell for cell in cells if cell.outcome.row.method.reports])


def reference_series(cells: Sequence[ComparedCell]) -> list[Series]:
    """Return the reference lines among these cells as curves."""
    return [
        Series(
            _NAMES[label],
            [cell.outcome.epsilon for cell in row],
            [cell.outcome.mean for cell in row],
            colour="muted",
            dashed=True,
        )
        for label, row in by_label(cells).items()
        if label in _NAMES
    ]


def budget_panel(title: str, series: Sequence[Series], cells: Sequence[ComparedCell]) -> Panel:
    """Return a plot against the budget, with reference lines and the score without privacy."""
    metric = cells[0].outcome.metric
    clean = next((c.outcome.mean for c in cells if c.outcome.row.label == CLEAN), None)
    return Panel(
        title,
        [*reference_series(cells), *series],
        "budget ε",
        YLABEL[metric],
        metric in ("rmse", "mean error"),
        BUDGET_TICKS,
        None if clean is None else ("without privacy", clean),
    )


# ---- The motivating figure: Laplace noise around a point, plain and reshaped, in two dimensions

_HALF: Final = 1.678346990016661
"""Half of all (ξ₁, ξ₂) with standard Laplace coordinates have |ξ₁| + |ξ₂| below this."""


def _outline(release: Release) -> Vectors:
    """Return the corners of the set of equal density that contains half of the decoded noise."""
    randomizer: Any = release.randomizer
    corners = np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0]]) * _HALF * randomizer.scale
    decoder = release.decoder
    outline: Vectors = corners @ decoder.matrix.T if isinstance(decoder, LinearDecoder) else corners
    return outline


def draw_ellipse(rows: Sequence[Row], source: Source, palette: Palette) -> Any:
    """Return the figure: one point, classifier and budget, with plain and reshaped noise.

    Outlines are sets of equal density that contain half of the noise.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.9), layout="constrained")
    grid = figure.subplots(1, 2, sharex=True, sharey=True)
    public = source.sample(0)
    normal: Vectors = source.task.jacobians(public.vectors[:1])[0, 1]
    normal = normal / np.linalg.norm(normal)
    anchor = source.geometry.mean + 1.2 * normal
    some = slice(0, 500)
    outlines = {}
    for row in rows:
        for release in row.method.make(source, row.epsilons).values():
            if isinstance(release, Release):
                plain = row.method.reshaping == "none"
                outlines["plain" if plain else "reshaped"] = _outline(release)
    reach = 1.06 * max(np.abs(outline + anchor).max() for outline in outlines.values())
    for axes, (name, outline) in zip(grid, outlines.items(), strict=True):
        colour = getattr(palette, name)
        for label, shade in ((0, palette.point), (1, palette.ink)):
            points = public.vectors[some][public.answers[some] == label]
            axes.plot(*points.T, ".", color=shade, ms=2.2, alpha=0.5)
        side = np.array([-normal[1], normal[0]]) * 3 * reach
        axes.plot(*np.stack([-side, side]).T, color=palette.muted, linewidth=1.1)
        axes.fill(*(anchor + outline).T, color=colour, alpha=0.16, linewidth=0)
        axes.plot(*(anchor + outline).T, color=colour, linewidth=1.8)
        axes.plot(*anchor, "o", color=palette.ink, ms=5, mec=palette.card, mew=1)
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), title=f"Laplace, {name}")
        axes.set_aspect("equal")
        axes.tick_params(length=0)
        axes.grid(visible=False)
    # Axes of equal aspect get their size in the first layout; only the second has room for titles.
    figure.draw_without_rendering()
    return figure
