"""Local randomizers, one file each, and the names they are asked for by."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

from offaxis.errors import InvalidInput, unknown_name
from offaxis.randomizers.additive import Laplace, SphericalLaplace
from offaxis.randomizers.base import CHOOSE, Randomizer, check_delta
from offaxis.randomizers.box import Duchi, Hybrid, Piecewise
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.randomizers.projunit import ProjUnit
from offaxis.randomizers.symbols import KaryResponse, SubsetSelection
from offaxis.vectors import Order

__all__ = [
    "KINDS",
    "NAMES",
    "Duchi",
    "Gaussian",
    "Hybrid",
    "KaryResponse",
    "Laplace",
    "Piecewise",
    "PrivUnit2",
    "PrivUnitG",
    "ProjUnit",
    "Randomizer",
    "SphericalLaplace",
    "SubsetSelection",
    "make",
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
    )
}
"""Every randomizer a release file may name."""

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
"""The randomizers of vectors."""


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
    """Build a randomizer by name; δ is required by the Gaussian and refused by the pure ones.

    ``more`` are parameters of that randomizer alone.

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
    given = {"dim": dim, "radius": radius, "epsilon": epsilon, **fixed, **more}
    check_delta(delta, name, needed=takes(name, "delta"))
    randomizer: Randomizer = cls(**given) if delta is None else cls(**given, delta=delta)
    return randomizer


def parameters(randomizer: Randomizer) -> dict[str, int | float | str]:
    """Return the plain parameters from which :func:`rebuild` makes an equal randomizer."""
    assert dataclasses.is_dataclass(randomizer)
    values = {f.name: getattr(randomizer, f.name) for f in dataclasses.fields(randomizer)}
    return {k: str(v) if isinstance(v, Fraction) else v for k, v in values.items()}


def rebuild(kind: str, values: dict[str, int | float | str]) -> Randomizer:
    """Build a randomizer from untrusted parameters; anything unexpected is an error."""
    if kind not in KINDS:
        raise InvalidInput(f"unknown randomizer {kind!r}; this version knows {', '.join(KINDS)}")
    fields = {f.name: f.type for f in dataclasses.fields(KINDS[kind])}
    if set(values) != set(fields):
        raise InvalidInput(f"a {kind} randomizer has parameters {sorted(fields)}")
    wanted = {"int": int, "float": float}
    for name, value in values.items():
        if type(value) is not wanted.get(str(fields[name]), str):
            raise InvalidInput(f"parameter {name} of a {kind} has a wrong type: {value!r}")
        if value == CHOOSE:
            raise InvalidInput(f"parameter {name} of a {kind} is left open: {value!r}")
    randomizer: Randomizer = KINDS[kind](**values)
    if parameters(randomizer) != values:
        raise InvalidInput(f"the parameters of the {kind} randomizer are not in canonical form")
    return randomizer
