"""``offaxis audit``: attack a release, from the vectors to the bytes, or any function."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from offaxis.auditing import FALSE_ALARM, FULL, AnyVector, AuditResult, Finding
from offaxis.auditing import audit as attack
from offaxis.auditing.result import CAVEAT
from offaxis.cli.inputs import check_output, import_attribute
from offaxis.cli.options import AsJson, Expect, UsageError, example, usage_errors
from offaxis.cli.terminal import (
    buffered_console,
    plain_table,
    pluralize,
    print_json,
    printable,
    progress_bar,
    spinner,
)
from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Ball, Box, check_dim
from offaxis.release import Release

VIOLATION = 1
_COLOURS = {"violation": "bold red", "side channel": "bold yellow", "not run": "dim"}


@example(
    "offaxis audit my.release --reports 2000 --html audit.html",
    "offaxis audit --python mechanisms:noisy --epsilon 1 --dim 3 --radius 1 --reports 4000",
)
def audit(
    release: Annotated[
        Path | None,
        typer.Argument(metavar="[RELEASE]", help="Release file written by offaxis fit."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION",
            help="Instead of a release, a function of your own as package.module:function. Its "
            "module is imported, from the current folder first: this runs its code.",
        ),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The ε that the function promises.")
    ] = None,
    delta: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The δ that it promises; 0 by default.")
    ] = None,
    dim: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Its inputs are vectors of N numbers: every finite one, unless --radius is given.",
        ),
    ] = None,
    radius: Annotated[
        float | None, typer.Option(metavar="R", help="The largest norm of the vectors.")
    ] = None,
    norm: Annotated[
        str | None,
        typer.Option(metavar="1|2|inf", help="The norm that --radius bounds; 2 by default."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Its inputs are these texts.")
    ] = None,
    low: Annotated[
        float | None, typer.Option(metavar="X", help="Its inputs are numbers from --low to --high.")
    ] = None,
    high: Annotated[float | None, typer.Option(metavar="X", help="See --low.")] = None,
    batched: Annotated[
        bool,
        typer.Option("--batched", help="It takes a batch of inputs, and returns as many outputs."),
    ] = False,
    reports: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Reports in the main test. By default as many as half a minute allows.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Use ten million reports in the main test; takes minutes."),
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="Roughly the time of the audit; by default 30."),
    ] = None,
    false_alarm: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Probability of a false alarm if the promise is kept; by default 1 run in 1,000.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the findings as an HTML page.")
    ] = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Attack a release or a function and report what was found. Exit code 1 means a violation.

    The audit privatizes synthetic inputs many times and analyses the reports. It needs no
    private data and spends no budget.
    """
    if full and reports is not None:
        raise UsageError("--full sets --reports; use only one of them")
    if (release is None) == (python is None):
        raise UsageError("name a RELEASE or a function by --python, exactly one of the two")
    only = {
        "--epsilon": epsilon,
        "--delta": delta,
        "--dim": dim,
        "--radius": radius,
        "--norm": norm,
        "--labels": labels,
        "--low": low,
        "--high": high,
        "--batched": batched or None,
    }
    settings: dict[str, Any] = {"seconds": seconds}
    target: Any
    if release is not None:
        for option, value in only.items():
            if value is not None:
                raise UsageError(f"{option} is for --python; a release states its own guarantee")
        target = Release.load(release, expect=expect)
    else:
        if expect is not None:
            raise UsageError("--expect is for a release")
        if epsilon is None:
            raise UsageError("--python needs --epsilon, the promise to test")
        domain = _domain(dim, radius, norm, labels, low, high)
        settings |= {"epsilon": epsilon, "delta": delta, "domain": domain, "batched": batched}
        target = import_attribute(str(python))
        if not callable(target):
            raise InvalidInput(f"{python} is a {type(target).__name__}, not a function")
    if html is not None:
        check_output(html, *([] if release is None else [release]))
    with spinner("loading"):
        if html is not None:
            from offaxis.html.pages import require_report_extra

            require_report_extra()
    # What a function prints is not part of the result, which may be JSON.
    with progress_bar("starting") as update, redirect_stdout(sys.stderr):
        result = attack(
            target,
            reports=FULL if full else reports,
            false_alarm=FALSE_ALARM if false_alarm is None else false_alarm,
            progress=update,
            **settings,
        )
    if html is not None:
        from offaxis.html.audit_page import write_page

        write_page(result, html)
    if as_json:
        print_json(result.facts() | {"html": None if html is None else str(html)})
    else:
        with buffered_console() as console:
            _print_result(result, html, console)
    if result.violated:
        raise typer.Exit(VIOLATION)


