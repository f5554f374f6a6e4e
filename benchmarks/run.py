"""All groups of figures by name, and one run of them."""

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
    Fallen,
    Growth,
    Race,
    Result,
    amount,
    conditions,
    figure,
    judge,
    line,
    read_ratios,
    times,
)
from benchmarks.rivals import absent, gpu
from offaxis.cli.app import SafeCommand
from offaxis.cli.inputs import check_input, check_output
from offaxis.cli.options import AsJson, Misused, add, example
from offaxis.cli.terminal import bare_table, print_json, screen
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
"""What ``python -m benchmarks`` measures, in this order."""


def ratios_of(results: Iterable[Result]) -> dict[str, float]:
    """Return every ratio by its name."""
    return {name: ratio for result in results for name, ratio in result.ratios().items()}


@dataclass(frozen=True)
class Run:
    """What was measured in one process, on one machine.

    The conditions are those before the first measurement, which is a load of its own.
    """

    effort: Effort
    conditions: dict[str, Any]
    results: tuple[Result, ...] = ()

    @classmethod
    def start(cls, effort: Effort) -> Run:
        """Return a run without results yet."""
        return cls(effort, conditions() | {"gpu": gpu()})

    def having(self, results: Iterable[Result]) -> Run:
        """Return the run with its results."""
        return replace(self, results=tuple(results))

    def record(self) -> dict[str, Any]:
        """Return what a guard needs: ratios, and where they come from."""
        ratios = {name: float(f"{ratio:.4g}") for name, ratio in ratios_of(self.results).items()}
        return {"effort": self.effort.name, "conditions": self.conditions, "ratios": ratios}

    def facts(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            **self.record(),
            "not_installed": absent(),
            "races": [r.facts() for r in self.results if isinstance(r, Race)],
            "growth": [r.facts() for r in self.results if isinstance(r, Growth)],
        }


# ----------------------------------------------------------------------------
# Figures of ``python -m benchmarks`` on a terminal.

_TITLES: Final = {
    "reports": "exact reports",
    "simulate": "simulated releases",
    "gram": "the Gram of a model over public vectors",
    "fit": "fitting a release",
    "decode": "decoding reports",
    "sweep": "evaluation sweeps",
    "memory": "peak memory of a fresh process",
    "growth": "growth, sizes doubled",
}


def print_conditions(run: Run) -> None:
    """Print what the figures depend on, and who is not here."""
    facts = run.conditions
    line = (
        f"offaxis {facts['offaxis']}, Python {facts['python']}, NumPy {facts['numpy']}, "
        f"{facts['cores']} cores ({facts['processor']}), load average {facts['load_average']}, "
        f"{run.effort.name} effort"
    )
    with screen() as console:
        console.print()
        console.print(Padding(Text("Benchmarks", style="bold"), (0, 0, 0, 2)))
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2)))
        if (facts["load_average"] or 0) > (facts["cores"] or 1):
            busy = "the machine is busy: figures are low, and ratios vary"
            console.print(Padding(Text(busy, style="yellow"), (0, 0, 0, 2)))
        if absent():
            missing = f"not installed, and left out: {', '.join(absent())}"
            console.print(Padding(Text(missing, style="yellow"), (0, 0, 0, 2)))


def print_results(group: str, results: Sequence[Result]) -> None:
    """Print one group."""
    races = [result for result in results if isinstance(result, Race)]
    grown = [result for result in results if isinstance(result, Growth)]
    with screen() as console:
        console.print()
        console.print(Padding(Text(_TITLES[group].upper(), style="bold"), (0, 0, 0, 2)))
        for table in ([_races(races)] if races else []) + ([_growth(grown)] if grown else []):
            console.print(Padding(table, (0, 0, 0, 2)))
        lines = [f"{_name(result)}: {line(result)}" for result in grown if result.expected == 1]
        if lines:
            console.print(Padding(Text("\nnearest lines", style="dim"), (0, 0, 0, 2)))
            console.print(Padding(Text("\n".join(lines)), (0, 0, 0, 4)))


def _name(result: Growth) -> str:
    return f"{result.task}, with {result.variable}"


