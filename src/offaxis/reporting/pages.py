"""How pages are made: one file with everything inside, strict templates, everything escaped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def template(name: str, **filters: Callable[[Any], str]) -> jinja2.Template:
    """Return a template of this package, in which an unknown name is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("offaxis.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(name)
