"""``offaxis ask``: questions about the people who reported."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from offaxis.card import guarantee_facts
from offaxis.cli.crowds import Crowd, crowd_of
from offaxis.cli.inputs import check_output, locate, read_array
from offaxis.cli.options import (
    ARRAY,
    AsJson,
    Expect,
    ReleaseFile,
    UsageError,
    example,
)
from offaxis.cli.questions import Numbers, Result, parse
from offaxis.cli.reports import SOURCES, opened_reports, report_files
from offaxis.cli.terminal import buffered_console, one_line, plain_table, print_json, wrap_text
from offaxis.engines.columns import arrow
from offaxis.files import replacing
from offaxis.release import Release

_SHOWN: Final = 24
"""The most rows of a question that are printed."""
_MAX_NAME: Final = 30
_LEAST: Final = 1e-4
"""The smallest p-value that is written as a number."""
_DIRECTIONS: Final = "direction"
_PAIRS: Final = "coordinates"
"""What the numbers of a covariance are about."""
_COLUMNS: Final = ("estimate", "standard_error", "low", "high")


@example(
    'offaxis ask my.release --reports r.reports --public public.npy --question "share of '
    'head.safetensors" --question "median of 3"',
    'offaxis ask moments.release --reports r.reports --question "principal directions"',
    "offaxis ask smokers.release --reports r.reports --question shares",
)
def ask(
    release: ReleaseFile,
    reports: Annotated[list[Path], typer.Option(metavar="FILE|FOLDER", help=SOURCES)],
    question: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="What to ask, as above. May be given several times.",
        ),
    ],
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"For a release of vectors: public vectors that stand for the people: {ARRAY}.",
        ),
    ] = None,
    cells: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            min=2,
            max=400,
            help="At most so many cells of public vectors; 20 by default.",
        ),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE|FOLDER",
            help="Reports of an earlier round of the same release: also tell what has changed "
            "since. May be given several times.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write all numbers to a table: .csv or .parquet."),
    ] = None,
    level: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0.5, max=0.9999, help="Confidence level of the intervals."
        ),
    ] = 0.95,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Ask about the people who reported: shares, means, medians, histograms, covariances.

    Of a release of vectors: share of MODEL, accuracy of MODEL, mean, mean of X, median of X,
    quantile .9 of X, histogram of X in 10 bins, covariance. X is the number of a coordinate, or
    MODEL[:OUTPUT]. Public vectors are weighted so that they explain the reports, and answer
    questions that nobody thought of when people reported.

    Of second moments, from fit --goal covariance: mean, covariance, principal directions. The last
    one also of vectors with additive noise.

    Of private answers alone, from fit --answers or --number: shares, share of NAME, and of numbers
    histogram, median, quantile .9 and mean, each with "of NAME" if there are several.

    Asking costs no further privacy.
    """
    questions = [parse(text) for text in question]
    files = report_files(reports)
    before = None if against is None else report_files(against, *files)
    if out is not None:
        if out.suffix.lower() not in _WRITERS:
            raise UsageError(f"--out must be a .csv or .parquet file, got {out}")
        sources = [locate(public)[0]] if public else []
        check_output(out, release, *files, *(before or []), *sources)
        if out.suffix.lower() == ".parquet":
            arrow()
    loaded = Release.load(release, expect=expect)
    vectors = None if public is None else read_array(public)
    crowd = crowd_of(loaded, questions, vectors, cells, compared=before is not None)
    crowd.read(
        partial(opened_reports, files, loaded.report_size),
        None if before is None else partial(opened_reports, before, loaded.report_size),
    )
    results = [crowd.answer(asked, level) for asked in questions]
    if before is not None:
        results = [_noted(result, crowd.comparable) for result in results]
    if out is not None:
        with replacing(out) as file:
            _WRITERS[out.suffix.lower()](file, results)
    facts = {"release": loaded.hash, "guarantee": guarantee_facts(loaded)} | crowd.facts()
    if as_json:
        answers = [_result_facts(result) for result in results]
        print_json(
            facts
            | {"summary": crowd.summary, "level": level, "answers": answers}
            | {"out": None if out is None else str(out)}
        )
        return
    _print(crowd, facts, results, level, out)


