"""Local randomizers, one file each, and the names they are asked for by."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from offaxis.errors import InvalidInput
from offaxis.randomizers.base import CHOOSE, Randomizer
from offaxis.randomizers.duchi import Duchi
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.hybrid import Hybrid
from offaxis.randomizers.laplace import Laplace
from offaxis.randomizers.piecewise import Piecewise
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.randomizers.projunit import ProjUnit
from offaxis.randomizers.response import KaryResponse
from offaxis.randomizers.spherical_laplace import SphericalLaplace
from offaxis.randomizers.subset import SubsetSelection
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
    "norm",
    "parameters",
    "rebuild",
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

_MAKERS: dict[str, Callable[..., Randomizer]] = {
    "laplace": Laplace,
    "gaussian": Gaussian,
    "spherical-laplace": SphericalLaplace,
    "privunit2": PrivUnit2,
    "privunitg": PrivUnitG,
    "privunitg-sphere": lambda **parameters: PrivUnitG(output="sphere", **parameters),
    "privunit2-mean": lambda **parameters: PrivUnit2(target="vector", **parameters),
    "privunitg-mean": lambda **parameters: PrivUnitG(target="vector", **parameters),
    "projunit": ProjUnit,
    "projunit-mean": lambda **parameters: ProjUnit(target="vector", **parameters),
    "duchi": Duchi,
    "piecewise": Piecewise,
    "hybrid": Hybrid,
}
NAMES = tuple(_MAKERS)
"""The randomizers of vectors."""


def _check_name(name: str) -> None:
    if name not in _MAKERS:
        raise InvalidInput(f"randomizer must be one of {', '.join(NAMES)}, got {name!r}")


def norm(name: str) -> Order:
    """Return the p of the ℓp norm whose public percentile sets the randomizer's radius."""
    _check_name(name)
    if name in ("duchi", "piecewise", "hybrid"):
        return "inf"
    return 1 if name == "laplace" else 2


def make(
    name: str, *, dim: int, radius: float, epsilon: Any, delta: Any = None, **more: int
) -> Randomizer:
    """Build a randomizer by name; δ is required by the Gaussian and refused by the pure ones.

    ``more`` are parameters of that randomizer alone.
    """
    _check_name(name)
    parameters = {"dim": dim, "radius": radius, "epsilon": epsilon, **more}
    if name == "gaussian":
        if delta is None:
            raise InvalidInput(
                "the Gaussian randomizer needs delta, for example delta=1e-5; "
                "for a pure guarantee use 'laplace'"
            )
        parameters["delta"] = delta
    elif delta is not None:
        raise InvalidInput(f"{name!r} is pure: it takes no delta, got delta={delta!r}")
    return _MAKERS[name](**parameters)


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
