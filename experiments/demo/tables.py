"""The demo's tables in a terminal: a row per randomizer and shape, a column per budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.table import Table
from rich.text import Text

from experiments.demo.result import DemoResult, HouseholdResult
from offaxis.cli.terminal import plain_table


def accuracy_table(result: DemoResult) -> Table:
    """Return accuracies in %, one row per randomizer and shape, one column per budget."""
    cells = {
        (str(r["randomizer"]), str(r["reshaping"]), float(r["epsilon"])): 100 * float(r["accuracy"])
        for r in result.table()
    }
    lines = {epsilon: 100 * value for epsilon, value in result.lines.items()}
    return _grid(cells, ("answer alone", lines), lambda value: f"{value:.1f}")


def household_table(result: HouseholdResult) -> Table:
    """Return errors in kWh, one row per randomizer and shape, one column per budget."""
    cells = {key: result.mean(*key) for key in result.rmse}
    # Three digits, in the width of four characters.
    return _grid(
        cells,
        ("forecast alone", result.lines),
        lambda value: f"{value:#.3g}" if value >= 1 else f"{value:.2f}"[1:],
    )


def _grid(
    cells: Mapping[tuple[str, str, float], float],
    line: tuple[str, Mapping[float, float]],
    write: Callable[[float], str],
) -> Table:
    from offaxis.html.pages import SHAPE_TITLES, TITLES

    # Names have a line of their own: next to twelve budgets they would not fit 80 columns.
    grid = plain_table(1)
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
    grid.add_row("  line", *(Text(write(heights[e]), style="dim") for e in epsilons))
    return grid
