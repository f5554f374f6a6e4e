"""Figures of studies as tables: texts for pages, Markdown for documents, CSV and parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiments.advice import DEVIATIONS
from experiments.catalogue import PAIRS
from experiments.claims import claims
from experiments.compare import Line, means, recovery_ratios
from experiments.engine import Outcome, Study, versions
from experiments.means import nearest
from experiments.recommended import (
    LOSS_AT,
    Prediction,
    Standing,
    kept_under_shifts,
    predictions,
    recommendations,
    standings,
)
from experiments.rows import LINE, PUBLIC_MEAN
from offaxis.files import replacing

# ----------------------------------------------------------------------------
# Tables as texts, ready to be shown: for pages and documents alike.


@dataclass(frozen=True)
class TextTable:
    """A table of texts; the first column names the row."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


# ----------------------------------------------------------------------------
# Tables of a study of means: which release is nearest for how many people, and all errors.


def people_tables(lines: Sequence[Line]) -> list[TextTable]:
    """Return the nearest release by people and budget, then a table of errors a budget."""
    outcomes = [line.outcome for line in lines]
    budgets = sorted({outcome.epsilon for outcome in outcomes})
    return [_nearest(outcomes, budgets), *(_errors(outcomes, epsilon) for epsilon in budgets)]


def _people(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({outcome.row.level for outcome in outcomes}, key=int)


def _short(error: float) -> str:
    return f"{error:.2g}" if error < 10 else f"{error:.0f}"


def _nearest(outcomes: Sequence[Outcome], budgets: Sequence[float]) -> TextTable:
    found = nearest(outcomes)
    unasked = {o.row.level: o.mean for o in outcomes if o.row.label == PUBLIC_MEAN}
    rows = []
    for people in _people(outcomes):
        cells = [f"{int(people):,}"]
        for epsilon in budgets:
            best = found[people, epsilon]
            mark = "" if best.mean < unasked[people] else " \N{DAGGER}"
            cells.append(f"{best.row.label}: {_short(best.mean)}{mark}")
        rows.append(cells)
    heads = ["people", *(f"ε = {epsilon:g}" for epsilon in budgets)]
    return TextTable(
        "The least error (\N{DAGGER} asking nobody is nearer still)",
        heads,
        rows,
    )


def _errors(outcomes: Sequence[Outcome], epsilon: float) -> TextTable:
    people = _people(outcomes)
    rows: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.epsilon == epsilon:
            title = outcome.row.mechanism.title
            rows.setdefault(title, [title]).append(_short(outcome.mean))
    heads = ["squared error", *(f"{int(each):,} people" for each in people)]
    return TextTable(f"ε = {epsilon:g}", heads, list(rows.values()))


# ----------------------------------------------------------------------------
# Tables of the recommended release as texts, for pages and documents alike.

BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)


def text_tables(study: Study, lines: Sequence[Line]) -> list[TextTable]:
    """Return what a study shows of its recommendations; nothing where it has none."""
    if study.show == "people":
        return people_tables(lines)
    made = []
    if study.show == "standing":
        made.append(_stands(study, lines))
    if study.show == "predicted":
        found = [each for each in predictions(lines) if not each.corrupted]
        made += [
            _came([each for each in found if each.pooled], "one pool"),
            _came([each for each in found if not each.pooled], "other vectors"),
            _shifts(lines),
        ]
    named = recommendations(lines)
    if named:
        rows = [
            [title, ", ".join(f"{budget:g}" for budget in budgets)]
            for title, budgets in named.items()
        ]
        made.append(TextTable("What was recommended", ["release", "at ε ="], rows))
    return made


def _heads(first: str) -> list[str]:
    return [first, *(f"ε = {epsilon:g}" for epsilon in BUDGETS)]


def _stands(study: Study, lines: Sequence[Line]) -> TextTable:
    levels: dict[str, dict[float, Standing]] = {}
    for stand in standings(lines):
        levels.setdefault(stand.ours.row.level, {})[stand.ours.epsilon] = stand
    rows = []
    for level, found in levels.items():
        shown = [found[epsilon] for epsilon in BUDGETS]
        rows += [
            [f"{level}: recommended", *(f"{stand.ours.mean:.3f}" for stand in shown)],
            [
                "best of the paper",
                *(f"{stand.best.mean:.3f} {stand.best.row.label}" for stand in shown),
            ],
            [
                "reference line",
                *("" if stand.line is None else f"{stand.line.mean:.3f}" for stand in shown),
            ],
        ]
    return TextTable("Where the recommended release stands", _heads(study.level), rows)


