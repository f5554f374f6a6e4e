"""Releases of pairs in every integration: answers come from columns, or the reason is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest
import torch
from torch.utils.data import TensorDataset

import offaxis
import offaxis.integrations.pandas
from offaxis.encoding.pairs import NO_ANSWER
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.integrations.arrow import decode, privatize
from offaxis.integrations.mlflow import entries
from offaxis.integrations.torch import PrivateDataset, PrivateLayer, SimulatedDataset
from offaxis.integrations.transformers import PrivateFeatures
from offaxis.learning import Classes, Number, fit_pairs, learn, principal
from offaxis.privacy.ledger import Ledger, Limit
from tests.checks import with_optional_numbers

NAMES = list("abcdef")
COUNT = 40


@pytest.fixture(scope="module")
def release(public: np.ndarray) -> offaxis.Release:
    """A release of a class and of a number that people may not have."""
    asked = [Classes(["no", "yes"], name="reply"), Number(0, 8, name="hours")]
    return with_optional_numbers(fit_pairs(principal(public, rank=3), asked, epsilon=3))


@pytest.fixture(scope="module")
def single(public: np.ndarray) -> offaxis.Release:
    return fit_pairs(principal(public, rank=3), ["no", "yes"], epsilon=3)


@pytest.fixture(scope="module")
def answers() -> dict[str, list[Any]]:
    return {
        "reply": ["no" if i % 3 else "yes" for i in range(COUNT)],
        "hours": [None if i % 5 == 0 else float(i % 8) for i in range(COUNT)],
    }


@pytest.fixture(scope="module")
def expected(release: offaxis.Release, public: np.ndarray, answers: Mapping[str, Any]) -> Any:
    return release.pairs(public[:COUNT], answers)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What is encoded; nothing else reaches a report."""
    seen: list[np.ndarray] = []
    encode = offaxis.Release.encode_private

    def recorded(self: offaxis.Release, batch: np.ndarray) -> Any:
        seen.append(np.array(batch))
        return encode(self, batch)

    monkeypatch.setattr(offaxis.Release, "encode_private", recorded)
    return seen


@pytest.fixture
def frame(public: np.ndarray, answers: Mapping[str, Any]) -> pandas.DataFrame:
    frame = pandas.DataFrame(public[:COUNT], columns=NAMES)
    return frame.assign(reply=answers["reply"], worked=answers["hours"])


COLUMNS = {"reply": "reply", "hours": "worked"}


# ---- pandas


def test_a_frame_is_reported_with_its_columns_of_answers(
    frame: pandas.DataFrame,
    release: offaxis.Release,
    expected: np.ndarray,
    rows: list[np.ndarray],
) -> None:
    reports = frame.offaxis.privatize(release, answers=COLUMNS)
    assert np.array_equal(np.concatenate(rows), expected)
    assert reports.index.equals(frame.index)
    more = frame.assign(diary="private")
    more.offaxis.privatize(release, columns=NAMES, answers=COLUMNS)
    assert np.array_equal(np.concatenate(rows[1:]), expected)
    vectors = pandas.DataFrame(
        {"vector": list(expected[:, :6]), "reply": frame["reply"], "worked": frame["worked"]}
    )
    vectors.offaxis.privatize(release, answers=COLUMNS)
    assert np.array_equal(np.concatenate(rows[2:]), expected)
    assert learn(release, reports, answer="reply").report_count_ == COUNT


@pytest.mark.parametrize("kind", ["object", "string", "category", "Int64"])
def test_missing_values_of_every_kind_are_missing_answers(
    kind: str, public: np.ndarray, rows: list[np.ndarray]
) -> None:
    optional = fit_pairs(
        principal(public, rank=2), Classes(["no", "yes"], optional=True), epsilon=1
    )
    values = [1, None, 0] if kind == "Int64" else ["yes", None, "no"]
    column = pandas.Series(values, dtype=kind)
    frame = pandas.DataFrame(public[:3]).assign(answer=column)
    frame.offaxis.privatize(optional, answers="answer")
    assert rows[0][:, -1].tolist() == [1.0, NO_ANSWER, 0.0]


def test_a_series_is_reported_with_answers_in_its_order(
    release: offaxis.Release,
    answers: Mapping[str, Any],
    expected: np.ndarray,
    rows: list[np.ndarray],
) -> None:
    vectors = pandas.Series(list(expected[:, :6]), index=[f"p{i}" for i in range(COUNT)])
    table = pandas.DataFrame(answers)
    for given in (answers, table, {name: table[name] for name in table}):
        rows.clear()
        reports = vectors.offaxis.privatize(release, answers=given)
        assert np.array_equal(np.concatenate(rows), expected)
        assert reports.index.equals(vectors.index)
    rows.clear()
    pandas.Series(list(expected)).offaxis.privatize(release)
    assert np.array_equal(np.concatenate(rows), expected)


