"""``python -m benchmarks``: measure groups of figures, and guard against regressions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from benchmarks.groups import collecting, geometry, growth, memory, reports, simulation, sweeping
from benchmarks.harness import (
    FULL,
    MEASUREMENTS,
    OURS,
    QUICK,
    USUAL,
    Effort,
    Growth,
    Race,
    Regression,
    Result,
    conditions,
    confirmed_regressions,
    cost_text,
    line_text,
    number_text,
    ratio_text,
    read_ratios,
)
from benchmarks.rivals import gpu_name, missing_rivals
from offaxis.cli.app import SafeCommand
from offaxis.cli.inputs import check_input, check_output
from offaxis.cli.options import AsJson, UsageError, add, example
from offaxis.cli.terminal import buffered_console, plain_table, print_json
from offaxis.errors import unknown_name

GROUPS: Final[dict[str, Callable[[Effort], Iterator[Result]]]] = {
    "reports": reports.measure,
    "simulate": simulation.measure,
    "gram": geometry.measure,
    "fit": geometry.measure_fits,
    "decode": collecting.measure,
    "sweep": sweeping.measure,
    "memory": memory.measure,
    "growth": growth.measure,
}
"""Name → measurement of each group, in the order in which they run."""


def ratios_of(results: Iterable[Result]) -> dict[str, float]:
    """Return all ratios by name."""
    return {name: ratio for result in results for name, ratio in result.ratios().items()}


@dataclass(frozen=True)
class Run:
    """The results of one process on one machine.

    The conditions are recorded before the first measurement, which itself adds to the load.
    """

    effort: Effort
    conditions: dict[str, Any]
    results: tuple[Result, ...] = ()

    @classmethod
    def start(cls, effort: Effort) -> Run:
        """Return a run without results."""
        return cls(effort, conditions() | {"gpu": gpu_name()})

    def with_results(self, results: Iterable[Result]) -> Run:
        """Return the run with these results."""
        return replace(self, results=tuple(results))

    def record(self) -> dict[str, Any]:
        """Return the record for a guard: the ratios and their conditions."""
        ratios = {name: float(f"{ratio:.4g}") for name, ratio in ratios_of(self.results).items()}
        return {"effort": self.effort.name, "conditions": self.conditions, "ratios": ratios}

    def facts(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            **self.record(),
            "not_installed": missing_rivals(),
            "races": [r.facts() for r in self.results if isinstance(r, Race)],
            "growth": [r.facts() for r in self.results if isinstance(r, Growth)],
        }


# ---- Output on a terminal

_TITLES: Final = {
    "reports": "exact reports",
    "simulate": "simulated releases",
    "gram": "the Gram of a model over public vectors",
    "fit": "fitting a release",
    "decode": "decoding reports",
    "sweep": "evaluation sweeps",
    "memory": "peak memory of a new process",
    "growth": "growth, sizes doubled",
}


def print_conditions(run: Run) -> None:
    """Print the conditions of the figures, and the rivals that are not installed."""
    facts = run.conditions
    line = (
        f"offaxis {facts['offaxis']}, Python {facts['python']}, NumPy {facts['numpy']}, "
        f"{facts['cores']} cores ({facts['processor']}), load average {facts['load_average']}, "
        f"{run.effort.name} effort"
    )
    with buffered_console() as console:
        console.print()
        console.print(Padding(Text("Benchmarks", style="bold"), (0, 0, 0, 2)))
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2)))
        if (facts["load_average"] or 0) > (facts["cores"] or 1):
            busy = "the machine is busy: figures are low, and ratios vary"
            console.print(Padding(Text(busy, style="yellow"), (0, 0, 0, 2)))
        if missing := missing_rivals():
            note = f"not installed, and left out: {', '.join(missing)}"
            console.print(Padding(Text(note, style="yellow"), (0, 0, 0, 2)))


def print_results(group: str, results: Sequence[Result]) -> None:
    """Print the results of one group."""
    races = [result for result in results if isinstance(result, Race)]
    growths = [result for result in results if isinstance(result, Growth)]
    with buffered_console() as console:
        console.print()
        console.print(Padding(Text(_TITLES[group].upper(), style="bold"), (0, 0, 0, 2)))
        for table in ([_races(races)] if races else []) + ([_growth(growths)] if growths else []):
            console.print(Padding(table, (0, 0, 0, 2)))
        lines = [f"{_name(entry)}: {line_text(entry)}" for entry in growths if entry.expected == 1]
        if lines:
            console.print(Padding(Text("\nnearest lines", style="dim"), (0, 0, 0, 2)))
            console.print(Padding(Text("\n".join(lines)), (0, 0, 0, 4)))


def _name(result: Growth) -> str:
    return f"{result.task}, with {result.variable}"


def print_regressions(entries: Sequence[Regression], fraction: float) -> None:
    """Print the findings of the guard."""
    text = Text()
    if not entries:
        text.append("GUARD: no regressions", style="bold cyan")
        text.append(f", every ratio is at least {fraction:g} of the recorded one")
    else:
        text.append(f"GUARD: regressions: {len(entries)}", style="bold red")
        text.append(f", below {fraction:g} of the recorded ratio in {MEASUREMENTS} measurements")
    for entry in entries:
        text.append(f"\n  {entry.name}: {entry.now:.3g} instead of {entry.recorded:.3g}")
    with buffered_console() as console:
        console.print()
        console.print(Padding(text, (0, 0, 0, 2)))


def _races(races: Sequence[Race]) -> Table:
    table = plain_table()
    table.add_column("task")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("offaxis is", justify="right", no_wrap=True)
    for race in races:
        unit = f" {race.unit}"
        table.add_row(Text(race.task), number_text(race.shown(OURS)) + unit, "")
        for name in race.seconds:
            if name != OURS:
                ratio = race.ratio(name)
                table.add_row(
                    Text(f"  {name}", style="dim"),
                    number_text(race.shown(name)) + unit,
                    Text(ratio_text(ratio), style="cyan" if ratio >= 1 else "yellow"),
                )
    return table


def _growth(results: Sequence[Growth]) -> Table:
    table = plain_table()
    table.add_column("task")
    table.add_column("from … to", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("exponent", justify="right", no_wrap=True)
    for result in results:
        slope, error = result.exponent()
        sizes = [number_text(result.sizes[i]) for i in (0, -1)]
        costs = [cost_text(result.costs[i], result.unit) for i in (0, -1)]
        table.add_row(
            _name(result),
            " … ".join(sizes),
            " … ".join(costs),
            f"{slope:.2f} ± {error:.2f}",
        )
    return table


# ---- The command

REGRESSED: Final = 1
"""Exit code if the guard finds a regression."""


@example("python -m benchmarks decode --quick")
def bench(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP",
            help="reports, simulate, gram, fit, decode, sweep, memory, growth; all by default.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Rough figures in seconds instead of minutes.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="More turns, larger sizes, ten million vectors: about six minutes."
        ),
    ] = False,
    guard: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare ratios, never seconds, with a record; exit code 1 if one regressed.",
        ),
    ] = None,
    fraction: Annotated[
        float,
        typer.Option(min=0, max=1, help="Smallest share of a recorded ratio that passes."),
    ] = 0.5,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ratios for a later --guard.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure speed, memory and growth on this machine. Exit code 1 means a regression.

    Rivals take turns with offaxis in one process: OpenDP, torch and scikit-learn if installed,
    plain NumPy, and one vector at a time. All vectors are synthetic or bundled.
    """
    if quick and full:
        raise UsageError("--quick and --full exclude each other")
    unknown = sorted(set(groups or ()) - set(GROUPS))
    if unknown:
        raise UsageError(unknown_name("group", unknown[0], GROUPS))
    if guard is not None:
        check_input(guard)
    if record is not None:
        check_output(record, *([guard] if guard else []))
    recorded = read_ratios(guard) if guard else None
    effort = QUICK if quick else FULL if full else USUAL
    results: dict[str, list[Result]] = {}
    run = Run.start(effort)
    if not as_json:
        print_conditions(run)
    for name in [name for name in GROUPS if not groups or name in groups]:
        results[name] = _measure(name, effort)
        if not as_json:
            print_results(name, results[name])
    run = run.with_results(chain.from_iterable(results.values()))
    if record is not None:
        record.write_text(json.dumps(run.record(), indent=1, ensure_ascii=False) + "\n")
    regressions: list[Regression] = []
    if recorded is not None:
        by_group = {name: ratios_of(measured) for name, measured in results.items()}
        regressions = confirmed_regressions(
            by_group, recorded, lambda name: ratios_of(_measure(name, effort)), fraction
        )
    if as_json:
        print_json(run.facts() | {"fallen": [entry._asdict() for entry in regressions]})
    elif recorded is not None:
        print_regressions(regressions, fraction)
    if regressions:
        raise typer.Exit(REGRESSED)


def _measure(name: str, effort: Effort) -> list[Result]:
    """Measure one group; print its name, but no progress bar, which would cost time."""
    watched = sys.stderr.isatty()
    if watched:
        typer.echo(f"  measuring {name} …\r", err=True, nl=False)
    results = list(GROUPS[name](effort))
    if watched:
        typer.echo("\x1b[2K", err=True, nl=False)
    return results


app: Final = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add(app, bench, cls=SafeCommand)
