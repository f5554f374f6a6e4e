"""The motivating figure: Laplace noise around a point, plain and reshaped, in two dimensions.

Outlines are sets of equal density, where half of the noise lies inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.claims import claims
from experiments.compare import Claim, Line, means, recovery_ratios
from experiments.engine import Row, Study, versions
from experiments.pages.figures import FILE, PAGE, Palette, draw, page_svg, styled, write_files
from experiments.pages.panels import panels
from experiments.rows import LINE
from experiments.sources import Source
from experiments.tables import text_tables
from offaxis.decoding import LinearDecoder
from offaxis.files import replacing
from offaxis.release import Release
from offaxis.reporting import pages as svg
from offaxis.reporting.pages import template
from offaxis.vectors import Vectors

_HALF = 1.678346990016661
"""Half of all (ξ₁, ξ₂) with standard Laplace coordinates have |ξ₁| + |ξ₂| below this."""


def _outline(release: Release) -> Vectors:
    """Return the corners of the set of equal density that holds half of the decoded noise."""
    randomizer: Any = release.randomizer
    corners = np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0]]) * _HALF * randomizer.scale
    decoder = release.decoder
    outline: Vectors = corners @ decoder.matrix.T if isinstance(decoder, LinearDecoder) else corners
    return outline


def draw_ellipse(rows: Sequence[Row], source: Source, palette: Palette) -> Any:
    """Return the figure: the same point, classifier and budget, with both noises."""
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
        for release in row.mechanism.make(source, row.epsilons).values():
            if isinstance(release, Release):
                plain = row.mechanism.reshaping == "none"
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
    return figure


# ----------------------------------------------------------------------------
# The page of a study: the paper's figures, ours and the difference, side by side; one HTML file.
#
# It refers to nothing outside itself and runs no script. Rows without a valid guarantee say so.

_FAR: Final = 0.02
"""A difference of accuracies above this is set off; for errors, a share above 0.15."""
_FAR_SHARE: Final = 0.15


@dataclass(frozen=True)
class Cell:
    """One number of the table beside its published one; texts, ready to be shown."""

    ours: str
    std: str
    paper: str
    difference: str
    far: bool


@dataclass(frozen=True)
class TableRow:
    """One row of the table."""

    label: str
    meaning: str
    level: str
    mark: str
    published: bool
    cells: list[Cell]


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "\N{MINUS SIGN}")


def _cell(line: Line) -> Cell:
    outcome, paper, gap = line.outcome, line.paper, line.difference
    far, shown = False, ".3g" if outcome.metric == "mean error" else ".4f"
    if paper is not None and gap is not None:
        far = abs(gap) > (_FAR if outcome.metric == "accuracy" else _FAR_SHARE * paper.mean)
    return Cell(
        f"{outcome.mean:{shown}}",
        f"± {outcome.std:{shown}}",
        "" if paper is None else f"{paper.mean:.4f}",
        "" if gap is None else _signed(gap),
        far,
    )


def table_rows(lines: Sequence[Line]) -> list[TableRow]:
    """Return the rows of the table, in the study's order."""
    found: dict[int, TableRow] = {}
    for line in lines:
        row = line.outcome.row
        made = found.setdefault(
            id(row),
            TableRow(
                row.label,
                row.mechanism.title,
                row.level,
                row.mechanism.mark,
                line.paper is not None,
                [],
            ),
        )
        made.cells.append(_cell(line))
    return list(found.values())


def write_study(study: Study, lines: Sequence[Line], folder: Path, source: Source) -> list[Path]:
    """Write the page of a study and its figure, SVG and PNG; return the paths.

    Parameters
    ----------
    source : Source
        The setting of the first row; drawn only by the study of the noise's shape.
    """
    svg.require_report_extra()
    stem = folder / study.name
    label = f"{study.title}: {study.about}"
    if study.show == "ellipse":
        with styled(PAGE):
            picture = svg.inline(draw_ellipse(study.rows, source, PAGE), study.name, label)
        with styled(FILE):
            paths = write_files(draw_ellipse(study.rows, source, FILE), stem)
    else:
        shown, columns = panels(study, lines)
        picture = page_svg(shown, study.name, label, columns)
        with styled(FILE):
            paths = write_files(draw(shown, FILE, columns), stem)
    page = render(study, lines, picture)
    with replacing(stem.with_suffix(".html")) as file:
        file.write(page.encode())
    return [stem.with_suffix(".html"), *paths]


def render(study: Study, lines: Sequence[Line], picture: str) -> str:
    """Return the page as text."""
    rows = table_rows(lines)
    found: list[Claim] = claims(study, lines)
    return template("study.html.j2", "experiments").render(
        study=study,
        picture=picture,
        budgets=list(dict.fromkeys(line.outcome.epsilon for line in lines)),
        rows=rows,
        claims=found,
        seeds=len(lines[0].outcome.runs),
        agreement=_agreement(lines),
        recovered=_recovered(study, lines),
        told=text_tables(study, lines),
        versions=versions(),
        unmarked=not any(row.mark for row in rows),
    )


def _agreement(lines: Sequence[Line]) -> dict[str, Any] | None:
    """Return how far ours lie from the published numbers, over the whole table."""
    gaps = [abs(line.difference) for line in lines if line.difference is not None]
    if not gaps:
        return None
    worst = max(
        (line for line in lines if line.difference is not None),
        key=lambda line: abs(line.difference or 0.0),
    )
    near = sum(1 for line in lines if line.paper and not _cell(line).far)
    return {
        "count": len(gaps),
        "mean": f"{sum(gaps) / len(gaps):.4f}",
        "worst": f"{worst.outcome.row.mechanism.title}"
        f"{f' ({worst.outcome.row.level})' if worst.outcome.row.level else ''}"
        f" at ε = {worst.outcome.epsilon:g}: {_signed(worst.difference or 0.0)}",
        "near": near,
        "limit": "2 points" if worst.outcome.metric == "accuracy" else "15 %",
    }


def _recovered(study: Study, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the recovery ratios as rows, for the study that shows them."""
    if study.show != "recovery":
        return []
    ours = means([line.outcome for line in lines])
    both = ((recovery_ratios(ours), ""), (recovery_ratios(ours, LINE), ", reference line"))
    ratios = both[0][0]
    budgets = sorted({epsilon for _, _, epsilon in ratios})
    keys = dict.fromkeys((name, level) for name, level, _ in ratios)
    return [
        {
            "name": f"{name}{mark}",
            "level": level,
            "values": [f"{values[name, level, epsilon]:.3f}" for epsilon in budgets],
        }
        for name, level in keys
        for values, mark in both
    ]
