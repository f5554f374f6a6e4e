"""From a rehearsal on public vectors to the real thing: real reports in place of simulated ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from functools import partial
from itertools import islice
from types import MethodType, ModuleType
from typing import Any, Final

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import check_is_fitted

from offaxis.errors import InvalidInput
from offaxis.faces.sklearn.simulated import SimulatedVectors
from offaxis.faces.sklearn.vectors import PrivateVectors

_SHOWN: Final = 3
"""So many places are named when something is refused."""


def released(fitted: Any) -> Any:
    """Return a fitted pipeline with real reports in place of simulated ones.

    Nothing is fitted again: every :class:`SimulatedVectors` gives way to its ``vectors_``, however
    deep it is nested in Pipelines, FeatureUnions, ColumnTransformers and FrozenEstimators. The
    given pipeline stays simulated. From here on **every transform and every predict of what is
    returned spends the budget**.

    Anything else that holds a SimulatedVectors, such as a search or an ensemble, is refused. What
    a function of your own calls is not looked into.

    Parameters
    ----------
    fitted : Pipeline, or anything of the above
        A bare SimulatedVectors becomes a :class:`PrivateVectors`.

    Raises
    ------
    InvalidInput
        If nothing is simulated, or a SimulatedVectors would remain; the message says where.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from offaxis.faces.sklearn import PrivateVectors, SimulatedVectors, released
    >>> X, y = load_iris(return_X_y=True)                                # public
    >>> pipe = make_pipeline(SimulatedVectors(PrivateVectors(epsilon=8)), RidgeClassifier())
    >>> released(pipe.fit(X, y)).predict(X[:2]).shape                    # two private reports
    (2,)
    """
    made = _exchanged(fitted, is_fitted=True)
    remaining = list(islice(_places(made, SimulatedVectors), _SHOWN))
    if remaining:
        raise InvalidInput(
            f"a SimulatedVectors would remain at {', '.join(remaining)} and draw no report; pass a "
            f"fitted Pipeline (of a search, its best_estimator_) with nothing simulated inside of "
            f"other estimators than Pipeline, FeatureUnion, ColumnTransformer and FrozenEstimator"
        )
    if made is fitted:
        is_real = next(_places(made, PrivateVectors), None) is not None
        raise InvalidInput(
            "nothing in this pipeline is simulated: "
            + ("it draws real reports already" if is_real else "it releases nothing at all")
        )
    return made


def _exchanged(node: Any, *, is_fitted: bool) -> Any:
    """Return the node itself if nothing in it is simulated, or else a copy with real vectors."""
    if isinstance(node, SimulatedVectors):
        return _real(node, is_fitted=is_fitted)
    changes = {}
    if isinstance(node, FrozenEstimator):
        inside = _exchanged(node.estimator, is_fitted=True)
        if inside is not node.estimator:
            changes["estimator"] = inside
    for name, are_fitted in _lists(node, is_fitted):
        before = getattr(node, name)
        after = [(n, _exchanged(part, is_fitted=are_fitted), *rest) for n, part, *rest in before]
        if any(new[1] is not old[1] for new, old in zip(after, before, strict=True)):
            changes[name] = after
    if not changes:
        return node
    made = _copied(node)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def _lists(node: Any, is_fitted: bool) -> list[tuple[str, bool]]:
    """Return which attributes list the parts of a node, and whether these are fitted."""
    if isinstance(node, Pipeline):
        return [("steps", is_fitted)]
    if isinstance(node, FeatureUnion):
        return [("transformer_list", is_fitted)]
    if isinstance(node, ColumnTransformer):
        # It fits clones and keeps what it was given, for another fit.
        fitted = [("transformers_", True)] if is_fitted else []
        return [("transformers", False), *fitted]
    return []


def _real(simulated: SimulatedVectors, *, is_fitted: bool) -> PrivateVectors:
    if is_fitted:
        check_is_fitted(simulated, "vectors_")
        made: PrivateVectors = copy(simulated.vectors_)
    else:
        made = PrivateVectors() if simulated.vectors is None else clone(simulated.vectors)
    # What stands behind was fitted to frames or arrays, as set_output had it.
    made._sklearn_output_config = dict(getattr(simulated, "_sklearn_output_config", {}))
    return made


def _copied(estimator: Any) -> Any:
    made = copy(estimator)
    if "_sklearn_output_config" in vars(made):
        made._sklearn_output_config = dict(made._sklearn_output_config)
    return made


def _places(root: Any, kind: type) -> Iterator[str]:
    """Say where instances are: in parameters and fitted attributes, and whatever they hold."""
    waiting = deque([(type(root).__name__, root)])
    seen: dict[int, Any] = {}
    while waiting:
        path, node = waiting.popleft()
        if id(node) in seen:
            continue
        seen[id(node)] = node  # kept, so that no other object gets its id
        if isinstance(node, kind):
            yield path
        else:
            waiting.extend(_inside(path, node))


def _inside(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        yield from ((f"{path}[{key!r}]", value) for key, value in node.items())
    elif isinstance(node, list | tuple | set | frozenset):
        yield from ((f"{path}[{at}]", value) for at, value in enumerate(node))
    elif isinstance(node, np.ndarray) and node.dtype.hasobject:
        yield from ((f"{path}.flat[{at}]", value) for at, value in enumerate(node.flat))
    elif isinstance(node, MethodType):
        yield f"{path}.__self__", node.__self__
    elif isinstance(node, partial):
        yield from (
            (f"{path}.{name}", getattr(node, name)) for name in ("func", "args", "keywords")
        )
    elif hasattr(node, "__dict__") and not isinstance(node, type | ModuleType):
        yield from ((f"{path}.{name}", value) for name, value in vars(node).items())