def _noted(result: Result, comparable: tuple[str, ...]) -> Result:
    """Say so if an answer does not tell what has changed."""
    if result.change is not None:
        return result
    note = f"--against cannot compare {result.question!r}; it compares: {', '.join(comparable)}."
    return replace(result, notes=(*result.notes, note))


# ---- The terminal


def _print(
    crowd: Crowd, facts: dict[str, Any], results: list[Result], level: float, out: Path | None
) -> None:
    with buffered_console() as console:
        summary = crowd.summary
        if earlier := facts.get("against"):
            summary += f" {_compared(earlier)}"
        console.print(wrap_text(summary, console))
        for part in (facts, earlier or {}):
            if part.get("warning"):
                of = "Warning" if part is facts else "Warning about the earlier reports"
                console.print(wrap_text(f"{of}: {part['warning']}", console), style="bold")
        for (single, _), group in groupby(
            results, lambda result: (result.single, result.change is not None)
        ):
            if single:
                console.print()
                console.print(_singles(list(group), level))
                continue
            for result in group:
                _print_result(console, result, level)
        notes = [*dict.fromkeys(note for result in results for note in result.notes)]
        if any(result.cut for result in results):
            notes.insert(0, "Intervals of shares are cut at 0 and 100 %.")
        end = f"Each interval by itself holds with {_percent(level)} confidence."
        console.print("\n" + wrap_text(" ".join([end, *notes]), console))
        for text in dict.fromkeys(result.warning for result in results if result.warning):
            of = ", ".join(result.question for result in results if result.warning == text)
            console.print(wrap_text(f"Warning about {one_line(of)}: {text}", console), style="bold")
        if out is not None:
            console.print(f"wrote {out}", soft_wrap=True)


def _compared(earlier: dict[str, Any]) -> str:
    count = f"{earlier['reports']:,} earlier reports"
    if "p_value_of_no_change" not in earlier:
        return f"Compared with {count}."
    p = earlier["p_value_of_no_change"]
    return f"Test of no change since {count}: p {f'= {p:.2g}' if p >= _LEAST else f'< {_LEAST:g}'}."


def _print_result(console: Console, result: Result, level: float) -> None:
    console.print()
    console.print(Text(one_line(result.question), style="bold"))
    table = _table(result.about, level, result.change is not None, "public" in result.details)
    if result.about == _DIRECTIONS:
        table.columns[1].header = "variance"
        table.add_column("angle error", justify="right", no_wrap=True)
    places, more = _shown(result)
    for place in places:
        cells = _cells(result, place)
        if result.about == _DIRECTIONS:
            apart = bool(result.details["apart"][place])
            cells.append(f"{result.details['angle'][place]:.2g}°" if apart else "–")
        table.add_row(_cut(result.names[place]), *cells)
    if more:
        table.add_row(Text(f"… and {len(result.names) - _SHOWN:,} {more}", style="dim"))
    console.print(table)


def _shown(result: Result) -> tuple[list[int], str]:
    """Return which rows of a result are printed, and what the others are, if there are any.

    Of a covariance they are those of the largest estimates.
    """
    places = range(len(result.names))
    if len(places) <= _SHOWN:
        return [*places], ""
    if result.about != _PAIRS:
        return [*places[:_SHOWN]], "more"
    largest = np.argsort(-np.abs(result.found.estimate), kind="stable")[:_SHOWN]
    return largest.tolist(), "smaller ones"


def _singles(results: list[Result], level: float) -> Table:
    """Lay out questions that are answered by one number each, one per row."""
    table = _table("question", level, results[0].change is not None, public=False)
    for result in results:
        table.add_row(Text(one_line(result.question)), *_cells(result, 0))
    return table


