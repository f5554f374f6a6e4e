"""JAX functions as tasks: the same numbers as the same weights in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import CentredOutputs, Layers, PublicVectors, as_task_model, measure
from offaxis.geometry.jax_model import JaxModel


def mlp(params, Z):
    for weight, bias in params[:-1]:
        Z = jax.nn.gelu(Z @ weight.T + bias, approximate=False)
    weight, bias = params[-1]
    return Z @ weight.T + bias


def parameters(outputs=3, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [(8, 6), (outputs, 8)]
    return [(rng.standard_normal(s), rng.standard_normal(s[0])) for s in sizes]


def layers(params):
    return Layers([w for w, _ in params], [b for _, b in params], "gelu")


@pytest.mark.parametrize("outputs", [1, 3, 11])
def test_outputs_jacobians_and_vjps_are_those_of_the_same_weights(outputs, public):
    params, Z = parameters(outputs), public[:30]
    model, same = JaxModel(mlp, params, dim=6), layers(params)
    G = np.random.default_rng(1).standard_normal((30, outputs))
    for task, expected in ((model, same), (CentredOutputs(model), CentredOutputs(same))):
        assert np.allclose(task.outputs(Z), expected.outputs(Z), rtol=1e-4, atol=1e-4)
        assert np.allclose(task.jacobians(Z), expected.jacobians(Z), rtol=1e-4, atol=1e-4)
        assert np.allclose(task.gram(Z), expected.gram(Z), rtol=1e-3, atol=1e-3)
        assert np.allclose(task.vjp(Z, G), expected.vjp(Z, G), rtol=1e-4, atol=1e-3)


def test_double_precision_is_used_where_it_is_enabled(public):
    with jax.enable_x64(True):
        model = JaxModel(mlp, parameters(), dim=6)
        J = model.jacobians(public[:5])
    assert np.allclose(J, layers(parameters()).jacobians(public[:5]), rtol=1e-12)


def test_a_function_of_one_vector_works_through_vmap(public):
    model = JaxModel(jax.vmap(lambda z: jnp.tanh(z[:2]) * z[2:4]), dim=6)
    expected = np.tanh(public[:, :2]) * public[:, 2:4]
    assert np.allclose(model.outputs(public), expected, rtol=1e-4, atol=1e-4)
    single = JaxModel(lambda Z: Z.sum(axis=1), dim=6)
    assert single.outputs(public).shape == (len(public), 1)


def test_a_release_is_fitted_to_a_jax_model(public):
    params = parameters()
    release = offaxis.fit(JaxModel(mlp, params, dim=6), public, epsilon=2)
    assert release.provenance.model is not None
    assert release.provenance.model.kind == "jax"
    assert release.provenance.model.name == "mlp"
    same = measure(layers(params), PublicVectors(public))
    sketched = measure(as_task_model(JaxModel(mlp, params, dim=6)), PublicVectors(public), probes=3)
    assert np.allclose(sketched.gram, same.gram, rtol=1e-3, atol=1e-3)


def test_the_identity_depends_on_program_and_weights():
    def other(params, Z):
        return mlp(params, Z) + 1

    same = JaxModel(mlp, parameters(), dim=6).identity()
    assert JaxModel(mlp, parameters(), dim=6).identity() == same
    shifted = np.float32(2)
    hashes = {
        same.sha256,
        JaxModel(mlp, parameters(seed=1), dim=6).identity().sha256,
        JaxModel(other, parameters(), dim=6).identity().sha256,
        JaxModel(lambda Z: Z * jnp.arange(6.0), dim=6).identity().sha256,
        JaxModel(lambda Z: Z * (jnp.arange(6.0) + shifted), dim=6).identity().sha256,
    }
    assert len(hashes) == 5


def test_a_pickled_model_is_compiled_again(public):
    import pickle

    model = pickle.loads(pickle.dumps(JaxModel(mlp, parameters(), dim=6)))
    assert model.outputs(public[:3]).shape == (3, 3)
    assert model.input_dim == 6


def test_a_bare_function_and_wrong_shapes_are_an_error(public):
    with pytest.raises(UnsupportedModel, match="JaxModel"):
        as_task_model(lambda Z: Z)
    with pytest.raises(InvalidInput, match="one row per vector"):
        JaxModel(lambda Z: Z.sum(), dim=6).outputs(public)
    with pytest.raises(InvalidInput, match="dimension 5"):
        JaxModel(mlp, parameters(), dim=6).outputs(public[:, :5])
