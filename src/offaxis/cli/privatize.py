"""``offaxis privatize``: turn private vectors into reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray

from offaxis.card import guarantee_facts, is_sequence
from offaxis.cli.answers import ANSWERS, describe_asked, locate_answers, read_answers
from offaxis.cli.engine import (
    IDS,
    Engine,
    EngineName,
    Master,
    check_engine,
    locate_column,
    open_engine,
)
from offaxis.cli.inputs import check_new_reports, check_output, locate, read_array
from offaxis.cli.ledger import balance_facts, open_ledger
from offaxis.cli.options import ARRAY, AsJson, Expect, Force, ReleaseFile, UsageError, example
from offaxis.cli.terminal import pluralize, print_json, step_bar
from offaxis.client import Reporter
from offaxis.encoding.questions import AnswersEncoder
from offaxis.files import replacing
from offaxis.privacy.ledger import Balance
from offaxis.privacy.wording import rounded, written_budget
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release
from offaxis.vectors import as_batch

_ROWS = 4096


def _reject_seed(seed: str | None) -> None:
    if seed is not None:
        raise UsageError(
            "privatize takes no --seed: real reports draw fresh randomness from the operating "
            "system. For seeded simulations use: offaxis evaluate --seed"
        )


@example(
    "offaxis privatize my.release --vectors mine.npy --out mine.reports",
    "offaxis privatize pairs.release --vectors mine.npy --answers mine.csv --out pairs.reports",
)
def privatize(
    release: ReleaseFile,
    out: Annotated[
        Path,
        typer.Option(metavar="REPORTS", help="The file of reports to write."),
    ],
    vectors: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"The private vectors, one or a batch: {ARRAY}."),
    ] = None,
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"The private answers, {ANSWERS}: with --vectors for a release of pairs (offaxis "
            "learn), without for one of answers alone. With --engine: the column of the answer, or "
            "of several, as smoker,age.",
        ),
    ] = None,
    force: Force = False,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="LEDGER",
            help="Ledger of the one person that all vectors are about (offaxis ledger create). "
            "Each row is one report. All reports are paid for before the first is made, or none.",
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --ledger: what the report is for. A release per person is reported once in "
            "a study, or as one sequence; the costs of studies add up.",
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="ROUND",
            help="For a release of sequences: the number of the round, such as the day, the same "
            "for everybody and larger than the last one.",
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
        str | None, typer.Option(hidden=True, callback=_reject_seed, help="Not supported.")
    ] = None,
) -> None:
    """Turn private vectors into reports that may leave the device.

    Every run draws fresh randomness and spends the budget again: run it only once on the same
    vectors. With --ledger, the cost is on disk before the first report is made: a run that fails
    later has paid but released nothing, and a run that would exceed a limit is rejected. With
    --engine, each record of a Parquet file or folder becomes one report, written with its id to a
    folder. The machines that do this see the vectors and must be trusted.
    """
    if ledger is None and (study is not None or number is not None):
        raise UsageError("--study and --number need --ledger")
    check_engine(engine, master, ledger=ledger)
    if engine is not None:
        if vectors is None:
            raise UsageError("Missing option '--vectors': it names the file, also of answers alone")
        loaded = Release.load(release, expect=expect)
        _privatize_records(
            engine, master, loaded, vectors, answers, out, ids, force=force, as_json=as_json
        )
        return
    others = [ledger] if ledger else []
    others += [locate_answers(answers)] if answers else []
    others += [locate(vectors)[0]] if vectors else []
    check_output(out, release, *others)
    check_new_reports(out, force=force)
    loaded = Release.load(release, expect=expect)
    batch = _read_private(loaded, vectors, answers)
    sequence = isinstance(loaded.randomizer, Memoised)
    if sequence and (ledger is None or number is None):
        raise UsageError(
            "a release of sequences needs --ledger, which keeps the person's permanent answer, and "
            "--number, the number of the round"
        )
    if number is not None and not sequence:
        raise UsageError("--number is for a release of sequences (offaxis memoise)")
    balances: list[Balance] | None = None
    paid = ""
    if ledger is None:
        count = _write_reports(loaded, batch, out, None)
    else:
        with open_ledger(ledger) as opened:
            before = opened.spent()
            reporter = Reporter(loaded, opened, study or "")
            count = _write_reports(loaded, batch, out, reporter, number)
            balances = opened.balances()
            epsilon, delta = (now - then for now, then in zip(opened.spent(), before, strict=True))
            paid = written_budget(epsilon, delta)
    _print_result(loaded, count, out, ledger, balances, paid, as_json=as_json)


def _read_private(release: Release, vectors: str | None, answers: str | None) -> NDArray[Any]:
    """Read the private vectors; of pairs, the rows of vectors and answers; or answers alone."""
    if isinstance(release.encoder, AnswersEncoder):
        if vectors is not None or answers is None:
            raise UsageError("this release asks for answers alone: pass --answers, not --vectors")
        return release.pairs(None, read_answers(answers, release.asked))
    if vectors is None:
        raise UsageError("Missing option '--vectors'")
    if not release.asked:
        if answers is not None:
            raise UsageError("this release asks people for no answer: leave out --answers")
        return read_array(vectors)
    if answers is None:
        listed = " and ".join(map(describe_asked, release.asked))
        raise UsageError(f"Missing option '--answers': this release asks for {listed}")
    return release.pairs(read_array(vectors), read_answers(answers, release.asked))


def _print_result(
    release: Release,
    count: int,
    out: Path,
    ledger: Path | None,
    balances: list[Balance] | None,
    paid: str,
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
        if balances is not None:
            facts["ledger"] = {"path": str(ledger), "limits": list(map(balance_facts, balances))}
        print_json(facts)
        return
    typer.echo(f"wrote {pluralize(count, 'report')} of {release.report_size:,} bytes to {out}")
    if is_sequence(release):
        typer.echo(f"all reports of this person's sequence together promise {release.guarantee}")
    elif isinstance(release.randomizer, Memoised):
        typer.echo(
            f"each permanent answer costs {release.guarantee}; nothing was drawn if paid ε = 0"
        )
    else:
        alone = isinstance(release.encoder, AnswersEncoder)
        covered, again = "", "answers" if alone else "vectors"
        if release.asked and not alone:
            covered = ", for a vector and its answers together"
        elif len(release.asked) > 1:
            covered = ", for all answers together"
        typer.echo(
            f"each promises {release.guarantee}{covered}; a second run on the same {again} would "
            f"spend it again"
        )
    if balances is not None:
        left = (f"ε = {rounded(b.left, up=False)} {b.limit.stretch}" for b in balances)
        typer.echo(f"paid {paid} from {ledger}; left: {' · '.join(left)}")


def _privatize_records(
    engine: Engine,
    master: str | None,
    release: Release,
    vectors: str,
    answers: str | None,
    out: Path,
    ids: str,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Make one report for each record of a Parquet file or folder."""
    path, column = locate_column(vectors)
    with open_engine(engine, master, "making reports") as running:
        source = running.open(path)
        columns = {"ids": ids, "vectors": column, "answers": _columns_of(release, answers)}
        facts = running.functions.privatize(
            source, release, str(out), **columns, force=force, **running.callbacks
        )
    if as_json:
        print_json({"out": str(out), **facts})
        return
    typer.echo(
        f"wrote {pluralize(facts['reports'], 'report')} of {release.report_size:,} bytes, with "
        f"their ids, to folder {out}\neach promises {release.guarantee} towards anyone who sees "
        f"only the reports; a second run would spend it again"
    )


