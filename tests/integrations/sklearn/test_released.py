"""Real reports in place of simulated ones, however deep; whatever would stay simulated is named."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from offaxis.errors import InvalidInput
from offaxis.integrations.sklearn import PrivateVectors, SimulatedVectors, released

X, Y = load_digits(return_X_y=True)
X, Y = X[:200], Y[:200]
LEFT, RIGHT = slice(0, 32), slice(32, 64)


def simulated(epsilon: float = 20.0) -> SimulatedVectors:
    return SimulatedVectors(PrivateVectors(epsilon=epsilon))


def nested() -> dict[str, tuple[Any, int]]:
    """Return what can be released, and how many real reports of one row it draws then."""
    inner = make_pipeline(StandardScaler(), simulated())
    return {
        "plain": (make_pipeline(simulated(), RidgeClassifier()), 1),
        "pipeline": (make_pipeline(inner, RidgeClassifier()), 1),
        "mixed": (make_pipeline(simulated(), clone(inner), RidgeClassifier()), 2),
        "union": (
            make_pipeline(
                FeatureUnion([("a", simulated()), ("b", clone(inner))]), RidgeClassifier()
            ),
            2,
        ),
        "columns": (
            make_pipeline(
                ColumnTransformer(
                    [("a", simulated(), LEFT), ("b", clone(inner), RIGHT), ("c", "drop", [0])]
                ),
                RidgeClassifier(),
            ),
            2,
        ),
        "frozen": (make_pipeline(FrozenEstimator(simulated().fit(X, Y)), RidgeClassifier()), 1),
    }


@pytest.mark.parametrize("kind", list(nested()))
def test_real_reports_stand_wherever_simulated_ones_did(kind: str, drawn: list[int]) -> None:
    rehearsed, count = nested()[kind]
    rehearsed.fit(X, Y)
    before, told = pickle.dumps(rehearsed), rehearsed.predict(X)
    real = released(rehearsed)
    assert drawn == []
    assert b"SimulatedVectors" not in pickle.dumps(real)
    assert real.predict(X[:1]).shape == (1,)
    assert drawn == [1] * count
    assert real[-1] is rehearsed[-1], "nothing is fitted again"
    # The given one is as it was, and draws nothing.
    assert pickle.dumps(rehearsed) == before
    np.testing.assert_array_equal(rehearsed.predict(X), told)
    assert drawn == [1] * count
    with pytest.raises(InvalidInput, match="draws real reports already"):
        released(real)


def test_another_fit_is_real_too(drawn: list[int]) -> None:
    """A ColumnTransformer fits clones of what it was given, so that must be exchanged as well."""
    rehearsed = nested()["columns"][0].fit(X, Y)
    real = clone(released(rehearsed)).fit(X, Y)
    assert drawn == [len(X)] * 2
    assert b"SimulatedVectors" not in pickle.dumps(real)
    assert real[0].named_transformers_["a"].epsilon == 20


def test_a_bare_simulation_becomes_private_vectors(drawn: list[int]) -> None:
    rehearsed = simulated().fit(X, Y)
    real = released(rehearsed)
    assert isinstance(real, PrivateVectors)
    assert real.release_ is rehearsed.release_
    assert real.transform(X[:3]).shape == (3, 64)
    assert drawn == [3]
    with pytest.raises(NotFittedError):
        released(simulated())


def test_frames_stay_frames_and_the_given_one_gets_none(drawn: list[int]) -> None:
    frame = pandas.DataFrame(X, columns=[f"pixel{i}" for i in range(64)])
    rehearsed = simulated().set_output(transform="pandas").fit(frame, Y)
    assert list(released(rehearsed).transform(frame[:2]).columns) == list(frame.columns)
    assert isinstance(rehearsed.vectors_.transform(frame[:2]), np.ndarray)
    # And arrays stay arrays, whatever the vectors inside were told.
    inside = PrivateVectors(epsilon=1).set_output(transform="pandas")
    plain = released(SimulatedVectors(inside).fit(frame, Y))
    assert isinstance(plain.transform(frame[:2]), np.ndarray)
    union = FeatureUnion([("a", simulated())]).set_output(transform="pandas").fit(frame, Y)
    released(union).set_output(transform="default")
    assert isinstance(union.transform(frame[:2]), pandas.DataFrame)


def held_otherwise() -> dict[str, tuple[Any, str]]:
    """Return what cannot be released, and where a simulation would remain."""
    behind = make_pipeline(simulated(), RidgeClassifier())
    search = GridSearchCV(behind, {"ridgeclassifier__alpha": [1.0, 2.0]}, cv=2)
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), RidgeClassifier()), {"standardscaler": [simulated()]}, cv=2
    )
    lone = simulated().fit(X, Y)
    return {
        "search": (search, r"GridSearchCV\.estimator\.steps\[0\]\[1\]"),
        "best": (grid, r"GridSearchCV\.best_params_\['standardscaler'\]"),
        "step": (make_pipeline(StandardScaler(), search), r"Pipeline\.steps\[1\]\[1\]\.estimator"),
        "half": (
            Pipeline([("private", simulated()), ("head", CalibratedClassifierCV(behind, cv=2))]),
            r"steps\[1\]\[1\]\.estimator\.steps\[0\]\[1\]",
        ),
        "voting": (VotingClassifier([("a", behind)]), r"VotingClassifier\.estimators\[0\]\[1\]"),
        "bagging": (BaggingClassifier(behind, n_estimators=2), r"BaggingClassifier\.estimator\."),
        "remainder": (
            ColumnTransformer([("a", "drop", LEFT)], remainder=simulated()),
            r"ColumnTransformer\.remainder",
        ),
        "method": (
            make_pipeline(FunctionTransformer(lone.transform), RidgeClassifier()),
            r"func\.__self__",
        ),
        "partial": (
            make_pipeline(FunctionTransformer(partial(lone.transform)), RidgeClassifier()),
            r"func\.func\.__self__",
        ),
    }


@pytest.mark.parametrize("kind", list(held_otherwise()))
def test_what_would_stay_simulated_is_refused_and_named(kind: str, drawn: list[int]) -> None:
    rehearsed, place = held_otherwise()[kind]
    rehearsed.fit(X, Y)
    with pytest.raises(InvalidInput, match=f"a SimulatedVectors would remain at .*{place}"):
        released(rehearsed)
    assert drawn == []


def test_a_fitted_attribute_alone_is_found() -> None:
    """What was fitted may hold what no parameter does, and in arrays of objects."""
    head = RidgeClassifier().fit(X, Y)
    head.estimators_ = np.array([[None, simulated()]], dtype=object)
    with pytest.raises(InvalidInput, match=r"Pipeline\.steps\[0\]\[1\]\.estimators_\.flat\[1\]"):
        released(make_pipeline(head))


def test_what_releases_nothing_is_not_called_real() -> None:
    with pytest.raises(InvalidInput, match=r"nothing .* is simulated: it releases nothing at all"):
        released(make_pipeline(StandardScaler(), RidgeClassifier()).fit(X, Y))
