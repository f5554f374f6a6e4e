"""Studies as Markdown tables, ours beside the published numbers, kept between marks in a document.

    <!-- study NAME --> … <!-- end -->

What stands between the marks is replaced; a document without them is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from offaxis.files import replacing
from offaxis.studies.catalogue import PAIRS
from offaxis.studies.claims import claims
from offaxis.studies.compare import Line, means, recovery_ratios
from offaxis.studies.mechanisms import LINE
from offaxis.studies.study import Study
from offaxis.studies.tables.standing import text_tables
from offaxis.studies.tables.text import TextTable

BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)
END: Final = "<!-- end -->"
LEVELS_AT: Final = 7.5
"""The budget at which tables with levels are shown."""


def section(study: Study, lines: Sequence[Line]) -> str:
    """Return a study's claims and its table; cells are "ours / paper"."""
    parts = [f"*{study.title}.* {study.about}", ""]
    for claim in claims(study, lines):
        verdict = "Holds" if claim.holds else "**Does not hold**"
        text = claim.text[:1].lower() + claim.text[1:]
        parts.append(f"- {verdict}: {text} ({claim.worst}).")
    if parts[-1]:
        parts.append("")
    if study.show == "recovery":
        return "\n".join([*parts, *_recovery(lines)])
    told = [text for table in text_tables(study, lines) for text in _told(table)]
    if study.show in ("standing", "predicted", "people"):
        return "\n".join([*parts, *told]).rstrip()
    with_levels = any(line.outcome.row.level for line in lines)
    table = _by_level(study, lines) if with_levels else _by_budget(lines)
    return "\n".join([*parts, *table, "", *told]).rstrip()


def _told(table: TextTable) -> list[str]:
    rows = [f"| {' | '.join(row)} |" for row in table.rows]
    return [f"*{table.title}.*", "", *_top(table.heads), *rows, ""]


def _cell(line: Line) -> str:
    ours = f"{line.outcome.mean:.3f}"
    return ours if line.paper is None else f"{ours} / {line.paper.mean:.3f}"


def _title(line: Line) -> str:
    mechanism = line.outcome.row.mechanism
    return f"{mechanism.title} (**{mechanism.mark}**)" if mechanism.mark else mechanism.title


def _grid(head: Sequence[str], rows: dict[str, list[str]]) -> list[str]:
    return [*_top(head), *(f"| {' | '.join([name, *cells])} |" for name, cells in rows.items())]


def _top(head: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]


def _by_budget(lines: Sequence[Line]) -> list[str]:
    rows: dict[str, list[str]] = {}
    shown = [line for line in lines if line.outcome.epsilon in BUDGETS]
    for line in shown:
        rows.setdefault(_title(line), []).append(_cell(line))
    budgets = dict.fromkeys(line.outcome.epsilon for line in shown)
    return _grid(["ours / paper", *(f"ε = {epsilon:g}" for epsilon in budgets)], rows)


def _by_level(study: Study, lines: Sequence[Line]) -> list[str]:
    rows: dict[str, list[str]] = {}
    shown = [line for line in lines if line.outcome.epsilon == LEVELS_AT]
    for line in shown:
        title = _title(line).removesuffix(f" {line.outcome.row.level}")
        rows.setdefault(title, []).append(_cell(line))
    levels = dict.fromkeys(line.outcome.row.level for line in shown)
    head = [f"ε = {LEVELS_AT:g}, ours / paper", *(f"{study.level} {level}" for level in levels)]
    return _grid(head, rows)


def _recovery(lines: Sequence[Line]) -> list[str]:
    ours = means([line.outcome for line in lines])
    ratios, line = recovery_ratios(ours), recovery_ratios(ours, LINE)
    corruptions = list(dict.fromkeys(level.rsplit(" ", 1)[0] for _, level, _ in ratios))
    budgets = sorted({epsilon for _, _, epsilon in ratios})
    rows = {}
    for name in PAIRS:
        for epsilon in budgets:
            for values, mark in ((ratios, ""), (line, ", reference line")):
                cells = []
                for corruption in corruptions:
                    found = [
                        value
                        for (other, level, at), value in values.items()
                        if (other, at) == (name, epsilon) and level.startswith(f"{corruption} ")
                    ]
                    cells.append(f"{min(found):.3f} … {max(found):.3f}")
                rows[f"{name}, ε = {epsilon:g}{mark}"] = cells
    return _grid(["least … largest over severities", *corruptions], rows)


def put(path: Path, sections: dict[str, str]) -> list[str]:
    """Put sections between their marks in a document; return the names that had marks."""
    text, found = path.read_text("utf-8"), []
    for name, content in sections.items():
        before, mark, rest = text.partition(f"<!-- study {name} -->\n")
        _, end, after = rest.partition(END)
        if mark and end:
            text = f"{before}{mark}\n{content}\n\n{end}{after}"
            found.append(name)
    with replacing(path) as file:
        file.write(text.encode())
    return found
