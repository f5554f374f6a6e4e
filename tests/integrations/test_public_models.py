"""Models learnt from reports compute the same in ONNX Runtime and in torch, and become heads."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest
import torch

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, as_task_model, layers_for_answers
from offaxis.geometry.layers import ACTIVATIONS
from offaxis.integrations.onnx import model_to_onnx
from offaxis.integrations.torch import model_to_torch
from offaxis.learning import (
    Number,
    ReportClassifier,
    cells,
    fit_pairs,
    learn,
    principal,
    random_features,
)

MODELS = ("cells", "moments", "logistic", "regressor")
PRECISIONS = {"float32": 1e-5, "float64": 1e-12}
NAMES = ["red", "green", "blue", "white"]


@pytest.fixture(scope="module")
def people() -> tuple[np.ndarray, np.ndarray]:
    """Return vectors in four clusters, and the cluster of each."""
    rng = np.random.default_rng(0)
    group = rng.integers(4, size=4000)
    return 5 * rng.standard_normal((4, 6))[group] + rng.standard_normal((4000, 6)), group


@pytest.fixture(scope="module")
def models(people: tuple[np.ndarray, np.ndarray]) -> dict[str, object]:
    """Return a learnt model of every kind."""
    vectors, group = people
    public = vectors[:500]
    releases = {
        "cells": fit_pairs(cells(public, size=5), NAMES, epsilon=4),
        "moments": fit_pairs(principal(public, rank=4), 4, epsilon=4),
        "regressor": fit_pairs(random_features(public, width=16), Number(-8, 8), epsilon=4),
    }
    answers = {"cells": group, "moments": group, "regressor": vectors[:, 0]}
    reports = {
        name: release.privatize(vectors, answers=answers[name])
        for name, release in releases.items()
    }
    found = {name: learn(release, reports[name]) for name, release in releases.items()}
    found["logistic"] = learn(
        releases["moments"], reports["moments"], method="logistic", public=public
    )
    return found


@pytest.fixture(scope="module")
def vectors(people: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return vectors of people, and tiny, large and random ones."""
    some = people[0][500:900]
    rng = np.random.default_rng(1)
    spread = 10.0 ** rng.uniform(-8, 8, (400, 1)) * rng.standard_normal((400, 6))
    return np.concatenate([some, 1e6 * some, 1e-6 * some, 1e12 * some, spread, np.zeros((1, 6))])


def runtime(model: object, dtype: str, vectors: np.ndarray) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model_to_onnx(model, dtype=dtype).SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
    )
    return session.run(None, {"vectors": vectors})


