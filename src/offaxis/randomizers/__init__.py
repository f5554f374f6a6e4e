"""Local randomizers, and the registry that builds them by name."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from fractions import Fraction
from typing import Any

from offaxis import plugins
from offaxis.errors import InvalidInput, unknown_name
from offaxis.privacy.guarantee import exact
from offaxis.randomizers.base import CHOOSE, Randomizer, check_delta
from offaxis.randomizers.box import Duchi, Hybrid, Piecewise
from offaxis.randomizers.custom import CustomRandomizer, check_class, register
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.hashing import LocalHashing
from offaxis.randomizers.laplace import Laplace, SphericalLaplace
from offaxis.randomizers.memoised import MemoisedPrivUnit2, MemoisedResponse
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.randomizers.projunit import ProjUnit
from offaxis.randomizers.symbols import KaryResponse, SubsetSelection
from offaxis.vectors import Order

__all__ = [
    "KINDS",
    "NAMES",
    "CustomRandomizer",
    "Duchi",
    "Gaussian",
    "Hybrid",
    "KaryResponse",
    "Laplace",
    "LocalHashing",
    "MemoisedPrivUnit2",
    "MemoisedResponse",
    "Piecewise",
    "PrivUnit2",
    "PrivUnitG",
    "ProjUnit",
    "Randomizer",
    "SphericalLaplace",
    "SubsetSelection",
    "make",
    "register",
]

KINDS: dict[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        Laplace,
        Gaussian,
        SphericalLaplace,
        PrivUnit2,
        PrivUnitG,
        ProjUnit,
        Duchi,
        Piecewise,
        Hybrid,
        KaryResponse,
        SubsetSelection,
        LocalHashing,
        MemoisedResponse,
        MemoisedPrivUnit2,
    )
}
"""Every randomizer that a release file may contain, by kind."""

_NAMED: dict[str, tuple[type[Any], dict[str, str]]] = {
    "laplace": (Laplace, {}),
    "gaussian": (Gaussian, {}),
    "spherical-laplace": (SphericalLaplace, {}),
    "privunit2": (PrivUnit2, {}),
    "privunitg": (PrivUnitG, {}),
    "privunitg-sphere": (PrivUnitG, {"output": "sphere"}),
    "privunit2-mean": (PrivUnit2, {"target": "vector"}),
    "privunitg-mean": (PrivUnitG, {"target": "vector"}),
    "projunit": (ProjUnit, {}),
    "projunit-mean": (ProjUnit, {"target": "vector"}),
    "duchi": (Duchi, {}),
    "piecewise": (Piecewise, {}),
    "hybrid": (Hybrid, {}),
}
NAMES = tuple(_NAMED)
"""The names of the randomizers of vectors."""


def _named(name: str) -> tuple[type[Any], dict[str, str]]:
    if name not in _NAMED:
        raise InvalidInput(unknown_name("randomizer", name, NAMES))
    return _NAMED[name]


def norm(name: str) -> Order:
    """Return the p of the ℓp norm whose public percentile sets the randomizer's radius."""
    order: Order = _named(name)[0].order
    return order


def takes(name: str, parameter: str) -> bool:
    """Return whether the randomizer of that name has a parameter."""
    return parameter in (field.name for field in dataclasses.fields(_named(name)[0]))


def make(
    name: str, *, dim: int, radius: float, epsilon: Any, delta: Any = None, **more: int
) -> Randomizer:
    """Build a randomizer by name.

    The Gaussian requires ``delta``; the pure randomizers reject it. ``more`` are parameters that
    only this randomizer has.

    Examples
    --------
    >>> from offaxis.randomizers import make
    >>> make("laplace", dim=3, radius=1.0, epsilon=2).kind
    'laplace'
    >>> str(make("gaussian", dim=3, radius=1.0, epsilon=2, delta=1e-5).guarantee)
    'ε = 2, δ = 1e-05'
    >>> make("privunit2-mean", dim=3, radius=1.0, epsilon=2).unbiased
    True
    """
    cls, fixed = _named(name)
    settings = {"dim": dim, "radius": radius, "epsilon": epsilon, **fixed, **more}
    check_delta(delta, name, needed=takes(name, "delta"))
    randomizer: Randomizer = cls(**settings) if delta is None else cls(**settings, delta=delta)
    return randomizer


