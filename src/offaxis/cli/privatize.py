"""``offaxis privatize``: private vectors to reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offaxis.cli.options import ARRAY, AsJson, Expect, ReleaseFile
from offaxis.cli.terminal import counted, print_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from offaxis.release import Release

_ROWS = 4096


def privatize(
    release: ReleaseFile,
    vectors: Annotated[
        str, typer.Option(metavar="FILE", help=f"The private vectors, one or a batch: {ARRAY}.")
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="REPORTS", help="The file of reports to write, one after the other."),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file of reports that is already there.")
    ] = False,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Turn private vectors into reports that may leave the device.

    Every run draws fresh randomness and spends the budget again: run it once on the same vectors.
    """
    from offaxis.cli.arrays import locate, read_array
    from offaxis.cli.facts import guarantee_facts, load_release
    from offaxis.cli.files import check_output
    from offaxis.errors import InvalidInput

    check_output(out, release, locate(vectors)[0])
    if out.exists() and not force:
        raise InvalidInput(
            f"{out} is already there, and making its reports again would spend the budget again: "
            f"send the ones it holds, choose another --out, or use --force"
        )
    loaded = load_release(release, expect)
    size = loaded.report_size
    count = _write(loaded, read_array(vectors), out)
    if as_json:
        print_json(
            {
                "out": str(out),
                "release": loaded.hash,
                "reports": count,
                "report_bytes": size,
                "guarantee": guarantee_facts(loaded),
            }
        )
        return
    typer.echo(
        f"wrote {counted(count, 'report')} of {size:,} bytes to {out}\n"
        f"each promises {loaded.guarantee}; a second run on the same vectors would spend it again"
    )


def _write(release: Release, vectors: NDArray[Any], out: Path) -> int:
    """Write reports part by part, so that memory does not grow with the file."""
    from offaxis.cli.progress import counting
    from offaxis.files import replacing
    from offaxis.vectors import as_batch

    batch = vectors[None] if vectors.ndim == 1 else vectors
    with counting("making reports", len(batch)) as advance, replacing(out) as file:
        # An empty file is passed on once, for the release to refuse.
        for start in range(0, max(len(batch), 1), _ROWS):
            part, _ = as_batch(batch[start : start + _ROWS], release.input_dim, first_row=start)
            reports = release.privatize(part)
            assert isinstance(reports, list), "a batch gives a list"
            file.writelines(reports)
            advance(len(reports))
    return len(batch)
