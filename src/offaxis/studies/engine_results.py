"""Results as tidy tables: one line a cell, as CSV and, with pyarrow, as parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offaxis.files import replacing
from offaxis.studies.catalogue import Study
from offaxis.studies.compare import Line
from offaxis.studies.engine_store import versions


def records(study: Study, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return one record a cell; ``guarantee`` says "no guarantee" where there is none."""
    known = versions()
    found = []
    for line in lines:
        row, outcome = line.outcome.row, line.outcome
        promise = "" if row.mechanism.way == "clean" else "yes"
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
                **known,
            }
        )
    return found


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
