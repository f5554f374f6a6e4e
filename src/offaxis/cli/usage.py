"""Wrong usage, exit code 2: what can be told from the command line alone, before a file is read.

What the command line names and cannot be used, a file or what it holds, has exit code 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from offaxis.errors import InvalidDocument, InvalidInput


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
