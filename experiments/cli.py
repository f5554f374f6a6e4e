"""``python -m experiments``: the paper's studies, their data sets, and the demos."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from experiments import compare as comparing
from experiments import data as datasets
from experiments import engine
from experiments.catalogue import OURS, paper_studies, studies, studies_named
from experiments.catalogue import study as find_study
from experiments.claims import claims
from experiments.compare import ComparedCell
from experiments.data.cache import cache_folder
from experiments.engine import Study
from experiments.plugins import load as load_plugin
from experiments.sources import members, open_source
from experiments.tables import (
    TextTable,
    agreement_section,
    agreement_table,
    put,
    records,
    section,
    short_records,
    write_csv,
    write_parquet,
)
from offaxis.cli.app import SafeGroup
from offaxis.cli.evaluate import theory_facts
from offaxis.cli.inputs import check_input, check_output
from offaxis.cli.options import AsJson, Group, UsageError, add, example, usage_errors
from offaxis.cli.recommend import recommendation_facts
from offaxis.cli.terminal import (
    buffered_console,
    one_line,
    plain_table,
    pluralize,
    print_json,
    printable,
    progress_bar,
    spinner,
    wrap_text,
)
from offaxis.errors import InvalidInput, MissingExtra, OffaxisError, installing, unknown_name

if TYPE_CHECKING:
    from experiments.demo.result import DemoResult


app: Final = typer.Typer(
    cls=SafeGroup,
    help="Reproduce the paper's experiments, and run the demos.",
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
        help="Folder for results. An interrupted run resumes from the results in it.",
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Repetitions per number.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A study from python -m experiments list.")
]
PluginOption = Annotated[
    str | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        help="Also run your own mechanisms and data: a file or module, which is executed.",
    ),
]
On = Annotated[
    str | None,
    typer.Option("--on", metavar="DATA", help="Run the study on a data set of the plugin."),
]
DEFAULT_FOLDER: Final = Path("offaxis-studies")


@example("python -m experiments list")
def list_studies(as_json: AsJson = False) -> None:
    """List all studies."""
    entries = list(studies().values())
    if as_json:
        facts = [{"name": s.name, "title": s.title, "cells": s.cells} for s in entries]
        print_json({"studies": facts})
        return

    table = plain_table()
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("study")
    table.add_column("numbers", justify="right")
    for study in entries:
        table.add_row(study.name, study.title, f"{study.cells:,}")
    with buffered_console() as console:
        console.print(table)


@example("python -m experiments run main-lr")
def run(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A study from python -m experiments list, or beyond for all of beyond-*.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all studies.")] = False,
    seeds: Seeds = 20,
    out: Folder = DEFAULT_FOLDER,
    into: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.md",
            help="Also write the tables, with the paper's numbers, between a document's marks. May "
            "be repeated.",
        ),
    ] = None,
    plugin: PluginOption = None,
    on: On = None,
    as_json: AsJson = False,
) -> None:
    """Run a study: write a CSV file, a parquet file (with pyarrow), and a page with its figure.

    Results are stored as soon as they are known. An interrupted or killed run resumes where it
    stopped and ends with the same files.
    """
    if (name is None) is not every:
        raise UsageError("give the name of a study, or --all")
    if on is not None and plugin is None:
        raise UsageError("--on names a data set of a plugin: give --plugin, too")
    with usage_errors():
        chosen = list(studies().values()) if every else studies_named(str(name))
        if plugin is not None:
            loaded = load_plugin(plugin)
            chosen = [loaded.into(study, on) for study in chosen]
    for document in into or ():
        check_input(document)
    facts, sections, failed = [], {}, []
    for number, study in enumerate(chosen, 1):
        prefix = f"{number}/{len(chosen)} " if len(chosen) > 1 else ""
        try:
            cells, written = _run(study, out, seeds, prefix)
        except OffaxisError as error:
            if not every:
                raise
            # Other studies may not need the data or the package that this one lacks.
            typer.echo(one_line(f"{study.name} was not run: {error}"), err=True)
            failed.append(study.name)
            continue
        facts.append(_facts(study, cells) | {"files": [str(path) for path in written]})
        sections[study.name] = section(study, cells)
        if not as_json:
            _print_summary(study, cells, written)
    for document in into or ():
        put(document, sections)
    if as_json:
        print_json({"seeds": seeds, "studies": facts, "not_run": failed})
    if failed:
        raise InvalidInput(f"{len(failed)} of {len(chosen)} studies were not run, see above")


@example("python -m experiments compare main-mlp")
def compare(
    name: Name, seeds: Seeds = 20, out: Folder = DEFAULT_FOLDER, as_json: AsJson = False
) -> None:
    """Show our numbers, the paper's and the difference; runs the study as far as needed."""
    with usage_errors():
        study = find_study(name)
    cells, written = _run(study, out, seeds, "")
    if as_json:
        print_json(_facts(study, cells) | {"rows": records(study, cells)})
        return
    _print_table(study, cells)
    _print_summary(study, cells, written)


