"""What a search may try: the settings that cost no privacy."""

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
    PROMISES,
    NoisyTransformer,
    PrivateVectors,
    check_promises,
)
from offaxis.mechanisms import find_mechanism
from offaxis.release import Release
from offaxis.simulation import simulate

FREE: Final = ("mechanism", "model", "reshaping", "percentile", "size")
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
        If a name is not a setting that costs no privacy, or mechanisms with and without a δ are
        mixed, which promise different things.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.pipeline import Pipeline
    >>> from offaxis.integrations.sklearn import PrivateVectors, free_settings
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
    _check_mechanisms(given.get("mechanism", []))
    grids = [given] if given else _usual()
    return [{prefix + name: values for name, values in grid.items()} for grid in grids]


def _usual() -> list[dict[str, list[Any]]]:
    """Return the grid of the settings that matter most."""
    stretched = [Jacobian(lambda_max=cap) for cap in _CAPS]
    shapes = ["none", "centre", "optimal", *stretched]
    return [{"reshaping": shapes, "percentile": list(_PERCENTILES)}]


def _check_name(name: str) -> None:
    if name in PROMISES:
        raise InvalidInput(
            f"{name} costs privacy and is promised to people: decide it, do not search for it; "
            f"offaxis.smallest_epsilon finds the least budget for a goal, on public vectors"
        )
    if name not in FREE:
        raise InvalidInput(f"a setting that costs no privacy is one of {', '.join(FREE)}: {name!r}")


def _check_mechanisms(names: list[Any]) -> None:
    if len({find_mechanism(name).needs_delta for name in names}) > 1:
        raise InvalidInput(
            f"some of these mechanisms are pure and some have a δ, which are different promises, "
            f"got {', '.join(names)}; search one kind at a time"
        )


# ----------------------------------------------------------------------------
# Seeded stand-ins for research on public vectors: they draw no report and protect nobody.


class SimulatedVectors(NoisyTransformer):
    """Public vectors as reports *would* leave them: seeded, fast, **and no release of anything**.

    For tuning and research on public vectors, where every fold would otherwise draw real reports:
    harmless there, but slow and never twice the same. Never pass it private vectors:
    :func:`released` puts the fitted :class:`PrivateVectors` in its place afterwards.

    ``set_params`` refuses other ``vectors`` if their ``epsilon``, ``delta`` or ``unit`` is another,
    as it does these by name: a search must not pick them by their score. A grid that exchanges the
    whole step of a pipeline does not ask it, and is not refused.

    Parameters
    ----------
    vectors : PrivateVectors
        With the promise and the settings; cloned and fitted by ``fit``.
    random_state : int, RandomState or None, default=0
        With an integer the same X gets the same noise, for every setting and in any process, and
        another X independent noise.

    Attributes
    ----------
    vectors_ : PrivateVectors
        Fitted.
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
    >>> X, y = load_iris(return_X_y=True)                                # public
    >>> pipe = make_pipeline(SimulatedVectors(PrivateVectors(epsilon=8)), RidgeClassifier())
    >>> grid = free_settings("simulatedvectors__vectors", percentile=[50, 90])
    >>> search = GridSearchCV(pipe, grid, cv=2).fit(X, y)
    >>> bool(search.best_score_ == GridSearchCV(pipe, grid, cv=2).fit(X, y).best_score_)
    True
    >>> private = released(search.best_estimator_)                       # draws real reports
    >>> private.predict(X[:3]).shape, private[0].release_ is search.best_estimator_[0].release_
    ((3,), True)
    >>> print(search.best_estimator_[0].release_.guarantee)
    ε = 8, pure
    """

    def __init__(self, vectors: Any = None, *, random_state: Any = 0) -> None:
        self.vectors = vectors
        self.random_state = random_state

    def set_params(self, **params: Any) -> SimulatedVectors:
        """Change settings that cost no privacy; refuse vectors that promise something else."""
        given = params.get("vectors", self.vectors)
        if given is not self.vectors:
            wanted = _private(given)
            if isinstance(self.vectors, PrivateVectors | None):
                check_promises(_private(self.vectors), vars(wanted))
        super().set_params(**params)
        return self

    def fit(self, X: Any, y: Any = None) -> SimulatedVectors:
        """Fit the release to public vectors, as :meth:`PrivateVectors.fit` does."""
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
        """Return decoded vectors as reports would give them. **Nothing here is protected.**"""
        check_is_fitted(self, "vectors_")
        vectors = validate_data(self, X, reset=False, dtype=DTYPES)
        # By their content, so that the rows of a test fold do not get a training fold's noise.
        digest = hashlib.sha256(np.ascontiguousarray(vectors).tobytes()).digest()
        words = check_random_state(self.random_state).randint(1 << 30, size=4).tolist()
        rng = np.random.default_rng([*words, int.from_bytes(digest)])
        return simulate(self.release_, vectors, rng)


