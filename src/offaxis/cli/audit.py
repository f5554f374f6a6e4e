"""``offaxis audit``: attacks on a release, from the vector to the bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from offaxis.audit import FALSE_ALARM, FULL, AuditResult, Finding
from offaxis.audit import audit as attack
from offaxis.audit.result import CAVEAT
from offaxis.cli.inputs import check_output, load_release
from offaxis.cli.options import AsJson, Expect, Misused, ReleaseFile, example
from offaxis.cli.terminal import bare_table, moving, plain, print_json, screen, waiting

VIOLATION = 1
_COLOURS = {"violation": "bold red", "side channel": "bold yellow", "not run": "dim"}


@example("offaxis audit my.release --reports 2000 --html audit.html")
def audit(
    release: ReleaseFile,
    reports: Annotated[
        int | None,
        typer.Option(metavar="N", help="Reports in the main test. By default half a minute's."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Ten million reports in the main test; takes minutes.")
    ] = False,
    false_alarm: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="How often a sound release may be accused by chance; by default 1 run in 1,000.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with the findings.")
    ] = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Attack a release and say what was found. Exit code 1 means a violation.

    Made-up vectors are privatized again and again, and their reports taken apart. No private
    vector is needed and no budget is spent.
    """
    if full and reports is not None:
        raise Misused("--full sets --reports; give one of them")
    loaded = load_release(release, expect)
    if html is not None:
        check_output(html, release)
    with waiting("loading"):
        if html is not None:
            from offaxis.reporting.pages import require_report_extra

            require_report_extra()
    with moving("starting") as move:
        result = attack(
            loaded,
            reports=FULL if full else reports,
            false_alarm=FALSE_ALARM if false_alarm is None else false_alarm,
            progress=move,
        )
    if html is not None:
        from offaxis.reporting.audit_page import write_page

        write_page(result, html)
    if as_json:
        print_json(result.facts() | {"html": None if html is None else str(html)})
    else:
        with screen() as console:
            _print(result, html, console)
    if result.violated:
        raise typer.Exit(VIOLATION)


def _print(result: AuditResult, html: Path | None, console: Console) -> None:
    word, colour = ("VIOLATION FOUND", "red") if result.violated else ("NO VIOLATION FOUND", "cyan")
    title = Text("Audit", style="bold")
    title.append(f"   {result.guarantee}, {result.randomizer}   ", style="not bold")
    title.append(word, style=f"bold {colour}")
    notes = Text(result.summary + "\n\n", style="bold red" if result.violated else "bold")
    notes.append(
        f"{CAVEAT} All tests together accuse a release that keeps its guarantee in one run of "
        f"{1 / result.false_alarm:,.0f} at most. {result.seconds:.0f} seconds, release "
        f"{result.release[:16]}…",
        style="not bold default",
    )
    for part in (title, _table(result), notes):
        console.print()
        console.print(Padding(part, (0, 0, 0, 2)))
    if html is not None:
        console.print(Padding(f"\npage: {html}", (0, 0, 0, 2)), soft_wrap=True)


def _table(result: AuditResult) -> Table:
    table = bare_table()
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
        return Text(plain(finding.result))
    text = Text(f"{finding.verdict}: ".upper(), style=_COLOURS[finding.verdict])
    return text.append(plain(finding.result), style="not bold")
