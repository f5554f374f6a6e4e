"""``offaxis privatize``: private vectors to reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray

from offaxis.card import guarantee_facts
from offaxis.cli.engine import (
    IDS,
    Engine,
    EngineName,
    Master,
    check_engine,
    locate_column,
    working,
)
from offaxis.cli.inputs import check_new_reports, check_output, load_release, locate, read_array
from offaxis.cli.ledger import balance_facts, open_ledger
from offaxis.cli.options import ARRAY, AsJson, Expect, Force, Misused, ReleaseFile, example
from offaxis.cli.terminal import counted, counting, print_json
from offaxis.client import Reporter
from offaxis.files import replacing
from offaxis.privacy.ledger import Balance
from offaxis.privacy.wording import rounded, written_budget
from offaxis.release import Release
from offaxis.vectors import as_batch

_ROWS = 4096


def _refuse_seed(seed: str | None) -> None:
    if seed is not None:
        raise Misused(
            "privatize takes no --seed: real reports draw fresh randomness from the operating "
            "system. For seeded research simulate: offaxis evaluate --seed"
        )


@example("offaxis privatize my.release --vectors mine.npy --out mine.reports")
def privatize(
    release: ReleaseFile,
    vectors: Annotated[
        str, typer.Option(metavar="FILE", help=f"The private vectors, one or a batch: {ARRAY}.")
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="REPORTS", help="The file of reports to write, one after the other."),
    ],
    force: Force = False,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="LEDGER",
            help="The ledger of the one person whom all vectors are about (offaxis ledger create). "
            "Every row is one report; all are paid for before the first is made, or none.",
        ),
    ] = None,
    engine: EngineName = None,
    master: Master = None,
    ids: Annotated[
        str,
        typer.Option("--id", metavar="COLUMN", help="With --engine: the column of record ids."),
    ] = IDS,
    expect: Expect = None,
    as_json: AsJson = False,
    seed: Annotated[
        str | None, typer.Option(hidden=True, callback=_refuse_seed, help="There is none.")
    ] = None,
) -> None:
    """Turn private vectors into reports that may leave the device.

    Every run draws fresh randomness and spends the budget again: run it once on the same vectors.
    With --ledger the cost is on the disk before a report is made: a run that fails later has paid
    and released nothing, and what would pass a limit is refused. With --engine all records of a
    Parquet file or folder get a report each, in a folder of ids and reports: the machines that do
    it see the vectors and must be trusted.
    """
    check_engine(engine, master, ledger=ledger)
    if engine is not None:
        loaded = load_release(release, expect)
        _records(engine, master, loaded, vectors, out, ids, force=force, as_json=as_json)
        return
    check_output(out, release, locate(vectors)[0], *([ledger] if ledger else []))
    check_new_reports(out, force=force)
    loaded = load_release(release, expect)
    batch = read_array(vectors)
    paid: list[Balance] | None = None
    if ledger is None:
        count = _write(loaded, batch, out, None)
    else:
        with open_ledger(ledger) as opened:
            count = _write(loaded, batch, out, Reporter(loaded, opened))
            paid = opened.balances()
    _tell(loaded, count, out, ledger, paid, as_json=as_json)


def _tell(
    release: Release,
    count: int,
    out: Path,
    ledger: Path | None,
    paid: list[Balance] | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        facts = {
            "out": str(out),
            "release": release.hash,
            "reports": count,
            "report_bytes": release.report_size,
            "guarantee": guarantee_facts(release),
        }
        if paid is not None:
            facts["ledger"] = {"path": str(ledger), "limits": [balance_facts(p) for p in paid]}
        print_json(facts)
        return
    typer.echo(
        f"wrote {counted(count, 'report')} of {release.report_size:,} bytes to {out}\n"
        f"each promises {release.guarantee}; a second run on the same vectors would spend it again"
    )
    if paid is not None:
        total = written_budget(count * release.guarantee.epsilon, count * release.guarantee.delta)
        left = (f"ε = {rounded(p.left, up=False)} {p.limit.stretch}" for p in paid)
        typer.echo(f"paid {total} from {ledger}; left: {' · '.join(left)}")


def _records(
    engine: Engine,
    master: str | None,
    release: Release,
    vectors: str,
    out: Path,
    ids: str,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Make a report of every record of a Parquet file or folder."""
    path, column = locate_column(vectors)
    with working(engine, master, "making reports") as work:
        facts = work.functions.privatize(
            work.open(path), release, str(out), ids=ids, vectors=column, force=force, **work.told
        )
    if as_json:
        print_json({"out": str(out), **facts})
        return
    typer.echo(
        f"wrote {counted(facts['reports'], 'report')} of {release.report_size:,} bytes to the "
        f"folder {out}, beside their ids\neach promises {release.guarantee} towards whoever sees "
        f"the reports alone; a second run would spend it again"
    )


def _write(release: Release, vectors: NDArray[Any], out: Path, reporter: Reporter | None) -> int:
    """Write reports part by part, so that memory does not grow with the file.

    A reporter pays once the file is known to be writable, and before the first report is made.
    """
    batch = vectors[None] if vectors.ndim == 1 else vectors
    with counting("making reports", len(batch)) as advance, replacing(out) as file:
        parts = reporter.reports(batch, _ROWS) if reporter else _unpaid(release, batch)
        for reports in parts:
            file.writelines(reports)
            advance(len(reports))
    return len(batch)


def _unpaid(release: Release, batch: NDArray[Any]) -> Iterator[list[bytes]]:
    """Make reports whose cost nobody counts here."""
    # An empty file is passed on once, for the release to refuse.
    for start in range(0, max(len(batch), 1), _ROWS):
        part, _ = as_batch(batch[start : start + _ROWS], release.input_dim, first_row=start)
        reports = release.privatize(part)
        assert isinstance(reports, list), "a batch gives a list"
        yield reports
