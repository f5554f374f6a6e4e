"""Provenance: which public inputs was a release fitted to, and where did they come from?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from offaxis.errors import InvalidInput
from offaxis.geometry.models import ModelIdentity
from offaxis.geometry.public import PublicIdentity

LONGEST_STATEMENT: Final = 10_000


@dataclass(frozen=True)
class Provenance:
    """The public inputs of a release, recorded so that others can check them.

    Attributes
    ----------
    model : ModelIdentity or None
        The public model; None if the release was fitted without one.
    public : PublicIdentity
        Number, dimension and hash of the public vectors.
    settings : dict
        The settings of the fit.
    statement : str
        The publisher's statement on where the public data came from.
    """

    model: ModelIdentity | None
    public: PublicIdentity
    settings: dict[str, str | float] = field(default_factory=dict)
    statement: str = ""


def check_statement(statement: str) -> None:
    """Raise for a statement that is no text, too long, or cannot be written as UTF-8."""
    if not isinstance(statement, str) or len(statement) > LONGEST_STATEMENT:
        raise InvalidInput(f"statement must be a text of at most {LONGEST_STATEMENT:,} characters")
    if not statement.isascii() and statement != statement.encode(errors="replace").decode():
        raise InvalidInput("statement must be a text that can be written as UTF-8")
