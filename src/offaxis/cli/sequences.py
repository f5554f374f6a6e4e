"""``offaxis memoise`` and ``offaxis trend``: releases of sequences, and what their reports show."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from rich.console import RenderableType

from offaxis.card import sequence_promises
from offaxis.cli.inputs import check_new_release, check_output, locate, read_array
from offaxis.cli.options import (
    ARRAY,
    AsJson,
    Expect,
    Force,
    ReleaseFile,
    UsageError,
    example,
    usage_errors,
)
from offaxis.cli.reports import reports_in
from offaxis.cli.terminal import (
    buffered_console,
    field_table,
    plain_table,
    pluralize,
    print_json,
    printable,
)
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.files import replacing
from offaxis.fitting import memoise as memoise_release
from offaxis.learning import Trend, expected_error
from offaxis.learning import trend as estimate_trend
from offaxis.learning.trends import FEW
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.release import Release

LEVEL: Final = 0.95
PEOPLE: Final = 1_000
"""The number of people for which the expected error is shown."""
_SHOWN: Final = 8
"""The most rounds, and numbers of each, that are printed."""
_NUMBERED: Final = re.compile(r"(?:[^\d]*[^\W\d][-_ ]?)?(\d+)")
"""One number at the end of a name: 17, day-17 or day_17; not 2026-01-17, nor -17."""


@example("offaxis memoise my.release --draws 4 --period 91 --out year.release")
def memoise(
    release: ReleaseFile,
    draws: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="R",
            help="The most permanent answers that a person ever draws; 0 for no limit, then only "
            "windows of time have a promise.",
        ),
    ],
    period: Annotated[
        int, typer.Option(min=1, metavar="ROUNDS", help="Rounds between two draws of a person.")
    ],
    out: Annotated[Path, typer.Option(metavar="RELEASE", help="The release file to write.")],
    instant: Annotated[
        str | None,
        typer.Option(
            metavar="E", help="ε of the instantaneous layer; by default that of the release."
        ),
    ] = None,
    expect: Expect = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Turn a release into one of sequences: many reports per person within one ε."""
    with usage_errors():
        if instant is not None:
            exact_epsilon(instant)
    check_output(out, release)
    check_new_release(out, force=force)
    single = Release.load(release, expect=expect)
    memoised = memoise_release(single, draws=draws, period=period, instant=instant)
    memoised.save(out)
    promises = sequence_promises(memoised)
    try:
        error = expected_error(memoised, PEOPLE)
    except BiasedDecoder:  # single reports can be decoded, but there are no trends
        error = None
    if as_json:
        rows = [{"compared": compared, "promise": promise} for compared, promise in promises]
        facts = {"release": str(out), "hash": memoised.hash, "promises": rows}
        print_json(facts | {"people": PEOPLE, "expected_standard_error": error})
        return
    with buffered_console() as console:
        console.print(f"wrote {out}, {memoised.hash[:8]}…\n", soft_wrap=True)
        console.print(field_table(promises))
        if error is not None:
            what = f"{PEOPLE:,} people who report in every round have an expected standard error of"
            console.print(f"\nTrends: {what} {error:.2g}; it falls with 1/√people.")