def _run(study: Study, out: Path, seeds: int, prefix: str) -> tuple[list[ComparedCell], list[Path]]:
    """Compute a study and write its files; without matplotlib and jinja2, the tables only."""
    with progress_bar(f"{prefix}{study.name}: loading") as update:

        def progress(label: str, done: int, total: int | None) -> None:
            update(f"{prefix}{study.name}: {label}", done, total)

        outcomes = engine.run(study.rows, out, seeds=seeds, opener=open_source, progress=progress)
    cells = comparing.compare(study, outcomes)
    table = records(study, cells)
    stem = out / study.name
    written = [stem.with_suffix(".csv")]
    write_csv(written[0], table)
    short = short_records(study, cells)
    if short:
        written.append(out / f"{study.name}-short.csv")
        write_csv(written[-1], short)
    if write_parquet(stem.with_suffix(".parquet"), table):
        written.append(stem.with_suffix(".parquet"))
    try:
        from experiments.pages.page import write_study

        first = members(study.rows[0].setting)[0]
        written += write_study(study, cells, out, open_source(first))
    except (MissingExtra, ModuleNotFoundError):
        typer.echo(f"no page: {installing('html')}", err=True)
    return cells, written


Into = Annotated[
    Path | None,
    typer.Option(metavar="FILE.md", help="Also write the table between a document's marks."),
]


@example("python -m experiments agreement")
def agreement(
    seeds: Seeds = 20, out: Folder = DEFAULT_FOLDER, into: Into = None, as_json: AsJson = False
) -> None:
    """Show how close every table is to the published one, as published and in our setting."""
    rows = []
    for study, cells in _paper_cells(out, seeds):
        one = comparing.agreement(cells)
        if one is not None:
            mode = "ours" if study.name.endswith(OURS) else "as published"
            rows.append((study.table, mode, one))
    rows.sort(key=lambda row: list(paper_studies()).index(row[0]))
    if into is not None:
        check_input(into)
        put(into, {"agreement": agreement_section(rows)})
    if as_json:
        print_json({"tables": [{"table": t, "mode": m, **asdict(a)} for t, m, a in rows]})
        return
    _print_lines(agreement_table(rows))


@example("python -m experiments claims")
def check_claims(
    seeds: Seeds = 20, out: Folder = DEFAULT_FOLDER, into: Into = None, as_json: AsJson = False
) -> None:
    """Check every claim of the paper on the figures; writes claims.csv."""
    from experiments.paper_claims import all_verdicts, claim_section, claim_table, counts

    rows = all_verdicts({study.name: cells for study, cells in _paper_cells(out, seeds)})
    table = claim_table(rows)
    write_csv(out / "claims.csv", table)
    if into is not None:
        check_input(into)
        put(into, {"claims": claim_section(rows)})
    if as_json:
        print_json({"claims": table})
        return
    with buffered_console() as console:
        for row in table:
            verdicts = f"as published {row['published']}, ours {row['ours']}, paper {row['paper']}"
            text = f"{row['claim']} [{row['place']}]: {verdicts}. {row['published_evidence']}"
            console.print(wrap_text(printable(text), console))
    typer.echo(printable(counts([row.published for row in rows])))


def _paper_cells(out: Path, seeds: int) -> list[tuple[Study, list[ComparedCell]]]:
    """Compute the paper's studies in both modes, reusing finished cells; write no files."""
    found = []
    chosen = paper_studies().values()
    with progress_bar("loading") as update:
        for number, study in enumerate(chosen, 1):
            prefix = f"{number}/{len(chosen)} {study.name}"

            def progress(label: str, done: int, total: int | None, prefix: str = prefix) -> None:
                update(f"{prefix}: {label}", done, total)

            outcomes = engine.run(
                study.rows, out, seeds=seeds, opener=open_source, progress=progress
            )
            found.append((study, comparing.compare(study, outcomes)))
    return found


