"""Several tasks as one: weights are importances, answers of all tasks are found at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import (
    CentredOutputs,
    Layers,
    MultiTask,
    PublicVectors,
    as_task_model,
    measure,
)
from offaxis.geometry.multitask import joint_answers

RNG = np.random.default_rng(11)
PUBLIC = RNG.standard_normal((300, 5)) * [3, 2, 1, 1, 0.5]
CLASSES = Layers.linear(RNG.standard_normal((3, 5)), RNG.standard_normal(3))
BENT = Layers(
    [RNG.standard_normal((6, 5)), RNG.standard_normal((4, 6))], [np.zeros(6), np.zeros(4)], "tanh"
)
NUMBER = Layers.linear(RNG.standard_normal((1, 5)))


def share_told(gram, covariance, told):
    """Return the share of the variance in a metric that a projection onto coordinates tells."""
    kept = np.diag(told.astype(float))
    return 1 - np.sum(gram * ((np.eye(5) - kept) @ covariance @ (np.eye(5) - kept))) / np.sum(
        gram * covariance
    )


@given(
    importance=st.floats(0.1, 10),
    unit=st.floats(1e-3, 1e3),
    told=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_weights_are_importances_and_units_do_not_matter(importance, unit, told):
    weights = {"class": importance, "number": 1.0}
    tasks = {"class": CLASSES, "number": NUMBER}
    stack = MultiTask.of(tasks, PUBLIC, weights)
    louder = MultiTask.of(tasks | {"number": NUMBER.weights[0] * unit}, PUBLIC, weights)
    np.testing.assert_allclose(louder.gram(PUBLIC), stack.gram(PUBLIC), rtol=1e-9, atol=1e-9)
    geometry = measure(stack, PublicVectors(PUBLIC))
    assert np.sum(geometry.gram * geometry.covariance) == pytest.approx(1)
    # Told in the common metric is the weighted mean of told in each.
    kept = np.array(told)
    each = [measure(task, PublicVectors(PUBLIC)).gram for task in (CentredOutputs(CLASSES), NUMBER)]
    shares = [share_told(gram, geometry.covariance, kept) for gram in each]
    mean = (importance * shares[0] + shares[1]) / (importance + 1)
    assert share_told(geometry.gram, geometry.covariance, kept) == pytest.approx(mean, abs=1e-9)


def test_outputs_and_jacobians_stand_side_by_side():
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


def test_measuring_apart_gives_the_geometry_of_the_stack():
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
    assert loaded.provenance.model.name == "class + number"
    other = MultiTask.of({"class": CLASSES, "number": NUMBER}, PUBLIC, {"class": 1, "number": 2})
    assert other.identity().sha256 != stack.identity().sha256


@given(st.lists(st.integers(2, 5), min_size=2, max_size=3), st.booleans(), st.integers(0, 2**32))
def test_one_network_names_the_answers_of_all(sizes, deep, seed):
    rng = np.random.default_rng(seed)
    models = {}
    for index, size in enumerate(sizes):
        hidden = int(rng.integers(2, 6))
        shapes = [(hidden, 5), (size, hidden)] if deep else [(size, 5)]
        weights = [rng.standard_normal(shape) for shape in shapes]
        biases = [rng.standard_normal(shape[0]) for shape in shapes]
        models[f"t{index}"] = Layers(weights, biases)
    joint = joint_answers(models)
    answers = np.stack([model.outputs(PUBLIC).argmax(axis=1) for model in models.values()])
    wanted = np.ravel_multi_index(answers, sizes)
    assert np.array_equal(joint.outputs(PUBLIC).argmax(axis=1), wanted)


def test_answers_are_only_joined_where_one_network_can_do_it():
    assert joint_answers({"a": CLASSES}) is None
    assert joint_answers({"a": CLASSES, "b": BENT}) is None  # of other depths
    assert joint_answers({"a": CLASSES, "b": NUMBER}) is None  # a number is no answer
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
def test_what_cannot_be_weighed_is_refused(models, weights, message):
    with pytest.raises(InvalidInput, match=message):
        MultiTask.of(models, PUBLIC, weights)
