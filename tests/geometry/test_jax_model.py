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
    release = offaxis.fit(JaxModel(mlp, params, dim=6), public, epsilon=2, mechanism="laplace")
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
    assert np.array_equal(as_task_model(lambda Z: Z).outputs(public), public)
    with pytest.raises(UnsupportedModel, match="JaxModel"):
        as_task_model("a function")
    with pytest.raises(InvalidInput, match="one row per vector"):
        JaxModel(lambda Z: Z.sum(), dim=6).outputs(public)
    with pytest.raises(InvalidInput, match="dimension 5"):
        JaxModel(mlp, parameters(), dim=6).outputs(public[:, :5])


def normalised(Z):
    centred = Z - Z.mean(axis=1, keepdims=True)
    return centred / jnp.sqrt(jnp.var(Z, axis=1, keepdims=True) + 1e-5) * 1.5 + 0.5


HIDDEN = {
    "relu": jax.nn.relu,
    "gelu": lambda z: jax.nn.gelu(z, approximate=False),
    "silu": jax.nn.silu,
    "elu": jax.nn.elu,
    "tanh": jnp.tanh,
    "logistic": jax.nn.sigmoid,
    "normalise": normalised,
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("last", [lambda z: z, jax.nn.softmax, jax.nn.log_softmax])
def test_a_chain_becomes_layers_with_the_same_answers(name, last, public):
    (first, shift), (second, offset) = parameters()

    def function(Z):
        return last(HIDDEN[name]((Z - 1) / 2 @ first.T + shift) @ second.T + offset)

    model = JaxModel(jax.jit(function), dim=6)
    found = model.as_layers()
    assert found is not None
    assert str(found) == f"Layers(6→8→3, {name})"
    answers = model.outputs(public).argmax(axis=1)
    # Probabilities close to one round to a tie in single precision.
    assert (found.outputs(public).argmax(axis=1) == answers).mean() > 0.95


def test_chains_by_vmap_with_one_output_or_a_sigmoid(public):
    (first, shift), (second, _) = parameters()
    single = JaxModel(jax.vmap(lambda z: second @ jax.nn.leaky_relu(first @ z + shift)), dim=6)
    assert str(single.as_layers()) == "Layers(6→16→3, relu)"
    number = JaxModel(lambda Z: jnp.tanh(Z @ first.T) @ second[0], dim=6)
    assert str(number.as_layers()) == "Layers(6→8→1, tanh)"
    logit = JaxModel(lambda Z: jax.nn.sigmoid(jnp.tanh(Z @ first.T) @ second[:1].T), dim=6)
    found = logit.as_layers()
    assert str(found) == "Layers(6→8→2, tanh)"
    assert found is not None
    assert ((logit.outputs(public)[:, 0] > 0.5) == found.outputs(public).argmax(axis=1)).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda Z: Z + jnp.tanh(Z @ jnp.ones((6, 6))),
        lambda Z: jax.nn.softplus(Z @ jnp.ones((6, 2))),
        lambda Z: jax.nn.gelu(Z @ jnp.ones((6, 4))) @ jnp.ones((4, 2)),  # the approximate one
        lambda Z: jnp.sort(Z, axis=1),
        lambda Z: Z[:, :2] * Z[:, 2:4],
    ],
)
def test_any_other_function_is_none(function):
    assert JaxModel(function, dim=6).as_layers() is None
