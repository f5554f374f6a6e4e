"""Output of the commands: text for people, one JSON object for programs, and progress bars."""

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

MAX_WIDTH = 92
"""Wider prose is hard to read, even on a wider terminal."""


# ---- Text


def printable(text: str) -> str:
    """Replace characters that could control the terminal; for text read from a file."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def one_line(text: str) -> str:
    """Return printable text on one line."""
    return printable(" ".join(text.split()))


def pluralize(number: int, noun: str) -> str:
    """Write a number with its noun: 1 report, 1,000 reports."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@contextmanager
def buffered_console() -> Iterator[Console]:
    """Open a console that prints everything at the end, on standard output."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, MAX_WIDTH)
    with console.capture() as captured:
        yield console
    # Rich pads lines with spaces, which are a nuisance in a file.
    lines = (line.rstrip(" ") for line in captured.get().split("\n"))
    typer.echo("\n".join(lines), nl=False)


def wrap_text(text: str, console: Console) -> str:
    """Wrap prose to the width of the console, at spaces but never at a no-break space.

    Rich itself would break at both.
    """
    return textwrap.fill(text, console.width, break_long_words=False, break_on_hyphens=False)


def field_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Lay out labels and values in two columns, without borders."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(Text(label), Text(printable(value)))
    return table


def plain_table(gap: int = 2, *, header: bool = True) -> Table:
    """Return a table without borders, with ``gap`` spaces between its columns."""
    from rich.table import Table

    padding = (0, gap, 0, 0)
    return Table(box=None, pad_edge=False, padding=padding, header_style="dim", show_header=header)


# ---- JSON


def _finite(value: Any) -> Any:
    """Replace infinity and NaN, which JSON cannot express, by null."""
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


# ---- Progress, on standard error and only on a terminal

Advance = Callable[[int], None]
"""Called with the number of steps just finished."""

UpdateProgress = Callable[[str, int, int | None], None]
"""Called with a label, the steps finished so far and the total, if known."""


@contextmanager
def progress_bar(label: str) -> Iterator[UpdateProgress]:
    """Show a bar whose label and length may change while it is shown."""
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

        def update(name: str, done: int, total: int | None) -> None:
            bars.update(task, description=name, completed=done, total=total)

        yield update


@contextmanager
def step_bar(label: str, total: int | None) -> Iterator[Advance]:
    """Show a bar of ``total`` steps, or one that only moves if the total is unknown."""
    done = 0
    with progress_bar(label) as update:

        def advance(steps: int) -> None:
            nonlocal done
            done += steps
            update(label, done, total)

        advance(0)
        yield advance


@contextmanager
def spinner(label: str) -> Iterator[None]:
    """Show that work of unknown length is in progress."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield
