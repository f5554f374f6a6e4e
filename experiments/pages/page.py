"""The page of a study: ours, the paper's numbers and the difference, as one HTML file.

The page refers to nothing outside itself and runs no script. Rows without a valid guarantee are
marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiments.claims import claims
from experiments.compare import (
    ComparedCell,
    means,
    published_recovery_ratios,
    recovery_ratios,
)
from experiments.engine import Study, versions
from experiments.methods import COUNTERPARTS, DELTA, LINE, METHODS, ORDER
from experiments.pages.figures import (
    FILE,
    PAGE,
    draw,
    draw_ellipse,
    page_svg,
    styled,
    write_files,
)
from experiments.pages.panels import panels
from experiments.sources import Source
from experiments.tables import NO_GUARANTEE, text_tables
from offaxis.files import replacing
from offaxis.html import pages as svg
from offaxis.html.pages import template
from offaxis.mechanisms import find_mechanism

_ROUNDING: Final = 1e-9
"""A smaller deviation is that of equal numbers."""

_FAR: Final = 0.02
"""A larger difference of accuracies is highlighted."""
_FAR_SHARE: Final = 0.15
"""A larger relative difference of errors is highlighted."""


def write_study(
    study: Study, cells: Sequence[ComparedCell], folder: Path, source: Source
) -> list[Path]:
    """Write the page of a study and its figure, SVG and PNG; return the paths.

    Parameters
    ----------
    source : Source
        The setting of the first row; used only by the study that draws the shape of the noise.
    """
    svg.require_report_extra()
    stem = folder / study.name
    label = f"{study.title}: {study.about}"
    if study.show == "ellipse":
        columns = 1
        with styled(PAGE):
            picture = svg.inline(draw_ellipse(study.rows, source, PAGE), study.name, label)
        with styled(FILE):
            paths = write_files(draw_ellipse(study.rows, source, FILE), stem)
    else:
        shown, columns = panels(study, cells)
        picture = page_svg(shown, study.name, label, columns)
        with styled(FILE):
            paths = write_files(draw(shown, FILE, columns), stem)
    page = render(study, cells, picture, columns)
    with replacing(stem.with_suffix(".html")) as file:
        file.write(page.encode())
    return [stem.with_suffix(".html"), *paths]


def render(study: Study, cells: Sequence[ComparedCell], picture: str, columns: int) -> str:
    """Return the page as text, with a picture of this many columns."""
    rows = table_rows(cells)
    return template("study.html.j2", "experiments").render(
        study=study,
        picture=picture,
        columns=columns,
        budgets=list(dict.fromkeys(cell.outcome.epsilon for cell in cells)),
        rows=rows,
        claims=claims(study, cells),
        seeds=cells[0].outcome.seeds,
        heads=max(cell.outcome.heads for cell in cells),
        setting=setting_text(study),
        agreement=_agreement(cells),
        recovered=_recovered(study, cells),
        tables=text_tables(study, cells),
        versions=versions(),
        has_marks=any(row.mark for row in rows),
        has_single_marks=any(NO_GUARANTEE in cell.ours for row in rows for cell in row.cells),
        has_counterparts=any(row.label in COUNTERPARTS.values() for row in rows),
    )


def setting_text(study: Study) -> str:
    """Return a sentence about the setting of the reshaped rows; empty where each has its own."""
    if study.show in ("people", "predicted"):
        return ""
    methods = [row.method for row in study.rows if row.method.mechanism]
    reshaped = [method for method in methods if method.reshaping == "jacobian"]
    caps = {method.lambda_max for method in reshaped}
    percentiles = {method.percentile for method in reshaped}
    parts = [
        f"a radius at the {_span(percentiles, 'th')} percentile of the public norms",
        f"a cap of {_span(caps)}",
        f"order {ORDER:g}",
    ]
    if any(find_mechanism(method.mechanism).needs_delta for method in methods):
        parts.append(f"δ = {DELTA:.0e} for (ε, δ) mechanisms".replace("e-0", "e-"))
    published = METHODS["Laplace+PA"]
    as_published = caps == {published.lambda_max} and percentiles == {published.percentile}
    if any(method.protocol == "published" for method in methods):
        parts.append("the rank rule, basis and grid of the paper’s public code")
    whose = "The paper’s rows use the published setting" if as_published else "Reshaped rows use"
    return f"{whose}{':' if as_published else ''} {', '.join(parts[:-1])} and {parts[-1]}."


def _span(values: Iterable[float], suffix: str = "") -> str:
    """Return one value, or the smallest and the largest."""
    ends = sorted(set(values))
    return " to ".join(f"{end:,g}{suffix}" for end in dict.fromkeys((ends[0], ends[-1])))


@dataclass(frozen=True)
class CellText:
    """One number of the table and its published one, formatted."""

    ours: str
    std: str
    spread: str
    paper: str
    paper_std: str
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
    cells: list[CellText]

    @property
    def numbers(self) -> list[tuple[str, list[str]]]:
        """The lines below the first: what, and one text per budget; lines without text left out."""
        lines = [
            ("std, noise", [cell.std for cell in self.cells]),
            ("std, heads", [cell.spread for cell in self.cells]),
            ("paper", [cell.paper for cell in self.cells]),
            ("paper, std", [cell.paper_std for cell in self.cells]),
        ]
        return [(what, texts) for what, texts in lines if any(texts)]


def table_rows(cells: Sequence[ComparedCell]) -> list[TableRow]:
    """Return the rows of the table, in the study's order."""
    rows: dict[int, TableRow] = {}
    for cell in cells:
        row = cell.outcome.row
        table_row = rows.setdefault(
            id(row),
            TableRow(
                row.label,
                row.method.title,
                row.level,
                row.method.mark,
                cell.paper is not None,
                [],
            ),
        )
        table_row.cells.append(_cell_text(cell))
    return list(rows.values())


