"""Figures of ``offaxis bench`` on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from offaxis.bench.guard import MEASUREMENTS, Fallen
from offaxis.bench.results import OURS, Growth, Race, Result
from offaxis.bench.rivals import absent
from offaxis.bench.run import Run
from offaxis.bench.wording import amount, figure, line, times
from offaxis.cli.showing.terminal import bare_table, screen

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
