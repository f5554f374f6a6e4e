"""The exported graph is the release's encoder, total, and not private; reports come behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import offaxis
from offaxis.encoding import NetworkEncoder
from offaxis.encoding.encoders import ANSWERS
from offaxis.errors import InvalidInput
from offaxis.formats.release_file import _ENCODERS
from offaxis.geometry import Layers
from offaxis.integrations.onnx import privatize_encoded, to_onnx
from offaxis.release import Release
from tests.checks import ALPHA, mean_p_value, task_for

RECIPES = ("laplace", "piecewise", "response", "class-response", "coordinatewise-laplace")
KINDS = (*RECIPES, "plain", "network")
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
    """Return a release with every kind of encoder there is."""
    found = {
        name: offaxis.fit(task_for(name, head), public, epsilon=3, mechanism=name)
        for name in RECIPES
    }
    found["plain"] = offaxis.fit(None, public, epsilon=3, reshaping="none")
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal(shape) for shape in ((9, 6), (6, 9))]
    network = NetworkEncoder(weights, [rng.standard_normal(9), rng.standard_normal(6)])
    found["network"] = replace(found["plain"], encoder=network)
    return found


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", KINDS)
def test_the_graph_is_the_encoder(
    name: str, precision: str, releases: dict[str, Release], public: np.ndarray
) -> None:
    release = releases[name]
    vectors = public.astype(precision)
    found = run(to_onnx(release, dtype=precision), vectors=vectors)
    wanted = release.encoder.encode(vectors.astype(np.float64))
    assert found.shape == wanted.shape
    if wanted.ndim == 1:
        # Two scores may be as good as equal, and then either is right.
        assert found.dtype == np.int64
        assert (found == wanted).mean() >= 0.99
        assert len(np.unique(found)) > 1
    else:
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted, atol=PRECISIONS[precision] * scale)


def test_all_kinds_of_encoders_are_covered(releases: dict[str, Release]) -> None:
    """Of the answers of networks one is here; the test of activations has the others."""
    kinds = {release.encoder.kind for release in releases.values()}
    assert kinds | {answers.kind for answers in ANSWERS.values()} == set(_ENCODERS)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "gelu", "identity"])
def test_every_activation_has_its_nodes(
    activation: str, precision: str, release: Release, public: np.ndarray
) -> None:
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal(shape) for shape in ((7, 9), (6, 7))]
    network = Layers(weights, [rng.standard_normal(7), rng.standard_normal(6)], activation)
    inputs = rng.standard_normal((50, 9)).astype(precision)
    found = run(to_onnx(release, network, dtype=precision), input=inputs)
    wanted = release.encoder.encode(network.outputs(inputs.astype(np.float64)))
    rtol = 1e-5 if activation == "gelu" else PRECISIONS[precision]
    np.testing.assert_allclose(found, wanted, atol=rtol * np.abs(wanted).max())
    answers = offaxis.fit(network, inputs, epsilon=3, mechanism="class-response")
    symbols = run(to_onnx(answers, dtype=precision), vectors=inputs)
    assert (symbols == answers.encoder.encode(inputs.astype(np.float64))).mean() >= 0.98


class Network(torch.nn.Module):
    """Two inputs, dropout, batch norm: what a real encoder has."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.body = torch.nn.Sequential(
            torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 6)
        )

    def forward(self, words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return self.body(self.first(words) * weights)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_torch_network_stands_in_front(precision: str, release: Release) -> None:
    torch.manual_seed(0)
    network = Network()
    network.train()
    example = (torch.randn(2, 4), torch.ones(2, 1))
    model = to_onnx(release, network, example=example, dtype=precision)
    assert network.training, "the network comes back as it was"
    assert network.body[0].training
    words, weights = torch.randn(33, 4), torch.rand(33, 1)
    found = run(model, input_0=words.numpy(), input_1=weights.numpy())
    network.eval()
    with torch.no_grad():
        vectors = network(words, weights).double().numpy()
    wanted = release.encoder.encode(vectors)
    assert found.dtype == precision
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["laplace", "plain", "response", "class-response", "network"])
def test_every_input_has_an_encoding_and_a_report(
    name: str, precision: str, releases: dict[str, Release]
) -> None:
    release = releases[name]
    largest = float(np.finfo(precision).max)
    odd = [np.nan, np.inf, -np.inf, largest, -largest, 5e-324, 0.0]
    rows = [np.full(6, value) for value in odd]
    rows += [np.array([np.nan, np.inf, -np.inf, largest, 1.0, 0.0])]
    encoded = run(to_onnx(release, dtype=precision), vectors=np.array(rows, dtype=precision))
    assert np.isfinite(encoded).all()
    assert len(privatize_encoded(release, encoded)) == len(rows)


