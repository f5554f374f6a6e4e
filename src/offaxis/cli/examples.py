"""Examples at the end of every command's help; tests/cli/test_help.py runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer

from offaxis.cli.command import Command

Called = TypeVar("Called", bound=Callable[..., Any])

_LINES = "example_lines"


def example(*lines: str) -> Callable[[Called], Called]:
    """Say how a command is called, one call a line, in the words of docs/cli.md."""

    def mark(command: Called) -> Called:
        setattr(command, _LINES, lines)
        return command

    return mark


def add(
    app: typer.Typer, command: Callable[..., Any], name: str | None = None, panel: str = ""
) -> None:
    """Add a command that has examples, under its own name or another."""
    lines: tuple[str, ...] = getattr(command, _LINES)
    # Typer joins the lines of a paragraph, so each line is a paragraph of its own.
    epilog = "\n\n".join([f"Example{'s' * (len(lines) > 1)}:", *lines])
    app.command(name, cls=Command, epilog=epilog, rich_help_panel=panel or None)(command)
