"""Networks as encoders: total for every activation, and equal to the model's outputs."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from offaxis.encoding.encoders import (
    ANSWERS,
    AnswerEncoder,
    NetworkEncoder,
    answer_encoder,
    answer_encoder_of_kind,
)
from offaxis.errors import InvalidInput
from offaxis.formats.release_file import tensors_of
from offaxis.geometry import Layers
from offaxis.geometry.layers import ACTIVATIONS

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.standard_normal((5, 4)), RNG.standard_normal((6, 5)), RNG.standard_normal((3, 6))]
BIASES = [RNG.standard_normal(len(w)) for w in WEIGHTS]
HUGE = np.vstack([np.full(4, s) for s in (1.7e308, -1.7e308, 1e150, -40.0, 5e-324, 0.0)])


MIXED = ["relu+normalise", "normalise+silu", "elu+tanh"]


def test_every_activation_has_a_kind():
    assert set(ANSWERS) == set(ACTIVATIONS)
    for activation, encoder in ANSWERS.items():
        assert encoder.kind == f"network-{activation}-argmax"
    assert NetworkEncoder.kind not in {encoder.kind for encoder in ANSWERS.values()}


@pytest.mark.parametrize("activation", ["relu", *MIXED])
def test_a_list_of_activations_has_one_kind(activation):
    cls = answer_encoder(activation)
    assert cls is answer_encoder(activation)
    assert cls.kind == f"network-{activation}-argmax"
    assert answer_encoder_of_kind(cls.kind) is cls
    encoder = cls(WEIGHTS, BIASES)
    assert isinstance(encoder, AnswerEncoder)
    for same in (pickle.loads(pickle.dumps(encoder)), copy.copy(encoder)):
        assert type(same) is cls
        np.testing.assert_array_equal(same.encode(HUGE), encoder.encode(HUGE))


@pytest.mark.parametrize(
    "kind",
    [
        *("network", "network-argmax", "network--argmax", "network-swish-argmax", "affine"),
        *("network-relu+relu-argmax", "network-relu+-argmax", "network-RELU-argmax"),
        *("network-relu-argmax ", "network-relu+tanh", "Network-relu-argmax", ""),
        "network-" + "+".join(["relu"] * 7 + ["tanh"]) + "-argmax",
    ],
)
def test_other_words_are_no_kind(kind):
    assert answer_encoder_of_kind(kind) is None


def test_the_activations_must_fit_the_layers():
    with pytest.raises(InvalidInput, match="2 hidden layers"):
        answer_encoder("relu+tanh+gelu")(WEIGHTS, BIASES)
    with pytest.raises(InvalidInput, match="activations must be"):
        answer_encoder("relu+relu")


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *MIXED])
def test_the_answer_is_that_of_the_model(activation):
    Z = RNG.standard_normal((500, 4)) * 3
    encoder = answer_encoder(activation)(WEIGHTS, BIASES)
    outputs = Layers(WEIGHTS, BIASES, activation=activation).outputs(Z)
    np.testing.assert_array_equal(encoder.encode(Z), outputs.argmax(axis=1))
    assert (encoder.input_dim, encoder.output_dim) == (4, 3)
    assert set(tensors_of(encoder)) == {f"{p}.{i}" for p in ("weight", "bias") for i in range(3)}


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *MIXED])
@pytest.mark.parametrize("scale", [1.0, 1e100])
def test_every_finite_vector_has_an_answer(activation, scale):
    weights = [np.clip(w * scale, -1e100, 1e100) for w in WEIGHTS]
    encoder = answer_encoder(activation)(weights, BIASES)
    with np.errstate(all="raise"):
        symbols = encoder.encode(HUGE)
        assert np.isfinite(encoder.apply(HUGE)).all()
    assert symbols.dtype.kind == "i"
    assert ((symbols >= 0) & (symbols < 3)).all()


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *MIXED])
def test_no_row_of_a_batch_influences_another(activation):
    encoder = answer_encoder(activation)(WEIGHTS, BIASES)
    Z = np.vstack([HUGE, RNG.standard_normal((20, 4))])
    one_by_one = [int(encoder.encode(z[None])[0]) for z in Z]
    assert encoder.encode(Z).tolist() == one_by_one


def test_equal_scores_give_the_first_symbol():
    encoder = ANSWERS["relu"]([np.ones((2, 2)), np.zeros((3, 2))], [np.zeros(2), np.zeros(3)])
    assert encoder.encode(np.ones((2, 2))).tolist() == [0, 0]


def test_layers_that_do_not_fit_together_are_an_error():
    with pytest.raises(InvalidInput, match="do not fit together"):
        ANSWERS["gelu"](WEIGHTS[::-1], BIASES[::-1])
    with pytest.raises(InvalidInput, match="1 to 8 layers"):
        ANSWERS["gelu"]([np.eye(2)] * 9, [np.zeros(2)] * 9)
