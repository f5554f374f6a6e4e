"""``offaxis study``: run the paper's experiments, and hold them against its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from offaxis.cli.command import Group
from offaxis.cli.examples import add, example
from offaxis.cli.options import AsJson
from offaxis.cli.showing.terminal import bare_table, one_line, plain, print_json, screen
from offaxis.cli.usage import Misused, reading_options
from offaxis.errors import InvalidInput, MissingExtra, OffaxisError, installing

if TYPE_CHECKING:
    from offaxis.studies.compare import Line
    from offaxis.studies.study import Study

study: Final = typer.Typer(
    cls=Group,
    help="Run the paper's experiments and compare with its numbers.",
    no_args_is_help=True,
    add_completion=False,
)

Folder = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Where results go. Finished cells are kept there: a run that was stopped goes on.",
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Repetitions behind every number.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="One of offaxis study list.")]
DEFAULT_FOLDER: Final = Path("offaxis-studies")


@example("offaxis study list")
def list_(as_json: AsJson = False) -> None:
    """Show all studies."""
    from offaxis.studies.catalogue import studies

    found = list(studies().values())
    if as_json:
        facts = [{"name": s.name, "title": s.title, "cells": s.cells} for s in found]
        print_json({"studies": facts})
        return

    table = bare_table()
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("what")
    table.add_column("numbers", justify="right")
    for entry in found:
        table.add_row(entry.name, entry.title, f"{entry.cells:,}")
    with screen() as console:
        console.print(table)


@example("offaxis study run main-lr")
def run(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One of offaxis study list, or beyond for its family."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all studies.")] = False,
    seeds: Seeds = 20,
    out: Folder = DEFAULT_FOLDER,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="Also put tables, ours beside the paper's, between the marks of a document.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a study: a CSV, a parquet file with pyarrow, and a page with its figure.

    Finished cells are stored as they come. A run that was interrupted or killed goes on where it
    stopped, and ends with the same files.
    """
    from offaxis.cli.files import check_input
    from offaxis.studies.catalogue import chosen as find
    from offaxis.studies.catalogue import studies
    from offaxis.studies.tables.markdown import put, section

    if (name is None) is not every:
        raise Misused("give the name of a study, or --all")
    with reading_options():
        chosen = list(studies().values()) if every else find(str(name))
    if into is not None:
        check_input(into)
    facts, sections, missed = [], {}, []
    for number, entry in enumerate(chosen, 1):
        head = f"{number}/{len(chosen)} " if len(chosen) > 1 else ""
        try:
            lines, written = _run(entry, out, seeds, head)
        except OffaxisError as error:
            if not every:
                raise
            # The others may do without the data or the package that this one lacks.
            typer.echo(one_line(f"{entry.name} was not run: {error}"), err=True)
            missed.append(entry.name)
            continue
        facts.append(_facts(entry, lines) | {"files": [str(path) for path in written]})
        sections[entry.name] = section(entry, lines)
        if not as_json:
            _print(entry, lines, written)
    if into is not None:
        put(into, sections)
    if as_json:
        print_json({"seeds": seeds, "studies": facts, "not_run": missed})
    if missed:
        raise InvalidInput(f"{len(missed)} of {len(chosen)} studies were not run, see above")


@example("offaxis study compare main-mlp")
def compare(
    name: Name, seeds: Seeds = 20, out: Folder = DEFAULT_FOLDER, as_json: AsJson = False
) -> None:
    """Show our numbers, the paper's and the difference; runs what is not finished."""
    from offaxis.studies.catalogue import study as find

    with reading_options():
        entry = find(name)
    lines, written = _run(entry, out, seeds, "")
    if as_json:
        from offaxis.studies.tables.records import records

        print_json(_facts(entry, lines) | {"rows": records(entry, lines)})
        return
    _print_table(entry, lines)
    _print(entry, lines, written)


