"""Results as tidy tables: one line a cell, as CSV and, with pyarrow, as parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offaxis.files import replacing
from offaxis.studies.compare import Line
from offaxis.studies.engine.store import versions
from offaxis.studies.standing import predictions, standings
from offaxis.studies.study import Study


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
