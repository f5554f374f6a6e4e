"""The commands by name, and the one place where errors become messages and exit codes.

0 all went well · 1 an audit found a violation, or a benchmark a ratio that fell · 2 the command was
not used as its help says · 3 an input, a release or a report is not valid, nothing was written · 4
an optional dependency is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from offaxis.cli.audit import audit
from offaxis.cli.bench import bench
from offaxis.cli.collector import collector
from offaxis.cli.command import Group
from offaxis.cli.data import data
from offaxis.cli.decode import decode
from offaxis.cli.demo import demo
from offaxis.cli.device import device
from offaxis.cli.evaluate import evaluate
from offaxis.cli.examples import add
from offaxis.cli.export import export_onnx
from offaxis.cli.fit import fit
from offaxis.cli.inspect import inspect
from offaxis.cli.keys import keys
from offaxis.cli.ledger import ledger
from offaxis.cli.privatize import privatize
from offaxis.cli.recommend import recommend
from offaxis.cli.serve import serve
from offaxis.cli.serve_demo import serve_demo
from offaxis.cli.showing.terminal import one_line
from offaxis.cli.study import study
from offaxis.errors import MissingExtra, OffaxisError

INVALID: Final = 3
MISSING_EXTRA: Final = 4


def _fail(message: str, code: int) -> typer.Exit:
    typer.secho("error: ", nl=False, err=True, fg="red", bold=True)
    typer.echo(one_line(message), err=True)
    return typer.Exit(code)


class Commands(Group):
    """A group whose commands fail with one clear line instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors raised on purpose become a message and an exit code."""
        try:
            return super().invoke(ctx)
        except MissingExtra as error:
            raise _fail(str(error), MISSING_EXTRA) from None
        except OffaxisError as error:
            raise _fail(str(error), INVALID) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise _fail(f"{where}{error.strerror or error}", INVALID) from None


app = typer.Typer(
    cls=Commands,
    help="Release vectors under local differential privacy, with the noise off-axis.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    # A decorated traceback may print local variables, and those may hold private vectors.
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
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


_RELEASES: Final = "Make a release, and know it"
_REPORTS: Final = "Report"
_COLLECT: Final = "Collect"
_LOOK: Final = "See what it brings"

_COMMANDS: Final[dict[str, tuple[Callable[..., None], ...]]] = {
    _RELEASES: (recommend, fit, inspect, evaluate, audit),
    _REPORTS: (privatize, decode, export_onnx),
    _COLLECT: (serve,),
    _LOOK: (demo, serve_demo, bench),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        add(app, _command, panel=_panel)
app.add_typer(ledger, name="ledger", rich_help_panel=_REPORTS)
app.add_typer(device, name="device", rich_help_panel=_REPORTS)
app.add_typer(collector, name="collector", rich_help_panel=_COLLECT)
app.add_typer(keys, name="keys", rich_help_panel=_COLLECT)
app.add_typer(study, name="study", rich_help_panel=_LOOK)
app.add_typer(data, name="data", rich_help_panel=_LOOK)
