"""Figures of studies as tables: text for pages, Markdown for documents, CSV and parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiments.catalogue import PAIRS
from experiments.claims import claims
from experiments.compare import (
    LOSS_AT,
    AgainstPaper,
    Agreement,
    ComparedCell,
    PredictionCheck,
    against_paper,
    kept_under_shifts,
    means,
    prediction_checks,
    published_recovery_ratios,
    recommended_budgets,
    recovery_ratios,
)
from experiments.engine import Outcome, Study, versions
from experiments.means import best_by_people
from experiments.methods import LINE, PUBLIC_MEAN
from experiments.recommended import DEVIATIONS
from offaxis.files import replacing

BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)
"""The budgets that documents show for studies beyond the paper."""

NO_GUARANTEE: Final = "†"
"""The mark of a single cell that has no guarantee."""

END: Final = "<!-- end -->"


# ---- Tables as text, for pages and documents


@dataclass(frozen=True)
class TextTable:
    """A table of text; the first column names the row."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def text_tables(study: Study, cells: Sequence[ComparedCell]) -> list[TextTable]:
    """Return the tables that a study shows besides its numbers; often none."""
    if study.show == "people":
        return people_tables(cells)
    tables = []
    if study.show == "standing":
        tables.append(_against_paper(study, cells))
    if study.show == "predicted":
        checks = [check for check in prediction_checks(cells) if not check.corrupted]
        tables += [
            _predicted([check for check in checks if check.pooled], "one pool"),
            _predicted([check for check in checks if not check.pooled], "different vectors"),
            _shifts(cells),
        ]
    budgets_by_title = recommended_budgets(cells)
    if budgets_by_title:
        rows = [
            [title, ", ".join(f"{budget:g}" for budget in budgets)]
            for title, budgets in budgets_by_title.items()
        ]
        tables.append(TextTable("Recommended releases", ["release", "at ε ="], rows))
    return tables


def people_tables(cells: Sequence[ComparedCell]) -> list[TextTable]:
    """Return the release of least error by people and budget, then a table of errors per budget."""
    outcomes = [cell.outcome for cell in cells]
    budgets = sorted({outcome.epsilon for outcome in outcomes})
    return [_least_errors(outcomes, budgets), *(_errors(outcomes, epsilon) for epsilon in budgets)]


