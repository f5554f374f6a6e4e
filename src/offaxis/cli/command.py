"""What a command and a group of commands are here: Typer's, with help texts and errors whole."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

_UsageError: Final[Any] = typer.BadParameter.__base__


class _Whole:
    """Join the lines of a help's paragraphs, call no flag <bool>, and show the usage on errors."""

    def __init__(self, *names: str | None, **settings: Any) -> None:
        # Typer keeps the line breaks of the source in all paragraphs but the first.
        paragraphs = (settings.get("help") or "").split("\n\n")
        settings["help"] = "\n\n".join(" ".join(each.split()) for each in paragraphs)
        super().__init__(*names, **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except _UsageError as error:
            # An option without its value is told without the command it belongs to.
            error.ctx = error.ctx or ctx
            raise
        return rest


class Command(_Whole, TyperCommand):
    """A command."""


class Group(_Whole, TyperGroup):
    """A group of commands."""
