"""``python -m experiments``: run the paper's experiments, and hold them against its numbers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from experiments import data as library
from experiments import engine
from experiments.catalogue import chosen as find_all
from experiments.catalogue import studies
from experiments.catalogue import study as find
from experiments.claims import claims
from experiments.compare import Line
from experiments.compare import compare as beside
from experiments.data import shelf
from experiments.data.cache import cache_folder
from experiments.engine import Study
from experiments.sources import open_source
from experiments.tables import put, records, section, short_records, write_csv, write_parquet
from offaxis.cli.app import SafeGroup
from offaxis.cli.evaluate import theory_facts
from offaxis.cli.inputs import check_input, check_output
from offaxis.cli.options import AsJson, Group, Misused, add, example, reading_options
from offaxis.cli.recommend import recommendation_facts
from offaxis.cli.terminal import (
    bare_table,
    counted,
    filled,
    moving,
    one_line,
    plain,
    print_json,
    screen,
    waiting,
)
from offaxis.errors import InvalidInput, MissingExtra, OffaxisError, installing, unknown_name

if TYPE_CHECKING:
    from experiments.demo.result import DemoResult, HouseholdResult


app: Final = typer.Typer(
    cls=SafeGroup,
    help="Run the paper's experiments and compare with its numbers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
Name = Annotated[str, typer.Argument(metavar="NAME", help="One of python -m experiments list.")]
DEFAULT_FOLDER: Final = Path("offaxis-studies")


@example("python -m experiments list")
def list_studies(as_json: AsJson = False) -> None:
    """Show all studies."""
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


@example("python -m experiments run main-lr")
def run(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="One of python -m experiments list, or beyond for its family."
        ),
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
    if (name is None) is not every:
        raise Misused("give the name of a study, or --all")
    with reading_options():
        chosen = list(studies().values()) if every else find_all(str(name))
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


@example("python -m experiments compare main-mlp")
def compare(
    name: Name, seeds: Seeds = 20, out: Folder = DEFAULT_FOLDER, as_json: AsJson = False
) -> None:
    """Show our numbers, the paper's and the difference; runs what is not finished."""
    with reading_options():
        entry = find(name)
    lines, written = _run(entry, out, seeds, "")
    if as_json:
        print_json(_facts(entry, lines) | {"rows": records(entry, lines)})
        return
    _print_table(entry, lines)
    _print(entry, lines, written)


def _run(entry: Study, out: Path, seeds: int, head: str) -> tuple[list[Line], list[Path]]:
    """Compute a study and write its files; without matplotlib and jinja2, the tables alone."""
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
        from experiments.pages.page import write_study

        written += write_study(entry, lines, out, open_source(entry.rows[0].setting))
    except (MissingExtra, ModuleNotFoundError):
        typer.echo(f"no page: {installing('report')}", err=True)
    return lines, written


def _facts(entry: Study, lines: list[Line]) -> dict[str, Any]:
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


add(app, list_studies, "list")
add(app, run)
add(app, compare)


# ----------------------------------------------------------------------------
# ``python -m experiments data``: which data sets there are, and getting them.

data: Final = typer.Typer(
    cls=Group,
    help="List and get the data sets of the studies.",
    no_args_is_help=True,
    add_completion=False,
)

Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Where data are kept, instead of OFFAXIS_CACHE or the usual cache folder.",
    ),
]


def _size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count else ""


@example("python -m experiments data list")
def list_sets(cache: Cache = None, as_json: AsJson = False) -> None:
    """Show all data sets, and which of them are here."""
    entries = shelf(cache)
    folder = cache_folder(cache)
    if as_json:
        print_json({"cache": str(folder), "sets": [asdict(entry) for entry in entries]})
        return
    table = bare_table()
    for title in ("name", "what", "state", "size"):
        table.add_column(
            title,
            no_wrap=title in ("name", "size"),
            justify="right" if title == "size" else "left",
        )
    for entry in entries:
        state = Text(entry.state, style="green" if entry.ready else "")
        table.add_row(Text(entry.name, style="bold"), entry.about, state, _size(entry.bytes))
    with screen() as console:
        console.print(table)
        console.print(f"\ncache: {plain(str(folder))}", soft_wrap=True)