@example("offaxis trend year.release --reports days/ --out trend.csv")
def trend(
    release: ReleaseFile,
    reports: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Files of reports, one per round, named with its number: 17.reports or "
            "day-17.reports, or exports of a collector such as energy-17.parquet.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="CSV", help="The table to write.")],
    window: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="ROUNDS", help="Rounds to average over: odd, up to half a period."
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"Numbers to average, one row per symbol, such as means of classes: {ARRAY}.",
        ),
    ] = None,
    new_only: Annotated[
        bool,
        typer.Option(
            "--new-only",
            help="Use the first report of each permanent answer only: right even if who goes on "
            "reporting depends on the answer, but less precise.",
        ),
    ] = False,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Estimate shares or means over time from the reports of a release of sequences."""
    check_output(out, release, *([locate(values)[0]] if values else []))
    if out.suffix.lower() != ".csv":
        raise UsageError(f"--out must be a .csv file, got {out}")
    files = _numbered_files(reports)
    loaded = Release.load(release, expect=expect)
    rounds = ((number, reports_in(path, loaded.report_size)) for number, path in files)
    table = None if values is None else read_array(values)
    estimated = estimate_trend(loaded, rounds, window=window, values=table, new_only=new_only)
    with replacing(out) as file:
        file.write(_table(estimated))
    if as_json:
        low, high = estimated.interval(LEVEL)
        facts: dict[str, Any] = {
            "release": loaded.hash,
            "window": estimated.window,
            "names": list(estimated.names),
            "level": LEVEL,
        }
        columns = {
            "rounds": estimated.rounds,
            "draws": estimated.draws,
            "drawn": estimated.drawn,
            "estimate": estimated.estimate,
            "standard_error": estimated.standard_error,
            "low": low,
            "high": high,
        }
        print_json(facts | {name: array.tolist() for name, array in columns.items()})
        return
    number = pluralize(len(files), "round")
    width = pluralize(estimated.window, "round")
    typer.echo(f"read {number}, wrote {len(estimated.names)} estimates of each to {out}")
    typer.echo(f"each averages over the answers drawn in a window of {width}\n")
    with buffered_console() as console:
        console.print(_summary(estimated))
    if (few := estimated.draws < FEW).any():
        typer.echo(
            f"\n{pluralize(int(few.sum()), 'round')} of {len(few)} have fewer than {FEW} draws: "
            f"their intervals are too short"
        )


def _summary(estimated: Trend) -> RenderableType:
    """Return a table of a few rounds: the first, the last and some between."""
    table = plain_table(2)
    names = estimated.names[:_SHOWN]
    for name in ("round", *names, "draws", "in rounds"):
        table.add_column(printable(name), justify="right")
    count = len(estimated.rounds)
    half = (estimated.interval(LEVEL)[1] - estimated.estimate)[:, : len(names)]
    for at in np.unique(np.linspace(0, count - 1, min(count, _SHOWN)).round().astype(int)).tolist():
        row = zip(estimated.estimate[at], half[at], strict=False)
        cells = [f"{estimate:.3g} ± {error:.2g}" for estimate, error in row]
        first, last = estimated.drawn[at]
        number = str(estimated.rounds[at])
        table.add_row(number, *cells, f"{estimated.draws[at]:.3g}", f"{first} to {last}")
    return table


def _numbered_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of reports of a folder with the numbers of their rounds, in order."""
    if not folder.is_dir():
        raise InvalidInput(f"folder not found: {folder}")
    files = []
    for path in folder.iterdir():
        if path.suffix not in (".reports", ".parquet"):
            continue
        match = _NUMBERED.fullmatch(path.stem)
        if match is None:
            raise InvalidInput(
                f"{path} does not name one number of a round; name it like 17.reports or "
                f"day-17.reports, with the number that its reports were made for"
            )
        files.append((int(match[1]), path))
    files.sort()
    if not files:
        raise InvalidInput(f"{folder} has no files like 17.reports or day-17.reports")
    numbers = [number for number, _ in files]
    repeated = next((n for n, other in pairwise(numbers) if n == other), None)
    if repeated is not None:
        raise InvalidInput(f"{folder} has two files of reports of round {repeated}")
    return files


def _table(estimated: Trend) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["estimate", "standard_error", "low", "high", "draws", "drawn_from", "drawn_to"]
    writer.writerow(["round", "name", *names])
    writer.writerows(_rows(estimated))
    return text.getvalue().encode()


def _rows(estimated: Trend) -> Iterator[list[Any]]:
    low, high = estimated.interval(LEVEL)
    for at, number in enumerate(estimated.rounds.tolist()):
        for column, name in enumerate(estimated.names):
            arrays = (estimated.estimate, estimated.standard_error, low, high)
            values = [float(array[at, column]) for array in arrays]
            yield [number, name, *values, float(estimated.draws[at]), *estimated.drawn[at].tolist()]