def print_fallen(entries: Sequence[Fallen], fraction: float) -> None:
    """Print what the guard found."""
    text = Text()
    if not entries:
        text.append("GUARD: nothing fell", style="bold cyan")
        text.append(f", every ratio is at least {fraction:g} of the recorded one")
    else:
        text.append(f"GUARD: {len(entries)} fell", style="bold red")
        text.append(f", {MEASUREMENTS} times, below {fraction:g} of the recorded ratio")
    for entry in entries:
        text.append(f"\n  {entry.name}: {entry.now:.3g} instead of {entry.recorded:.3g}")
    with screen() as console:
        console.print()
        console.print(Padding(text, (0, 0, 0, 2)))


def _races(races: Sequence[Race]) -> Table:
    table = _table()
    table.add_column("task")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("offaxis is", justify="right", no_wrap=True)
    for race in races:
        noun = f" {race.unit}"
        table.add_row(Text(race.task), figure(race.shown(OURS)) + noun, "")
        for name in race.seconds:
            if name != OURS:
                who = Text(f"  {name}", style="dim")
                table.add_row(who, figure(race.shown(name)) + noun, _times(race.ratio(name)))
    return table


def _growth(results: Sequence[Growth]) -> Table:
    table = _table()
    table.add_column("task")
    table.add_column("from … to", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("exponent", justify="right", no_wrap=True)
    for result in results:
        slope, error = result.exponent()
        ends = [figure(result.sizes[i]) for i in (0, -1)]
        costs = [amount(result.costs[i], result.unit) for i in (0, -1)]
        table.add_row(
            _name(result),
            " … ".join(ends),
            " … ".join(costs),
            f"{slope:.2f} ± {error:.2f}",
        )
    return table


def _times(ratio: float) -> Text:
    return Text(times(ratio), style="cyan" if ratio >= 1 else "yellow")


def _table() -> Table:
    return bare_table()


# ----------------------------------------------------------------------------
# ``python -m benchmarks``: how fast releases are on this machine, beside what else people would
# use.

SLOWER: Final = 1


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
        bool, typer.Option("--quick", help="Seconds instead of minutes; rough figures.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="More turns, wider ranges, ten million vectors: about six minutes."
        ),
    ] = False,
    guard: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare ratios, never seconds, with a record; exit code 1 if one fell.",
        ),
    ] = None,
    fraction: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of a recorded ratio that the guard asks for."),
    ] = 0.5,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ratios for a later --guard.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure speed, memory and growth on this machine. Exit code 1 means the guard found less.

    Rivals take turns with us in one process: OpenDP, torch, scikit-learn if they are installed,
    plain NumPy, and one vector at a time. Only made-up and bundled vectors are used.
    """
    if quick and full:
        raise Misused("--quick and --full exclude each other")
    unknown = sorted(set(groups or ()) - set(GROUPS))
    if unknown:
        raise Misused(unknown_name("group", unknown[0], GROUPS))
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
        results[name] = _measured(name, effort)
        if not as_json:
            print_results(name, results[name])
    run = run.having(chain.from_iterable(results.values()))
    if record is not None:
        record.write_text(json.dumps(run.record(), indent=1, ensure_ascii=False) + "\n")
    fell: list[Fallen] = []
    if recorded is not None:
        by_group = {name: ratios_of(found) for name, found in results.items()}
        fell = judge(by_group, recorded, lambda n: ratios_of(_measured(n, effort)), fraction)
    if as_json:
        print_json(run.facts() | {"fallen": [entry._asdict() for entry in fell]})
    elif recorded is not None:
        print_fallen(fell, fraction)
    if fell:
        raise typer.Exit(SLOWER)


def _measured(name: str, effort: Effort) -> list[Result]:
    """Measure one group, and say so without a moving bar, which would take time from it."""

    watched = sys.stderr.isatty()
    if watched:
        typer.echo(f"  measuring {name} …\r", err=True, nl=False)
    found = list(GROUPS[name](effort))
    if watched:
        typer.echo("\x1b[2K", err=True, nl=False)
    return found


app: Final = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add(app, bench, cls=SafeCommand)
