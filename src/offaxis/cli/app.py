"""The list of commands, and the one place where errors become messages and exit codes.

A command's module is imported only when the command runs. ``offaxis --help`` is therefore fast,
although SciPy, torch or a web server take a second to load.

Exit codes: 0 success · 1 an audit found a violation, or a passport a bound exceeded · 2 wrong usage
· 3 an input, a release or a report is not valid, and nothing was written · 4 an optional dependency
is missing.
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

_RELEASES: Final = "Releases"
_REPORTS: Final = "Reports and devices"
_COLLECTORS: Final = "Collectors"


class Entry(NamedTuple):
    """Where a command is defined, and its line in the list of commands."""

    target: str
    panel: str
    help: str


COMMANDS: Final = {
    "recommend": Entry(
        "recommend:recommend",
        _RELEASES,
        "Try every admissible pure release on public vectors and recommend the best one.",
    ),
    "fit": Entry(
        "fit:fit",
        _RELEASES,
        "Fit a release to public data, or to a question that people answer privately.",
    ),
    "memoise": Entry(
        "sequences:memoise",
        _RELEASES,
        "Turn a release into one of sequences: many reports per person within one ε.",
    ),
    "inspect": Entry(
        "inspect:inspect",
        _RELEASES,
        "Show the privacy card of a release: its guarantee, assumptions and limits.",
    ),
    "evaluate": Entry(
        "evaluate:evaluate",
        _RELEASES,
        "Measure how well a model works on vectors that pass through a release.",
    ),
    "audit": Entry(
        "audit:audit",
        _RELEASES,
        "Attack a release or a function and report what was found. Exit code 1 means a violation.",
    ),
    "passport": Entry(
        "passport:passport",
        _RELEASES,
        "Attack reports of public vectors and compare with the proved bounds. Exit code 1: "
        "exceeded.",
    ),
    "privatize": Entry(
        "privatize:privatize",
        _REPORTS,
        "Turn private vectors into reports that may leave the device.",
    ),
    "decode": Entry(
        "decode:decode",
        _REPORTS,
        "Decode reports into vectors, or estimate a mean or shares of answers.",
    ),
    "ask": Entry(
        "ask:ask",
        _REPORTS,
        "Ask about the people who reported: shares, means, medians, histograms, covariances.",
    ),
    "trend": Entry(
        "sequences:trend",
        _REPORTS,
        "Estimate shares or means over time from the reports of a release of sequences.",
    ),
    "learn": Entry(
        "learn:learn",
        _REPORTS,
        "Plan, learn and check models from reports of vectors and private answers.",
    ),
    "export-onnx": Entry(
        "inspect:export_onnx",
        _REPORTS,
        "Export the public encoder of a release as an ONNX graph, for devices without Python.",
    ),
    "ledger": Entry(
        "ledger:ledger",
        _REPORTS,
        "Track what a person's reports have spent, and forecast what more would cost.",
    ),
    "device": Entry(
        "device:device",
        _REPORTS,
        "Answer a collector's rounds: each is paid for once and sent until accepted.",
    ),
    "serve": Entry(
        "serve:serve",
        _COLLECTORS,
        "Run a collector: publish releases, open rounds, accept uploads, compute means.",
    ),
    "collector": Entry(
        "collector:collector",
        _COLLECTORS,
        "Manage a collector: publish releases and rounds, read means, create tokens.",
    ),
    "keys": Entry(
        "serve:keys",
        _COLLECTORS,
        "Create a publisher's signing key, or show its public half.",
    ),
}
"""Commands by name; a target is ``module:attribute`` in ``offaxis.cli``.

A test compares each help line with the first paragraph of the command's docstring.
"""


def _fail(message: str, code: int) -> typer.Exit:
    typer.secho("error: ", nl=False, err=True, fg="red", bold=True)
    typer.echo(one_line(message), err=True)
    return typer.Exit(code)


class _ErrorMixin:
    """Turn errors that are raised on purpose into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; other errors keep their traceback."""
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except MissingExtra as error:
            raise _fail(str(error), MISSING_EXTRA) from None
        except OffaxisError as error:
            raise _fail(str(error), INVALID) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            path = f"{error.filename}: " if error.filename else ""
            raise _fail(f"{path}{error.strerror or error}", INVALID) from None


class SafeGroup(_ErrorMixin, Group):
    """A group of commands that report errors on one line."""


class SafeCommand(_ErrorMixin, Command):
    """A single command, run as a program, that reports errors on one line."""


class LazyGroup(SafeGroup):
    """A group that imports a command when it runs, not when it is listed."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help text."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or a stand-in with its help line while commands are listed."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if self._listing:
            return Command(cmd_name, help=entry.help, rich_help_panel=entry.panel)
        module, _, attribute = entry.target.partition(":")
        target = getattr(import_module(f"offaxis.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            command: Any = get_command(target)
        else:
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            add(single, target, cmd_name)
            command = get_command(single)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text without importing any command."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


app = typer.Typer(
    cls=LazyGroup,
    help="Release vectors under local differential privacy, with the noise where the task does not "
    "look.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    # A decorated traceback may print local variables, which may hold private vectors.
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
