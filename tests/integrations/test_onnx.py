"""The exported graph is the encoder of the release, total, and not private."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import offaxis
from offaxis.encoding import ModelEncoder, NetworkEncoder, SecondMomentsEncoder
from offaxis.encoding.encoders import ANSWERS
from offaxis.encoding.questions import AnswersEncoder
from offaxis.errors import InvalidInput
from offaxis.formats.release_file import _ENCODERS
from offaxis.geometry import Layers
from offaxis.geometry.layers import ACTIVATIONS
from offaxis.integrations.onnx import privatize_encoded, to_onnx
from offaxis.release import Release
from tests.checks import ALPHA, mean_p_value, task_for

MECHANISMS = ("laplace", "piecewise", "response", "class-response", "coordinatewise-laplace")
KINDS = (*MECHANISMS, "plain", "network")
PRECISIONS = {"float32": 1e-5, "float64": 1e-12}


def run(model: onnx.ModelProto, **inputs: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (out,) = session.run(None, inputs)
    return out


@pytest.fixture(scope="module")
def releases(head: Layers, public: np.ndarray) -> dict[str, Release]:
    """Return releases with all kinds of encoders."""
    releases = {
        name: offaxis.fit(task_for(name, head), public, epsilon=3, mechanism=name)
        for name in MECHANISMS
    }
    releases["plain"] = offaxis.fit(None, public, epsilon=3, reshaping="none", mechanism="laplace")
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal(shape) for shape in ((9, 6), (6, 9))]
    network = NetworkEncoder(weights, [rng.standard_normal(9), rng.standard_normal(6)])
    releases["network"] = replace(releases["plain"], encoder=network)
    return releases


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", KINDS)
def test_the_graph_is_the_encoder(
    name: str, precision: str, releases: dict[str, Release], public: np.ndarray
) -> None:
    release = releases[name]
    vectors = public.astype(precision)
    encoded = run(to_onnx(release, dtype=precision), vectors=vectors)
    expected = release.encoder.encode(vectors.astype(np.float64))
    assert encoded.shape == expected.shape
    if expected.ndim == 1:
        # If two scores are almost equal, either symbol is right.
        assert encoded.dtype == np.int64
        assert (encoded == expected).mean() >= 0.99
        assert len(np.unique(encoded)) > 1
    else:
        scale = np.abs(expected).max()
        np.testing.assert_allclose(encoded, expected, atol=PRECISIONS[precision] * scale)


def test_all_kinds_of_encoders_are_covered(releases: dict[str, Release]) -> None:
    """One network classifier is here; the test of activations covers the others.

    A release of the answer of a model that the device brings has no graph, nor has one of second
    moments or of answers alone.
    """
    kinds = {release.encoder.kind for release in releases.values()}
    kinds |= {ModelEncoder.kind, SecondMomentsEncoder.kind, AnswersEncoder.kind}
    assert kinds | {answers.kind for answers in ANSWERS.values()} == set(_ENCODERS)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_exported(
    activation: str, precision: str, release: Release, public: np.ndarray
) -> None:
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal(shape) for shape in ((7, 9), (6, 7))]
    network = Layers(weights, [rng.standard_normal(7), rng.standard_normal(6)], activation)
    inputs = rng.standard_normal((50, 9)).astype(precision)
    encoded = run(to_onnx(release, network, dtype=precision), input=inputs)
    expected = release.encoder.encode(network.outputs(inputs.astype(np.float64)))
    rtol = 1e-5 if activation == "gelu" else PRECISIONS[precision]
    np.testing.assert_allclose(encoded, expected, atol=rtol * np.abs(expected).max())
    answers = offaxis.fit(network, inputs, epsilon=3, mechanism="class-response")
    symbols = run(to_onnx(answers, dtype=precision), vectors=inputs)
    assert (symbols == answers.encoder.encode(inputs.astype(np.float64))).mean() >= 0.98


class Network(torch.nn.Module):
    """A network with two inputs, dropout and batch norm, as in a real encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.body = torch.nn.Sequential(
            torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 6)
        )

    def forward(self, words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return self.body(self.first(words) * weights)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_torch_network_is_exported_in_front(precision: str, release: Release) -> None:
    torch.manual_seed(0)
    network = Network()
    network.train()
    example = (torch.randn(2, 4), torch.ones(2, 1))
    model = to_onnx(release, network, example=example, dtype=precision)
    assert network.training, "its mode is restored"
    assert network.body[0].training
    words, weights = torch.randn(33, 4), torch.rand(33, 1)
    encoded = run(model, input_0=words.numpy(), input_1=weights.numpy())
    network.eval()
    with torch.no_grad():
        vectors = network(words, weights).double().numpy()
    expected = release.encoder.encode(vectors)
    assert encoded.dtype == precision
    np.testing.assert_allclose(encoded, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["laplace", "plain", "response", "class-response", "network"])
def test_every_input_has_an_encoding_and_a_report(
    name: str, precision: str, releases: dict[str, Release]
) -> None:
    release = releases[name]
    largest = float(np.finfo(precision).max)
    extremes = [np.nan, np.inf, -np.inf, largest, -largest, 5e-324, 0.0]
    rows = [np.full(6, value) for value in extremes]
    rows += [np.array([np.nan, np.inf, -np.inf, largest, 1.0, 0.0])]
    encoded = run(to_onnx(release, dtype=precision), vectors=np.array(rows, dtype=precision))
    assert np.isfinite(encoded).all()
    assert len(privatize_encoded(release, encoded)) == len(rows)


def test_huge_vectors_keep_their_direction(release: Release) -> None:
    """As in release.encoder and privatize; the broken control saturates each entry."""
    z = np.array([1.0, -2.0, 3.0, 0.5, 0.25, -1.0]) * 1e307
    expected = release.encoder.encode(z[None])[0]
    encoded = run(to_onnx(release, dtype="float64"), vectors=z[None])[0]
    np.testing.assert_allclose(encoded / np.abs(encoded).max(), expected / np.abs(expected).max())
    broken = release.encoder.encode(np.clip(z, -1e150, 1e150)[None])[0]
    assert np.abs(broken / np.abs(broken).max() - expected / np.abs(expected).max()).max() > 0.1


def test_reports_of_the_graph_are_distributed_like_those_of_the_release(
    head: Layers, public: np.ndarray
) -> None:
    """Decoded reports of one vector, 3,000 each: equal in the mean, and in squared error.

    A two-sample test of twelve means with a false-alarm rate of ALPHA. The broken control omits the
    centre of the graph, and is rejected.
    """
    release = offaxis.fit(
        head, public, epsilon=60, reshaping=offaxis.Jacobian(lambda_max=4), mechanism="laplace"
    )
    z = public.mean(axis=0) + 0.1
    reference = release.decode(release.privatize(np.tile(z, (3000, 1))))
    encoded = run(to_onnx(release), vectors=np.tile(z, (3000, 1)).astype(np.float32))

    def p_value(encoded: np.ndarray) -> float:
        # The draws are independent, so the differences of rows have mean zero.
        decoded = release.decode(privatize_encoded(release, encoded))
        errors = (decoded - z) ** 2 - (reference - z) ** 2
        return mean_p_value(np.hstack([decoded - reference, errors]), 0.0)

    assert p_value(encoded) > ALPHA
    assert p_value(encoded + release.encoder.matrix @ release.encoder.centre) < ALPHA


def test_symbols_of_the_graph_are_reported_with_the_right_frequency(
    releases: dict[str, Release], public: np.ndarray
) -> None:
    """How often the true symbol is reported among 4,000: a binomial test at ALPHA.

    The broken control reports another symbol, and is rejected.
    """
    from scipy import stats

    release = releases["response"]
    symbol = run(to_onnx(release), vectors=public[:1].astype(np.float32))
    assert isinstance(privatize_encoded(release, symbol[0]), bytes)
    reports = privatize_encoded(release, np.repeat(symbol, 4000))
    kept = release.observe(reports).argmax(axis=1) == symbol[0]
    chance = release.randomizer.own_chance
    assert stats.binomtest(int(kept.sum()), 4000, chance).pvalue > ALPHA
    other = privatize_encoded(release, np.full(4000, (symbol[0] + 1) % release.randomizer.size))
    broken = release.observe(other).argmax(axis=1) == symbol[0]
    assert stats.binomtest(int(broken.sum()), 4000, chance).pvalue < ALPHA


def test_reports_are_fresh_and_of_the_release(release: Release) -> None:
    encoded = np.zeros((50, 6), dtype=np.float32)
    reports = privatize_encoded(release, encoded)
    assert len(set(reports)) == 50
    assert {len(report) for report in reports} == {release.report_size}
    single = privatize_encoded(release, encoded[0])
    assert release.decode(single).shape == (6,)
    assert single != privatize_encoded(release, encoded[0])


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (np.full((2, 6), np.nan), "finite"),
        (np.zeros((2, 5)), "dimension 6, got 5"),
        (np.zeros((0, 6)), "empty"),
        (np.zeros((2, 6), dtype=complex), "real numbers"),
    ],
)
def test_an_invalid_encoding_releases_nothing(
    encoded: np.ndarray, message: str, release: Release
) -> None:
    with pytest.raises(InvalidInput, match=message):
        privatize_encoded(release, encoded)