@example(
    "python -m experiments data get digits",
    "python -m experiments data get cifar10 --from cifar-10-binary.tar.gz",
)
def get(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="mnist, cifar10, cifar10-c, lhsm or digits."),
    ],
    own: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Use an own copy: the official files or archive, a torchvision folder, or for "
            "lhsm Kaggle's daily tables.",
        ),
    ] = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Have a data set ready: fetched, checked and cached. Fetches nothing that is already here."""
    if name not in library.NAMES:
        raise Misused(unknown_name("data set", name, library.NAMES))
    with moving(f"getting {name}") as move:
        got = library.get(name, own=own, cache=cache, progress=move)
    if as_json:
        print_json(
            {
                "name": got.name,
                "path": None if got.path is None else str(got.path),
                "already": got.already,
            }
        )
        return
    where = "part of an installed package" if got.path is None else str(got.path)
    typer.echo(plain(f"{got.name} {'was already here' if got.already else 'is ready'}: {where}"))


add(data, list_sets, "list")
add(data, get)
app.add_typer(data, name="data")


# ----------------------------------------------------------------------------
# ``python -m experiments demo``: the paper's two main results on bundled real data.

_LINES: Final = (
    "“Alone”: no vector is sent but the model's answer, by the best channel for it. A line to "
    "compare with, not a bound: a better model passes it."
)


@example("python -m experiments demo --out offaxis-demo.html")
def demo(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML page to write.")] = Path(
        "offaxis-demo.html"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions behind every number.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Compare randomizers, plain and reshaped, on bundled real images and households."""
    with waiting("loading"):
        from experiments.demo.run import run_demo

    if not out.is_dir():
        check_output(out)
    with moving("starting") as move:
        result = run_demo(out, seeds=seeds, progress=move)
    if as_json:
        theory = {"theory": theory_facts(list(result.theory.rows))}
        facts = {"html": str(result.html), "seeds": seeds, "clean": result.clean}
        households = {
            "clean": result.households.clean,
            "constant": result.households.constant,
            "lines": _lines(result.households.lines, "rmse"),
            "rows": result.households.table(),
        }
        facts |= {"chance": result.chance, "lines": _lines(result.lines, "accuracy")}
        facts |= {"rows": result.table(), "households": households}
        facts |= {"recommended": [recommendation_facts(each) for each in result.recommended]}
        print_json(facts | theory)
        return
    with screen() as console:
        console.print(
            f"Accuracy in %, mean of {counted(seeds, 'repetition')}. Without privacy "
            f"{100 * result.clean:.1f}, by guessing {100 * result.chance:.1f}.\n"
        )
        console.print(table(result))
        found = result.households
        console.print(
            f"\nTomorrow's electricity of a household, error in kWh per half-hour. Without privacy "
            f"{found.clean:.3f}, always answering the public mean {found.constant:.3f}.\n"
        )
        console.print(household_table(found))
        console.print(f"\n{_LINES}\n")
        for each in result.recommended:
            advice = f"Recommended at ε = {each.epsilon:g}: {each.summary}"
            console.print(filled(advice, console) + "\n")
        console.print(f"curves and noise ellipses: {result.html}", soft_wrap=True)


def table(result: DemoResult) -> Table:
    """Lay out accuracies in %: a row a randomizer and shape, a column a budget."""
    cells = {
        (str(r["randomizer"]), str(r["reshaping"]), float(r["epsilon"])): 100 * float(r["accuracy"])
        for r in result.table()
    }
    lines = {epsilon: 100 * value for epsilon, value in result.lines.items()}
    return _grid(cells, ("answer alone", lines), lambda value: f"{value:.1f}")


def household_table(result: HouseholdResult) -> Table:
    """Lay out errors the same way."""
    cells = {key: result.mean(*key) for key in result.rmse}
    # Three digits, in the width of four characters.
    return _grid(
        cells,
        ("forecast alone", result.lines),
        lambda value: f"{value:.3g}" if value >= 1 else f"{value:.2f}"[1:],
    )


def _grid(
    cells: Mapping[tuple[str, str, float], float],
    line: tuple[str, Mapping[float, float]],
    write: Callable[[float], str],
) -> Table:
    from offaxis.reporting.pages import SHAPE_TITLES, TITLES

    # Names stand on lines of their own: beside twelve budgets they would not fit 80 columns.
    grid = bare_table(1)
    grid.add_column("budget ε", no_wrap=True)
    epsilons = tuple(dict.fromkeys(epsilon for _, _, epsilon in cells))
    for epsilon in epsilons:
        grid.add_column(f"{epsilon:g}", justify="right", no_wrap=True)
    for name in dict.fromkeys(name for name, _, _ in cells):
        grid.add_row(Text(TITLES.get(name, name), style="bold"))
        for shape, title in SHAPE_TITLES.items():
            values = [cells[name, shape, epsilon] for epsilon in epsilons]
            style = "green" if shape == "jacobian" else ""
            grid.add_row(f"  {title}", *(Text(write(v), style=style) for v in values))
    title, heights = line
    grid.add_row(Text(title, style="bold"))
    grid.add_row("  a line", *(Text(write(heights[e]), style="dim") for e in epsilons))
    return grid


def _lines(heights: Mapping[float, float], metric: str) -> list[dict[str, Any]]:
    return [{"epsilon": e, metric: value, "kind": "line"} for e, value in heights.items()]


# ----------------------------------------------------------------------------
# ``python -m experiments serve-demo``: a collector, a page to draw on and a simulated crowd.


@example("python -m experiments serve-demo")
def serve_demo(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8470,
    pace: Annotated[
        float, typer.Option(min=0.01, max=100, help="People of the crowd that report in a second.")
    ] = 2.0,
) -> None:
    """Show reports from both sides: draw a digit on one page, watch a crowd report on another.

    Everything is on this machine, in a temporary folder that is deleted at the end. Stop it with
    Ctrl-C.
    """
    try:
        from experiments.live_demo.site import crowd, demo_site
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the demo needs {error.name}: {installing('collector')}") from None

    # Who asks it to end, such as a service manager, finds nothing left either.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), demo_site(port) as site:
        typer.echo(f"draw a digit     {site.page}")
        typer.echo(f"dashboard        {site.dashboard}")
        typer.echo(f"analyst's token  {site.analyst}")
        typer.echo("a simulated crowd reports now; stop with Ctrl-C")
        with closing(crowd(site)) as people:
            for _ in people:
                time.sleep(1 / pace)
    typer.echo("stopped; nothing is kept")


add(app, demo)
add(app, serve_demo, "serve-demo")
