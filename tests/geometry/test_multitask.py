"""Several tasks as one: weights are importances; one network joins the answers of all tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import (
    CentredOutputs,
    FiniteDifferences,
    Layers,
    MultiTask,
    PublicVectors,
    TaskModel,
    as_task_model,
    measure,
)
from offaxis.geometry.models import gram_of
from offaxis.geometry.multitask import joint_answers

RNG = np.random.default_rng(11)
PUBLIC = RNG.standard_normal((300, 5)) * [3, 2, 1, 1, 0.5]
CLASSES = Layers.linear(RNG.standard_normal((3, 5)), RNG.standard_normal(3))
BENT = Layers(
    [RNG.standard_normal((6, 5)), RNG.standard_normal((4, 6))], [np.zeros(6), np.zeros(4)], "tanh"
)
NUMBER = Layers.linear(RNG.standard_normal((1, 5)))


def share_kept(gram, covariance, sent):
    """Return the share of the variance in a metric kept by a projection onto coordinates."""
    lost = np.eye(5) - np.diag(sent.astype(float))
    return 1 - np.sum(gram * (lost @ covariance @ lost)) / np.sum(gram * covariance)


@given(
    importance=st.floats(0.1, 10),
    unit=st.floats(1e-3, 1e3),
    coordinates=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_weights_are_importances_and_units_do_not_matter(importance, unit, coordinates):
    weights = {"class": importance, "number": 1.0}
    tasks = {"class": CLASSES, "number": NUMBER}
    stack = MultiTask.of(tasks, PUBLIC, weights)
    scaled = MultiTask.of(tasks | {"number": NUMBER.weights[0] * unit}, PUBLIC, weights)
    np.testing.assert_allclose(scaled.gram(PUBLIC), stack.gram(PUBLIC), rtol=1e-9, atol=1e-9)
    geometry = measure(stack, PublicVectors(PUBLIC))
    assert np.sum(geometry.gram * geometry.covariance) == pytest.approx(1)
    # The share kept in the common metric is the weighted mean of the tasks' shares.
    sent = np.array(coordinates)
    grams = [
        measure(task, PublicVectors(PUBLIC)).gram for task in (CentredOutputs(CLASSES), NUMBER)
    ]
    shares = [share_kept(gram, geometry.covariance, sent) for gram in grams]
    mean = (importance * shares[0] + shares[1]) / (importance + 1)
    assert share_kept(geometry.gram, geometry.covariance, sent) == pytest.approx(mean, abs=1e-9)


def test_outputs_and_jacobians_are_concatenated():
    stack = MultiTask.of({"class": CLASSES, "bent": BENT, "number": NUMBER}, PUBLIC)
    assert as_task_model(stack) is stack
    assert stack.input_dim == 5
    outputs, jacobians = stack.outputs(PUBLIC), stack.jacobians(PUBLIC)
    assert outputs.shape == (300, 8)
    np.testing.assert_allclose(outputs[:, :3].sum(axis=1), 0, atol=1e-12)  # centred
    np.testing.assert_allclose(outputs[:, 7], stack.scales["number"] * NUMBER.outputs(PUBLIC)[:, 0])
    np.testing.assert_allclose(
        stack.gram(PUBLIC), np.einsum("nki,nkj->ij", jacobians, jacobians), rtol=1e-10
    )
    step = 1e-6 * np.eye(5)[2]
    slope = (stack.outputs(PUBLIC + step) - stack.outputs(PUBLIC - step)) / 2e-6
    np.testing.assert_allclose(jacobians[:, :, 2], slope, atol=1e-6)


def test_measuring_each_task_gives_the_geometry_of_all():
    tasks = {"class": CentredOutputs(CLASSES), "bent": CentredOutputs(BENT)}
    source = PublicVectors(PUBLIC)
    parts = {name: measure(task, source) for name, task in tasks.items()}
    stack = MultiTask.weighed(tasks, parts, {"class": 0.3, "bent": 0.7})
    whole, joined = measure(stack, source), stack.geometry(parts)
    np.testing.assert_allclose(joined.gram, whole.gram, rtol=1e-10)
    assert (joined.outputs, joined.model, joined.public) == (7, whole.model, whole.public)


def test_a_release_of_several_tasks_is_saved_and_names_them(tmp_path):
    stack = MultiTask.of({"class": CLASSES, "number": NUMBER}, PUBLIC)
    release = offaxis.fit(stack, PUBLIC, epsilon=3, mechanism="privunit2", reshaping="optimal")
    release.save(tmp_path / "both.release")
    loaded = offaxis.load(tmp_path / "both.release")
    assert loaded == release
    assert loaded.provenance.model is not None
    assert loaded.provenance.model.name == "class + number"
    other = MultiTask.of({"class": CLASSES, "number": NUMBER}, PUBLIC, {"class": 1, "number": 2})
    assert other.identity().sha256 != stack.identity().sha256


@given(st.lists(st.integers(2, 5), min_size=2, max_size=3), st.booleans(), st.integers(0, 2**32))
def test_one_network_identifies_the_answers_of_all_tasks(sizes, deep, seed):
    rng = np.random.default_rng(seed)
    models = {}
    for index, size in enumerate(sizes):
        hidden = int(rng.integers(2, 6))
        shapes = [(hidden, 5), (size, hidden)] if deep else [(size, 5)]
        weights = [rng.standard_normal(shape) for shape in shapes]
        biases = [rng.standard_normal(shape[0]) for shape in shapes]
        models[f"t{index}"] = Layers(weights, biases)
    joint = joint_answers(models)
    assert joint is not None
    answers = np.stack([model.outputs(PUBLIC).argmax(axis=1) for model in models.values()])
    expected = np.ravel_multi_index(answers, sizes)
    assert np.array_equal(joint.outputs(PUBLIC).argmax(axis=1), expected)


def test_answers_are_joined_only_if_one_network_can_compute_them():
    assert joint_answers({"a": CLASSES}) is None
    assert joint_answers({"a": CLASSES, "b": BENT}) is None  # different depths
    assert joint_answers({"a": CLASSES, "b": NUMBER}) is None  # a single output has no classes
    wide = Layers.linear(RNG.standard_normal((400, 5)))
    assert joint_answers({"a": CLASSES, "b": wide}) is None  # 1,200 combinations


@pytest.mark.parametrize(
    ("models", "weights", "message"),
    [
        ({}, None, "mapping of names"),
        ({"": CLASSES}, None, "needs a name"),
        ({"a": CLASSES}, {"b": 1.0}, "name every task"),
        ({"a": CLASSES, "b": NUMBER}, {"a": 1.0, "b": 0.0}, "positive"),
        ({"a": CLASSES, "b": np.zeros((1, 5))}, None, "does not vary"),
    ],
)
def test_tasks_that_cannot_be_weighted_are_an_error(models, weights, message):
    with pytest.raises(InvalidInput, match=message):
        MultiTask.of(models, PUBLIC, weights)


# ---- Centred outputs


def test_centring_keeps_the_answers_and_removes_a_common_shift(head, public):
    centred = CentredOutputs(head)
    assert isinstance(centred, TaskModel)
    assert np.array_equal(centred.outputs(public).argmax(1), head.outputs(public).argmax(1))
    assert np.allclose(centred.outputs(public).sum(axis=1), 0)
    shifted = Layers([*head.weights[:-1], head.weights[-1] + 7.0], head.biases)
    assert np.allclose(CentredOutputs(shifted).gram(public), centred.gram(public))
    assert not np.allclose(shifted.gram(public), head.gram(public))


def test_jacobians_and_gram_are_those_of_the_centred_outputs(head, public):
    k = len(head.biases[-1])
    centring = np.eye(k) - 1 / k
    expected = centring @ head.jacobians(public)
    centred = CentredOutputs(head)
    assert np.allclose(centred.jacobians(public), expected)
    assert np.allclose(centred.gram(public), gram_of(expected))
    folded = Layers(
        [*head.weights[:-1], centring @ head.weights[-1]],
        [*head.biases[:-1], centring @ head.biases[-1]],
    )
    assert np.allclose(centred.gram(public), folded.gram(public))
    assert np.allclose(centred.outputs(public), folded.outputs(public))


def test_the_release_records_that_outputs_were_centred(head, public, tmp_path):
    release = offaxis.fit(CentredOutputs(head), public, epsilon=1, mechanism="laplace")
    release.save(tmp_path / "a.release")
    model = offaxis.load(tmp_path / "a.release").provenance.model
    assert model is not None
    assert model.name == "layers (outputs centred)"
    assert model.sha256 == head.identity().sha256
    assert model != head.identity()
    long = Layers(head.weights, head.biases, name="x" * 200)
    assert len(CentredOutputs(long).identity().name) == 200


def test_a_weight_matrix_can_be_centred_and_a_single_output_is_an_error(public):
    assert CentredOutputs(np.eye(6)[:2]).input_dim == 6
    with pytest.raises(InvalidInput, match="Jacobian is zero"):
        offaxis.fit(CentredOutputs(np.eye(6)[:1]), public, epsilon=1, mechanism="laplace")


def test_a_model_that_cannot_centre_itself_holds_whole_jacobians(head, public):
    wrapped = CentredOutputs(FiniteDifferences(head.outputs))
    assert wrapped.numbers_per_vector(6, 3) == 18
    assert CentredOutputs(head).numbers_per_vector(6, 3) == head.numbers_per_vector(6, 3)
    exact, approximate = (
        measure(task, PublicVectors(public)) for task in (CentredOutputs(head), wrapped)
    )
    assert exact.outputs == approximate.outputs == 3
    assert np.allclose(exact.gram, approximate.gram, atol=1e-6)
