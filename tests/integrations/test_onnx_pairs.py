"""The exported graph of a release of pairs is its encoder of vectors and answers, and total."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from scipy import stats

import offaxis
from offaxis.encoding.pairs import NO_ANSWER, PairEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.geometry.layers import ACTIVATIONS
from offaxis.integrations.onnx import privatize_encoded, to_onnx
from offaxis.learning import Classes, Number, cells, fit_check, fit_pairs, principal
from offaxis.release import Release
from tests.checks import ALPHA, with_optional_numbers

PRECISIONS = {"float32": 1e-5, "float64": 1e-12}
CLASSES = Classes(["no", "perhaps", "yes"], name="reply")
RECORDED = sorted(Path(__file__).parents[1].glob("vectors/pairs-*.release"))


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def encoded_by(
    release: Release, rows: np.ndarray, precision: str, network: Layers | None = None
) -> np.ndarray:
    """Return what the graph of a release gives for rows of vectors and answers."""
    session = session_of(to_onnx(release, network, dtype=precision))
    count = release.encoder.answer_count
    rows = rows.astype(precision)
    inputs = {session.get_inputs()[0].name: rows[:, : rows.shape[1] - count]}
    if count:
        inputs["answers"] = rows[:, -count:]
    (encoded,) = session.run(None, inputs)
    return encoded


@pytest.fixture(scope="module")
def releases(public: np.ndarray) -> dict[str, Release]:
    """Return releases of all forms and kinds of answers."""
    number = Number(-2, 7, name="hours")
    optional = [
        Classes(4, name="kind", optional=True),
        Number(0, 1, name="share"),
        CLASSES,
    ]
    directions, places = principal(public, rank=3), cells(public, size=4)
    regressor = Layers.linear(np.ones((1, 6)))
    return {
        "moments": fit_pairs(directions, CLASSES, epsilon=3),
        "number": fit_pairs(directions, number, epsilon=3),
        "several": with_optional_numbers(fit_pairs(directions, optional, epsilon=3)),
        "nothing": fit_pairs(directions, None, epsilon=3),
        "cells": fit_pairs(places, [CLASSES, optional[0]], epsilon=3),
        "cells alone": fit_pairs(places, None, epsilon=3),
        "right": fit_check(np.eye(3, 6), public, CLASSES, epsilon=3),
        "within": fit_check(regressor, public, number, within=3.0, epsilon=3),
    }


def rows_for(release: Release, vectors: np.ndarray) -> np.ndarray:
    """Return the vectors with answers, some of them missing or beyond a range or unknown."""
    rng = np.random.default_rng(5)
    encoder = release.encoder
    assert isinstance(encoder, PairEncoder)
    columns = [vectors]
    for classes, low, high, _ in encoder.asked[: encoder.answer_count].tolist():
        if classes:
            answers = rng.integers(-1, int(classes) + 1, len(vectors)).astype(float)
        else:
            answers = rng.uniform(low - (high - low) / 3, high + (high - low) / 3, len(vectors))
        columns.append(np.where(rng.random(len(vectors)) < 0.2, NO_ANSWER, answers))
    return np.column_stack(columns)


def assert_equal_encodings(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert actual.shape == expected.shape
    if expected.ndim == 1:
        # If two scores are almost equal, either symbol is right.
        assert actual.dtype == np.int64
        assert (actual == expected).mean() >= 0.99
    else:
        np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "name",
    ["moments", "number", "several", "nothing", "cells", "cells alone", "right", "within"],
)
def test_the_graph_is_the_encoder_of_pairs(
    name: str, precision: str, releases: dict[str, Release], public: np.ndarray
) -> None:
    release = releases[name]
    for size in (1e-3, 1.0, 1e6):
        rows = rows_for(release, size * public).astype(precision)
        expected = release.encoder.encode(rows.astype(np.float64))
        actual = encoded_by(release, rows, precision)
        assert_equal_encodings(actual, expected, PRECISIONS[precision])
        assert size != 1 or len(np.unique(expected)) > 1


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_releases_of_pairs_are_exported(path: Path) -> None:
    release = offaxis.load(path)
    encoder = release.encoder
    assert isinstance(encoder, PairEncoder)
    vectors = np.random.default_rng(3).standard_normal((300, encoder.vector_dim))
    rows = rows_for(release, vectors)
    assert_equal_encodings(encoded_by(release, rows, "float64"), encoder.encode(rows), 1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_features_of_every_activation_are_exported(activation: str, public: np.ndarray) -> None:
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal(shape) for shape in ((7, 6), (4, 7))]
    network = Layers(weights, [rng.standard_normal(7), rng.standard_normal(4)], activation)
    release = fit_check(network, public, 4, epsilon=1)
    rows = rows_for(release, public)
    actual = encoded_by(release, rows, "float64")
    assert (actual == release.encoder.encode(rows)).mean() >= 0.99


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_network_in_front_takes_the_answers_as_well(
    precision: str, releases: dict[str, Release]
) -> None:
    release = releases["several"]
    rng = np.random.default_rng(2)
    network = Layers([rng.standard_normal((6, 9))], [rng.standard_normal(6)])
    inputs = rng.standard_normal((50, 9))
    rows = rows_for(release, inputs).astype(precision)
    inputs, answers = rows[:, :9].astype(float), rows[:, 9:].astype(float)
    expected = release.encoder.encode(np.column_stack([network.outputs(inputs), answers]))
    actual = encoded_by(release, rows, precision, network)
    assert_equal_encodings(actual, expected, PRECISIONS[precision])
    module = torch.nn.Linear(4, 6)
    exported = to_onnx(release, module, example=torch.zeros(1, 4))
    assert [value.name for value in exported.graph.input] == ["input", "answers"]
    with pytest.raises(InvalidInput, match="dimension 6, the network returns 9"):
        to_onnx(release, torch.nn.Linear(4, 9), example=torch.zeros(1, 4))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["several", "cells", "right", "within"])
def test_every_input_has_an_encoding_and_a_report(
    name: str, precision: str, releases: dict[str, Release]
) -> None:
    release = releases[name]
    largest = float(np.finfo(precision).max)
    extremes = [np.nan, np.inf, -np.inf, largest, -largest, 5e-324, 0.0]
    width = release.input_dim
    rows = np.array([[value] * width for value in extremes] + [np.resize(extremes, width)])
    encoded = encoded_by(release, rows, precision)
    assert np.isfinite(encoded).all()
    assert len(privatize_encoded(release, encoded)) == len(rows)


def test_an_answer_that_is_not_a_number_is_missing(releases: dict[str, Release]) -> None:
    for name in ("several", "cells", "right"):
        release = releases[name]
        rows = np.zeros((1, release.input_dim))
        rows[:, 6:] = NO_ANSWER
        missing = encoded_by(release, rows, "float32")
        rows[:, 6:] = np.nan
        assert (encoded_by(release, rows, "float32") == missing).all()
        rows[:, 6:] = 0.0  # the broken control: as for entries of the vector
        assert name == "right" or (encoded_by(release, rows, "float32") != missing).any()


def test_reports_of_the_graph_teach_what_reports_of_the_release_teach(
    releases: dict[str, Release], public: np.ndarray
) -> None:
    """The shares of the symbols of one pair, 4,000 reports: a χ² test at ALPHA.

    The broken control leaves out the answer, and is rejected.
    """
    release = releases["cells"]
    row = release.pairs(public[:1], {"reply": ["yes"], "kind": [2]})
    symbol = encoded_by(release, row, "float32")
    expected = release.encoder.encode(row)
    assert symbol.tolist() == expected.tolist()

    def p_value(symbols: np.ndarray) -> float:
        reports = privatize_encoded(release, symbols)
        named = (release.observe(reports) > 0)[:, expected[0]].sum()
        return stats.binomtest(int(named), len(reports), release.randomizer.own_chance).pvalue

    assert p_value(np.repeat(symbol, 4000)) > ALPHA
    row[0, -2:] = NO_ANSWER
    assert p_value(np.repeat(encoded_by(release, row, "float32"), 4000)) < ALPHA


def test_the_model_states_what_it_asks(releases: dict[str, Release]) -> None:
    facts = {part.key: part.value for part in to_onnx(releases["several"]).metadata_props}
    assert json.loads(facts["offaxis.asked"]) == [
        {"name": "kind", "optional": True, "classes": ["0", "1", "2", "3"]},
        {"name": "share", "optional": True, "low": 0, "high": 1},
        {"name": "reply", "optional": False, "classes": ["no", "perhaps", "yes"]},
    ]
    nothing = to_onnx(releases["nothing"])
    assert "offaxis.asked" not in {part.key for part in nothing.metadata_props}
    assert [value.name for value in nothing.graph.input] == ["vectors"]


def test_single_precision_must_resolve_a_range(public: np.ndarray) -> None:
    directions = principal(public, rank=2)
    narrow = fit_pairs(directions, Number(1e6, 1e6 + 1), epsilon=1)
    with pytest.raises(InvalidInput, match="use dtype='float64'"):
        to_onnx(narrow)
    rows = np.column_stack([public, 1e6 + np.linspace(0, 1, len(public))])
    np.testing.assert_allclose(
        encoded_by(narrow, rows, "float64"), narrow.encoder.encode(rows), atol=1e-12
    )
    wide = fit_pairs(directions, Number(-1e20, 1e20), epsilon=1)
    with pytest.raises(InvalidInput, match="use dtype='float64'"):
        to_onnx(wide)
    rows[:, -1] = np.linspace(-1e20, 1e20, len(public))
    np.testing.assert_allclose(
        encoded_by(wide, rows, "float64"), wide.encoder.encode(rows), atol=1e-12
    )


def test_a_graph_starts_no_sequences(releases: dict[str, Release]) -> None:
    """Each call would draw a new permanent answer, beyond what is promised."""
    sequences = offaxis.memoise(releases["cells"], draws=2, period=10)
    symbols = np.zeros(3, dtype=np.int64)
    with pytest.raises(InvalidInput, match="sequences"):
        privatize_encoded(sequences, symbols)
