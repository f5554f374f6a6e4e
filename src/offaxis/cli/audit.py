"""``offaxis audit``: attack a release, from the vectors to the bytes of its reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from offaxis.auditing import FALSE_ALARM, FULL, AuditResult, Finding
from offaxis.auditing import audit as attack
from offaxis.auditing.result import CAVEAT
from offaxis.cli.inputs import check_output
from offaxis.cli.options import AsJson, Expect, ReleaseFile, UsageError, example
from offaxis.cli.terminal import (
    buffered_console,
    plain_table,
    pluralize,
    print_json,
    printable,
    progress_bar,
    spinner,
)
from offaxis.release import Release

VIOLATION = 1
_COLOURS = {"violation": "bold red", "side channel": "bold yellow", "not run": "dim"}


@example("offaxis audit my.release --reports 2000 --html audit.html")
def audit(
    release: ReleaseFile,
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
    false_alarm: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Probability of a false alarm on a sound release; by default 1 run in 1,000.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the findings as an HTML page.")
    ] = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Attack a release and report what was found. Exit code 1 means a violation.

    The audit privatizes synthetic vectors many times and analyses the reports. It needs no
    private vectors and spends no budget.
    """
    if full and reports is not None:
        raise UsageError("--full sets --reports; use only one of them")
    loaded = Release.load(release, expect=expect)
    if html is not None:
        check_output(html, release)
    with spinner("loading"):
        if html is not None:
            from offaxis.html.pages import require_report_extra

            require_report_extra()
    with progress_bar("starting") as update:
        result = attack(
            loaded,
            reports=FULL if full else reports,
            false_alarm=FALSE_ALARM if false_alarm is None else false_alarm,
            progress=update,
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


def _print_result(result: AuditResult, html: Path | None, console: Console) -> None:
    verdict = "VIOLATION FOUND" if result.violated else "NO VIOLATION FOUND"
    colour = "red" if result.violated else "cyan"
    title = Text("Audit", style="bold")
    title.append(f"   {result.guarantee}, {result.randomizer}   ", style="not bold")
    title.append(verdict, style=f"bold {colour}")
    notes = Text(result.summary + "\n\n", style="bold red" if result.violated else "bold")
    seconds = pluralize(round(result.seconds), "second")
    notes.append(
        f"{CAVEAT} On a release that keeps its guarantee, all tests together raise a false alarm "
        f"in at most one run of {1 / result.false_alarm:,.0f}. {seconds}, release "
        f"{result.release[:16]}…",
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
        tried = Text(finding.tried, style="dim")
        table.add_row(finding.test, tried, _outcome(finding), bound, reports)
    return table


def _outcome(finding: Finding) -> Text:
    if finding.verdict == "nothing found" and finding.epsilon is not None:
        return Text("nothing found")
    if finding.verdict == "nothing found":
        return Text(printable(finding.result))
    text = Text(f"{finding.verdict}: ".upper(), style=_COLOURS[finding.verdict])
    return text.append(printable(finding.result), style="not bold")
