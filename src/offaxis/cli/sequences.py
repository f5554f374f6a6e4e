"""``offaxis memoise`` and ``offaxis trend``: releases of sequences, and what their reports show."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from offaxis.card import sequence_promises
from offaxis.cli.inputs import check_new_release, check_output
from offaxis.cli.options import (
    AsJson,
    Expect,
    Force,
    ReleaseFile,
    UsageError,
    example,
    usage_errors,
)
from offaxis.cli.terminal import buffered_console, field_table, pluralize, print_json
from offaxis.errors import InvalidInput
from offaxis.files import replacing
from offaxis.fitting import memoise as memoise_release
from offaxis.formats.reports import read_reports
from offaxis.learning import Trend
from offaxis.learning import trend as estimate_trend
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.release import Release

LEVEL: Final = 0.95
_NUMBERED: Final = re.compile(r"(?:.*\D)?(\d+)\.reports")


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
    if as_json:
        rows = [{"compared": compared, "promise": promise} for compared, promise in promises]
        print_json({"release": str(out), "hash": memoised.hash, "promises": rows})
        return
    with buffered_console() as console:
        console.print(f"wrote {out}, {memoised.hash[:8]}…\n", soft_wrap=True)
        console.print(field_table(promises))


@example("offaxis trend year.release --reports days/ --out trend.csv")
def trend(
    release: ReleaseFile,
    reports: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Files of reports, one per round: 17.reports or day-17.reports."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="CSV", help="The table to write.")],
    window: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="ROUNDS", help="Rounds to average over: odd, up to half a period."
        ),
    ] = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Estimate shares or means over time from the reports of a release of sequences."""
    check_output(out, release)
    if out.suffix.lower() != ".csv":
        raise UsageError(f"--out must be a .csv file, got {out}")
    files = _numbered_files(reports)
    loaded = Release.load(release, expect=expect)
    rounds = ((number, read_reports(path, loaded.report_size)) for number, path in files)
    estimated = estimate_trend(loaded, rounds, window=window)
    with replacing(out) as file:
        file.write(_table(estimated))
    if as_json:
        facts: dict[str, Any] = {
            "release": loaded.hash,
            "rounds": estimated.rounds.tolist(),
            "window": estimated.window,
            "names": list(estimated.names),
        }
        print_json(facts | {"estimate": estimated.estimate.tolist()})
        return
    number = pluralize(len(files), "round")
    width = pluralize(estimated.window, "round")
    typer.echo(f"read {number}, wrote {len(estimated.names)} estimates of each to {out}")
    typer.echo(f"each averages over the answers drawn in a window of {width}")


def _numbered_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of reports of a folder with the numbers of their rounds, in order."""
    if not folder.is_dir():
        raise InvalidInput(f"folder not found: {folder}")
    matches = [(_NUMBERED.fullmatch(path.name), path) for path in folder.iterdir()]
    files = sorted((int(match[1]), path) for match, path in matches if match)
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
    writer.writerow(["round", "name", "estimate", "standard_error", "low", "high", "draws"])
    writer.writerows(_rows(estimated))
    return text.getvalue().encode()


def _rows(estimated: Trend) -> Iterator[list[Any]]:
    low, high = estimated.interval(LEVEL)
    for at, number in enumerate(estimated.rounds.tolist()):
        for column, name in enumerate(estimated.names):
            arrays = (estimated.estimate, estimated.standard_error, low, high)
            values = [float(array[at, column]) for array in arrays]
            yield [number, name, *values, float(estimated.draws[at])]
