"""Adapters: functions, names of answers, and clear errors for anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import offaxis
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import (
    CentredOutputs,
    Classifier,
    FiniteDifferences,
    Layers,
    TaskModel,
    answer_names,
    as_task_model,
    layers_for_answers,
)
from offaxis.geometry.models import check_differentiable

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 5))


def test_a_matrix_is_a_linear_task():
    W = RNG.standard_normal((3, 5))
    for matrix in (W, W.tolist(), torch.tensor(W)):
        assert np.allclose(as_task_model(matrix).outputs(X), X @ W.T)


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_name_that_does_not_fit_a_release_file_is_an_error(name):
    with pytest.raises(InvalidInput, match="name"):
        FiniteDifferences(lambda z: z, name=name).identity()


@pytest.mark.parametrize("thing", [None, "model", 3, {1.0}, {"a": 1}])
def test_anything_else_is_a_clear_error(thing):
    with pytest.raises(UnsupportedModel, match=r"no adapter.*ONNX.*function of a batch"):
        as_task_model(thing)


@pytest.mark.parametrize("thing", [nn.Linear, Layers, dict])
def test_a_class_instead_of_a_model_is_a_clear_error(thing):
    with pytest.raises(UnsupportedModel, match="pass an instance"):
        as_task_model(thing)


# ---- Functions


def test_finite_differences_agree_with_exact_jacobians():
    layers = Layers.linear(RNG.standard_normal((2, 5)))
    wrapped = FiniteDifferences(lambda z: layers.outputs(z))
    assert np.allclose(wrapped.jacobians(X), layers.jacobians(X), atol=1e-8)
    assert np.allclose(wrapped.gram(X), layers.gram(X), rtol=1e-6)


def test_a_scalar_function_counts_as_one_output():
    wrapped = FiniteDifferences(lambda z: (z**2).sum(axis=1))
    assert wrapped.jacobians(X).shape == (80, 1, 5)
    assert np.allclose(wrapped.jacobians(X)[:, 0], 2 * X, atol=1e-6)


def test_steps_fit_the_precision_and_the_size_of_each_coordinate():
    sizes = np.array([1e4, 1.0, 1e-2, 1.0, 0.0])
    Z = X * sizes
    scaled = FiniteDifferences(lambda z: np.sin(z[:, :4] / sizes[:4]))
    exact = np.cos(X[:, :4]) / sizes[:4]
    found = scaled.jacobians(Z)[:, np.arange(4), np.arange(4)]
    assert np.allclose(found, exact, rtol=1e-5, atol=1e-7)
    single = FiniteDifferences(lambda z: np.sin(z.astype(np.float32)))
    assert np.allclose(single.jacobians(X)[:, 0, 0], np.cos(X[:, 0]), atol=1e-3)


def test_a_function_is_a_model_with_its_name():
    def my_scores(Z):
        return Z[:, :3]

    task = as_task_model(my_scores)
    assert isinstance(task, FiniteDifferences)
    assert task.identity().name == "my_scores"
    assert np.array_equal(task.outputs(X), X[:, :3])
    assert answer_names(task) is None
    assert layers_for_answers(task) is None
    tensors = as_task_model(lambda Z: torch.tensor(Z).tanh())
    assert np.allclose(tensors.outputs(X), np.tanh(X))


def fails_for_some(Z):
    if (Z[:, 0] < -2).any():
        raise ValueError("cannot take the root")
    return Z


def fails_for_batches(Z):
    if len(Z) > 1:
        raise ValueError("one at a time")
    return Z


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda Z: Z.argmax(axis=1), r"int64 labels of shape \(80,\), not scores.*np\.eye\(k\)"),
        (lambda Z: np.where(Z[:, 0] > 0, "a", "b"), "labels.*not scores"),
        (lambda Z: Z[:, 0] > 0, "bool labels"),
        (lambda Z: Z.argmax(axis=1)[:, None], "labels"),
        (lambda Z: ["a"] * len(Z), "labels"),
        (lambda Z: Z[:-1], r"80 vectors .* returned shape \(79, 5\)"),
        (lambda Z: Z[:, :, None], "one row per vector"),
        (lambda Z: Z[:, :0], "one row per vector"),
        (lambda Z: Z.sum(), "one row per vector"),
        (lambda Z: None, "one row per vector"),
        (
            lambda Z: np.where(np.arange(80)[:, None] == 7, np.nan, Z),
            "not finite for vector 7 and 0",
        ),
        (fails_for_batches, "failed on the batch of 80 vectors.*one at a time"),
        (lambda Z: [[object()] * 2] * len(Z), "real numbers"),
    ],
)
def test_a_function_that_returns_something_else_is_a_clear_error(function, message):
    with pytest.raises(InvalidInput, match=message):
        as_task_model(function).outputs(X)


def test_the_vector_that_a_function_fails_for_is_named():
    Z = X.copy()
    Z[:, 0] = np.abs(Z[:, 0])
    Z[37, 0] = -3
    with pytest.raises(InvalidInput, match="vector 37 of dimension 5: ValueError: cannot take"):
        as_task_model(fails_for_some).outputs(Z)


@pytest.mark.parametrize("function", [np.sign, lambda Z: np.round(4 * Z), lambda Z: 0 * Z])
def test_a_function_that_is_constant_in_pieces_has_no_derivative(function):
    with pytest.raises(UnsupportedModel, match="class-response"):
        check_differentiable(FiniteDifferences(function), X)
    # With jumps so dense that the steps cross them.
    dense = FiniteDifferences(lambda Z: np.floor(Z * 1e5))
    with pytest.raises(UnsupportedModel, match="class-response"):
        check_differentiable(dense, X)
    check_differentiable(FiniteDifferences(np.tanh), X)


# ---- Names of answers


def logit_module(*last: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1, bias=False), *last)


LOGITS: dict[str, Callable[[], Any]] = {
    "matrix": lambda: RNG.standard_normal((1, 5)),
    "module": logit_module,
    "sigmoid": lambda: logit_module(nn.Sigmoid()),
    "function": lambda: lambda Z: np.tanh(Z[:, 0] + Z[:, 1]),
}

SEVERAL: dict[str, Callable[[], Any]] = {
    "matrix": lambda: RNG.standard_normal((3, 5)),
    "module": lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)),
    "function": lambda: lambda Z: np.tanh(Z[:, :3]),
    "two": lambda: lambda Z: np.tanh(Z[:, :2]),
    "two layers": lambda: RNG.standard_normal((2, 5)),
}


def check_derivatives(task: TaskModel) -> None:
    J = FiniteDifferences(task.outputs, step=1e-3).jacobians(X)
    G = np.random.default_rng(1).standard_normal(J.shape[:2])
    assert np.allclose(task.jacobians(X), J, atol=1e-3)
    assert np.allclose(task.gram(X), np.einsum("nkm,nkl->ml", J, J), rtol=1e-2, atol=1e-2)
    assert np.allclose(task.vjp(X, G), np.einsum("nk,nkm->nm", G, J), atol=1e-2)


@pytest.mark.parametrize("name", LOGITS)
def test_one_logit_is_two_answers(name):
    model = LOGITS[name]()
    task = Classifier(model, answers=["no", "yes"])
    assert isinstance(task, TaskModel)
    assert answer_names(task) == ("no", "yes")
    inner = as_task_model(model)
    t = inner.outputs(X)[:, 0] - (0.5 if name == "sigmoid" else 0.0)
    assert 10 < (t > 0).sum() < 70
    assert (task.outputs(X).argmax(axis=1) == (t > 0)).all()
    assert np.allclose(task.outputs(X).sum(axis=1), 0)
    check_derivatives(task)
    check_derivatives(CentredOutputs(task))
    identity = inner.identity()
    assert task.identity().sha256 == identity.sha256
    assert task.identity().kind == f"classifier-{identity.kind}"
    layers = task.as_layers()
    if name != "function":
        assert layers is not None
        assert layers.answers == ("no", "yes")
        assert (layers.outputs(X).argmax(axis=1) == (t > 0)).all()
    else:
        assert layers is None


@pytest.mark.parametrize("name", SEVERAL)
def test_a_classifier_names_the_answers_of_any_model(name):
    model = as_task_model(SEVERAL[name]())
    names = ("a", "b", "c")[: model.outputs(X).shape[1]]
    task = Classifier(model, names)
    assert np.array_equal(task.outputs(X), model.outputs(X))
    check_derivatives(task)
    check_derivatives(CentredOutputs(task))
    assert CentredOutputs(task).answers == names
    layers = CentredOutputs(task).as_layers()
    assert layers is None or layers.answers == names


@pytest.mark.parametrize("names", [("a",), ("a", "a"), "ab", (1, 2), ("a", "b", "c", "d")])
@pytest.mark.parametrize("name", ["matrix", "function"])
def test_the_wrong_number_of_names_is_an_error(names, name):
    for models in (LOGITS, SEVERAL):
        with pytest.raises(InvalidInput, match="answer"):
            Classifier(models[name](), names).outputs(X)


def test_a_function_that_is_affine_on_public_vectors_only_stays_outside():
    """Its affine extension would have other answers for other people."""
    weight = RNG.standard_normal((3, 5))
    public = np.abs(RNG.standard_normal((300, 5)))

    def magnitudes(Z):
        return np.abs(Z) @ weight.T

    release = offaxis.fit(magnitudes, public, epsilon=2, mechanism="class-response")
    assert release.encoder.kind == "model-answer"


def test_a_random_model_is_rejected_as_random():
    def noisy(Z):
        return np.random.standard_normal((len(Z), 3))  # noqa: NPY002

    with pytest.raises(InvalidInput, match="must not be random"):
        offaxis.fit(noisy, X, epsilon=2)


def test_outputs_of_a_module_that_are_not_finite_are_an_error():
    module = nn.Linear(5, 3)
    root = nn.Sequential(module, Root())
    with pytest.raises(InvalidInput, match="not finite for vector"):
        as_task_model(root).outputs(X)


class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(x)