def _cell_text(cell: ComparedCell) -> CellText:
    outcome, paper, gap = cell.outcome, cell.paper, cell.difference
    far, digits = False, ".3g" if outcome.metric == "mean error" else ".4f"
    if paper is not None and gap is not None:
        far = abs(gap) > (_FAR if outcome.metric == "accuracy" else _FAR_SHARE * paper.mean)
    method = outcome.row.method
    partly = method.mark_at(outcome.epsilon) and not method.mark
    return CellText(
        f"{outcome.mean:{digits}}{NO_GUARANTEE if partly else ''}",
        f"± {outcome.std:{digits}}" if outcome.std > _ROUNDING else "",
        f"± {outcome.spread:{digits}}" if outcome.heads > 1 else "",
        "" if paper is None else f"{paper.mean:.4f}",
        f"± {paper.std:.4f}" if paper is not None and paper.std else "",
        "" if gap is None else _signed(gap),
        far,
    )


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "\N{MINUS SIGN}")


def _agreement(cells: Sequence[ComparedCell]) -> dict[str, Any] | None:
    """Return how far ours are from the published numbers, over the whole table."""
    gaps = [abs(cell.difference) for cell in cells if cell.difference is not None]
    if not gaps:
        return None
    worst = max(
        (cell for cell in cells if cell.difference is not None),
        key=lambda cell: abs(cell.difference or 0.0),
    )
    near = sum(1 for cell in cells if cell.paper and not _cell_text(cell).far)
    return {
        "count": len(gaps),
        "mean": f"{sum(gaps) / len(gaps):.4f}",
        "worst": f"{worst.outcome.row.method.title}"
        f"{f' ({worst.outcome.row.level})' if worst.outcome.row.level else ''}"
        f" at ε = {worst.outcome.epsilon:g}: {_signed(worst.difference or 0.0)}",
        "near": near,
        "limit": "2 points" if worst.outcome.metric == "accuracy" else "15 %",
    }


def _recovered(study: Study, cells: Sequence[ComparedCell]) -> list[dict[str, Any]]:
    """Return the recovery ratios as rows, for the study that shows them."""
    if study.show != "recovery":
        return []
    ours = means([cell.outcome for cell in cells])
    ratios = recovery_ratios(ours)
    paper = published_recovery_ratios([level for _, level, _ in ratios])
    lines = recovery_ratios(ours, LINE)
    three = ((ratios, ""), (paper, ", paper"), (lines, ", reference line"))
    budgets = sorted({epsilon for _, _, epsilon in ratios})
    keys = dict.fromkeys((name, level) for name, level, _ in ratios)
    return [
        {
            "name": f"{name}{mark}",
            "level": level,
            "values": [f"{values[name, level, epsilon]:.3f}" for epsilon in budgets],
        }
        for name, level in keys
        for values, mark in three
    ]
