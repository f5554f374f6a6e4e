"""Where a release came from: which public data, which model, which settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from offaxis.geometry.models import ModelIdentity
from offaxis.geometry.public_hash import PublicIdentity

LONGEST_STATEMENT = 10_000


@dataclass(frozen=True)
class Provenance:
    """The public side of a release, recorded for whoever has to trust it.

    Attributes
    ----------
    model : ModelIdentity or None
        The public model, None when the release was not shaped by one.
    public : PublicIdentity
        Number, dimension and hash of the public vectors.
    settings : dict
        How the map was fitted.
    statement : str
        The maker's own words on where the public data came from.
    """

    model: ModelIdentity | None
    public: PublicIdentity
    settings: dict[str, str | float] = field(default_factory=dict)
    statement: str = ""