def parameters(randomizer: Randomizer) -> dict[str, int | float | str]:
    """Return the parameters, as plain values, from which :func:`rebuild` makes an equal one."""
    assert dataclasses.is_dataclass(randomizer)
    values = {f.name: getattr(randomizer, f.name) for f in dataclasses.fields(randomizer)}
    return {k: str(v) if isinstance(v, Fraction) else v for k, v in values.items()}


def is_own(randomizer: Randomizer) -> bool:
    """Whether a randomizer is part of offaxis: of one of its classes, not of a subclass."""
    return KINDS.get(randomizer.kind) is type(randomizer)


def shown(randomizer: Randomizer) -> str:
    """Return the kind of a randomizer, with a note if it is not part of offaxis."""
    return randomizer.kind if is_own(randomizer) else f"{randomizer.kind} (not part of offaxis)"


def class_of(kind: str) -> type[Any]:
    """Return the class of a kind: one of offaxis, or of another package."""
    if kind in KINDS:
        return KINDS[kind]
    if not plugins.is_plugin(kind):
        raise InvalidInput(f"unknown randomizer {kind!r}; this version knows {', '.join(KINDS)}")
    cls: type[Any] | None = plugins.find("randomizers", kind)
    if cls is None:
        raise InvalidInput(
            f"the randomizer {kind!r} is not part of offaxis: install the package that provides "
            f"it, or register its class with offaxis.randomizers.register"
        )
    check_class(cls)
    if cls.kind != kind:
        raise InvalidInput(f"{cls.__name__} is named {kind!r}, but its kind is {cls.kind!r}")
    return cls


def rebuild(kind: str, values: dict[str, int | float | str]) -> Randomizer:
    """Build a randomizer from untrusted parameters; anything unexpected is an error."""
    return _rebuilt(class_of(kind), kind, values)


def built(cls: type[Any], given: dict[str, Any]) -> Randomizer:
    """Build a randomizer of another package from its fields; each must fit into a release file.

    Numbers are brought to the types of the fields.
    """
    types = _types(cls)
    convert: dict[str, Any] = {"int": int, "float": float}
    for name, value in given.items():
        if types.get(name) in convert and not isinstance(value, bool | str):
            with contextlib.suppress(TypeError, ValueError):
                given[name] = convert[types[name]](value)
    randomizer: Randomizer = cls(**given)
    values = parameters(randomizer)
    for name, value in values.items():
        if isinstance(value, str):
            fits = 1 <= len(value) <= 200
        elif isinstance(value, float):
            fits = math.isfinite(value)
        else:
            fits = type(value) is int and value >= 0
        if not fits:
            raise InvalidInput(
                f"the field {name} of {cls.__name__} cannot be written into a release file: use an "
                f"integer from 0 on, a finite float or a text, got {value!r}"
            )
    try:
        same = _rebuilt(cls, cls.kind, values) == randomizer
    except InvalidInput as error:
        raise InvalidInput(f"{cls.__name__} cannot be built from a file again: {error}") from error
    if not same:
        raise InvalidInput(f"{cls.__name__} differs when it is built from its fields again")
    return randomizer


def _types(cls: type[Any]) -> dict[str, str]:
    """Return the types of the fields by name; those of other packages may not be postponed."""
    return {f.name: getattr(f.type, "__name__", str(f.type)) for f in dataclasses.fields(cls)}


def _rebuilt(cls: type[Any], kind: str, values: dict[str, Any]) -> Randomizer:
    fields = _types(cls)
    if set(values) != set(fields):
        raise InvalidInput(f"a {kind} randomizer has parameters {sorted(fields)}")
    expected = {"int": int, "float": float}
    for name, value in values.items():
        if type(value) is not expected.get(fields[name], str):
            raise InvalidInput(f"parameter {name} of a {kind} has a wrong type: {value!r}")
        if value == CHOOSE and kind in KINDS:
            raise InvalidInput(f"parameter {name} of a {kind} is left open: {value!r}")
    given = values
    if kind not in KINDS:
        exactly = (name for name, type_ in fields.items() if type_ == "Fraction")
        given = values | {name: exact(values[name], name) for name in exactly}
    randomizer: Randomizer = cls(**given)
    if parameters(randomizer) != values:
        raise InvalidInput(f"the parameters of the {kind} randomizer are not in canonical form")
    return randomizer