def test_columns_that_are_no_answers_raise_and_release_nothing(
    frame: pandas.DataFrame,
    release: offaxis.Release,
    single: offaxis.Release,
    rows: list[np.ndarray],
) -> None:
    """Labels from 1 on would otherwise be read as indices, one too many, without a word."""
    labels = 1 + (frame["reply"] == "yes")
    numbered = frame.drop(columns=["reply", "worked"]).assign(reply=labels)
    plain = offaxis.fit(None, frame[NAMES].to_numpy(), epsilon=1, goal="means")
    invalid: list[tuple[pandas.DataFrame, offaxis.Release, Any, str]] = [
        (numbered, single, None, "asks for answers: pass answers="),
        (numbered, single, "reply", "int that is neither"),
        (numbered, single, "mood", "no column 'mood'"),
        (frame, release, "reply", "must map the names 'reply', 'hours'"),
        (
            frame.drop(columns="reply"),
            release,
            {"reply": "worked", "hours": "worked"},
            "is missing",
        ),
        (frame[NAMES], plain, "reply", "asks for no answer"),
    ]
    for given, fitted, columns, message in invalid:
        with pytest.raises(InvalidInput, match=message):
            given.offaxis.privatize(fitted, answers=columns)
    assert rows == []


def test_pairs_decode_to_no_vector(frame: pandas.DataFrame, release: offaxis.Release) -> None:
    reports = frame.offaxis.privatize(release, answers=COLUMNS)
    with pytest.raises(BiasedDecoder, match=r"offaxis\.learn"):
        reports.offaxis.decode(release)
    with pytest.raises(BiasedDecoder):
        reports.offaxis.decode_mean(release)


# ---- Arrow


def test_a_table_is_reported_with_its_columns_of_answers(
    frame: pandas.DataFrame,
    release: offaxis.Release,
    expected: np.ndarray,
    rows: list[np.ndarray],
) -> None:
    flat = pa.Table.from_pandas(frame.assign(id=range(COUNT)), preserve_index=False)
    lists = pa.table(
        {"id": flat["id"], "vector": list(expected[:, :6]), "reply": flat["reply"]}
    ).append_column("worked", flat["worked"])
    joined = pa.table({"id": flat["id"], "vector": list(expected)})
    for table, vectors, answers in (
        (flat, NAMES, COLUMNS),
        (lists, "vector", COLUMNS),
        (joined, "vector", None),
    ):
        rows.clear()
        reports = privatize(table, release, vectors=vectors, answers=answers, keep=["id"])
        assert np.array_equal(np.concatenate(rows), expected)
        assert reports.column_names == ["id", "report"]
    stream = pa.RecordBatchReader.from_batches(lists.schema, lists.to_batches(max_chunksize=7))
    rows.clear()
    assert privatize(stream, release, answers=COLUMNS).read_all().num_rows == COUNT
    assert np.array_equal(np.concatenate(rows), expected)
    with pytest.raises(BiasedDecoder, match="decodes to no vector"):
        decode(reports, release)


def test_a_column_of_answers_is_private(
    frame: pandas.DataFrame, release: offaxis.Release, single: offaxis.Release
) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    invalid: list[tuple[offaxis.Release, dict[str, Any], str]] = [
        (release, {"answers": COLUMNS, "keep": ["worked"]}, "column 'worked' is private"),
        (release, {}, "asks for answers: pass answers="),
        (single, {"answers": "mood"}, "no column 'mood'"),
        (single, {"answers": {"reply": "reply"}}, "must map the names 'answer' to columns"),
    ]
    for fitted, options, message in invalid:
        with pytest.raises(InvalidInput, match=message):
            privatize(table, fitted, vectors=NAMES, **options)


# ---- torch, transformers, MLflow


def test_a_dataset_or_layer_draws_no_report_that_it_could_not_decode(
    single: offaxis.Release, public: np.ndarray, rows: list[np.ndarray], tmp_path: Any
) -> None:
    pairs = torch.tensor(single.pairs(public[:5], [0, 1, 0, 1, 1]))
    with Ledger(tmp_path / "my.ledger", Limit(100)) as ledger:
        for items in (pairs, TensorDataset(pairs, torch.arange(5))):
            with pytest.raises(BiasedDecoder, match=r"offaxis\.learn"):
                PrivateDataset(items, single, ledger=ledger)
        assert ledger.spent() == (0, 0)
    layer = PrivateLayer(single)
    with pytest.raises(BiasedDecoder, match=r"offaxis\.learn"):
        layer(pairs)
    assert rows == []
    assert "PrivateLayer(ε = 3" in repr(layer)
    assert layer.get_extra_state().numel() > 0
    with pytest.raises(BiasedDecoder):
        SimulatedDataset(pairs, single)[0]


def test_a_text_is_reported_with_an_answer(public: np.ndarray, rows: list[np.ndarray]) -> None:
    def lengths(texts: list[str]) -> np.ndarray:
        return np.array([[len(text), text.count(" ")] for text in texts], dtype=float)

    some = lengths(["a few words " * n for n in range(1, 60)]) + public[:59, :2]
    release = fit_pairs(principal(some), ["bad", "good"], epsilon=2)
    private = PrivateFeatures(lengths, release)
    assert isinstance(private.privatize("a fine day", answers="good"), bytes)
    assert len(private.privatize(["rain", "sun all day"], answers=["bad", "good"])) == 2
    assert [row.tolist() for row in np.concatenate(rows)] == [
        [10.0, 2.0, 1.0],
        [4.0, 0.0, 0.0],
        [11.0, 2.0, 1.0],
    ]
    with pytest.raises(InvalidInput, match="pass answers"):
        private.privatize("a fine day")
    with pytest.raises(InvalidInput, match="is neither"):
        private.privatize("a fine day", answers="fair")


def test_the_entries_of_a_release_of_pairs_hold_no_answer(release: offaxis.Release) -> None:
    logged = entries(release)
    assert logged.params["release.encoder"] == "network-normalise-moments"
    assert logged.params["release.input_dim"] == "8"
    assert logged.params["release.settings.mechanism"] == "pairs"
