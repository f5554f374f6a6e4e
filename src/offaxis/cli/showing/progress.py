"""Progress bars, on standard error and only when a person is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
