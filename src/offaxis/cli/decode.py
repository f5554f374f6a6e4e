"""``offaxis decode``: reports to vectors, or to their means with standard errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offaxis.cli.engine import Engine, EngineName, Master, check_engine, working
from offaxis.cli.examples import example
from offaxis.cli.options import ARRAY, AsJson, Expect, ReleaseFile
from offaxis.cli.showing.terminal import counted, print_json, screen
from offaxis.cli.usage import Misused

if TYPE_CHECKING:
    from offaxis.decoding import Aggregate
    from offaxis.release import Release
    from offaxis.vectors import Vectors

_ROWS = 4096
_NUMBERS = 1 << 24
"""Reports are decoded in parts of at most so many rows and about so many numbers."""


@example(
    "offaxis decode my.release --reports mine.reports --out decoded.npy",
    "offaxis decode my.release --reports mine.reports --out mean.csv --mean",
)
def decode(
    release: ReleaseFile,
    reports: Annotated[
        Path, typer.Option(metavar="REPORTS", help="A file of reports made by offaxis privatize.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The array to write: .npy, .npz, .csv or .parquet.")
    ],
    mean: Annotated[
        bool,
        typer.Option(
            "--mean",
            help="Write the mean of all, or of each group, with standard errors (.npy: the mean "
            "alone).",
        ),
    ] = False,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:COLUMN]",
            help="With --mean: one label a report, .csv, .txt, .npy, .npz or .parquet. Labels are "
            "not protected: use public ones.",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"With --mean: one positive number a report, decided without them: {ARRAY}.",
        ),
    ] = None,
    engine: EngineName = None,
    master: Master = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Turn reports into vectors, or into estimates of their means.

    Standard errors take reports for independent, one a person. They count the noise and the
    differences between people, not what clipping takes away. With --engine REPORTS is a folder
    that privatize --engine made, or has a column of reports as it does; --groups and --weights name
    columns, and decoded vectors go to a folder.
    """
    from offaxis.cli.files import check_output
    from offaxis.cli.reading.arrays import check_format, locate, write_array
    from offaxis.cli.reading.labels import locate_labels
    from offaxis.cli.reading.releases import load_release
    from offaxis.errors import InvalidReport
    from offaxis.formats.reports import count_reports

    _check_options(out, mean, groups, weights)
    check_engine(engine, master)
    if engine is not None:
        loaded = load_release(release, expect)
        _records(engine, master, loaded, reports, out, mean, groups, weights, as_json=as_json)
        return
    others = [locate(weights)[0]] if weights else []
    others += [locate_labels(groups)[0]] if groups else []
    check_output(out, release, reports, *others)
    check_format(out)
    loaded = load_release(release, expect)
    if not reports.is_file():
        raise InvalidReport(f"there is no file of reports {reports}")
    count = count_reports(reports, loaded.report_size)
    facts = {"out": str(out), "release": loaded.hash, "reports": count, "mean": mean}
    if mean:
        found = _aggregate(loaded, reports, count, groups, weights)
        _tell_means(loaded, found, out, facts, as_json=as_json)
        return
    decoded = _each(loaded, reports, count)
    write_array(out, decoded)
    if as_json:
        print_json(facts | {"shape": list(decoded.shape)})
        return
    typer.echo(f"read {counted(count, 'report')}, wrote the decoded vectors to {out}")


def _check_options(out: Path, mean: bool, groups: str | None, weights: str | None) -> None:
    for name, given in (("--groups", groups), ("--weights", weights)):
        if given is not None and not mean:
            raise Misused(f"{name} is read with --mean only; add --mean or leave it out")
    if groups is not None and out.suffix.lower() == ".npy":
        raise Misused(f"{out} cannot name the groups; let --out end in .npz, .csv or .parquet")


def _records(
    engine: Engine,
    master: str | None,
    release: Release,
    reports: Path,
    out: Path,
    mean: bool,
    groups: str | None,
    weights: str | None,
    *,
    as_json: bool,
) -> None:
    """Decode the records of a Parquet file or folder, or average them."""
    from offaxis.cli.reading.arrays import check_format

    facts: dict[str, Any] = {"out": str(out), "release": release.hash}
    if mean:
        check_format(out)
    with working(engine, master, "decoding") as work:
        source = work.open(str(reports))
        if not mean:
            count = work.functions.decode(source, release, str(out), **work.told)
        else:
            columns = {"groups": groups, "weights": weights}
            found = work.functions.group_means(source, release, **columns, **work.told)
            count = int(found.count.sum())
    facts |= {"reports": count, "mean": mean}
    if mean:
        _tell_means(release, found, out, facts, as_json=as_json)
    elif as_json:
        print_json(facts)
    else:
        typer.echo(f"read {counted(count, 'report')}, wrote the decoded vectors to folder {out}")


