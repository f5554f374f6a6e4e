"""Mechanisms by the names people know them by: public maps around a randomizer, one file each."""

from __future__ import annotations

from offaxis import randomizers
from offaxis.errors import InvalidInput, installing, unknown_name
from offaxis.recipes.classes import CLASS_RESPONSE
from offaxis.recipes.codebook import RESPONSE, SUBSET
from offaxis.recipes.coordinatewise import coordinatewise
from offaxis.recipes.direct import direct
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe
from offaxis.recipes.instance_optimal import INSTANCE_OPTIMAL
from offaxis.recipes.plan import PLAN
from offaxis.recipes.scalar import SCALAR_RESPONSE
from offaxis.recipes.task_aware import TASK_AWARE

__all__ = ["NAMES", "Ingredients", "Parts", "Recipe", "recipe"]


def _train(given: Ingredients) -> Parts:
    try:
        from offaxis.recipes.trained import prepare
    except ImportError as error:
        raise InvalidInput(
            f"task-aware-network is trained with torch: {installing('torch')}"
        ) from error
    return prepare(given)


_RECIPES: dict[str, Recipe] = {
    **{name: direct(name) for name in randomizers.NAMES},
    "response": RESPONSE,
    "subset": SUBSET,
    "class-response": CLASS_RESPONSE,
    "scalar-response": SCALAR_RESPONSE,
    "coordinatewise-laplace": coordinatewise("laplace"),
    "coordinatewise-gaussian": coordinatewise("gaussian"),
    "instance-optimal": INSTANCE_OPTIMAL,
    "plan": PLAN,
    "task-aware": TASK_AWARE,
    "task-aware-network": Recipe(_train, 1, needs_task=True, size="numbers a report carries"),
}

NAMES = tuple(_RECIPES)
"""Everything ``fit`` can be asked for."""


def recipe(name: str) -> Recipe:
    """Return a recipe by its name.

    Examples
    --------
    >>> from offaxis.recipes import NAMES, recipe
    >>> "plan" in NAMES, recipe("plan").needs_delta, recipe("task-aware").needs_task
    (True, True, True)
    """
    if name not in _RECIPES:
        raise InvalidInput(unknown_name("randomizer", name, NAMES))
    return _RECIPES[name]
