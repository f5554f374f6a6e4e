"""``offaxis ledger``: a person's budget, what was spent of it, and what reports would cost."""

from __future__ import annotations

from typing import Final

import typer

from offaxis.cli.command import Group
from offaxis.cli.examples import add
from offaxis.cli.ledger.forecast import forecast
from offaxis.cli.ledger.keeping import create, show

ledger: Final = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Keep count of what a person's reports have spent, and look ahead.",
)
for _command in (create, show, forecast):
    add(ledger, _command)
