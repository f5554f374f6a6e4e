"""What theory says about a release, for ``offaxis evaluate --theory`` and ``offaxis inspect``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from offaxis.cli.showing.terminal import bare_table, counted
from offaxis.cli.usage import Misused

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from offaxis.geometry import TaskModel
    from offaxis.release import Release
    from offaxis.theory.table import Row
    from offaxis.vectors import Vectors


def compute_rows(
    release: Release,
    task: TaskModel,
    vectors: Vectors,
    public: str | None,
    *,
    draws: int,
    seed: int,
) -> list[Row]:
    """Compute the rows of the table, with the public vectors of a file if one is given."""
    from offaxis.cli.reading.arrays import read_array
    from offaxis.cli.showing.progress import waiting
    from offaxis.theory.table import theory_rows

    known = None if public is None else read_array(public)
    with waiting("computing what theory says"):
        return theory_rows(release, task, vectors, known, draws=draws, seed=seed)


def check_options(theory: bool, public: str | None, seeds: int) -> None:
    """Refuse options that do not go together."""
    if public is not None and not theory:
        raise Misused("--public is read with --theory only; add --theory or leave it out")
    if theory and seeds < 2:
        raise Misused(f"--theory measures errors and needs --seeds 2 or more, got {seeds}")


def theory_facts(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """Return the rows for ``--json``, by quantity."""
    return {facts.pop("quantity"): facts for facts in map(asdict, rows)}


def print_theory(rows: list[Row], draws: int, console: Console) -> None:
    """Print the table under a heading of its own."""
    console.print(f"\ntheory, beside {counted(draws, 'simulated report')} a vector\n")
    console.print(theory_table(rows))


def theory_table(rows: list[Row]) -> Table:
    """Lay out the rows for people; where a condition fails, the reason stands in its place."""
    from rich.text import Text

    from offaxis.theory.table import label, written

    table = bare_table()
    table.add_column("quantity", no_wrap=True)
    table.add_column("theory", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("holds for", style="dim", overflow="fold")
    above = None
    for row in rows:
        words = row.fails or row.condition
        measured = written(row.quantity, row.measured)
        if row.standard_error is not None:
            measured += f" ± {written(row.quantity, row.standard_error, digits=2)}"
        theory = Text(written(row.quantity, row.theory), style="bold")
        table.add_row(
            label(row.quantity), theory, measured, "as above" if words == above else words
        )
        above = words
    return table