def outputs_of(module: torch.nn.Module, vectors: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return module(torch.tensor(vectors)).numpy()


def near_a_boundary(model: object, vectors: np.ndarray) -> np.ndarray:
    """Return which vectors have two nearest cells that rounding may exchange."""
    if "table_" not in vars(model):
        return np.zeros(len(vectors), dtype=bool)
    encoder = model.release.encoder
    scores = Layers(encoder.weights, encoder.biases, encoder.activation).outputs(vectors)
    best = np.sort(scores, axis=1)
    return best[:, -1] - best[:, -2] < 1e-3


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", MODELS)
def test_exported_models_compute_the_same(
    name: str, dtype: str, models: dict[str, object], vectors: np.ndarray
) -> None:
    model, rows = models[name], vectors.astype(dtype)
    exact = rows.astype(np.float64)
    kept = ~near_a_boundary(model, exact)
    assert kept.mean() > 0.95
    # Of cells, layers_ takes a difference of large numbers; the table itself is exact.
    expected = (model.decision_function if name == "cells" else model.layers_.outputs)(exact)
    atol = PRECISIONS[dtype] * np.abs(expected).max()
    outputs, *answer = runtime(model, dtype, rows)
    assert outputs.dtype == dtype
    np.testing.assert_allclose(outputs[kept], expected[kept], rtol=0, atol=atol)
    module = model_to_torch(model, dtype=getattr(torch, dtype))
    assert not module.training
    in_torch = outputs_of(module, rows)
    assert in_torch.dtype == dtype
    np.testing.assert_allclose(in_torch[kept], expected[kept], rtol=0, atol=atol)
    np.testing.assert_allclose(
        in_torch[kept], model.layers_.outputs(exact)[kept], rtol=0, atol=max(atol, 1e-10)
    )
    if name == "regressor":
        assert answer == []
    else:
        (index,) = answer
        agreeing = model.classes_[index] == model.predict(exact)
        assert agreeing[kept].mean() > 0.99
        assert len(set(index.tolist())) > 2


@pytest.mark.parametrize("name", MODELS)
def test_a_module_is_read_as_the_layers_of_its_model(
    name: str, models: dict[str, object], vectors: np.ndarray
) -> None:
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        module = model_to_torch(models[name], dtype=dtype)
        layers = layers_for_answers(as_task_model(module))
        assert layers is not None
        assert layers.activation == models[name].layers_.activation
        kept = ~near_a_boundary(models[name], vectors)
        expected = models[name].layers_.outputs(vectors)[kept]
        np.testing.assert_allclose(
            layers.outputs(vectors)[kept], expected, atol=tolerance * np.abs(expected).max()
        )


def test_a_module_is_the_head_of_the_next_release(
    models: dict[str, object], people: tuple[np.ndarray, np.ndarray]
) -> None:
    public = people[0][:500]
    for name in ("cells", "logistic"):
        expected = offaxis.fit(
            models[name].layers_, public, epsilon=8, mechanism="class-response"
        ).encoder.encode(public)
        module = model_to_torch(models[name], dtype=torch.float64)
        release = offaxis.fit(module, public, epsilon=8, mechanism="class-response")
        assert (release.encoder.encode(public) == expected).all()
    reshaped = offaxis.fit(model_to_torch(models["moments"]), public, epsilon=8)
    assert reshaped.provenance.model.kind == "torch"
    assert len(reshaped.privatize(public[0])) == reshaped.report_size


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layers_of_every_activation_are_exported(activation: str) -> None:
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal(shape) for shape in ((7, 5), (6, 7), (3, 6))]
    biases = [rng.standard_normal(len(weight)) for weight in weights]
    layers = Layers(weights, biases, activation, answers=("a", "b", "c"))
    rows = rng.standard_normal((50, 5))
    outputs, index = runtime(layers, "float64", rows)
    expected = layers.outputs(rows)
    # ONNX Runtime has the error function of GELU in single precision only.
    np.testing.assert_allclose(outputs, expected, atol=1e-5 if activation == "gelu" else 1e-12)
    assert (index == expected.argmax(axis=1)).all()
    in_torch = outputs_of(model_to_torch(layers, dtype=torch.float64), rows)
    np.testing.assert_allclose(in_torch, expected, atol=1e-12)


def test_the_model_names_its_classes_and_its_release(models: dict[str, object]) -> None:
    for name in MODELS:
        model = models[name]
        exported = model_to_onnx(model)
        facts = {part.key: part.value for part in exported.metadata_props}
        assert facts["offaxis.release"] == model.release.hash
        assert facts["offaxis.reports"] == "4000"
        if name == "regressor":
            assert "offaxis.answers" not in facts
        else:
            assert json.loads(facts["offaxis.answers"]) == [str(c) for c in model.classes_.tolist()]
        assert as_task_model(exported).outputs(np.zeros((2, 6))).shape[0] == 2


def test_a_model_of_many_cells_is_exported_as_a_table() -> None:
    rng = np.random.default_rng(3)
    people = rng.standard_normal((3000, 8))
    release = fit_pairs(cells(people, size=150), 2, epsilon=8)
    answers = 1 * (people[:, 0] > 0)
    model = learn(release, release.privatize(people, answers=answers))
    outputs, _ = runtime(model, "float64", people)
    np.testing.assert_allclose(outputs, model.decision_function(people), atol=1e-12)
    with pytest.raises(InvalidInput, match="at most 128 cells, this model has 150"):
        model_to_torch(model)


def test_other_models_raise_with_the_reason(models: dict[str, object]) -> None:
    fresh = ReportClassifier(models["cells"].release)
    for export in (model_to_onnx, model_to_torch):
        with pytest.raises(InvalidInput, match="got ndarray"):
            export(np.eye(3))
        with pytest.raises(InvalidInput, match="not been learnt yet"):
            export(fresh)
    with pytest.raises(InvalidInput, match="'float32' or 'float64'"):
        model_to_onnx(models["cells"], dtype="float16")
    huge = Layers.linear(1e30 * np.eye(2))
    with pytest.raises(InvalidInput, match="use dtype='float64'"):
        model_to_onnx(huge)
