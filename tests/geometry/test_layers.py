"""Networks given by their weights: Jacobians, Grams, files and silent units."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.evaluation import evaluate
from offaxis.geometry import FiniteDifferences, Layers
from offaxis.geometry.layers import ACTIVATIONS


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


@pytest.mark.parametrize("sizes", [(4, 2), (4, 6, 3), (5, 4, 3, 7, 2)])
def test_the_gram_is_the_sum_of_outer_products(sizes):
    model = network("tanh", sizes)
    Z = np.random.default_rng(1).standard_normal((30, sizes[0]))
    J = model.jacobians(Z)
    assert np.allclose(model.gram(Z), np.einsum("nkm,nkl->ml", J, J))


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
    tanh = replace(silent, activation="tanh")
    assert tanh.without_silent_units(public) is tanh


def test_noise_activates_a_silent_unit(public):
    """The reason to remove them: noise reaches where no public vector does."""
    flat = public * [1, 1, 1, 1, 1, 0]
    weights = np.vstack([np.eye(6)[:2], 50 * np.eye(6)[5:]])
    last = np.array([[1.0, -1, 9], [-1.0, 1, 0]])
    silent = Layers([weights, last], [np.array([9.0, 9, -1]), np.zeros(2)])
    pruned = silent.without_silent_units(flat)
    release = offaxis.fit(silent, flat, epsilon=50)
    scores = [evaluate(release, task, flat, seeds=2).mean("agreement") for task in (silent, pruned)]
    assert scores[0] + 0.1 < scores[1]
