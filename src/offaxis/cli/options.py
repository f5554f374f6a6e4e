"""What a command and a group of commands are here: Typer's, with help texts and errors whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from offaxis.errors import InvalidDocument, InvalidInput

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


# ----------------------------------------------------------------------------
# Examples at the end of every command's help; tests/cli/test_help.py runs them.

Called = TypeVar("Called", bound=Callable[..., Any])

_LINES = "example_lines"


def example(*lines: str) -> Callable[[Called], Called]:
    """Say how a command is called, one call a line, in the words of docs/cli.md."""

    def mark(command: Called) -> Called:
        setattr(command, _LINES, lines)
        return command

    return mark


def add(
    app: typer.Typer,
    command: Callable[..., Any],
    name: str | None = None,
    *,
    cls: type[Command] = Command,
) -> None:
    """Add a command that has examples, under its own name or another."""
    lines: tuple[str, ...] = getattr(command, _LINES)
    # Typer joins the lines of a paragraph, so each line is a paragraph of its own.
    epilog = "\n\n".join([f"Example{'s' * (len(lines) > 1)}:", *lines])
    app.command(name, cls=cls, epilog=epilog)(command)


# ----------------------------------------------------------------------------
# Wrong usage, exit code 2: what can be told from the command line alone, before a file is read.
#
# What the command line names and cannot be used, a file or what it holds, has exit code 3.


class Misused(typer.BadParameter):
    """A command was not used as its help says; the message stands by itself."""

    def format_message(self) -> str:
        """Return the message, with no parameter named before it."""
        return self.message


@contextmanager
def reading_options() -> Iterator[None]:
    """Take what the library refuses here for wrong usage: it was read from the command line."""
    try:
        yield
    except (InvalidInput, InvalidDocument) as error:
        raise Misused(str(error)) from None


# ----------------------------------------------------------------------------
# Arguments and options that several commands share.

ARRAY: Final = ".npy, .npz, .csv or .parquet; file.npz:name and file.parquet:column choose one"
MODEL: Final[Any] = typer.Option(
    "--model",
    metavar="MODEL",
    help="Public model: package.module:attribute (a model, or a function without arguments that "
    "returns one), a torch.export file (.pt2), or a weights file written by Layers.save "
    "(.safetensors). Load only models you trust.",
)

ReleaseFile = Annotated[
    Path, typer.Argument(metavar="RELEASE", help="A release file made by offaxis fit.")
]
Expect = Annotated[
    str | None,
    typer.Option("--expect", metavar="HASH", help="Refuse the release unless this is its hash."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the file of --out if it is already there.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of text for people.")
]