def _private(given: Any) -> PrivateVectors:
    if given is not None and not isinstance(given, PrivateVectors):
        raise InvalidInput(f"vectors must be a PrivateVectors, got {type(given).__name__}")
    return PrivateVectors() if given is None else given


@dataclass(frozen=True)
class SimulatedScore:
    """A scorer for any scikit-learn search: what is kept of held-out **public** vectors, simulated.

    The mean score of what stands behind the release, over seeded repetitions. No report is drawn.

    Parameters
    ----------
    scoring : str, callable or None
        As in scikit-learn; None is the ``score`` of what stands behind.
    seeds : int
        Repetitions of the noise.
    seed : int
        Of the simulation.

    Examples
    --------
    A model that is there already needs no training on noisy vectors, so this search simulates only:

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.model_selection import GridSearchCV
    >>> from offaxis.integrations.sklearn import PrivateVectors, SimulatedScore, free_settings
    >>> X, y = load_digits(return_X_y=True)                              # public
    >>> private = PrivateVectors(epsilon=20, model=FrozenEstimator(RidgeClassifier().fit(X, y)))
    >>> grid = free_settings(reshaping=["none", "jacobian"])
    >>> score = SimulatedScore("accuracy", seeds=2)
    >>> GridSearchCV(private, grid, scoring=score, cv=2).fit(X, y).best_params_
    {'reshaping': 'jacobian'}
    """

    scoring: Any = None
    seeds: int = 5
    seed: int = 0

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        """Return the mean score of a fitted pipeline, or of a release with a model of its own."""
        before, release, behind = _parts(estimator)
        vectors = X if before is None else before.transform(X)
        score = check_scoring(behind, self.scoring)
        runs = []
        for index in range(self.seeds):
            decoded = simulate(release, vectors, np.random.default_rng([self.seed, index]))
            runs.append(float(score(behind, decoded, y)))
        return float(np.mean(runs))


def _parts(estimator: Any) -> tuple[Any, Release, Any]:
    """Return what stands before the release (or None), the release, and what stands behind it."""
    if isinstance(estimator, Pipeline):
        places = [i for i, (_, step) in enumerate(estimator.steps) if hasattr(step, "release_")]
        if len(places) != 1 or places[0] == len(estimator.steps) - 1:
            raise InvalidInput(
                f"the pipeline must have one fitted PrivateVectors with something behind it, "
                f"got {[name for name, _ in estimator.steps]}"
            )
        at = places[0]
        return estimator[:at] if at else None, estimator[at].release_, estimator[at + 1 :]
    private = estimator.vectors_ if isinstance(estimator, SimulatedVectors) else estimator
    model = getattr(private, "model", None)
    if not hasattr(private, "release_") or not isinstance(model, FrozenEstimator):
        raise InvalidInput(
            "there is nothing behind the release to score: put a head behind it in a Pipeline, or "
            "use PrivateVectors(model=FrozenEstimator(head)) with a fitted head"
        )
    return None, private.release_, model


# ----------------------------------------------------------------------------
# From a rehearsal on public vectors to the real thing: real reports in place of simulated ones.

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
    >>> from offaxis.integrations.sklearn import PrivateVectors, SimulatedVectors, released
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
