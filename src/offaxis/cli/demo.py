"""``offaxis demo``: every randomizer, plain and reshaped, on bundled real data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offaxis.cli.options import AsJson
from offaxis.cli.terminal import counted, print_json, screen

if TYPE_CHECKING:
    from rich.table import Table

    from offaxis.reporting import DemoResult


def demo(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML page to write.")] = Path(
        "offaxis-demo.html"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions behind every number.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Compare all randomizers, plain and reshaped, on bundled features of real images."""
    from offaxis.cli.files import check_output
    from offaxis.cli.progress import moving, waiting
    from offaxis.cli.theory import theory_facts

    with waiting("loading"):
        from offaxis.reporting import run_demo

    if not out.is_dir():
        check_output(out)
    with moving("starting") as move:
        result = run_demo(out, seeds=seeds, progress=move)
    if as_json:
        theory = {"theory": theory_facts(list(result.theory.rows))}
        facts = {"html": str(result.html), "seeds": seeds, "clean": result.clean}
        print_json(facts | {"chance": result.chance, "rows": result.table()} | theory)
        return
    with screen() as console:
        console.print(
            f"Accuracy in %, mean of {counted(seeds, 'repetition')}. Without privacy "
            f"{100 * result.clean:.1f}, by guessing {100 * result.chance:.1f}.\n"
        )
        console.print(table(result))
        console.print(f"\ncurves and noise ellipses: {result.html}", soft_wrap=True)


def table(result: DemoResult) -> Table:
    """Lay out accuracies: a row a randomizer and shape, a column a budget."""
    from rich.table import Table
    from rich.text import Text

    from offaxis.reporting.names import SHAPE_TITLES, TITLES

    cells = {(r["randomizer"], r["reshaping"], r["epsilon"]): r["accuracy"] for r in result.table()}
    # Names stand on lines of their own: beside twelve budgets they would not fit 80 columns.
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    grid.add_column("budget ε", no_wrap=True)
    for epsilon in result.epsilons:
        grid.add_column(f"{epsilon:g}", justify="right", no_wrap=True)
    for name in result.randomizers:
        grid.add_row(Text(TITLES.get(name, name), style="bold"))
        for shape, title in SHAPE_TITLES.items():
            values = [float(cells[name, shape, epsilon]) for epsilon in result.epsilons]
            style = "green" if shape == "jacobian" else ""
            grid.add_row(f"  {title}", *(Text(f"{100 * v:.1f}", style=style) for v in values))
    return grid