def _table(first: str, level: float, changed: bool, public: bool) -> Table:
    table = plain_table(3)
    table.add_column(one_line(first), overflow="fold")
    columns = ["estimate", f"{_percent(level)} interval"]
    columns += ["public"] if public else []
    columns += ["change", f"{_percent(level)} interval"] if changed else ["standard error"]
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _cells(result: Result, place: int) -> list[str]:
    """Write the numbers of a row."""
    write = _writer(result.found, place, shares=result.shares)
    cells = _interval_cells(result.found, place, write)
    if "public" in result.details:
        cells.append(write(result.details["public"][place]))
    if result.change is not None:
        write = _writer(result.change, place, shares=result.shares)
        estimate, interval = _interval_cells(result.change, place, write)
        signed = estimate if result.change.estimate[place] < 0 else f"+{estimate}"
        return [*cells, signed, interval]
    error = result.found.error[place]
    return [*cells, "" if math.isnan(error) else write(error)]


def _interval_cells(numbers: Numbers, place: int, write: Callable[[float], str]) -> list[str]:
    low, high = write(numbers.low[place]), write(numbers.high[place])
    return [write(numbers.estimate[place]), f"{low.removesuffix(' %')} to {high}"]


def _writer(numbers: Numbers, place: int, *, shares: bool) -> Callable[[float], str]:
    """Return what writes the numbers of a row: shares in percent, others to two digits of error."""
    if shares:
        return lambda value: f"{100 * value:.1f} %"
    width = float(numbers.high[place] - numbers.low[place])
    digits = 2 - math.floor(math.log10(width)) if 0 < width < math.inf else 9
    if not 0 <= digits <= 6:
        return lambda value: f"{value:.4g}"
    return lambda value: f"{round(value, digits) + 0.0:.{digits}f}"  # without -0


def _percent(level: float) -> str:
    return f"{100 * level:.4g} %"


def _cut(label: str) -> Text:
    text = one_line(label)
    return Text(text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1]}…")


# ---- Programs and files


def _result_facts(result: Result) -> dict[str, Any]:
    facts: dict[str, Any] = {"question": result.question, "names": _names(result)}
    facts |= _columns(result.found)
    if result.change is not None:
        facts["change"] = _columns(result.change)
    facts |= {name: np.asarray(values).tolist() for name, values in result.details.items()}
    said = {"note": " ".join(result.notes), "warning": result.warning}
    return facts | {name: text for name, text in said.items() if text}


def _names(result: Result) -> list[str]:
    return [result.question] if result.single else list(result.names)


def _columns(numbers: Numbers) -> dict[str, list[float]]:
    values = (numbers.estimate, numbers.error, numbers.low, numbers.high)
    return {name: part.tolist() for name, part in zip(_COLUMNS, values, strict=True)}


def _rows(results: list[Result]) -> Iterator[dict[str, Any]]:
    """Yield a row per number; what is unknown is None."""
    changed = any(result.change is not None for result in results)
    for result in results:
        columns = _columns(result.found)
        if changed:
            change = {} if result.change is None else _columns(result.change)
            unknown = [math.nan] * len(result.names)
            columns |= {_of_change(name): change.get(name, unknown) for name in _COLUMNS}
        for place, name in enumerate(_names(result)):
            values = {key: part[place] for key, part in columns.items()}
            yield {"question": result.question, "name": name} | _known(values)
        for place, direction in enumerate(result.details.get("direction", ())):
            for coordinate, value in enumerate(direction.tolist()):
                name = f"direction {place + 1}, coordinate {coordinate}"
                row = dict.fromkeys(columns, math.nan) | {"estimate": value}
                yield {"question": result.question, "name": name} | _known(row)


def _of_change(name: str) -> str:
    return "change" if name == "estimate" else f"change_{name}"


def _known(values: dict[str, float]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def _write_csv(file: BinaryIO, results: list[Result]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = list(_rows(results))
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    text.flush()
    text.detach()


def _write_parquet(file: BinaryIO, results: list[Result]) -> None:
    pa = arrow()
    rows = list(_rows(results))
    numbers = [name for name in rows[0] if name not in ("question", "name")]
    schema = [(name, pa.string()) for name in ("question", "name")]
    schema += [(name, pa.float64()) for name in numbers]
    pa.parquet.write_table(pa.Table.from_pylist(rows, schema=pa.schema(schema)), file)


_WRITERS: Final[dict[str, Callable[[BinaryIO, list[Result]], None]]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
