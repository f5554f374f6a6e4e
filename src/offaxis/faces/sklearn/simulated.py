"""Seeded stand-ins for research on public vectors: they draw no report and protect nobody."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import check_scoring
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from offaxis.errors import InvalidInput
from offaxis.faces.sklearn.vectors import (
    DTYPES,
    NoisyTransformer,
    PrivateVectors,
    check_promises,
)
from offaxis.release import Release


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
    >>> from offaxis.faces.sklearn import PrivateVectors, SimulatedVectors
    >>> from offaxis.faces.sklearn import free_settings, released
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
        return self.release_.simulate(vectors, rng)


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
    >>> from offaxis.faces.sklearn import PrivateVectors, SimulatedScore, free_settings
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
            decoded = release.simulate(vectors, np.random.default_rng([self.seed, index]))
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
