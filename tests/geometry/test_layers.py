from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from offaxis.errors import InvalidInput
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


def test_weights_survive_their_file(tmp_path):
    model = network("gelu")
    model.save(tmp_path / "head.safetensors")
    again = Layers.load(tmp_path / "head.safetensors")
    assert again.identity() == model.identity()
    Z = np.ones((2, 4))
    assert np.array_equal(again.outputs(Z), model.outputs(Z))


def test_another_model_has_another_identity():
    assert network("relu").identity() != network("tanh").identity()


@pytest.mark.parametrize("content", [b"", b"not a file", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_foreign_weights_file_is_refused(tmp_path, content):
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
def test_layers_that_do_not_fit_are_refused(weights, biases, activation):
    with pytest.raises(InvalidInput):
        Layers(weights, biases, activation=activation)