def _people(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({outcome.row.level for outcome in outcomes}, key=int)


def _short(error: float) -> str:
    return f"{error:.2g}" if error < 10 else f"{error:.0f}"


def _least_errors(outcomes: Sequence[Outcome], budgets: Sequence[float]) -> TextTable:
    best = best_by_people(outcomes)
    public_mean = {o.row.level: o.mean for o in outcomes if o.row.label == PUBLIC_MEAN}
    rows = []
    for people in _people(outcomes):
        texts = [f"{int(people):,}"]
        for epsilon in budgets:
            least = best[people, epsilon]
            mark = "" if least.mean < public_mean[people] else " \N{DAGGER}"
            texts.append(f"{least.row.label}: {_short(least.mean)}{mark}")
        rows.append(texts)
    return TextTable(
        "The least error (\N{DAGGER} the public mean, without any report, has a smaller one)",
        ["people", *(f"ε = {epsilon:g}" for epsilon in budgets)],
        rows,
    )


def _errors(outcomes: Sequence[Outcome], epsilon: float) -> TextTable:
    rows: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.epsilon == epsilon:
            title = outcome.row.method.title
            rows.setdefault(title, [title]).append(_short(outcome.mean))
    heads = ["squared error", *(f"{int(people):,} people" for people in _people(outcomes))]
    return TextTable(f"ε = {epsilon:g}", heads, list(rows.values()))


def _heads(first: str) -> list[str]:
    return [first, *(f"ε = {epsilon:g}" for epsilon in BUDGETS)]


def _against_paper(study: Study, cells: Sequence[ComparedCell]) -> TextTable:
    levels: dict[str, dict[float, AgainstPaper]] = {}
    for comparison in against_paper(cells):
        levels.setdefault(comparison.ours.row.level, {})[comparison.ours.epsilon] = comparison
    rows = []
    for level, by_budget in levels.items():
        shown = [by_budget[epsilon] for epsilon in BUDGETS]
        rows += [
            [f"{level}: recommended", *(f"{each.ours.mean:.3f}" for each in shown)],
            [
                "best of the paper",
                *(f"{each.best.mean:.3f} {each.best.row.label}" for each in shown),
            ],
            [
                "reference line",
                *("" if each.line is None else f"{each.line.mean:.3f}" for each in shown),
            ],
        ]
    return TextTable("The recommended release and the best of the paper", _heads(study.level), rows)


def _predicted(checks: Sequence[PredictionCheck], pool: str) -> TextTable:
    questions: dict[str, dict[float, PredictionCheck]] = {}
    for check in checks:
        questions.setdefault(check.question, {})[check.measured.epsilon] = check
    rows = []
    for question, by_budget in questions.items():
        shown = [by_budget[epsilon] for epsilon in BUDGETS]
        rows.append([question.replace("pooled ", ""), *map(_predicted_text, shown)])
    return TextTable("Predicted and measured", _heads(pool), rows)


def _predicted_text(check: PredictionCheck) -> str:
    score, error = check.prediction.score, DEVIATIONS * check.prediction.error
    text = f"{score:.3f} ± {error:.3f}, {check.measured.mean:.3f}"
    return text if check.inside else f"{text} (outside)"


def _shifts(cells: Sequence[ComparedCell]) -> TextTable:
    rows = []
    for corruption, kept in kept_under_shifts(cells).items():
        for severity in range(1, 6):
            texts = [
                f"{values[severity]:.3f} ({_signed(values[severity] - values[0])})"
                for values in kept.values()
            ]
            rows.append([f"{corruption} {severity}", *texts])
    heads = [f"ε = {LOSS_AT:g} (change from no shift)", "label accuracy", "agreement", "fidelity"]
    return TextTable("The effect of shifts", heads, rows)


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


# ---- Results as CSV and parquet: one record per cell


def records(study: Study, cells: Sequence[ComparedCell]) -> list[dict[str, Any]]:
    """Return one record per cell; ``guarantee`` is "no guarantee" for methods without one."""
    software = versions()
    rows = []
    for cell in cells:
        row, outcome, prediction = cell.outcome.row, cell.outcome, cell.outcome.prediction
        promise = "yes" if row.method.reports else ""
        rows.append(
            {
                "study": study.name,
                "setting": row.setting,
                "mechanism": row.label,
                "meaning": row.method.title,
                "level": row.level,
                "epsilon": outcome.epsilon,
                "metric": outcome.metric,
                "mean": outcome.mean,
                "std": outcome.std,
                "head_spread": outcome.spread if outcome.heads > 1 else None,
                "heads": outcome.heads,
                "seeds": outcome.seeds,
                "guarantee": row.method.mark_at(outcome.epsilon) or promise,
                "paper_mean": None if cell.paper is None else cell.paper.mean,
                "paper_std": None if cell.paper is None else cell.paper.std,
                "difference": cell.difference,
                "recommended": None if prediction is None else prediction.title,
                "predicted": None if prediction is None else prediction.score,
                "predicted_error": None if prediction is None else prediction.error,
                **software,
            }
        )
    return rows


def short_records(study: Study, cells: Sequence[ComparedCell]) -> list[dict[str, Any]]:
    """Return the results for the recommended releases; empty if none was recommended."""
    if not any(cell.outcome.prediction for cell in cells):
        return []
    if study.show == "predicted":
        return [_prediction_record(check) for check in prediction_checks(cells)]
    return [_paper_record(comparison) for comparison in against_paper(cells)]


def _paper_record(comparison: AgainstPaper) -> dict[str, Any]:
    ours, best, line = comparison.ours, comparison.best, comparison.line
    return {
        "setting": ours.row.setting,
        "epsilon": ours.epsilon,
        "metric": ours.metric,
        "seeds": ours.seeds,
        "recommended": "" if ours.prediction is None else ours.prediction.title,
        "mean": ours.mean,
        "std": ours.std,
        "best_of_paper": best.row.label,
        "best_mean": best.mean,
        "best_std": best.std,
        "line": None if line is None else line.mean,
        "margin": comparison.margin,
    }


def _prediction_record(check: PredictionCheck) -> dict[str, Any]:
    return {
        "question": check.question,
        "epsilon": check.measured.epsilon,
        "metric": check.measured.metric,
        "seeds": check.measured.seeds,
        "recommended": check.prediction.title,
        "predicted": check.prediction.score,
        "error": check.prediction.error,
        "came": check.measured.mean,
        "std": check.measured.std,
        "inside": check.inside,
    }


def write_csv(path: Path, table: Sequence[dict[str, Any]]) -> None:
    """Write records as CSV, atomically; equal figures give equal bytes."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    with replacing(path) as file:
        file.write(text.getvalue().encode())


def write_parquet(path: Path, table: Sequence[dict[str, Any]]) -> bool:
    """Write records as parquet; without pyarrow write nothing and return False."""
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


# ---- Studies as Markdown, kept between marks in a document
#
#     <!-- study NAME --> … <!-- end -->
#
# The text between the marks is replaced; a document without them is left unchanged.


def section(study: Study, cells: Sequence[ComparedCell]) -> str:
    """Return a study's claims and its table, with all budgets and deviations."""
    parts = [f"*{study.title}.* {study.about}", ""]
    for claim in claims(study, cells):
        verdict = "Holds" if claim.holds else "**Does not hold**"
        text = claim.text[:1].lower() + claim.text[1:]
        parts.append(f"- {verdict}: {text} ({claim.worst}).")
    if parts[-1]:
        parts.append("")
    if study.show == "recovery":
        return "\n".join([*parts, *_recovery(cells)])
    more = [text for table in text_tables(study, cells) for text in _markdown(table)]
    if study.show in ("standing", "predicted", "people"):
        return "\n".join([*parts, *more]).rstrip()
    return "\n".join([*parts, *_all_numbers(study, cells), "", *more]).rstrip()


def _markdown(table: TextTable) -> list[str]:
    rows = [f"| {' | '.join(row)} |" for row in table.rows]
    return [f"*{table.title}.*", "", *_top(table.heads), *rows, ""]


def _title(study: Study, cell: ComparedCell) -> str:
    row = cell.outcome.row
    level = f", {study.level} {row.level}" if row.level else ""
    title = row.method.title.removesuffix(f" {row.level}")
    return f"{title}{level} (**{row.method.mark}**)" if row.method.mark else f"{title}{level}"


def _grid(head: Sequence[str], rows: dict[str, list[str]]) -> list[str]:
    return [*_top(head), *(f"| {' | '.join([name, *texts])} |" for name, texts in rows.items())]


def _top(head: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]


def _all_numbers(study: Study, cells: Sequence[ComparedCell]) -> list[str]:
    """Return up to three lines per row: ours, the deviation over heads, the paper's."""
    rows: dict[int, list[ComparedCell]] = {}
    for cell in cells:
        rows.setdefault(id(cell.outcome.row), []).append(cell)
    budgets = list(dict.fromkeys(cell.outcome.epsilon for cell in cells))
    lines = _top(["", "", *(f"ε = {epsilon:g}" for epsilon in budgets)])
    for row in rows.values():
        line = [_title(study, row[0]), "ours", *map(_ours_text, row)]
        lines.append(f"| {' | '.join(line)} |")
        if row[0].outcome.heads > 1:
            spread = (f"± {_digits(cell.outcome.spread)}" for cell in row)
            lines.append(f"| | over {row[0].outcome.heads} heads | {' | '.join(spread)} |")
        if row[0].paper is not None:
            lines.append(f"| | paper | {' | '.join(map(_paper_text, row))} |")
    return lines


def _digits(value: float) -> str:
    """Return three digits after the point; four significant ones would not fit."""
    return f"{value:.3f}" if value < 10 else f"{value:.2f}"


def _ours_text(cell: ComparedCell) -> str:
    outcome = cell.outcome
    partly = outcome.row.method.mark_at(outcome.epsilon) and not outcome.row.method.mark
    text = f"{_digits(outcome.mean)}{NO_GUARANTEE if partly else ''}"
    return f"{text} ± {_digits(outcome.std)}" if outcome.std > 1e-9 else text


def _paper_text(cell: ComparedCell) -> str:
    if cell.paper is None:
        return ""
    text = _digits(cell.paper.mean)
    return f"{text} ± {_digits(cell.paper.std)}" if cell.paper.std else text


def _recovery(cells: Sequence[ComparedCell]) -> list[str]:
    ours = means([cell.outcome for cell in cells])
    ratios, line = recovery_ratios(ours), recovery_ratios(ours, LINE)
    corruptions = list(dict.fromkeys(level.rsplit(" ", 1)[0] for _, level, _ in ratios))
    budgets = sorted({epsilon for _, _, epsilon in ratios})
    paper = published_recovery_ratios([level for _, level, _ in ratios])
    rows = {}
    for name in PAIRS:
        for epsilon in budgets:
            for values, mark in ((ratios, ""), (paper, ", paper"), (line, ", reference line")):
                texts = []
                for corruption in corruptions:
                    over_severities = [
                        value
                        for (other, level, at), value in values.items()
                        if (other, at) == (name, epsilon) and level.startswith(f"{corruption} ")
                    ]
                    texts.append(f"{min(over_severities):.3f} … {max(over_severities):.3f}")
                rows[f"{name}, ε = {epsilon:g}{mark}"] = texts
    return _grid(["least … largest over severities", *corruptions], rows)


def agreement_table(before_and_after: Sequence[tuple[str, str, Agreement]]) -> TextTable:
    """Return the agreement of tables with the published ones; one row per table and mode."""
    rows = []
    for name, mode, one in before_and_after:
        deviations = [] if one.deviations is None else [f"{ratio:.2f}" for ratio in one.deviations]
        rows.append(
            [
                name,
                mode,
                str(one.cells),
                one.percent(one.median),
                f"{one.percent(one.worst)} ({one.worst_at})",
                " of ".join(map(str, one.signs)) if one.signs[1] else "",
                " of ".join(map(str, one.orders)),
                " … ".join(deviations),
                " of ".join(map(str, one.within_heads)) if one.within_heads else "",
                ", ".join(map(one.percent, one.closest_head)) if one.closest_head else "",
            ]
        )
    heads = ["table", "mode", "cells", "median", "worst", "signs", "orders", "std", "within heads"]
    heads.append("closest head")
    return TextTable("Differences in points of accuracy; for errors in percent", heads, rows)


def agreement_section(before_and_after: Sequence[tuple[str, str, Agreement]]) -> str:
    """Return the agreement of all tables as Markdown."""
    return "\n".join(_markdown(agreement_table(before_and_after))).rstrip()


def put(path: Path, sections: dict[str, str]) -> list[str]:
    """Put sections between their marks in a document; return the names that have marks."""
    text, replaced = path.read_text("utf-8"), []
    for name, content in sections.items():
        before, mark, rest = text.partition(f"<!-- study {name} -->\n")
        _, end, after = rest.partition(END)
        if mark and end:
            text = f"{before}{mark}\n{content}\n\n{end}{after}"
            replaced.append(name)
    with replacing(path) as file:
        file.write(text.encode())
    return replaced