def test_huge_vectors_keep_their_direction(release: Release) -> None:
    """As release.encoder does, and privatize after it; the twin saturates entry by entry."""
    z = np.array([1.0, -2.0, 3.0, 0.5, 0.25, -1.0]) * 1e307
    wanted = release.encoder.encode(z[None])[0]
    found = run(to_onnx(release, dtype="float64"), vectors=z[None])[0]
    np.testing.assert_allclose(found / np.abs(found).max(), wanted / np.abs(wanted).max())
    twin = release.encoder.encode(np.clip(z, -1e150, 1e150)[None])[0]
    assert np.abs(twin / np.abs(twin).max() - wanted / np.abs(wanted).max()).max() > 0.1


def test_reports_behind_the_graph_are_as_good_as_the_release_s_own(
    head: Layers, public: np.ndarray
) -> None:
    """Decoded reports of one vector, 3,000 a way: equal in the mean, and in squared error.

    A two-sample test of twelve means with a false-alarm rate of ALPHA. The twin forgets the graph's
    centre, and is caught.
    """
    release = offaxis.fit(head, public, epsilon=60, reshaping=offaxis.Jacobian(lambda_max=4))
    z = public.mean(axis=0) + 0.1
    own = release.decode(release.privatize(np.tile(z, (3000, 1))))
    encoded = run(to_onnx(release), vectors=np.tile(z, (3000, 1)).astype(np.float32))

    def p_value(given: np.ndarray) -> float:
        # Independent draws, so the difference of row i of each way has mean zero.
        behind = release.decode(privatize_encoded(release, given))
        errors = (behind - z) ** 2 - (own - z) ** 2
        return mean_p_value(np.hstack([behind - own, errors]), 0.0)

    assert p_value(encoded) > ALPHA
    assert p_value(encoded + release.encoder.matrix @ release.encoder.centre) < ALPHA


def test_symbols_behind_the_graph_are_told_as_often(
    releases: dict[str, Release], public: np.ndarray
) -> None:
    """How often the own symbol is named among 4,000: a binomial test at ALPHA, and a twin."""
    from scipy import stats

    release = releases["response"]
    symbol = run(to_onnx(release), vectors=public[:1].astype(np.float32))
    assert isinstance(privatize_encoded(release, symbol[0]), bytes)
    reports = privatize_encoded(release, np.repeat(symbol, 4000))
    named = release.observe(reports).argmax(axis=1) == symbol[0]
    chance = release.randomizer.own_chance
    assert stats.binomtest(int(named.sum()), 4000, chance).pvalue > ALPHA
    other = privatize_encoded(release, np.full(4000, (symbol[0] + 1) % release.randomizer.size))
    twin = release.observe(other).argmax(axis=1) == symbol[0]
    assert stats.binomtest(int(twin.sum()), 4000, chance).pvalue < ALPHA


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
def test_what_is_no_encoding_releases_nothing(
    encoded: np.ndarray, message: str, release: Release
) -> None:
    with pytest.raises(InvalidInput, match=message):
        privatize_encoded(release, encoded)


def test_the_file_says_whose_it_is_and_that_it_protects_nobody(release: Release) -> None:
    model = to_onnx(release)
    facts = {prop.key: prop.value for prop in model.metadata_props}
    assert facts["offaxis.release"] == release.hash
    assert facts["offaxis.guarantee"] == "ε = 3, pure"
    assert "protects nobody" in facts["offaxis.not_private"]
    assert "protects nobody" in model.doc_string
    random = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"}
    assert not random & {node.op_type for node in model.graph.node}


def test_wrong_parts_are_named(release: Release, public: np.ndarray) -> None:
    narrow = torch.nn.Linear(4, 5)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"dtype": "float16"}, "'float32' or 'float64', got 'float16'"),
        ({"example": torch.zeros(1, 4)}, "leave it out"),
        ({"network": narrow}, "with an example"),
        ({"network": np.eye(6)}, "got ndarray"),
        ({"network": narrow, "example": torch.zeros(2, 4)}, "dimension 6, the network gives 5"),
        ({"network": narrow, "example": torch.zeros(2, 3)}, "torch cannot export"),
        ({"network": narrow, "example": torch.zeros(2, 4), "names": ["a", "b"]}, "got 2 names"),
        ({"network": torch.nn.Flatten(0), "example": torch.zeros(2, 3)}, r"vectors \(n, m\)"),
        ({"network": Layers.linear(np.eye(5))}, "the network gives 5"),
    ]
    for given, message in bad:
        with pytest.raises(InvalidInput, match=message):
            to_onnx(release, **given)
    huge = offaxis.fit(None, public * 1e30, epsilon=1, reshaping="centre")
    with pytest.raises(InvalidInput, match="use dtype='float64'"):
        to_onnx(huge)
    tiny = offaxis.fit(Layers.linear(np.eye(6)[:2] * 1e30), public * 1e-25, epsilon=1)
    with pytest.raises(InvalidInput, match="use dtype='float64'"):
        to_onnx(tiny)
    assert np.isfinite(run(to_onnx(huge, dtype="float64"), vectors=public)).all()
