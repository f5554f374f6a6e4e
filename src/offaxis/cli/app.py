"""The commands by name, and the one place where errors become messages and exit codes.

A command's module is imported when the command runs, so that ``offaxis --help`` and a mistyped
option answer at once although SciPy, torch or a web server take a second to load.

Exit codes: 0 success · 1 an audit found a violation · 2 wrong usage · 3 an input, a release or a
report is not valid, nothing was written · 4 an optional dependency is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.main import get_command

from offaxis.cli.options import Command, Group, add
from offaxis.cli.terminal import one_line
from offaxis.errors import MissingExtra, OffaxisError

INVALID: Final = 3
MISSING_EXTRA: Final = 4

_RELEASES: Final = "Make a release, and know it"
_REPORTS: Final = "Report"
_COLLECT: Final = "Collect"


class Entry(NamedTuple):
    """Where a command is defined, and what the list of commands says about it."""

    where: str
    panel: str
    help: str


COMMANDS: Final = {
    "recommend": Entry(
        "recommend:recommend",
        _RELEASES,
        "Try every admissible pure release on public vectors and recommend the best one.",
    ),
    "fit": Entry("fit:fit", _RELEASES, "Fit a release to a public model and public vectors."),
    "inspect": Entry(
        "inspect:inspect",
        _RELEASES,
        "Show what a release promises, to whom, on which conditions, and what it does not.",
    ),
    "evaluate": Entry(
        "evaluate:evaluate",
        _RELEASES,
        "Measure what a model keeps of its answers when vectors pass through a release.",
    ),
    "audit": Entry(
        "audit:audit",
        _RELEASES,
        "Attack a release and say what was found. Exit code 1 means a violation.",
    ),
    "privatize": Entry(
        "privatize:privatize",
        _REPORTS,
        "Turn private vectors into reports that may leave the device.",
    ),
    "decode": Entry(
        "decode:decode", _REPORTS, "Turn reports into vectors, or into estimates of their means."
    ),
    "export-onnx": Entry(
        "inspect:export_onnx",
        _REPORTS,
        "Write the public encoder of a release as an ONNX graph, for devices without Python.",
    ),
    "ledger": Entry(
        "ledger:ledger",
        _REPORTS,
        "Keep count of what a person's reports have spent, and look ahead.",
    ),
    "device": Entry(
        "device:device",
        _REPORTS,
        "Answer rounds of a collector: each once, paid for, and sent until it is taken.",
    ),
    "serve": Entry(
        "collector:serve",
        _COLLECT,
        "Collect reports: publish releases, open rounds, take uploads, answer with means.",
    ),
    "collector": Entry(
        "collector:collector",
        _COLLECT,
        "Publish releases and rounds at a collector, and read its means.",
    ),
    "keys": Entry("collector:keys", _COLLECT, "Make a publisher's key, show its public half."),
}
"""Command → module of ``offaxis.cli`` and attribute; a test compares each help with its command."""


def _fail(message: str, code: int) -> typer.Exit:
    typer.secho("error: ", nl=False, err=True, fg="red", bold=True)
    typer.echo(one_line(message), err=True)
    return typer.Exit(code)


class _Safe:
    """Fail with one clear line instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors raised on purpose become a message and an exit code."""
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except MissingExtra as error:
            raise _fail(str(error), MISSING_EXTRA) from None
        except OffaxisError as error:
            raise _fail(str(error), INVALID) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise _fail(f"{where}{error.strerror or error}", INVALID) from None


class SafeGroup(_Safe, Group):
    """A group whose commands fail with one clear line."""


class SafeCommand(_Safe, Command):
    """A command that is a program of its own and fails with one clear line."""


class LazyGroup(SafeGroup):
    """A group that imports a command when it is called, not when it is listed."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or what its line in the list of commands needs."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if self._listing:
            return Command(cmd_name, help=entry.help, rich_help_panel=entry.panel)
        module, _, attribute = entry.where.partition(":")
        target = getattr(import_module(f"offaxis.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            command: Any = get_command(target)
        else:
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            add(alone, target, cmd_name)
            command = get_command(alone)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without importing any command."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


app = typer.Typer(
    cls=LazyGroup,
    help="Release vectors under local differential privacy, with the noise off-axis.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    # A decorated traceback may print local variables, and those may hold private vectors.
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        from offaxis.version import __version__

        typer.echo(f"offaxis {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass
