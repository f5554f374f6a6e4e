"""Mechanisms, randomizers and models of other packages, found by name when they are needed.

A package names them as entry points in its metadata; a script or notebook registers them. A name
has the form ``package.name``, with a dot, which no name of offaxis has: so nothing can replace a
part of offaxis, and whoever reads the name sees that it is not one.

======================  ==========================================================================
entry points            what they name
======================  ==========================================================================
offaxis.randomizers     a subclass of :class:`offaxis.randomizers.CustomRandomizer`, by its kind
offaxis.mechanisms      a :class:`offaxis.mechanisms.Mechanism`, by its name
offaxis.models          a function from a model to a :class:`offaxis.geometry.TaskModel`, or to None
======================  ==========================================================================
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal

from offaxis.errors import InvalidInput

Group = Literal["randomizers", "mechanisms", "models"]

NAME: Final = r"[a-z0-9_-]+(\.[a-z0-9_-]+)+"

_registered: dict[tuple[Group, str], Any] = {}


def is_plugin(name: str) -> bool:
    """Return whether a name is that of another package's mechanism or randomizer.

    Examples
    --------
    >>> from offaxis.plugins import is_plugin
    >>> is_plugin("acme.one-bit"), is_plugin("laplace")
    (True, False)
    """
    return "." in name


def shown(kind: str) -> str:
    """Return the kind of a randomizer, with a note if it is not part of offaxis."""
    return f"{kind} (not part of offaxis)" if is_plugin(kind) else kind


def check_name(name: Any) -> str:
    """Return the name of a mechanism or randomizer of another package, or raise InvalidInput."""
    if not isinstance(name, str) or not re.fullmatch(NAME, name) or len(name) > 200:
        raise InvalidInput(
            f"a mechanism of your own is named package.name, in lower case and with a dot, such as "
            f"'acme.one-bit', got {name!r}"
        )
    return name


def add(group: Group, name: str, value: Any) -> None:
    """Register a value in this process; a class may be defined again, as in a notebook.

    Raises
    ------
    InvalidInput
        If another class has this name: a file would be loaded with one or the other.
    """
    known = _registered.get((group, check_name(name)), value)
    if isinstance(value, type) and _place(known) != _place(value):
        raise InvalidInput(
            f"{name!r} is the class {'.'.join(_place(known))}: use another kind for "
            f"{'.'.join(_place(value))}"
        )
    _registered[group, name] = value


def _place(value: Any) -> tuple[str, str]:
    return getattr(value, "__module__", ""), getattr(value, "__qualname__", "")


def find(group: Group, name: str) -> Any | None:
    """Return what is registered, or named by an entry point; None if there is none.

    Raises
    ------
    InvalidInput
        If a package names it, but it cannot be imported, or if several packages name it.
    """
    if (group, name) in _registered:
        return _registered[group, name]
    found = [point for point in _points(group) if point.name == name]
    if len(found) > 1:
        packages = ", ".join(sorted(point.value for point in found))
        raise InvalidInput(f"several packages name {name!r}: {packages}; uninstall all but one")
    return _loaded(found[0]) if found else None


def names(group: Group) -> list[str]:
    """Return all names, sorted."""
    registered = {name for own, name in _registered if own == group}
    return sorted(registered | {point.name for point in _points(group)})


def every(group: Group) -> Iterator[Any]:
    """Yield all values, each imported when its turn comes; one that fails is left out."""
    for name in names(group):
        try:
            yield find(group, name)
        except InvalidInput as error:
            warnings.warn(str(error), stacklevel=2)


def _points(group: Group) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"offaxis.{group}"))


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise InvalidInput(
            f"{point.name!r} of another package cannot be imported from {point.value}: "
            f"{type(error).__name__}: {error}"
        ) from error