_DOMAINS = "--dim (with --radius and --norm), --labels, or --low and --high"


def _domain(
    dim: int | None,
    radius: float | None,
    norm: str | None,
    labels: str | None,
    low: float | None,
    high: float | None,
) -> Any:
    """Return the domain that the options state."""
    if (low is None) != (high is None):
        raise UsageError("--low and --high belong together")
    if sum(part is not None for part in (dim, labels, low)) != 1:
        raise UsageError(f"--python needs the inputs of the function, one of {_DOMAINS}")
    if (radius is not None and dim is None) or (norm is not None and radius is None):
        raise UsageError("--norm needs --radius, and --radius needs --dim")
    if labels is not None:
        return [label.strip() for label in labels.split(",")]
    if dim is None:
        return (low, high)
    with usage_errors():
        if radius is None:
            return AnyVector(dim)
        if norm not in (None, "1", "2", "inf"):
            raise UsageError(f"--norm must be 1, 2 or inf, got {norm!r}")
        check_dim(dim)
        order: Literal[1, 2] = 1 if norm == "1" else 2
        return Box(dim, radius) if norm == "inf" else Ball(dim, radius, order)


def _print_result(result: AuditResult, html: Path | None, console: Console) -> None:
    verdict = "VIOLATION FOUND" if result.violated else "NO VIOLATION FOUND"
    colour = "red" if result.violated else "cyan"
    title = Text("Audit", style="bold")
    what = f"{result.guarantee}, {result.randomizer}"
    if result.release is None:
        what = printable(f"{result.promise}, {result.target} on {result.domain}")
    title.append(f"   {what}   ", style="not bold")
    title.append(verdict, style=f"bold {colour}")
    notes = Text(result.summary + "\n\n", style="bold red" if result.violated else "bold")
    seconds = pluralize(round(result.seconds), "second")
    notes.append(
        f"{CAVEAT} On a {'function' if result.release is None else 'release'} that keeps its "
        f"guarantee, all tests together raise a false alarm "
        f"in at most one run of {1 / result.false_alarm:,.0f}. {seconds}"
        + ("." if result.release is None else f", release {result.release[:16]}…"),
        style="not bold default",
    )
    for part in (title, _table(result), notes):
        console.print()
        console.print(Padding(part, (0, 0, 0, 2)))
    if html is not None:
        console.print(Padding(f"\npage: {html}", (0, 0, 0, 2)), soft_wrap=True)


def _table(result: AuditResult) -> Table:
    table = plain_table()
    table.add_column("test", no_wrap=True)
    table.add_column("what was tried")
    table.add_column("result")
    table.add_column("ε ≥", justify="right", no_wrap=True)
    table.add_column("reports", justify="right", no_wrap=True)
    group = None
    for finding in result.findings:
        if finding.group != group:
            group = finding.group
            table.add_row(Text(group.upper(), style="bold"))
        bound = "" if finding.epsilon is None else f"{finding.epsilon:.2f}"
        reports = f"{finding.reports:,}" if finding.reports else ""
        tried = Text(printable(finding.tried), style="dim")
        table.add_row(finding.test, tried, _outcome(finding), bound, reports)
    return table


def _outcome(finding: Finding) -> Text:
    if finding.verdict == "nothing found" and finding.epsilon is not None:
        return Text("nothing found")
    if finding.verdict == "nothing found":
        return Text(printable(finding.result))
    text = Text(f"{finding.verdict}: ".upper(), style=_COLOURS[finding.verdict])
    return text.append(printable(finding.result), style="not bold")
