"""``offaxis decode``: reports to vectors, or to their mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offaxis.cli.options import AsJson, Expect, ReleaseFile
from offaxis.cli.terminal import counted, print_json

if TYPE_CHECKING:
    from offaxis.release import Release
    from offaxis.vectors import Vectors

_ROWS = 4096


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
    from offaxis.reports import read_reports

    check_output(out, release, reports)
    check_format(out)
    loaded = load_release(release, expect)
    if not reports.is_file():
        raise InvalidReport(f"there is no file of reports {reports}")
    received = read_reports(reports, loaded.report_size)
    try:
        decoded = (_mean if mean else _each)(loaded, received)
    except InvalidReport:
        # Reports are decoded part by part; reading all at once names the bad one's true place.
        loaded.observe(received)
        raise
    write_array(out, decoded)
    if as_json:
        facts = {"out": str(out), "release": loaded.hash, "reports": len(received)}
        print_json(facts | {"mean": mean, "shape": list(decoded.shape)})
        return
    what = "their mean" if mean else "the decoded vectors"
    typer.echo(f"read {counted(len(received), 'report')}, wrote {what} to {out}")


def _each(release: Release, reports: list[bytes]) -> Vectors:
    import numpy as np

    from offaxis.cli.progress import counting

    decoded = np.empty((len(reports), release.decoder.output_dim))
    with counting("decoding", len(reports)) as advance:
        for start in range(0, len(reports), _ROWS):
            part = release.decode(reports[start : start + _ROWS])
            decoded[start : start + len(part)] = part
            advance(len(part))
    return decoded


def _mean(release: Release, reports: list[bytes]) -> Vectors:
    import numpy as np

    from offaxis.cli.progress import counting

    total = np.zeros(release.decoder.output_dim)
    with counting("decoding", len(reports)) as advance:
        for start in range(0, len(reports), _ROWS):
            part = reports[start : start + _ROWS]
            total += release.decode_mean(part) * (len(part) / len(reports))
            advance(len(part))
    return total