def test_the_model_names_its_release_and_states_that_it_is_not_private(release: Release) -> None:
    model = to_onnx(release)
    facts = {prop.key: prop.value for prop in model.metadata_props}
    assert facts["offaxis.release"] == release.hash
    assert facts["offaxis.guarantee"] == "ε = 3, pure"
    assert "protects nobody" in facts["offaxis.not_private"]
    assert "protects nobody" in model.doc_string
    random = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"}
    assert not random & {node.op_type for node in model.graph.node}


def test_invalid_arguments_raise_with_the_reason(release: Release, public: np.ndarray) -> None:
    narrow = torch.nn.Linear(4, 5)
    invalid: list[tuple[dict[str, Any], str]] = [
        ({"dtype": "float16"}, "'float32' or 'float64', got 'float16'"),
        ({"example": torch.zeros(1, 4)}, "leave it out"),
        ({"network": narrow}, "with an example"),
        ({"network": np.eye(6)}, "got ndarray"),
        ({"network": narrow, "example": torch.zeros(2, 4)}, "dimension 6, the network returns 5"),
        ({"network": narrow, "example": torch.zeros(2, 3)}, "torch cannot export"),
        ({"network": narrow, "example": torch.zeros(2, 4), "names": ["a", "b"]}, "got 2 names"),
        ({"network": torch.nn.Flatten(0), "example": torch.zeros(2, 3)}, r"vectors \(n, m\)"),
        ({"network": Layers.linear(np.eye(5))}, "the network returns 5"),
    ]
    for options, message in invalid:
        with pytest.raises(InvalidInput, match=message):
            to_onnx(release, **options)
    huge = offaxis.fit(None, public * 1e30, epsilon=1, reshaping="centre", mechanism="laplace")
    with pytest.raises(InvalidInput, match="use dtype='float64'"):
        to_onnx(huge)
    tiny = offaxis.fit(
        Layers.linear(np.eye(6)[:2] * 1e30), public * 1e-25, epsilon=1, mechanism="laplace"
    )
    with pytest.raises(InvalidInput, match="use dtype='float64'"):
        to_onnx(tiny)
    assert np.isfinite(run(to_onnx(huge, dtype="float64"), vectors=public)).all()