def _run(entry: Study, out: Path, seeds: int, head: str) -> tuple[list[Line], list[Path]]:
    """Compute a study and write its files; without matplotlib and jinja2, the tables alone."""
    from offaxis.cli.showing.progress import moving
    from offaxis.studies import engine
    from offaxis.studies.compare import compare as beside
    from offaxis.studies.sources import open_source
    from offaxis.studies.tables.records import records, short_records, write_csv, write_parquet

    with moving(f"{head}{entry.name}: loading") as move:

        def progress(label: str, done: int, total: int | None) -> None:
            move(f"{head}{entry.name}: {label}", done, total)

        outcomes = engine.run(entry.rows, out, seeds=seeds, opener=open_source, progress=progress)
    lines = beside(entry, outcomes)
    table = records(entry, lines)
    stem = out / entry.name
    written = [stem.with_suffix(".csv")]
    write_csv(written[0], table)
    short = short_records(entry, lines)
    if short:
        written.append(out / f"{entry.name}-short.csv")
        write_csv(written[-1], short)
    if write_parquet(stem.with_suffix(".parquet"), table):
        written.append(stem.with_suffix(".parquet"))
    try:
        from offaxis.reporting.study.page import write_study

        written += write_study(entry, lines, out, open_source(entry.rows[0].setting))
    except (MissingExtra, ModuleNotFoundError):
        typer.echo(f"no page: {installing('report')}", err=True)
    return lines, written


def _facts(entry: Study, lines: list[Line]) -> dict[str, Any]:
    from offaxis.studies.claims import claims

    gaps = [abs(line.difference) for line in lines if line.difference is not None]
    return {
        "study": entry.name,
        "numbers": len(lines),
        "published": len(gaps),
        "mean_difference": sum(gaps) / len(gaps) if gaps else None,
        "largest_difference": max(gaps, default=None),
        "claims": [
            {"claim": claim.text, "holds": claim.holds, "worst": claim.worst}
            for claim in claims(entry, lines)
        ],
    }


def _print(entry: Study, lines: list[Line], written: list[Path]) -> None:
    facts = _facts(entry, lines)
    text = f"{entry.name}: {facts['numbers']} numbers"
    if facts["published"]:
        text += (
            f", {facts['published']} published ones at a distance of "
            f"{facts['mean_difference']:.4f} on average, {facts['largest_difference']:.4f} at most"
        )
    typer.echo(plain(text))
    for claim in facts["claims"]:
        verdict = "holds" if claim["holds"] else "does not hold"
        typer.echo(plain(f"  {verdict}: {claim['claim']} ({claim['worst']})"))
    typer.echo(plain("  " + ", ".join(str(path) for path in written)))


def _short(value: float, sign: str = "") -> str:
    """Write a number without the zero before its point: twelve of them must fit 80 columns."""
    return f"{value:{sign}.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:{sign}.3f}"


def _print_table(entry: Study, lines: list[Line]) -> None:
    """Print three lines a row: ours, the paper's, the difference."""
    from rich.text import Text

    budgets = list(dict.fromkeys(line.outcome.epsilon for line in lines))
    rows: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        row = line.outcome.row
        rows.setdefault((row.label, row.level, row.mechanism.mark), []).append(line)
    with screen() as console:
        for (label, level, mark), found in rows.items():
            head = Text(plain(f"{label}{f', {entry.level} {level}' if level else ''}"), "bold")
            if mark:
                head.append(f"  {mark}", "red")
            console.print(head, soft_wrap=True)
            grid = bare_table(1, header=False)
            grid.add_column(style="dim", no_wrap=True)
            for _ in budgets:
                grid.add_column(justify="right", no_wrap=True)
            grid.add_row("ε", *(f"{epsilon:g}" for epsilon in budgets))
            grid.add_row("ours", *(_short(line.outcome.mean) for line in found))
            if any(line.paper for line in found):
                paper = (_short(line.paper.mean) if line.paper else "" for line in found)
                grid.add_row("paper", *paper)
                gaps = ("" if g.difference is None else _short(g.difference, "+") for g in found)
                grid.add_row("diff", *gaps)
            console.print(grid)


add(study, list_, "list")
add(study, run)
add(study, compare)
