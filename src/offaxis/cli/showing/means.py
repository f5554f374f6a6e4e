"""Means with standard errors as files, as facts and as a small table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from offaxis.cli.showing.progress import waiting
from offaxis.cli.showing.terminal import bare_table, one_line
from offaxis.engines.columns import arrow
from offaxis.errors import InvalidInput
from offaxis.files import replacing

if TYPE_CHECKING:
    from rich.table import Table

    from offaxis.cli.reading.labels import Label
    from offaxis.decoding import Aggregate

LABELS_ARE_BARE: Final = (
    "warning: labels are not protected by any guarantee; use labels that are public anyway"
)
_SHOWN: Final = 20
_WIDEST: Final = 40
_GROUP_NUMBERS: Final = 1 << 24
"""Groups times dimension: the moments of so many numbers are kept in memory."""


def bounded(labels: Iterator[Label], dim: int) -> Iterator[Label]:
    """Pass labels on while their groups fit into memory: one group a person would not."""
    most = max(1, _GROUP_NUMBERS // dim)
    seen: set[Label] = set()
    for label in labels:
        seen.add(label)
        if len(seen) > most:
            raise InvalidInput(
                f"there are more than {most:,} groups of dimension {dim}; use coarser labels"
            )
        yield label


def write_means(path: Path, found: Aggregate) -> None:
    """Write means and their errors; the file appears whole or not at all.

    .npy: the mean alone. .npz: ``mean``, ``standard_error``, ``count`` and, with groups,
    ``groups``. .csv and .parquet: one row a group and coordinate.
    """
    with waiting(f"writing {path.name}"), replacing(path) as file:
        _WRITERS[path.suffix.lower()](file, found)


def _write_npy(file: BinaryIO, found: Aggregate) -> None:
    np.save(file, found.estimate, allow_pickle=False)


def _write_npz(file: BinaryIO, found: Aggregate) -> None:
    arrays = {"mean": found.estimate, "standard_error": found.standard_error, "count": found.count}
    if found.groups is not None:
        arrays["groups"] = np.array(found.groups)
    np.savez(file, allow_pickle=False, **arrays)


def _write_csv(file: BinaryIO, found: Aggregate) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text, lineterminator="\n")
    named = [] if found.groups is None else ["group"]
    rows.writerow([*named, "coordinate", "mean", "standard_error", "reports"])
    for name, mean, error, count in _groups(found):
        for at, (value, its_error) in enumerate(zip(mean.tolist(), error.tolist(), strict=True)):
            # repr gives every float64 back exactly.
            rows.writerow([*name, at, repr(value), repr(its_error), count])
    text.flush()
    text.detach()


def _write_parquet(file: BinaryIO, found: Aggregate) -> None:
    pa = arrow()
    means = np.atleast_2d(found.estimate)
    groups, dim = means.shape
    named = {}
    if found.groups is not None:
        places = pa.array(np.repeat(np.arange(groups, dtype=np.int32), dim))
        named["group"] = pa.DictionaryArray.from_arrays(places, pa.array(list(found.groups)))
    columns = {
        "coordinate": np.tile(np.arange(dim), groups),
        "mean": means.ravel(),
        "standard_error": found.standard_error.ravel(),
        "reports": np.repeat(found.count, dim),
    }
    pa.parquet.write_table(pa.table(named | columns), file)


_WRITERS: Final[dict[str, Callable[[BinaryIO, Aggregate], None]]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}


def _groups(found: Aggregate) -> Iterator[tuple[list[Any], Any, Any, int]]:
    """Give each group's label (none without groups), mean, errors and reports."""
    names = [[]] if found.groups is None else [[label] for label in found.groups]
    counts = np.atleast_1d(found.count).tolist()
    parts = (np.atleast_2d(found.estimate), np.atleast_2d(found.standard_error))
    yield from zip(names, *parts, counts, strict=True)


def mean_facts(found: Aggregate) -> dict[str, Any]:
    """Return what ``--json`` says: the reports and the largest error, in all or of each group."""
    effective = np.atleast_1d(found.effective_count).tolist()
    facts = [
        {
            **({"group": name[0]} if name else {}),
            "reports": count,
            "effective_reports": worth,
            "largest_standard_error": float(error.max()),
        }
        for (name, _, error, count), worth in zip(_groups(found), effective, strict=True)
    ]
    return facts[0] if found.groups is None else {"groups": facts}


def group_table(found: Aggregate) -> Table:
    """Lay out the first groups for people."""
    from rich.text import Text

    table = bare_table(3)
    table.add_column("group")
    for name in ("reports", "largest standard error"):
        table.add_column(name, justify="right", no_wrap=True)
    groups = list(_groups(found))
    for named, _, error, count in groups[:_SHOWN]:
        label = one_line(str(named[0]))
        label = label if len(label) <= _WIDEST else f"{label[: _WIDEST - 1]}…"
        table.add_row(Text(label), f"{count:,}", written_error(float(error.max())))
    if len(groups) > _SHOWN:
        table.add_row(Text(f"… and {len(groups) - _SHOWN:,} more", style="dim"), "", "")
    return table


def written_error(error: float) -> str:
    """Write a standard error; one report leaves it open."""
    return f"{error:.4g}" if np.isfinite(error) else "unknown from 1 report"
