"""What the commands print: text for people, or one JSON object for programs."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDEST = 92
"""Prose wider than this is hard to read, however wide the terminal."""


def plain(text: str) -> str:
    """Return text from a file without anything that could steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def one_line(text: str) -> str:
    """Return text as one harmless line."""
    return plain(" ".join(text.split()))


def counted(number: int, noun: str) -> str:
    """Write a number of things: 1 report, 1,000 reports."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@contextmanager
def screen() -> Iterator[Console]:
    """Open a console for people; what it was given is printed at the end, on standard output."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, WIDEST)
    with console.capture() as captured:
        yield console
    # Layout fills lines with blanks, which are a nuisance in a file.
    lines = (line.rstrip(" ") for line in captured.get().split("\n"))
    typer.echo("\n".join(lines), nl=False)


def filled(text: str, console: Console) -> str:
    """Break prose into lines of the console's width, at blanks but never at a no-break space.

    A console of its own accord breaks at both.
    """
    return textwrap.fill(text, console.width, break_long_words=False, break_on_hyphens=False)


def fields(rows: Iterable[tuple[str, str]]) -> Table:
    """Lay out labels and values in two columns, without lines that a pipe would garble."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(Text(label), Text(plain(value)))
    return table


def bare_table(gap: int = 2, *, header: bool = True) -> Table:
    """Open a table without lines, so many blanks between its columns: whole in a file, too."""
    from rich.table import Table

    gaps = (0, gap, 0, 0)
    return Table(box=None, pad_edge=False, padding=gaps, header_style="dim", show_header=header)


def _finite(value: Any) -> Any:
    """Replace what JSON has no word for, infinity and NaN, by null."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_json(facts: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    typer.echo(json.dumps(_finite(facts), indent=2, ensure_ascii=False, allow_nan=False))


# ----------------------------------------------------------------------------
# Progress bars, on standard error and only when a person is watching.

Advance = Callable[[int], None]
"""Called with the number of steps just finished."""

Move = Callable[[str, int, int | None], None]
"""Called with a label, the steps finished so far and the steps in all, if known."""


@contextmanager
def moving(label: str) -> Iterator[Move]:
    """Show a bar whose label and length may change on the way."""
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    # Transient: when the work is done only the result stays on the screen.
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=None)

        def move(name: str, done: int, total: int | None) -> None:
            bars.update(task, description=name, completed=done, total=total)

        yield move


@contextmanager
def counting(label: str, total: int | None) -> Iterator[Advance]:
    """Show a bar of ``total`` steps, or one that only moves if nobody knows how many there are."""
    done = 0
    with moving(label) as move:

        def advance(steps: int) -> None:
            nonlocal done
            done += steps
            move(label, done, total)

        advance(0)
        yield advance


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Show that something of unknown length is going on."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield
