"""Mechanisms by name: public maps around a randomizer, fitted to public vectors."""

from __future__ import annotations

from typing import Any

from offaxis import plugins, randomizers
from offaxis.errors import InvalidInput, installing, unknown_name
from offaxis.mechanisms.answers import CLASS_RESPONSE, SCALAR_RESPONSE
from offaxis.mechanisms.base import Mechanism, Parts, PublicInputs
from offaxis.mechanisms.codebook import RESPONSE, SUBSET
from offaxis.mechanisms.fitted_decoders import posterior, shrink
from offaxis.mechanisms.literature import (
    INSTANCE_OPTIMAL,
    PLAN,
    TASK_AWARE,
    coordinatewise,
    direct,
    mechanism_of,
)

__all__ = [
    "NAMES",
    "Mechanism",
    "Parts",
    "PublicInputs",
    "find_mechanism",
    "mechanism_of",
    "posterior",
    "register",
    "shrink",
]


def _prepare_network(inputs: PublicInputs) -> Parts:
    try:
        from offaxis.mechanisms.networks import prepare
    except ImportError as error:
        raise InvalidInput(
            f"task-aware-network is trained with torch: {installing('torch')}"
        ) from error
    return prepare(inputs)


_MECHANISMS: dict[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        *(direct(name) for name in randomizers.NAMES),
        RESPONSE,
        SUBSET,
        CLASS_RESPONSE,
        SCALAR_RESPONSE,
        coordinatewise("laplace"),
        coordinatewise("gaussian"),
        INSTANCE_OPTIMAL,
        PLAN,
        TASK_AWARE,
        Mechanism(
            "task-aware-network",
            _prepare_network,
            1,
            needs_task=True,
            uses_percentile=False,
            size="numbers per report",
        ),
    )
}

NAMES = tuple(_MECHANISMS)
"""The names that ``offaxis.fit(mechanism=...)`` accepts."""


def find_mechanism(mechanism: str | Mechanism | type[Any]) -> Mechanism:
    """Return the mechanism with this name, of this class of randomizers, or itself.

    Examples
    --------
    >>> from offaxis.mechanisms import NAMES, find_mechanism
    >>> "plan" in NAMES, find_mechanism("plan").needs_delta
    (True, True)
    """
    if isinstance(mechanism, Mechanism):
        if _MECHANISMS.get(mechanism.name) is not mechanism:
            plugins.check_name(mechanism.name)
        return mechanism
    if isinstance(mechanism, type):
        kind = getattr(mechanism, "kind", None)
        if kind in randomizers.NAMES and randomizers.KINDS[kind] is mechanism:
            raise InvalidInput(f"{mechanism.__name__} is part of offaxis: use mechanism={kind!r}")
        return mechanism_of(mechanism)
    if isinstance(mechanism, randomizers.CustomRandomizer):
        name = type(mechanism).__name__
        raise InvalidInput(
            f"got a {name}, whose dimension and radius are fixed: pass its class, {name}, "
            f"or its settings, mechanism_of({name}, …)"
        )
    if mechanism in _MECHANISMS:
        return _MECHANISMS[mechanism]
    if not isinstance(mechanism, str) or not plugins.is_plugin(mechanism):
        raise InvalidInput(unknown_name("mechanism", mechanism, NAMES))
    found = plugins.find("mechanisms", mechanism)
    if found is None:
        return mechanism_of(randomizers.class_of(mechanism))
    if not isinstance(found, Mechanism) or found.name != mechanism:
        raise InvalidInput(f"what is named {mechanism!r} is not the mechanism of this name")
    return found


def register(mechanism: Mechanism) -> Mechanism:
    """Make a mechanism of your own known by its name in this process.

    An installed package names it as an entry point of ``offaxis.mechanisms`` instead. A class of
    randomizers that needs no map of its own is enough (:func:`offaxis.randomizers.register`).

    Examples
    --------
    >>> from dataclasses import replace
    >>> from offaxis.mechanisms import find_mechanism, register
    >>> register(replace(find_mechanism("laplace"), name="acme.laplace")).name
    'acme.laplace'
    >>> find_mechanism("acme.laplace").order
    1
    """
    plugins.add("mechanisms", mechanism.name, mechanism)
    return mechanism