def _print_lines(shown: TextTable) -> None:
    """Print a table that is too wide for a terminal: one paragraph per row, without empty cells."""
    with buffered_console() as console:
        console.print(f"{shown.title}\n")
        for row in shown.rows:
            cells = zip(shown.heads[2:], row[2:], strict=True)
            texts = ", ".join(f"{head} {text}" for head, text in cells if text)
            console.print(wrap_text(printable(f"{row[0]}, {row[1]}: {texts}"), console))


def _facts(study: Study, cells: list[ComparedCell]) -> dict[str, Any]:
    gaps = [abs(cell.difference) for cell in cells if cell.difference is not None]
    return {
        "study": study.name,
        "numbers": len(cells),
        "published": len(gaps),
        "mean_difference": sum(gaps) / len(gaps) if gaps else None,
        "largest_difference": max(gaps, default=None),
        "claims": [
            {"claim": claim.text, "holds": claim.holds, "worst": claim.worst}
            for claim in claims(study, cells)
        ],
    }


def _print_summary(study: Study, cells: list[ComparedCell], written: list[Path]) -> None:
    facts = _facts(study, cells)
    text = f"{study.name}: {facts['numbers']} numbers"
    if facts["published"]:
        text += (
            f"; {facts['published']} are published and differ by {facts['mean_difference']:.4f} "
            f"on average, {facts['largest_difference']:.4f} at most"
        )
    typer.echo(printable(text))
    for claim in facts["claims"]:
        verdict = "holds" if claim["holds"] else "does not hold"
        typer.echo(printable(f"  {verdict}: {claim['claim']} ({claim['worst']})"))
    typer.echo(printable("  " + ", ".join(str(path) for path in written)))


def _short(value: float, sign: str = "") -> str:
    """Format a number without its leading zero: twelve of them must fit 80 columns."""
    return f"{value:{sign}.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:{sign}.3f}"


def _print_table(study: Study, cells: list[ComparedCell]) -> None:
    """Print three lines per row: ours, the paper's, the difference."""
    budgets = list(dict.fromkeys(cell.outcome.epsilon for cell in cells))
    rows: dict[tuple[str, str, str], list[ComparedCell]] = {}
    for cell in cells:
        row = cell.outcome.row
        rows.setdefault((row.label, row.level, row.method.mark), []).append(cell)
    with buffered_console() as console:
        for (label, level, mark), in_row in rows.items():
            head = Text(printable(f"{label}{f', {study.level} {level}' if level else ''}"), "bold")
            if mark:
                head.append(f"  {mark}", "red")
            console.print(head, soft_wrap=True)
            grid = plain_table(1, header=False)
            grid.add_column(style="dim", no_wrap=True)
            for _ in budgets:
                grid.add_column(justify="right", no_wrap=True)
            grid.add_row("ε", *(f"{epsilon:g}" for epsilon in budgets))
            grid.add_row("ours", *(_short(cell.outcome.mean) for cell in in_row))
            if any(cell.paper for cell in in_row):
                paper = (_short(cell.paper.mean) if cell.paper else "" for cell in in_row)
                grid.add_row("paper", *paper)
                gaps = ("" if c.difference is None else _short(c.difference, "+") for c in in_row)
                grid.add_row("diff", *gaps)
            console.print(grid)


add(app, list_studies, "list")
add(app, run)
add(app, compare)
add(app, agreement)
add(app, check_claims, "claims")


# ---- Data sets

data: Final = typer.Typer(
    cls=Group,
    help="List and fetch the data sets of the studies.",
    no_args_is_help=True,
    add_completion=False,
)

Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Cache folder, instead of OFFAXIS_CACHE or the default one.",
    ),
]


def _size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count else ""


@example("python -m experiments data list")
def list_sets(cache: Cache = None, as_json: AsJson = False) -> None:
    """List all data sets and whether they are available."""
    entries = datasets.status(cache)
    folder = cache_folder(cache)
    if as_json:
        print_json({"cache": str(folder), "sets": [asdict(entry) for entry in entries]})
        return
    table = plain_table()
    for title in ("name", "content", "state", "size"):
        table.add_column(
            title,
            no_wrap=title in ("name", "size"),
            justify="right" if title == "size" else "left",
        )
    for entry in entries:
        state = Text(entry.state, style="green" if entry.ready else "")
        table.add_row(Text(entry.name, style="bold"), entry.about, state, _size(entry.bytes))
    with buffered_console() as console:
        console.print(table)
        console.print(f"\ncache: {printable(str(folder))}", soft_wrap=True)