def _tell_means(
    release: Release, found: Aggregate, out: Path, facts: dict[str, Any], *, as_json: bool
) -> None:
    from offaxis.cli.showing.means import (
        LABELS_ARE_BARE,
        group_table,
        mean_facts,
        write_means,
        written_error,
    )
    from offaxis.privacy.wording import means_along

    directions = release.directions_of_means
    if directions < release.input_dim:
        typer.echo(f"note: means tell of people {means_along(directions)}", err=True)
    facts["directions"] = directions
    write_means(out, found)
    if found.groups is not None:
        typer.echo(LABELS_ARE_BARE, err=True)
    if as_json:
        print_json(facts | {"shape": list(found.estimate.shape)} | mean_facts(found))
        return
    if found.groups is None:
        worst = written_error(float(found.standard_error.max()))
        typer.echo(
            f"read {counted(facts['reports'], 'report')}, wrote their mean to {out}\n"
            f"largest standard error of a coordinate: {worst}"
        )
        return
    with screen() as console:
        number = counted(len(found.groups), "group")
        read = counted(facts["reports"], "report")
        console.print(f"read {read}, wrote the means of {number} to {out}\n", soft_wrap=True)
        console.print(group_table(found))


def _each(release: Release, path: Path, count: int) -> Vectors:
    import numpy as np

    from offaxis.errors import InvalidInput

    dim = release.decoder.output_dim
    try:
        decoded = np.empty((count, dim))
    except (MemoryError, ValueError):
        raise InvalidInput(
            f"{counted(count, 'vector')} of dimension {dim} do not fit into memory: decode the "
            f"file in parts, or its mean with --mean"
        ) from None
    for start, part in _parts(release, path, count, release.decode):
        decoded[start : start + len(part)] = part
    return decoded


def _aggregate(
    release: Release, path: Path, count: int, groups: str | None, weights: str | None
) -> Aggregate:
    from offaxis.cli.reading.arrays import read_targets
    from offaxis.cli.reading.labels import read_labels
    from offaxis.cli.showing.means import bounded
    from offaxis.cli.showing.progress import counting
    from offaxis.errors import InvalidInput
    from offaxis.formats.reports import read_reports

    dim = release.decoder_of_means.output_dim
    labels = None if groups is None else bounded(read_labels(groups, count), dim)
    numbers = None if weights is None else read_targets(weights)
    if numbers is not None and numbers.shape != (count,):
        raise InvalidInput(
            f"{weights} must hold one weight a report, {count:,}, got shape {numbers.shape}"
        )
    with counting("decoding", count) as advance:
        reports = _counted(read_reports(path, release.report_size), advance)
        return release.aggregate(reports, numbers, labels)


def _counted(reports: Iterator[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for number, report in enumerate(reports, 1):
        yield report
        if number % _ROWS == 0:
            advance(_ROWS)


def _parts(
    release: Release, path: Path, count: int, decode: Callable[[list[bytes]], Vectors]
) -> Iterator[tuple[int, Vectors]]:
    """Decode a file part by part; yield the place of every part's first report, and the result."""
    from offaxis.cli.showing.progress import counting
    from offaxis.errors import InvalidReport
    from offaxis.formats.reports import read_reports, unframe

    reports = read_reports(path, release.report_size)
    widest = max(release.decoder.input_dim, release.decoder.output_dim)
    rows = min(_ROWS, max(1, _NUMBERS // widest))
    with counting("decoding", count) as advance:
        for start in range(0, count, rows):
            part = list(islice(reports, rows))
            try:
                result = decode(part)
            except InvalidReport:
                # Once more, to name the bad report by its place in the file.
                randomizer = release.randomizer
                size = randomizer.payload_size
                unframe(part, randomizer.wire_id, release.hash, size, first=start)
                raise
            yield start, result
            advance(len(part))