def _came(found: Sequence[Prediction], where: str) -> TextTable:
    questions: dict[str, dict[float, Prediction]] = {}
    for each in found:
        questions.setdefault(each.question, {})[each.came.epsilon] = each
    rows = []
    for question, at in questions.items():
        shown = [at[epsilon] for epsilon in BUDGETS]
        rows.append([question.replace("pooled ", ""), *map(_prediction, shown)])
    return TextTable("Predicted, and what came", _heads(where), rows)


def _prediction(each: Prediction) -> str:
    text = f"{each.advice.score:.3f} ± {DEVIATIONS * each.advice.error:.3f}, {each.came.mean:.3f}"
    return text if each.inside else f"{text} (outside)"


def _shifts(lines: Sequence[Line]) -> TextTable:
    rows = []
    for corruption, kept in kept_under_shifts(lines).items():
        for severity in range(1, 6):
            cells = [
                f"{values[severity]:.3f} ({_signed(values[severity] - values[0])})"
                for values in kept.values()
            ]
            rows.append([f"{corruption} {severity}", *cells])
    heads = [f"ε = {LOSS_AT:g}, against no shift", "label accuracy", "agreement", "fidelity"]
    return TextTable("What shifts cost", heads, rows)


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


# ----------------------------------------------------------------------------
# Results as tidy tables: one line a cell, as CSV and, with pyarrow, as parquet.


def records(study: Study, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return one record a cell; ``guarantee`` says "no guarantee" where there is none."""
    known = versions()
    found = []
    for line in lines:
        row, outcome = line.outcome.row, line.outcome
        promise = "yes" if row.mechanism.reports else ""
        found.append(
            {
                "study": study.name,
                "setting": row.setting,
                "mechanism": row.label,
                "meaning": row.mechanism.title,
                "level": row.level,
                "epsilon": outcome.epsilon,
                "metric": outcome.metric,
                "mean": outcome.mean,
                "std": outcome.std,
                "seeds": len(outcome.runs),
                "guarantee": row.mechanism.mark or promise,
                "paper_mean": None if line.paper is None else line.paper.mean,
                "paper_std": None if line.paper is None else line.paper.std,
                "difference": line.difference,
                "recommended": None if outcome.advice is None else outcome.advice.title,
                "predicted": None if outcome.advice is None else outcome.advice.score,
                "predicted_error": None if outcome.advice is None else outcome.advice.error,
                **known,
            }
        )
    return found


def _standing_records(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return one record a budget and setting: ours, the best of the paper, and the line."""
    return [
        {
            "setting": stand.ours.row.setting,
            "epsilon": stand.ours.epsilon,
            "metric": stand.ours.metric,
            "seeds": len(stand.ours.runs),
            "recommended": "" if stand.ours.advice is None else stand.ours.advice.title,
            "mean": stand.ours.mean,
            "std": stand.ours.std,
            "best_of_paper": stand.best.row.label,
            "best_mean": stand.best.mean,
            "best_std": stand.best.std,
            "line": None if stand.line is None else stand.line.mean,
            "margin": stand.margin,
        }
        for stand in standings(lines)
    ]


def _prediction_records(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return one record a budget and question: what was predicted, and what came."""
    return [
        {
            "question": each.question,
            "epsilon": each.came.epsilon,
            "metric": each.came.metric,
            "seeds": len(each.came.runs),
            "recommended": each.advice.title,
            "predicted": each.advice.score,
            "error": each.advice.error,
            "came": each.came.mean,
            "std": each.came.std,
            "inside": each.inside,
        }
        for each in predictions(lines)
    ]


def short_records(study: Study, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return what there is to say of recommendations, in few lines; nothing where none was made."""
    if not any(line.outcome.advice for line in lines):
        return []
    return _prediction_records(lines) if study.show == "predicted" else _standing_records(lines)


def write_csv(path: Path, table: Sequence[dict[str, Any]]) -> None:
    """Write records as CSV, whole or not at all; equal figures give equal bytes."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    with replacing(path) as file:
        file.write(text.getvalue().encode())


def write_parquet(path: Path, table: Sequence[dict[str, Any]]) -> bool:
    """Write records as parquet; return False, and write nothing, where pyarrow is missing."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return False
    kinds = {str: pa.string(), float: pa.float64(), int: pa.int64()}
    schema = pa.schema(
        (name, next((kinds[type(r[name])] for r in table if r[name] is not None), pa.float64()))
        for name in table[0]
    )
    with replacing(path) as file:
        pq.write_table(pa.Table.from_pylist(list(table), schema=schema), file)
    return True


# ----------------------------------------------------------------------------
# Studies as Markdown tables, ours beside the published numbers, kept between marks in a document.
#
#     <!-- study NAME --> … <!-- end -->
#
# What stands between the marks is replaced; a document without them is left as it is.

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