@example(
    "python -m experiments data get digits",
    "python -m experiments data get cifar10 --from cifar-10-binary.tar.gz",
)
def get(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="mnist, cifar10, cifar10-c, lhsm or digits."),
    ],
    local: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Use a local copy: the official files or archive, a torchvision folder, or for "
            "lhsm Kaggle's daily tables.",
        ),
    ] = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Fetch, check and cache a data set; fetches nothing that is already available."""
    if name not in datasets.NAMES:
        raise UsageError(unknown_name("data set", name, datasets.NAMES))
    with progress_bar(f"getting {name}") as update:
        result = datasets.get(name, local=local, cache=cache, progress=update)
    if as_json:
        print_json(
            {
                "name": result.name,
                "path": None if result.path is None else str(result.path),
                "already": result.already,
            }
        )
        return
    origin = "part of scikit-learn" if name == "digits" else "bundled"
    where = origin if result.path is None else str(result.path)
    state = "was already available" if result.already else "is ready"
    typer.echo(printable(f"{name} {state}: {where}"))


add(data, list_sets, "list")
add(data, get)
app.add_typer(data, name="data")


# ---- The demo

_LINES: Final = (
    "“Alone”: the device sends the model's answer instead of a vector, by the best channel for "
    "it. A reference line, not a bound: a better model exceeds it."
)


@example("python -m experiments demo --out offaxis-demo.html")
def demo(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML page to write.")] = Path(
        "offaxis-demo.html"
    ),
    seeds: Seeds = 20,
    as_json: AsJson = False,
) -> None:
    """Compare randomizers, plain and reshaped, on bundled image features and households."""
    with spinner("loading"):
        from experiments.demo.run import run_demo
        from experiments.demo.tables import accuracy_table, household_table

    if not out.is_dir():
        check_output(out)
    with progress_bar("starting") as update:
        result = run_demo(out, seeds=seeds, progress=update)
    if as_json:
        print_json(_demo_facts(result))
        return
    households = result.households
    with buffered_console() as console:
        console.print(
            f"Accuracy in %, mean of {pluralize(seeds, 'repetition')}. Without privacy "
            f"{100 * result.clean:.1f}, by guessing {100 * result.chance:.1f}.\n"
        )
        console.print(accuracy_table(result))
        console.print(
            f"\nTomorrow's electricity of a household, error in kWh per half-hour. Without privacy "
            f"{households.clean:.3f}, always answering the public mean {households.constant:.3f}.\n"
        )
        console.print(household_table(households))
        console.print(f"\n{_LINES}\n")
        for recommendation in result.recommended:
            text = f"Recommended at ε = {recommendation.epsilon:g}: {recommendation.summary}"
            console.print(wrap_text(text, console) + "\n")
        console.print(f"curves and noise ellipses: {result.html}", soft_wrap=True)


def _demo_facts(result: DemoResult) -> dict[str, Any]:
    households = result.households
    return {
        "html": str(result.html),
        "seeds": result.seeds,
        "clean": result.clean,
        "chance": result.chance,
        "lines": _line_facts(result.lines, "accuracy"),
        "rows": result.table(),
        "households": {
            "clean": households.clean,
            "constant": households.constant,
            "lines": _line_facts(households.lines, "rmse"),
            "rows": households.table(),
        },
        "recommended": [recommendation_facts(each) for each in result.recommended],
        "theory": theory_facts(list(result.theory.rows)),
    }


def _line_facts(heights: Mapping[float, float], metric: str) -> list[dict[str, Any]]:
    return [{"epsilon": e, metric: value, "kind": "line"} for e, value in heights.items()]


# ---- The live demo


@example("python -m experiments serve-demo")
def serve_demo(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8470,
    pace: Annotated[
        float, typer.Option(min=0.01, max=100, help="Simulated people that report per second.")
    ] = 2.0,
) -> None:
    """Run a collector with a page to draw digits on, a dashboard, and a simulated crowd.

    Everything stays on this machine, in a temporary folder that is deleted at the end. Stop with
    Ctrl-C.
    """
    try:
        from experiments.live_demo.site import crowd, demo_site
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the demo needs {error.name}: {installing('collector')}") from None

    # SIGTERM, for example from a service manager, must also clean up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), demo_site(port) as site:
        typer.echo(f"draw a digit     {site.page}")
        typer.echo(f"dashboard        {site.dashboard}")
        typer.echo(f"analyst's token  {site.analyst}")
        typer.echo("a simulated crowd is reporting; stop with Ctrl-C")
        with closing(crowd(site)) as people:
            for _ in people:
                time.sleep(1 / pace)
    typer.echo("stopped; nothing is kept")


add(app, demo)
add(app, serve_demo, "serve-demo")
