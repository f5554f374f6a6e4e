"""How commands are declared: examples in help texts, usage errors, and shared options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from offaxis.errors import InvalidDocument, InvalidInput

_ClickUsageError: Final[Any] = typer.BadParameter.__base__


class _HelpMixin:
    """Reflow help paragraphs, hide the type of flags, and show the usage with every usage error."""

    def __init__(self, *names: str | None, **settings: Any) -> None:
        # Typer keeps the line breaks of the source in all paragraphs but the first.
        paragraphs = (settings.get("help") or "").split("\n\n")
        settings["help"] = "\n\n".join(" ".join(text.split()) for text in paragraphs)
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
        except _ClickUsageError as error:
            # Click reports an option without a value without naming its command.
            error.ctx = error.ctx or ctx
            raise
        return rest


class Command(_HelpMixin, TyperCommand):
    """A command."""


class Group(_HelpMixin, TyperGroup):
    """A group of commands."""


# ---- Declaring commands; tests/cli/test_help.py runs the examples

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])

_EXAMPLES = "example_lines"


def example(*lines: str) -> Callable[[CommandFunction], CommandFunction]:
    """Attach examples to a command, one call per line, as docs/cli.md writes them."""

    def mark(command: CommandFunction) -> CommandFunction:
        setattr(command, _EXAMPLES, lines)
        return command

    return mark


def add(
    app: typer.Typer,
    command: Callable[..., Any],
    name: str | None = None,
    *,
    cls: type[Command] = Command,
) -> None:
    """Add a command to an application; its examples end its help text."""
    lines: tuple[str, ...] = getattr(command, _EXAMPLES)
    # Typer joins the lines of a paragraph, so each example is its own paragraph.
    epilog = "\n\n".join([f"Example{'s' * (len(lines) > 1)}:", *lines])
    app.command(name, cls=cls, epilog=epilog)(command)


# ---- Usage errors
#
# Exit code 2: wrong usage that the command line alone shows, before any file is read. If a file
# named on the command line, or its content, cannot be used, the exit code is 3.


class UsageError(typer.BadParameter):
    """A command was not used as its help describes."""

    def format_message(self) -> str:
        """Return the message without the name of a parameter before it."""
        return self.message


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report errors of the library as usage errors, for values read from the command line."""
    try:
        yield
    except (InvalidInput, InvalidDocument) as error:
        raise UsageError(str(error)) from None


# ---- Arguments and options that several commands share

ARRAY: Final = ".npy, .npz, .csv or .parquet; file.npz:name or file.parquet:column selects an array"
MODEL: Final[Any] = typer.Option(
    "--model",
    metavar="MODEL",
    help="Public model: package.module:attribute (a model, or a function without arguments that "
    "returns one), a torch.export file (.pt2), an ONNX file (.onnx), or a weights file written by "
    "Layers.save (.safetensors). Load only models you trust.",
)

ReleaseFile = Annotated[
    Path, typer.Argument(metavar="RELEASE", help="Release file written by offaxis fit.")
]
Expect = Annotated[
    str | None,
    typer.Option("--expect", metavar="HASH", help="Reject the release unless it has this hash."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the output file if it already exists.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
