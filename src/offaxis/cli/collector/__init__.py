"""``offaxis collector``: publish, open rounds, look at means; over HTTP, with a token.

The address and the token come from options or from OFFAXIS_COLLECTOR and OFFAXIS_TOKEN; a token on
a command line can be read by others on the machine.
"""

from __future__ import annotations

from typing import Final

import typer

from offaxis.cli.collector.publishing import attach, close_round, open_round, publish
from offaxis.cli.collector.results import drift, export, means, purge
from offaxis.cli.collector.tokens import token
from offaxis.cli.command import Group
from offaxis.cli.examples import add

collector: Final = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Publish releases and rounds at a collector, and read its means.",
)
for _command in (publish, attach, open_round, close_round, means, drift, export, purge):
    add(collector, _command)
collector.add_typer(token, name="token")
