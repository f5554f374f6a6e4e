"""Batches of records: results, errors, and that the batch size changes no byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offaxis
from offaxis.engines.arrow import decode_batches, fold_means, privatize_batches
from offaxis.engines.columns import lists_of, rows_of
from offaxis.engines.tallies import Tallies, fold_tallies
from offaxis.errors import InvalidInput
from offaxis.evaluation import evaluate
from offaxis.evaluation.metrics import Evaluation
from offaxis.sampling.entropy import JobKey


def batch_of(vectors, ids=None, **more):
    ids = np.arange(len(vectors)) if ids is None else ids
    return pa.RecordBatch.from_pydict({"id": ids, "vector": vectors, **more})


def reports_of(release, key, batches):
    table = pa.Table.from_batches(privatize_batches(release, key, batches))
    return dict(zip(table["id"].to_pylist(), table["report"].to_pylist(), strict=True))


@pytest.mark.parametrize("mechanism", ["laplace", "privunit2", "gaussian", "response"])
def test_batching_and_order_change_no_byte(head, public, vectors, mechanism):
    delta = 1e-5 if mechanism == "gaussian" else None
    release = offaxis.fit(head, public, epsilon=3, mechanism=mechanism, delta=delta)
    key, whole = JobKey(), batch_of(lists_of(vectors[:200]))
    expected = reports_of(release, key, [whole])
    pieces = [whole.slice(150), whole.slice(0, 0), whole.slice(20, 130), whole.slice(0, 20)]
    assert reports_of(release, key, pieces) == expected
    order = np.random.default_rng(0).permutation(200)
    assert reports_of(release, key, [whole.take(pa.array(order))]) == expected
    assert reports_of(release, JobKey(), [whole]) != expected


def test_a_record_is_encoded_alone(release, vectors, monkeypatch):
    # A product of many rows rounds more than half of all entries differently from one row alone.
    kind, shapes = type(release.encoder), []
    encode = kind.encode

    def recorded(encoder, rows):
        shapes.append(rows.shape)
        return encode(encoder, rows)

    monkeypatch.setattr(kind, "encode", recorded)
    list(privatize_batches(release, JobKey(), [batch_of(lists_of(vectors[:30]))]))
    assert shapes == [(1, 6)] * 30


@given(
    st.sampled_from(["fixed", "list", "large", "float32", "int"]),
    st.integers(1, 5),
    st.integers(1, 20),
)
def test_every_list_type_is_read(kind, dim, count):
    rows = np.random.default_rng(count).integers(-9, 9, (count, dim)).astype(float)
    column = lists_of(rows, fixed=kind == "fixed")
    target = {
        "large": pa.large_list(pa.float64()),
        "float32": pa.list_(pa.float32()),
        "int": pa.list_(pa.int16()),
    }.get(kind)
    column = column.cast(target) if target else column
    assert np.array_equal(rows_of(column, "here"), rows)
    assert np.array_equal(rows_of(column.slice(count // 2), "here"), rows[count // 2 :])


SECRET = 271828.5


@pytest.mark.parametrize(
    ("column", "ids", "message"),
    [
        ([[SECRET] * 6, None], [1, 2], "'vector' must not have missing"),
        ([[SECRET] * 6, [1.0, None, 1, 1, 1, 1]], [1, 2], "'vector' must not have missing"),
        ([[SECRET] * 6, [1.0]], [1, 2], "'vector' must all have the same length"),
        ([[SECRET] * 5, [1.0] * 5], [1, 2], "'vector' must hold vectors of dimension 6"),
        ([[SECRET] * 6, [np.nan] * 6], [1, 2], "'vector' must hold finite"),
        ([[SECRET] * 6, [np.inf] * 6], [1, 2], "'vector' must hold finite"),
        ([SECRET, 1.0], [1, 2], "'vector' must hold lists of numbers"),
        ([[SECRET] * 6, [1.0] * 6], ["Ada", None], "'id' has missing"),
        ([[SECRET] * 6, [1.0] * 6], [SECRET, 2.5], "'id' must hold whole numbers"),
    ],
)
def test_an_error_names_the_column_but_not_its_contents(release, column, ids, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        list(privatize_batches(release, JobKey(), [batch_of(column, ids)]))
    assert "271828" not in str(caught.value)
    assert "Ada" not in str(caught.value)


def test_decoded_batches_match_the_release(release, vectors):
    reports = list(privatize_batches(release, JobKey(), [batch_of(lists_of(vectors[:50]))]))
    (decoded,) = decode_batches(release, reports)
    expected = release.decode(reports[0].column("report").to_pylist())
    assert decoded.schema.names == ["id", "vector"]
    assert pa.types.is_fixed_size_list(decoded.column("vector").type)
    assert np.array_equal(rows_of(decoded.column("vector"), "here"), expected)
    (variable,) = decode_batches(release, reports, fixed=False)
    assert np.array_equal(rows_of(variable.column("vector"), "here"), expected)


def test_partial_means_merge_into_the_mean_of_the_release(release, vectors):
    groups, weights = (np.arange(90) % 4).tolist(), (1.0 + np.arange(90) % 3).tolist()
    whole = batch_of(lists_of(vectors[:90]))
    (privatized,) = privatize_batches(release, JobKey(), [whole])
    reports = privatized.column("report").to_pylist()
    labelled = pa.RecordBatch.from_pydict({"report": reports, "group": groups, "weight": weights})
    expected = release.aggregate(reports, weights, groups)
    total = fold_means(release, [], groups="group")
    for part in (labelled.slice(0, 7), labelled.slice(7, 1), labelled.slice(8)):
        total.merge(fold_means(release, [part], groups="group", weights="weight"))
    merged = total.summary()
    assert merged.groups == expected.groups
    for name in ("estimate", "standard_error", "effective_count", "count"):
        assert getattr(merged, name) == pytest.approx(getattr(expected, name), rel=1e-12)


def test_partial_tallies_merge_into_an_evaluation(release, head, vectors):
    rows = vectors[:200]
    labels = head.outputs(rows).argmax(axis=1)
    whole = batch_of(lists_of(rows), label=labels)
    options = {"targets": "label", "seeds": 40}
    total = Tallies(1, 40)
    for part, piece in enumerate((whole.slice(0, 90), whole.slice(90))):
        total.merge(fold_tallies([release], head, [piece], part=part, **options))
    (merged,) = total.evaluations()
    expected = evaluate(release, head, rows, labels, seeds=40)
    assert merged.clean == expected.clean
    # Forty repetitions each: five standard errors of a difference, false alarms below 1e-5.
    for metric in ("accuracy", "agreement", "output_rmse"):
        gap = merged.mean(metric) - expected.mean(metric)
        assert abs(gap) < 5 * np.hypot(
            _standard_error(merged, metric), _standard_error(expected, metric)
        )
    assert merged.runs["accuracy"] == pytest.approx(merged.runs["agreement"])


def _standard_error(evaluation: Evaluation, metric: str) -> float:
    return evaluation.std(metric) / np.sqrt(len(evaluation.runs[metric]))
