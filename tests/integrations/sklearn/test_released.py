"""Real reports replace simulated ones at any depth; anything that would stay simulated is named."""

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
    return SimulatedVectors(PrivateVectors(epsilon=epsilon, mechanism="laplace"))


def nested() -> dict[str, tuple[Any, int]]:
    """Return pipelines that can be released, and how many reports of one row each then draws."""
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
def test_real_reports_replace_simulated_ones_everywhere(kind: str, drawn: list[int]) -> None:
    pipeline, count = nested()[kind]
    pipeline.fit(X, Y)
    before, predicted = pickle.dumps(pipeline), pipeline.predict(X)
    real = released(pipeline)
    assert drawn == []
    assert b"SimulatedVectors" not in pickle.dumps(real)
    assert real.predict(X[:1]).shape == (1,)
    assert drawn == [1] * count
    assert real[-1] is pipeline[-1], "nothing is fitted again"
    # The given pipeline is unchanged and draws no report.
    assert pickle.dumps(pipeline) == before
    np.testing.assert_array_equal(pipeline.predict(X), predicted)
    assert drawn == [1] * count
    with pytest.raises(InvalidInput, match="already draws real reports"):
        released(real)


def test_another_fit_also_draws_real_reports(drawn: list[int]) -> None:
    """A ColumnTransformer fits clones of its parameters, so these must be replaced as well."""
    pipeline = nested()["columns"][0].fit(X, Y)
    real = clone(released(pipeline)).fit(X, Y)
    assert drawn == [len(X)] * 2
    assert b"SimulatedVectors" not in pickle.dumps(real)
    assert real[0].named_transformers_["a"].epsilon == 20


def test_simulated_vectors_alone_become_private_vectors(drawn: list[int]) -> None:
    pipeline = simulated().fit(X, Y)
    real = released(pipeline)
    assert isinstance(real, PrivateVectors)
    assert real.release_ is pipeline.release_
    assert real.transform(X[:3]).shape == (3, 64)
    assert drawn == [3]
    with pytest.raises(NotFittedError):
        released(simulated())


def test_the_output_format_is_kept_and_the_given_pipeline_is_unchanged(drawn: list[int]) -> None:
    frame = pandas.DataFrame(X, columns=[f"pixel{i}" for i in range(64)])
    pipeline = simulated().set_output(transform="pandas").fit(frame, Y)
    assert list(released(pipeline).transform(frame[:2]).columns) == list(frame.columns)
    assert isinstance(pipeline.vectors_.transform(frame[:2]), np.ndarray)
    # Arrays stay arrays, whatever the inner vectors are configured to return.
    inner = PrivateVectors(epsilon=1, mechanism="laplace").set_output(transform="pandas")
    real = released(SimulatedVectors(inner).fit(frame, Y))
    assert isinstance(real.transform(frame[:2]), np.ndarray)
    union = FeatureUnion([("a", simulated())]).set_output(transform="pandas").fit(frame, Y)
    released(union).set_output(transform="default")
    assert isinstance(union.transform(frame[:2]), pandas.DataFrame)


def unsupported() -> dict[str, tuple[Any, str]]:
    """Return estimators that cannot be released, and where a simulation would remain."""
    inner = make_pipeline(simulated(), RidgeClassifier())
    search = GridSearchCV(inner, {"ridgeclassifier__alpha": [1.0, 2.0]}, cv=2)
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), RidgeClassifier()), {"standardscaler": [simulated()]}, cv=2
    )
    fitted = simulated().fit(X, Y)
    return {
        "search": (search, r"GridSearchCV\.estimator\.steps\[0\]\[1\]"),
        "best": (grid, r"GridSearchCV\.best_params_\['standardscaler'\]"),
        "step": (make_pipeline(StandardScaler(), search), r"Pipeline\.steps\[1\]\[1\]\.estimator"),
        "half": (
            Pipeline([("private", simulated()), ("head", CalibratedClassifierCV(inner, cv=2))]),
            r"steps\[1\]\[1\]\.estimator\.steps\[0\]\[1\]",
        ),
        "voting": (VotingClassifier([("a", inner)]), r"VotingClassifier\.estimators\[0\]\[1\]"),
        "bagging": (BaggingClassifier(inner, n_estimators=2), r"BaggingClassifier\.estimator\."),
        "remainder": (
            ColumnTransformer([("a", "drop", LEFT)], remainder=simulated()),
            r"ColumnTransformer\.remainder",
        ),
        "method": (
            make_pipeline(FunctionTransformer(fitted.transform), RidgeClassifier()),
            r"func\.__self__",
        ),
        "partial": (
            make_pipeline(FunctionTransformer(partial(fitted.transform)), RidgeClassifier()),
            r"func\.func\.__self__",
        ),
    }


@pytest.mark.parametrize("kind", list(unsupported()))
def test_anything_that_would_stay_simulated_raises_with_its_place(
    kind: str, drawn: list[int]
) -> None:
    pipeline, place = unsupported()[kind]
    pipeline.fit(X, Y)
    with pytest.raises(InvalidInput, match=f"a SimulatedVectors would remain at .*{place}"):
        released(pipeline)
    assert drawn == []


def test_simulated_vectors_in_fitted_attributes_are_found() -> None:
    """Fitted attributes may hold what no parameter does, also in arrays of objects."""
    head = RidgeClassifier().fit(X, Y)
    head.estimators_ = np.array([[None, simulated()]], dtype=object)
    with pytest.raises(InvalidInput, match=r"Pipeline\.steps\[0\]\[1\]\.estimators_\.flat\[1\]"):
        released(make_pipeline(head))


def test_a_pipeline_without_a_release_raises() -> None:
    with pytest.raises(InvalidInput, match=r"nothing .* is simulated: it releases nothing"):
        released(make_pipeline(StandardScaler(), RidgeClassifier()).fit(X, Y))
