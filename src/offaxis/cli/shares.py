"""Shares of answers on the terminal, as facts for ``--json``, and as files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from rich.table import Table
from rich.text import Text

from offaxis.cli.options import UsageError
from offaxis.cli.terminal import buffered_console, one_line, plain_table, pluralize, print_json
from offaxis.decoding import Shares
from offaxis.engines.columns import arrow
from offaxis.files import replacing
from offaxis.vectors import Vectors

LEVEL: Final = 0.95
_MAX_ROWS: Final = 40
_MAX_NAME: Final = 30
_COLUMNS: Final = ("share", "standard_error", "low", "high", "projected")


def check_shares_format(out: Path) -> None:
    """Reject formats that cannot hold the names of answers."""
    if out.suffix.lower() == ".npy":
        raise UsageError(
            f"{out} cannot store names and intervals; use --out with .npz, .csv or .parquet"
        )


def write_and_print_shares(
    shares: Shares, out: Path, facts: dict[str, Any], *, as_json: bool
) -> None:
    """Write shares with errors and simultaneous intervals to a file, and show them."""
    table = _Table.of(shares)
    with replacing(out) as file:
        _WRITERS[out.suffix.lower()](file, table)
    if as_json:
        groups = [
            ({} if label is None else {"group": label})
            | {"reports": count}
            | {name: values.tolist() for name, values in columns.items()}
            for label, count, columns in table.rows()
        ]
        common = {"level": LEVEL, "names": list(shares.names)}
        print_json(facts | common | (groups[0] if shares.groups is None else {"groups": groups}))
        return
    reports = pluralize(int(shares.count.sum()), "report")
    of_groups = "" if shares.groups is None else f" of {pluralize(len(shares.groups), 'group')}"
    with buffered_console() as console:
        console.print(f"read {reports}, wrote shares{of_groups} to {out}\n", soft_wrap=True)
        console.print(_terminal_table(table))
        console.print(
            f"\nAll shares are in their intervals at once with {100 * LEVEL:.0f} % confidence, for "
            f"any population. Estimates\nare unbiased: a small share may come out below 0.",
            soft_wrap=True,
        )


@dataclass(frozen=True, eq=False)
class _Table:
    """Shares as columns, (g, k) each, with one row of groups if there are none."""

    shares: Shares
    columns: dict[str, Vectors]

    @classmethod
    def of(cls, shares: Shares) -> _Table:
        ends = shares.interval(LEVEL)
        values = (shares.estimate, shares.standard_error, *ends, shares.projected())
        return cls(shares, dict(zip(_COLUMNS, map(np.atleast_2d, values), strict=True)))

    def rows(self) -> Iterator[tuple[Any, int, dict[str, Vectors]]]:
        """Yield each group's label (None without groups), number of reports and columns (k,)."""
        labels = self.shares.groups or (None,)
        for index, (label, count) in enumerate(
            zip(labels, np.atleast_1d(self.shares.count).tolist(), strict=True)
        ):
            yield label, count, {name: values[index] for name, values in self.columns.items()}


def _terminal_table(table: _Table) -> Table:
    """Lay out the first rows."""
    grouped = table.shares.groups is not None
    shown = plain_table(3)
    for name in ("group", "answer") if grouped else ("answer",):
        shown.add_column(name)
    for name in ("share", f"{100 * LEVEL:.0f} % interval", "standard error"):
        shown.add_column(name, justify="right", no_wrap=True)
    total, number = np.atleast_2d(table.shares.counts).size, 0
    for label, _, columns in table.rows():
        values = zip(table.shares.names, *(columns[name] for name in _COLUMNS[:4]), strict=True)
        for name, share, error, low, high in values:
            if number == _MAX_ROWS:
                more = Text(f"… and {total - _MAX_ROWS:,} more", style="dim")
                shown.add_row(more, *[""] * (4 if grouped else 3))
                return shown
            number += 1
            cells = [_cut(label)] if grouped else []
            shown.add_row(
                *cells,
                _cut(name),
                f"{100 * share:.1f} %",
                f"{100 * low:.1f} to {100 * high:.1f} %",
                f"{100 * error:.1f} %" if np.isfinite(error) else "unknown",
            )
    return shown


def _cut(label: Any) -> Text:
    text = one_line(str(label))
    return Text(text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1]}…")


def _write_npz(file: BinaryIO, table: _Table) -> None:
    shares = table.shares
    shape = shares.counts.shape
    arrays: dict[str, Any] = {name: part.reshape(shape) for name, part in table.columns.items()}
    arrays |= {"names": np.array(shares.names), "count": shares.count}
    if shares.groups is not None:
        arrays["groups"] = np.array(shares.groups)
    np.savez(file, allow_pickle=False, **arrays)


def _write_csv(file: BinaryIO, table: _Table) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text, lineterminator="\n")
    grouped = table.shares.groups is not None
    rows.writerow([*(["group"] if grouped else []), "symbol", "name", *_COLUMNS, "reports"])
    for label, count, columns in table.rows():
        values = zip(*(columns[name].tolist() for name in _COLUMNS), strict=True)
        for symbol, (name, numbers) in enumerate(zip(table.shares.names, values, strict=True)):
            # repr represents every float64 exactly.
            cells = [symbol, name, *map(repr, numbers), count]
            rows.writerow([label, *cells] if grouped else cells)
    text.flush()
    text.detach()


def _write_parquet(file: BinaryIO, table: _Table) -> None:
    pa = arrow()
    shares, (groups, size) = table.shares, np.atleast_2d(table.shares.counts).shape
    columns: dict[str, Any] = {}
    if shares.groups is not None:
        indices = pa.array(np.repeat(np.arange(groups, dtype=np.int32), size))
        columns["group"] = pa.DictionaryArray.from_arrays(indices, pa.array(list(shares.groups)))
    columns["symbol"] = np.tile(np.arange(size), groups)
    indices = pa.array(np.tile(np.arange(size, dtype=np.int32), groups))
    columns["name"] = pa.DictionaryArray.from_arrays(indices, pa.array(list(shares.names)))
    columns |= {name: part.ravel() for name, part in table.columns.items()}
    columns["reports"] = np.repeat(shares.count, size)
    pa.parquet.write_table(pa.table(columns), file)


_WRITERS: Final[dict[str, Callable[[BinaryIO, _Table], None]]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
