"""``offaxis demo``: the paper's two main results, plain and reshaped, on bundled real data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from offaxis.cli.examples import example
from offaxis.cli.options import AsJson
from offaxis.cli.showing.terminal import bare_table, counted, filled, print_json, screen

if TYPE_CHECKING:
    from rich.table import Table

    from offaxis.reporting.demo.households import HouseholdResult
    from offaxis.reporting.demo.result import DemoResult

_LINES: Final = (
    "“Alone”: no vector is sent but the model's answer, by the best channel for it. A line to "
    "compare with, not a bound: a better model passes it."
)


@example("offaxis demo --out offaxis-demo.html")
def demo(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML page to write.")] = Path(
        "offaxis-demo.html"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions behind every number.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Compare randomizers, plain and reshaped, on bundled real images and households."""
    from offaxis.cli.files import check_output
    from offaxis.cli.showing.advice import recommendation_facts
    from offaxis.cli.showing.progress import moving, waiting
    from offaxis.cli.showing.theory import theory_facts

    with waiting("loading"):
        from offaxis.reporting.demo.run import run_demo

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
            advice = f"Recommended at ε = {each.epsilon:g}: {each.sentence}"
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
    from rich.text import Text

    from offaxis.reporting.names import SHAPE_TITLES, TITLES

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
