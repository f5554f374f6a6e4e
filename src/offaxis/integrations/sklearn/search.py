"""Searches over settings that cost no privacy, simulated on public vectors.

:func:`free_settings` gives the grid, :class:`SimulatedVectors` and :class:`SimulatedScore` the
seeded simulation, and :func:`released` the pipeline that draws real reports.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MethodType, ModuleType
from typing import Any, Final

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import check_scoring
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from offaxis.encoding import Jacobian
from offaxis.errors import InvalidInput
from offaxis.integrations.sklearn.vectors import (
    DTYPES,
    GUARANTEE_PARAMETERS,
    NoisyTransformer,
    PrivateVectors,
    check_guarantee,
)
from offaxis.mechanisms import find_mechanism
from offaxis.release import Release
from offaxis.simulation import simulate

FREE: Final = ("mechanism", "model", "reshaping", "percentile", "size")
"""Chosen on public vectors before any private one is seen, for any ε."""

_PERCENTILES: Final = (75.0, 90.0, 99.0)
_CAPS: Final = (3.0, 10.0, 1000.0)


def free_settings(step: str = "", /, **choices: Iterable[Any]) -> list[dict[str, list[Any]]]:
    """Return a parameter grid of settings that cost no privacy, for any scikit-learn search.

    They are fitted to public vectors and published with the release. The guarantee is the same for
    every choice, as long as the search uses **public** vectors. ε, δ and the unit raise an error: a
    larger budget always scores better, so a score cannot choose them.

    Parameters
    ----------
    step : str
        Name of the step of the :class:`PrivateVectors` in a pipeline, with double underscores for
        nested steps. Empty for the estimator itself.
    **choices : iterable
        The values to try for each setting. By default the default mechanism, and reshaping and
        percentile of two others.

    Returns
    -------
    list of dict

    Raises
    ------
    InvalidInput
        If a name is not a setting that costs no privacy, or if mechanisms with and without a δ,
        which have different guarantees, are mixed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.pipeline import Pipeline
    >>> from offaxis.integrations.sklearn import PrivateVectors, SimulatedVectors, free_settings
    >>> X, y = load_iris(return_X_y=True)                                # public
    >>> simulated = SimulatedVectors(PrivateVectors(epsilon=4))          # a search makes no report
    >>> pipe = Pipeline([("private", simulated), ("head", RidgeClassifier())])
    >>> grid = free_settings("private__vectors", mechanism=["laplace", "privunit2", None])
    >>> search = GridSearchCV(pipe, grid, cv=2).fit(X, y)
    >>> print(search.best_estimator_["private"].release_.guarantee)
    ε = 4, pure
    >>> free_settings("private", epsilon=[1, 8])
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: epsilon costs privacy ...
    """
    prefix = f"{step}__" if step else ""
    for name in choices:
        _check_name(name)
    chosen = {name: list(values) for name, values in choices.items()}
    _check_mechanisms(chosen.get("mechanism", []))
    grids = [chosen] if chosen else _default_grid()
    return [{prefix + name: values for name, values in grid.items()} for grid in grids]


def _default_grid() -> list[dict[str, list[Any]]]:
    """Return the default mechanism, and the settings of two others that matter most."""
    jacobians = [Jacobian(lambda_max=cap) for cap in _CAPS]
    settings: dict[str, list[Any]] = {
        "mechanism": ["privunit2", "laplace"],
        "reshaping": ["none", "centre", "optimal", *jacobians],
        "percentile": list(_PERCENTILES),
    }
    return [{"mechanism": [None]}, settings]


def _check_name(name: str) -> None:
    if name in GUARANTEE_PARAMETERS:
        raise InvalidInput(
            f"{name} costs privacy and is promised to people: choose it, do not search for it; "
            f"offaxis.smallest_epsilon finds the smallest ε for a target, on public vectors"
        )
    if name not in FREE:
        raise InvalidInput(
            f"a setting that costs no privacy is one of {', '.join(FREE)}, got {name!r}"
        )


def _check_mechanisms(names: list[Any]) -> None:
    if len({name is not None and find_mechanism(name).needs_delta for name in names}) > 1:
        raise InvalidInput(
            f"some of these mechanisms are pure and some have a δ, which are different guarantees, "
            f"got {', '.join(map(str, names))}; search one kind at a time"
        )


# ---- Simulation on public vectors


class SimulatedVectors(NoisyTransformer):
    """Simulated reports of public vectors: seeded, fast, and **not a release**.

    For tuning and research on public vectors, where every fold would otherwise draw real reports:
    harmless there, but slow and not repeatable. Never pass it private vectors; afterwards
    :func:`released` replaces it by the fitted :class:`PrivateVectors`.

    ``set_params`` raises an error for other ``vectors`` with another ``epsilon``, ``delta`` or
    ``unit``, and for these by name: a search must not choose them by their score. A grid that
    replaces the whole step of a pipeline does not call it and is not detected.

    Parameters
    ----------
    vectors : PrivateVectors
        The guarantee and the settings; cloned and fitted by ``fit``.
    random_state : int, RandomState or None, default=0
        With an integer, the same X gets the same noise, for every setting and in any process, and
        another X gets independent noise.

    Attributes
    ----------
    vectors_ : PrivateVectors
        The fitted transformer.
    release_ : offaxis.Release
        Its release.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.pipeline import make_pipeline
    >>> from offaxis.integrations.sklearn import PrivateVectors, SimulatedVectors
    >>> from offaxis.integrations.sklearn import free_settings, released
    >>> X, y = load_iris(return_X_y=True)
    >>> vectors = PrivateVectors(epsilon=8, mechanism="privunit2")
    >>> pipe = make_pipeline(SimulatedVectors(vectors), RidgeClassifier())
    >>> grid = free_settings("simulatedvectors__vectors", percentile=[50, 90])
    >>> search = GridSearchCV(pipe, grid, cv=2).fit(X[::3], y[::3])      # public vectors
    >>> private = released(search.best_estimator_)                       # draws real reports
    >>> private.predict(X[1:10:3]).shape                                 # of private ones
    (3,)
    >>> print(private[0].release_.guarantee)
    ε = 8, pure
    """

    def __init__(self, vectors: Any = None, *, random_state: Any = 0) -> None:
        self.vectors = vectors
        self.random_state = random_state

    def set_params(self, **params: Any) -> SimulatedVectors:
        """Change settings that cost no privacy; raise for vectors with another guarantee."""
        vectors = params.get("vectors", self.vectors)
        if vectors is not self.vectors:
            new = _private(vectors)
            if isinstance(self.vectors, PrivateVectors | None):
                check_guarantee(_private(self.vectors), vars(new))
        super().set_params(**params)
        return self

    def fit(self, X: Any, y: Any = None) -> SimulatedVectors:
        """Fit the release to public vectors, like :meth:`PrivateVectors.fit`."""
        self.vectors_ = clone(_private(self.vectors)).fit(X, y)
        self.n_features_in_ = self.vectors_.n_features_in_
        if hasattr(self.vectors_, "feature_names_in_"):
            self.feature_names_in_ = self.vectors_.feature_names_in_
        return self

    @property
    def release_(self) -> Release:
        """The release that ``fit`` made."""
        check_is_fitted(self, "vectors_")
        release: Release = self.vectors_.release_
        return release

    def transform(self, X: Any) -> Any:
        """Return simulated decoded vectors. **Nothing here is protected.**"""
        check_is_fitted(self, "vectors_")
        vectors = validate_data(self, X, reset=False, dtype=DTYPES)
        # Seeded by content, so that a test fold does not get the noise of a training fold.
        digest = hashlib.sha256(np.ascontiguousarray(vectors).tobytes()).digest()
        words = check_random_state(self.random_state).randint(1 << 30, size=4).tolist()
        rng = np.random.default_rng([*words, int.from_bytes(digest)])
        return simulate(self.release_, vectors, rng)


def _private(vectors: Any) -> PrivateVectors:
    if vectors is not None and not isinstance(vectors, PrivateVectors):
        raise InvalidInput(f"vectors must be a PrivateVectors, got {type(vectors).__name__}")
    return PrivateVectors() if vectors is None else vectors


@dataclass(frozen=True)
class SimulatedScore:
    """A scorer for any scikit-learn search: the simulated utility on held-out **public** vectors.

    It is the mean score of the model after the release, over seeded repetitions of the noise. No
    report is drawn.

    Parameters
    ----------
    scoring : str, callable or None
        As in scikit-learn; None is the ``score`` method of the model.
    seeds : int
        Number of repetitions.
    seed : int
        Seed of the simulation.

    Examples
    --------
    A model that is already trained is not fitted to noisy vectors, so this search only simulates:

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.model_selection import GridSearchCV
    >>> from offaxis.integrations.sklearn import PrivateVectors, SimulatedScore, free_settings
    >>> X, y = load_digits(return_X_y=True)                              # public
    >>> head = FrozenEstimator(RidgeClassifier().fit(X, y))
    >>> private = PrivateVectors(epsilon=20, model=head, mechanism="laplace")
    >>> grid = free_settings(reshaping=["none", "jacobian"])
    >>> score = SimulatedScore("accuracy", seeds=2)
    >>> GridSearchCV(private, grid, scoring=score, cv=2).fit(X, y).best_params_
    {'reshaping': 'jacobian'}
    """

    scoring: Any = None
    seeds: int = 5
    seed: int = 0

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        """Return the mean score of a pipeline, or of a PrivateVectors with a frozen model."""
        preprocessing, release, model = _parts(estimator)
        vectors = X if preprocessing is None else preprocessing.transform(X)
        score = check_scoring(model, self.scoring)
        runs = []
        for index in range(self.seeds):
            decoded = simulate(release, vectors, np.random.default_rng([self.seed, index]))
            runs.append(float(score(model, decoded, y)))
        return float(np.mean(runs))


def _parts(estimator: Any) -> tuple[Any, Release, Any]:
    """Return the steps before the release (or None), the release, and the steps after it."""
    if isinstance(estimator, Pipeline):
        places = [i for i, (_, step) in enumerate(estimator.steps) if hasattr(step, "release_")]
        if len(places) != 1 or places[0] == len(estimator.steps) - 1:
            raise InvalidInput(
                f"the pipeline must have one fitted PrivateVectors and a step after it, "
                f"got {[name for name, _ in estimator.steps]}"
            )
        at = places[0]
        return estimator[:at] if at else None, estimator[at].release_, estimator[at + 1 :]
    private = estimator.vectors_ if isinstance(estimator, SimulatedVectors) else estimator
    model = getattr(private, "model", None)
    if not hasattr(private, "release_") or not isinstance(model, FrozenEstimator):
        raise InvalidInput(
            "the release has no model to score: put one after it in a Pipeline, or use "
            "PrivateVectors(model=FrozenEstimator(model)) with a fitted model"
        )
    return None, private.release_, model


# ---- From simulated to real reports

_MOST_NAMED: Final = 3
"""At most this many places are named in an error."""


def released(fitted: Any) -> Any:
    """Return a fitted pipeline with real reports in place of simulated ones.

    Nothing is fitted again: every :class:`SimulatedVectors` is replaced by its ``vectors_``, at any
    depth of Pipelines, FeatureUnions, ColumnTransformers and FrozenEstimators. The given pipeline
    stays simulated. **Every transform and every predict of the returned pipeline spends the
    budget.**

    Anything else that holds a SimulatedVectors, such as a search or an ensemble, raises an error.
    The code of your functions is not inspected.

    Parameters
    ----------
    fitted : Pipeline, or any of the above
        A SimulatedVectors alone becomes a :class:`PrivateVectors`.

    Raises
    ------
    InvalidInput
        If nothing is simulated, or a SimulatedVectors would remain; the message names its place.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from offaxis.integrations.sklearn import PrivateVectors, SimulatedVectors, released
    >>> X, y = load_iris(return_X_y=True)
    >>> pipe = make_pipeline(SimulatedVectors(PrivateVectors(epsilon=8)), RidgeClassifier())
    >>> real = released(pipe.fit(X[::3], y[::3]))                        # fitted to public vectors
    >>> real.predict(X[1:6:3]).shape                                     # two private reports
    (2,)
    """
    real = _replaced(fitted, is_fitted=True)
    remaining = list(islice(_places(real, SimulatedVectors), _MOST_NAMED))
    if remaining:
        raise InvalidInput(
            f"a SimulatedVectors would remain at {', '.join(remaining)} and draw no report; pass a "
            f"fitted Pipeline (the best_estimator_ of a search) with nothing simulated inside "
            f"estimators other than Pipeline, FeatureUnion, ColumnTransformer and FrozenEstimator"
        )
    if real is fitted:
        is_real = next(_places(real, PrivateVectors), None) is not None
        raise InvalidInput(
            "nothing in this pipeline is simulated: "
            + ("it already draws real reports" if is_real else "it releases nothing")
        )
    return real


def _replaced(node: Any, *, is_fitted: bool) -> Any:
    """Return the node itself if nothing in it is simulated, else a copy with real vectors."""
    if isinstance(node, SimulatedVectors):
        return _real(node, is_fitted=is_fitted)
    changes = {}
    if isinstance(node, FrozenEstimator):
        estimator = _replaced(node.estimator, is_fitted=True)
        if estimator is not node.estimator:
            changes["estimator"] = estimator
    for name, are_fitted in _part_lists(node, is_fitted):
        before = getattr(node, name)
        after = [(n, _replaced(part, is_fitted=are_fitted), *rest) for n, part, *rest in before]
        if any(new[1] is not old[1] for new, old in zip(after, before, strict=True)):
            changes[name] = after
    if not changes:
        return node
    copied = copy(node)
    if "_sklearn_output_config" in vars(copied):
        copied._sklearn_output_config = dict(copied._sklearn_output_config)
    for name, value in changes.items():
        setattr(copied, name, value)
    return copied


def _part_lists(node: Any, is_fitted: bool) -> list[tuple[str, bool]]:
    """Return the attributes that list the parts of a node, and whether these are fitted."""
    if isinstance(node, Pipeline):
        return [("steps", is_fitted)]
    if isinstance(node, FeatureUnion):
        return [("transformer_list", is_fitted)]
    if isinstance(node, ColumnTransformer):
        # It fits clones, and keeps the unfitted originals for another fit.
        fitted = [("transformers_", True)] if is_fitted else []
        return [("transformers", False), *fitted]
    return []


def _real(simulated: SimulatedVectors, *, is_fitted: bool) -> PrivateVectors:
    if is_fitted:
        check_is_fitted(simulated, "vectors_")
        real: PrivateVectors = copy(simulated.vectors_)
    else:
        real = PrivateVectors() if simulated.vectors is None else clone(simulated.vectors)
    # Later steps were fitted to frames or arrays, as configured with set_output.
    real._sklearn_output_config = dict(getattr(simulated, "_sklearn_output_config", {}))
    return real


def _places(root: Any, kind: type) -> Iterator[str]:
    """Yield the paths of instances in parameters and fitted attributes, at any depth."""
    queue = deque([(type(root).__name__, root)])
    seen: dict[int, Any] = {}
    while queue:
        path, node = queue.popleft()
        if id(node) in seen:
            continue
        seen[id(node)] = node  # a reference, so that no other object gets its id
        if isinstance(node, kind):
            yield path
        else:
            queue.extend(_children(path, node))


def _children(path: str, node: Any) -> Iterator[tuple[str, Any]]:
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
