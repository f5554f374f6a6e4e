"""What a search may try: the settings that cost no privacy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from offaxis.errors import InvalidInput
from offaxis.faces.sklearn.vectors import PROMISES
from offaxis.recipes import recipe

FREE: Final = (
    *("randomizer", "model", "reshaping", "percentile", "lambda_max"),
    *("gauge", "rank", "active", "size"),
)
"""Decided on public vectors before any private one is seen, whatever ε is."""

_PERCENTILES: Final = (75.0, 90.0, 99.0)
_CAPS: Final = (3.0, 10.0, 1000.0)


def free_settings(step: str = "", /, **choices: Iterable[Any]) -> list[dict[str, list[Any]]]:
    """Return a parameter grid of settings that cost no privacy, for any scikit-learn search.

    They are fitted on public vectors and published with the release; the guarantee is the same
    whichever a search picks, as long as it searches on **public** vectors. ε, δ and the unit are
    refused: more budget always scores better, so a score cannot choose them.

    Parameters
    ----------
    step : str
        Where the :class:`PrivateVectors` is: the name of its step in a pipeline, with double
        underscores for what is nested. Empty for the estimator itself.
    **choices : iterable
        What to try of a setting. Without any: radius, shape and stretch, where they matter.

    Returns
    -------
    list of dict

    Raises
    ------
    InvalidInput
        If a name is not a setting that costs no privacy, or randomizers with and without a δ are
        mixed, which promise different things.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.pipeline import Pipeline
    >>> from offaxis.faces.sklearn import PrivateVectors, free_settings
    >>> X, y = load_iris(return_X_y=True)                                # public
    >>> steps = [("private", PrivateVectors(epsilon=4)), ("head", RidgeClassifier())]
    >>> grid = free_settings("private", reshaping=["none", "jacobian"])
    >>> search = GridSearchCV(Pipeline(steps), grid, cv=2).fit(X, y)
    >>> print(search.best_estimator_["private"].release_.guarantee)
    ε = 4, pure
    >>> free_settings("private", epsilon=[1, 8])
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: epsilon costs privacy ...
    """
    prefix = f"{step}__" if step else ""
    for name in choices:
        _check_name(name)
    given = {name: list(values) for name, values in choices.items()}
    _check_randomizers(given.get("randomizer", []))
    grids = [given] if given else _usual()
    return [{prefix + name: values for name, values in grid.items()} for grid in grids]


def _usual() -> list[dict[str, list[Any]]]:
    """Return the grids of the settings that matter most; the cap only where there is one."""
    radii = {"percentile": list(_PERCENTILES)}
    return [
        {"reshaping": ["none", "centre", "optimal"], **radii},
        {"reshaping": ["jacobian"], "lambda_max": list(_CAPS), **radii},
    ]


def _check_name(name: str) -> None:
    if name in PROMISES:
        raise InvalidInput(
            f"{name} costs privacy and is promised to people: decide it, do not search for it; "
            f"offaxis.smallest_epsilon finds the least budget for a goal, on public vectors"
        )
    if name not in FREE:
        raise InvalidInput(f"a setting that costs no privacy is one of {', '.join(FREE)}: {name!r}")


def _check_randomizers(names: list[Any]) -> None:
    if len({recipe(name).needs_delta for name in names}) > 1:
        raise InvalidInput(
            f"some of these randomizers are pure and some have a δ, which are different promises, "
            f"got {', '.join(names)}; search one kind at a time"
        )