def _columns_of(release: Release, answers: str | None) -> dict[str, str] | None:
    """Return the column of every private answer, in the order in which they are asked."""
    if answers is None:
        return None
    columns = [answers] if len(release.asked) == 1 else answers.split(",")
    if len(columns) != len(release.asked):
        listed = " and ".join(map(describe_asked, release.asked)) or "no answer"
        raise UsageError(f"--answers names {len(columns)} columns; this release asks for {listed}")
    names = (part.name for part in release.asked)
    return dict(zip(names, columns, strict=True))


def _write_reports(
    release: Release,
    vectors: NDArray[Any],
    out: Path,
    reporter: Reporter | None,
    number: int | None = None,
) -> int:
    """Write reports in parts, so that memory does not grow with the file.

    A reporter pays once the file is known to be writable, and before the first report is made.
    """
    batch = vectors[None] if vectors.ndim == 1 else vectors
    with step_bar("making reports", len(batch)) as advance, replacing(out) as file:
        if reporter is None:
            parts = _unpaid_reports(release, batch)
        elif number is None:
            parts = reporter.reports(batch, _ROWS)
        else:
            parts = iter([[reporter.report(batch, number)]])
        for reports in parts:
            file.writelines(reports)
            advance(len(reports))
    return len(batch)


def _unpaid_reports(release: Release, batch: NDArray[Any]) -> Iterator[list[bytes]]:
    """Make reports without a ledger."""
    # An empty batch is passed on once, for the release to reject.
    for start in range(0, max(len(batch), 1), _ROWS):
        part, _ = as_batch(batch[start : start + _ROWS], release.input_dim, first_row=start)
        reports = release.privatize(part)
        assert isinstance(reports, list), "a batch returns a list"
        yield reports
