"""Mechanisms by name: public maps around a randomizer, fitted to public vectors."""

from __future__ import annotations

from offaxis import randomizers
from offaxis.errors import InvalidInput, installing, unknown_name
from offaxis.mechanisms.answers import CLASS_RESPONSE, SCALAR_RESPONSE
from offaxis.mechanisms.base import Mechanism, Parts, PublicInputs
from offaxis.mechanisms.codebook import RESPONSE, SUBSET
from offaxis.mechanisms.fitted_decoders import posterior, shrink
from offaxis.mechanisms.literature import INSTANCE_OPTIMAL, PLAN, TASK_AWARE, coordinatewise, direct

__all__ = ["NAMES", "Mechanism", "Parts", "PublicInputs", "find_mechanism", "posterior", "shrink"]


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


def find_mechanism(name: str) -> Mechanism:
    """Return the mechanism with this name.

    Examples
    --------
    >>> from offaxis.mechanisms import NAMES, find_mechanism
    >>> "plan" in NAMES, find_mechanism("plan").needs_delta
    (True, True)
    """
    if name not in _MECHANISMS:
        raise InvalidInput(unknown_name("mechanism", name, NAMES))
    return _MECHANISMS[name]
