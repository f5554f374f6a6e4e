"""Adapters: every supported model computes what the original does; others are a clear error."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    SGDOneClassSVM,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.svm import SVC

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import FiniteDifferences, Layers, as_task_model

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 5))
Y = X @ RNG.standard_normal((5, 3))


def test_a_matrix_is_a_linear_task():
    W = RNG.standard_normal((3, 5))
    assert np.allclose(as_task_model(W).outputs(X), X @ W.T)


@pytest.mark.parametrize("estimator", [LinearRegression(), Ridge()])
def test_the_outputs_of_linear_regression_are_its_predictions(estimator):
    estimator.fit(X, Y)
    assert np.allclose(as_task_model(estimator).outputs(X), estimator.predict(X))


def test_a_single_output_regression_has_one_row():
    estimator = LinearRegression().fit(X, Y[:, 0])
    assert np.allclose(as_task_model(estimator).outputs(X)[:, 0], estimator.predict(X))


def test_logistic_regression_is_read_before_the_softmax():
    digits = load_digits()
    estimator = LogisticRegression(max_iter=3000).fit(digits.data / 16, digits.target)
    outputs = as_task_model(estimator).outputs(digits.data / 16)
    assert np.allclose(outputs, estimator.decision_function(digits.data / 16))


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_perceptrons_are_read_layer_by_layer(activation):
    estimator = MLPRegressor(
        hidden_layer_sizes=(7, 4), activation=activation, max_iter=20, random_state=0
    ).fit(X, Y)
    assert np.allclose(as_task_model(estimator).outputs(X), estimator.predict(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_classifying_perceptron_gives_logits():
    labels = Y.argmax(1)
    estimator = MLPClassifier(hidden_layer_sizes=(6,), max_iter=20, random_state=0).fit(X, labels)
    logits = as_task_model(estimator).outputs(X)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.allclose(softmax, estimator.predict_proba(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("labels", [Y[:, 0] > 0, (Y[:, :2] > 0).astype(int)])
def test_binary_and_multilabel_perceptrons_are_read(labels):
    estimator = MLPClassifier(hidden_layer_sizes=(6,), max_iter=20, random_state=0).fit(X, labels)
    logits = as_task_model(estimator).outputs(X)
    share = estimator.predict_proba(X)[:, -logits.shape[1] :]
    assert np.allclose(1 / (1 + np.exp(-logits)), share)


def test_an_estimator_fitted_to_a_data_frame_is_read_without_a_warning():
    frame = pd.DataFrame(X, columns=list("abcde"))
    estimator = LinearRegression().fit(frame, Y)
    assert np.allclose(as_task_model(estimator).outputs(X), estimator.predict(frame))


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_name_that_does_not_fit_a_release_file_is_an_error(name):
    with pytest.raises(InvalidInput, match="name"):
        FiniteDifferences(lambda z: z, name=name).identity()


def test_the_error_for_an_unfitted_estimator_states_the_fix():
    with pytest.raises(InvalidInput, match="fit it on public data"):
        as_task_model(LinearRegression())


def test_the_error_for_other_estimators_suggests_finite_differences():
    forest = RandomForestClassifier(3).fit(X, Y.argmax(1))
    with pytest.raises(UnsupportedModel, match="FiniteDifferences"):
        as_task_model(forest)


@pytest.mark.parametrize(
    "estimator", [PLSRegression(), PoissonRegressor(), SVC(kernel="rbf"), SGDOneClassSVM()]
)
def test_weights_that_mean_something_else_are_not_read(estimator):
    estimator.fit(X, np.abs(Y[:, 0]).round() if hasattr(estimator, "max_iter") else Y[:, 0] > 0)
    with pytest.raises(UnsupportedModel, match="FiniteDifferences"):
        as_task_model(estimator)


@pytest.mark.parametrize("thing", [None, "model", lambda z: z, 3])
def test_anything_else_is_a_clear_error(thing):
    with pytest.raises(UnsupportedModel, match="no adapter"):
        as_task_model(thing)


def test_finite_differences_agree_with_exact_jacobians():
    layers = Layers.linear(RNG.standard_normal((2, 5)))
    wrapped = FiniteDifferences(lambda z: layers.outputs(z))
    assert np.allclose(wrapped.jacobians(X), layers.jacobians(X), atol=1e-8)
    assert np.allclose(wrapped.gram(X), layers.gram(X), rtol=1e-6)


def test_a_scalar_function_counts_as_one_output():
    wrapped = FiniteDifferences(lambda z: (z**2).sum(axis=1))
    assert wrapped.jacobians(X).shape == (80, 1, 5)
    assert np.allclose(wrapped.jacobians(X)[:, 0], 2 * X, atol=1e-6)
