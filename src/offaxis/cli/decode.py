"""``offaxis decode``: reports to vectors, or to their mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offaxis.cli.options import AsJson, Expect, ReleaseFile
from offaxis.cli.terminal import counted, print_json

if TYPE_CHECKING:
    from offaxis.release import Release
    from offaxis.vectors import Vectors

_ROWS = 4096
_NUMBERS = 1 << 24
"""Reports are decoded in parts of at most so many rows and about so many numbers."""


def decode(
    release: ReleaseFile,
    reports: Annotated[
        Path, typer.Option(metavar="REPORTS", help="A file of reports made by offaxis privatize.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The array to write: .npy, .npz, .csv or .parquet.")
    ],
    mean: Annotated[
        bool, typer.Option("--mean", help="Write one vector, the mean of all, instead of each.")
    ] = False,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Turn reports into vectors, or into an estimate of their mean."""
    from offaxis.cli.arrays import check_format, write_array
    from offaxis.cli.facts import load_release
    from offaxis.cli.files import check_output
    from offaxis.errors import InvalidReport
    from offaxis.reports import count_reports

    check_output(out, release, reports)
    check_format(out)
    loaded = load_release(release, expect)
    if not reports.is_file():
        raise InvalidReport(f"there is no file of reports {reports}")
    count = count_reports(reports, loaded.report_size)
    decoded = (_mean if mean else _each)(loaded, reports, count)
    write_array(out, decoded)
    if as_json:
        facts = {"out": str(out), "release": loaded.hash, "reports": count}
        print_json(facts | {"mean": mean, "shape": list(decoded.shape)})
        return
    what = "their mean" if mean else "the decoded vectors"
    typer.echo(f"read {counted(count, 'report')}, wrote {what} to {out}")


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


def _mean(release: Release, path: Path, count: int) -> Vectors:
    import numpy as np

    def share(reports: list[bytes]) -> Vectors:
        return release.decode_mean(reports) * (len(reports) / count)

    total = np.zeros(release.decoder.output_dim)
    for _, part in _parts(release, path, count, share):
        total += part
    return total


def _parts(
    release: Release, path: Path, count: int, decode: Callable[[list[bytes]], Vectors]
) -> Iterator[tuple[int, Vectors]]:
    """Decode a file part by part; yield the place of every part's first report, and the result."""
    from offaxis.cli.progress import counting
    from offaxis.errors import InvalidReport
    from offaxis.reports import read_reports, unframe

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
