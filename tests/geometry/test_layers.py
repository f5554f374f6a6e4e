"""Networks given by their weights: Jacobians, Grams, files and silent units."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.evaluation import evaluate
from offaxis.geometry import FiniteDifferences, Layers
from offaxis.geometry.layers import ACTIVATIONS, normalise

DEEP = (5, 4, 3, 7, 2)
MIXED = ["relu+normalise+tanh", "normalise+silu+normalise", "elu+identity+gelu"]


def network(activation: str, sizes: tuple[int, ...] = (4, 6, 3)) -> Layers:
    rng = np.random.default_rng(len(sizes))
    weights = [rng.standard_normal((o, i)) for i, o in pairwise(sizes)]
    return Layers(weights, [rng.standard_normal(o) for o in sizes[1:]], activation=activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", [(4, 2), (4, 6, 3), (5, 4, 3, 7, 2)])
def test_jacobians_are_the_derivatives(activation, sizes):
    model = network(activation, sizes)
    Z = np.random.default_rng(0).standard_normal((20, sizes[0]))
    numeric = FiniteDifferences(model.outputs).jacobians(Z)
    assert np.allclose(model.jacobians(Z), numeric, atol=1e-6)


@pytest.mark.parametrize("activation", MIXED)
def test_every_hidden_layer_can_have_its_own_activation(activation):
    model = network(activation, DEEP)
    Z = np.random.default_rng(0).standard_normal((20, 5))
    numeric = FiniteDifferences(model.outputs).jacobians(Z)
    assert np.allclose(model.jacobians(Z), numeric, atol=1e-6)
    hidden = Z
    for name, w, b in zip(activation.split("+"), model.weights, model.biases, strict=False):
        hidden = ACTIVATIONS[name](hidden @ w.T + b)
    assert np.array_equal(model.outputs(Z), hidden @ model.weights[-1].T + model.biases[-1])


@pytest.mark.parametrize("activation", ["tanh", "normalise"])
@pytest.mark.parametrize("sizes", [(4, 2), (4, 6, 3), DEEP])
def test_gram_and_vjp_follow_from_the_jacobians(activation, sizes):
    model = network(activation, sizes)
    rng = np.random.default_rng(1)
    Z, G = rng.standard_normal((30, sizes[0])), rng.standard_normal((30, sizes[-1]))
    J = model.jacobians(Z)
    assert np.allclose(model.gram(Z), np.einsum("nkm,nkl->ml", J, J))
    assert np.allclose(model.vjp(Z, G), np.einsum("nk,nkm->nm", G, J))


def test_normalise_is_the_core_of_a_layer_norm():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 8)) * 10.0 ** rng.uniform(-3, 3, (50, 1))
    assert np.allclose(normalise(X), X / np.sqrt((X**2).mean(axis=1, keepdims=True) + 1))
    eps = 1e-5
    centred = X - X.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt(centred.var(axis=1, keepdims=True) + eps)
    assert np.allclose(normalise(centred / np.sqrt(eps)), expected)
    with np.errstate(over="raise", invalid="raise"):
        assert np.allclose(normalise(np.array([[1e205, 0.0]])), [[np.sqrt(2), 0.0]])


def test_equal_activations_are_written_once_and_identities_stay():
    model = network("relu", DEEP)
    assert Layers(model.weights, model.biases, ["relu"] * 3).activation == "relu"  # type: ignore[arg-type]
    assert replace(model, activation="relu+relu+relu").identity() == model.identity()
    assert replace(model, activation="relu+tanh+relu").activations == ("relu", "tanh", "relu")
    assert replace(model, activation="relu+tanh+relu").identity() != model.identity()
    assert repr(replace(model, activation="relu+tanh+elu")).endswith("relu+tanh+elu)")
    # The hash of version 0.1.0, by hand: files of weights and releases keep their identity.
    digest = hashlib.sha256(b"relu")
    for array in (*model.weights, *model.biases):
        digest.update(repr(array.shape).encode() + array.astype("<f8").tobytes())
    assert model.identity().sha256 == digest.hexdigest()
    assert replace(model, answers=("no", "yes")).identity() == model.identity()


def test_the_names_of_answers_are_kept_in_files(tmp_path):
    model = replace(network("silu+normalise+elu", DEEP), answers=("nein", "jā"))
    assert model.answers == ("nein", "jā")
    model.save(tmp_path / "head.safetensors")
    loaded = Layers.load(tmp_path / "head.safetensors")
    assert (loaded.answers, loaded.activation) == (("nein", "jā"), "silu+normalise+elu")
    assert loaded.centred().answers == model.answers
    replace(model, answers=None).save(tmp_path / "plain.safetensors")
    assert b"answers" not in (tmp_path / "plain.safetensors").read_bytes()


@pytest.mark.parametrize(
    "answers", [("a",), ("a", "b", "c"), ("a", "a"), ("a", 2), ("", "b"), ("x" * 201, "b"), "ab"]
)
def test_wrong_names_of_answers_are_an_error(answers):
    with pytest.raises(InvalidInput, match="answer"):
        replace(network("relu", DEEP), answers=answers)


def test_a_network_with_one_output_has_no_answers_but_two_outputs_can_be_made():
    model = network("tanh", (4, 6, 1))
    with pytest.raises(InvalidInput, match=r"offaxis\.geometry\.Classifier"):
        replace(model, answers=("no", "yes"))
    pair = model.with_two_outputs(("no", "yes"))
    Z = np.random.default_rng(0).standard_normal((30, 4))
    t = model.outputs(Z)
    assert np.allclose(pair.outputs(Z), np.hstack([-t / 2, t / 2]))
    assert (pair.outputs(Z).argmax(axis=1) == (t[:, 0] > 0)).all()


def test_a_network_that_is_too_deep_for_a_release_is_not_held():
    model = network("relu", DEEP)
    assert model.as_layers() is model
    assert network("relu", (3,) * 10).as_layers() is None


def test_weights_are_read_back_from_their_file(tmp_path):
    model = network("gelu")
    model.save(tmp_path / "head.safetensors")
    loaded = Layers.load(tmp_path / "head.safetensors")
    assert loaded.identity() == model.identity()
    Z = np.ones((2, 4))
    assert np.array_equal(loaded.outputs(Z), model.outputs(Z))


def test_another_model_has_another_identity():
    assert network("relu").identity() != network("tanh").identity()


@pytest.mark.parametrize("content", [b"", b"not a file", b"\x08\0\0\0\0\0\0\0{}      "])
def test_another_kind_of_file_is_an_error(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"x\.safetensors"):
        Layers.load(path)


@pytest.mark.parametrize(
    ("weights", "biases", "activation"),
    [
        ([np.ones((2, 3))], [np.ones(3)], "relu"),
        ([np.ones((2, 3)), np.ones((2, 3))], [np.ones(2)] * 2, "relu"),
        ([], [], "relu"),
        ([np.ones((2, 3))], [], "relu"),
        ([np.ones((2, 3))], [np.ones(2)], "swish"),
        ([np.ones((2, 3))], [np.ones(2)], "relu+tanh"),
        ([np.ones((3, 3))] * 3, [np.ones(3)] * 3, "relu+tanh+relu"),
        ([np.ones((3, 3))] * 3, [np.ones(3)] * 3, ["relu"]),
        ([np.ones((3, 3))] * 3, [np.ones(3)] * 3, "relu+"),
        ([np.full((2, 3), np.nan)], [np.ones(2)], "relu"),
    ],
)
def test_layers_that_do_not_fit_together_are_an_error(weights, biases, activation):
    with pytest.raises(InvalidInput):
        Layers(weights, biases, activation=activation)


def test_removing_silent_units_keeps_the_outputs_on_public_vectors(head, public):
    biases = [b.copy() for b in head.biases]
    biases[0][2] = -100.0
    silent = replace(head, biases=biases)
    assert silent.silent_units(public).tolist() == [False, False, True, False, False]
    pruned = silent.without_silent_units(public)
    np.testing.assert_array_equal(pruned.outputs(public), silent.outputs(public))
    assert not pruned.weights[0][2].any()
    assert pruned.weights[0][[0, 1, 3, 4]].any(axis=1).all()
    assert head.without_silent_units(public) is head
    for other in ("tanh", "tanh+relu"):
        model = replace(silent, activation=other)
        assert model.without_silent_units(public) is model
    assert replace(silent, activation="relu+tanh").silent_units(public).any()


def test_noise_activates_a_silent_unit(public):
    """The reason to remove them: noise reaches where no public vector does."""
    flat = public * [1, 1, 1, 1, 1, 0]
    weights = np.vstack([np.eye(6)[:2], 50 * np.eye(6)[5:]])
    last = np.array([[1.0, -1, 9], [-1.0, 1, 0]])
    silent = Layers([weights, last], [np.array([9.0, 9, -1]), np.zeros(2)])
    pruned = silent.without_silent_units(flat)
    release = offaxis.fit(silent, flat, epsilon=50, mechanism="laplace")
    scores = [evaluate(release, task, flat, seeds=2).mean("agreement") for task in (silent, pruned)]
    assert scores[0] + 0.1 < scores[1]
