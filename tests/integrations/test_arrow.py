from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

import offaxis
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.integrations.arrow import decode, privatize


@pytest.fixture
def table(public: np.ndarray) -> pa.Table:
    vectors = pa.array(public[:10].tolist(), pa.list_(pa.float64()))
    return pa.table({"id": list(range(10)), "vector": vectors, "diary": ["dear"] * 10})


class Foreign:
    """A table of a library that speaks Arrow, such as Polars or DuckDB."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class Once(Foreign):
    """A source that can be read once, or that runs a query whenever it is asked."""

    runs = 0

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.runs += 1
        rows = self.table if self.runs == 1 else self.table.slice(0, 0)
        return rows.__arrow_c_stream__(requested_schema)


def test_a_foreign_source_is_read_once(table: pa.Table, release: offaxis.Release) -> None:
    source = Once(table)
    reports = privatize(source, release, keep=["id"])
    assert (source.runs, reports.num_rows) == (1, 10)
    source = Once(reports)
    assert decode(source, release).num_rows == 10
    assert source.runs == 1
    source = Once(table)
    with pytest.raises(InvalidInput, match="a name of its own"):
        privatize(source, release, keep=["report"])
    assert source.runs == 0


def test_only_what_is_named_goes_along(table: pa.Table, release: offaxis.Release) -> None:
    assert privatize(table, release).column_names == ["report"]
    kept = privatize(table, release, keep=["id"], name="r")
    assert kept.column_names == ["id", "r"]
    assert kept["id"].equals(table["id"])
    assert len(set(kept["r"].to_pylist())) == 10


@pytest.mark.parametrize("kind", ["table", "chunked", "batch", "reader", "foreign"])
def test_every_kind_of_data_is_answered_in_kind(
    kind: str, table: pa.Table, release: offaxis.Release
) -> None:
    chunked = pa.concat_tables([table.slice(0, 4), table.slice(4, 0), table.slice(4)])
    given = {
        "table": table,
        "chunked": chunked,
        "batch": table.to_batches()[0],
        "reader": chunked.to_reader(),
        "foreign": Foreign(table),
    }[kind]
    found = privatize(given, release, keep=["id"])
    wanted = {"batch": pa.RecordBatch, "reader": pa.RecordBatchReader}.get(kind, pa.Table)
    assert isinstance(found, wanted)
    rows = found.read_all() if kind == "reader" else found
    assert rows["id"].to_pylist() == list(range(10))
    back = decode(rows, release)
    assert isinstance(back, pa.RecordBatch if kind == "batch" else pa.Table)
    np.testing.assert_array_equal(
        np.array(back["vector"].to_pylist()), release.decode(rows["report"].to_pylist())
    )


def test_a_stream_is_drawn_once_as_it_is_read(table: pa.Table, release: offaxis.Release) -> None:
    seen: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=3):
            seen.append(batch.num_rows)
            yield batch

    reader = privatize(pa.RecordBatchReader.from_batches(table.schema, batches()), release)
    assert seen == []
    reports = reader.read_all()["report"].to_pylist()
    assert seen == [3, 3, 3, 1]
    assert len(set(reports)) == 10
    assert reader.read_all().num_rows == 0, "what was read is gone"
    decoded = decode(pa.table({"report": reports}).to_reader(), release)
    assert decoded.read_all()["vector"].to_pylist() == release.decode(reports).tolist()


def test_columns_of_numbers_are_vectors_too(public: np.ndarray, release: offaxis.Release) -> None:
    wide = pa.table({name: public[:5, i] for i, name in enumerate("abcdef")} | {"g": [1] * 5})
    found = privatize(wide, release, vectors=list("abcdef"), keep=["g"])
    assert found.column_names == ["g", "report"]


def rows_of(table: pa.Table, kind: pa.DataType) -> pa.Table:
    """Return rows of a kind whose neighbours in memory are not among them."""
    texts = pa.array([f"a text too long to stand in a view of it {i}" for i in range(40)])
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        made = pa.array([[text] for text in texts.to_pylist()], kind)
    elif pa.types.is_run_end_encoded(kind):
        made = pa.compute.run_end_encode(texts)
    else:
        made = texts.cast(kind)
    assert made.type == kind
    return table.append_column("text", made.slice(3, 10))


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_binary(),
        pa.string_view(),
        pa.binary_view(),
        pa.list_(pa.string()),
        pa.list_(pa.string_view()),
        pa.list_view(pa.string()),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_columns_that_go_along_bring_no_other_rows(
    kind: pa.DataType, table: pa.Table, release: offaxis.Release
) -> None:
    """A slice has the memory of the whole, and pickle writes all of it."""
    given = rows_of(table, kind)
    assert b"view of it 37" in pickle.dumps(given), "what the search would find"
    found = privatize(given, release, keep=["text"])
    assert found["text"].to_pylist() == given["text"].to_pylist()
    assert found["text"].type == kind
    written = pickle.dumps(found)
    assert b"view of it 7" in written
    assert b"view of it 37" not in written
    stream = privatize(given.to_reader(), release, keep=["text"])
    assert b"view of it 37" not in pickle.dumps(stream.read_all())


def written(data: Any) -> bytes:
    """Return what leaves when data are pickled, and when they are written in Arrow's format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    return pickle.dumps(data) + sink.getvalue().to_pybytes()


@pytest.mark.parametrize("first", ["labels", "vectors"])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_columns_that_go_along_bring_no_vectors(
    first: str, count: int, public: np.ndarray, release: offaxis.Release
) -> None:
    """Labels and vectors cut out of one array of numbers, as one file maps them into memory."""
    rows, labels = public[:count].ravel(), np.arange(float(count))
    parts = [labels, rows] if first == "labels" else [rows, labels]
    whole, place = pa.array(np.concatenate(parts)), 0 if first == "labels" else len(rows)
    cut = whole.slice(count - place if first == "labels" else 0, len(rows))
    people = pa.table(
        {
            "vector": pa.FixedSizeListArray.from_arrays(cut, 6),
            "label": whole.slice(place, count),
        }
    )
    assert public[0].tobytes() in pickle.dumps(people.select(["label"]))
    for found in (
        privatize(people, release, keep=["label"]),
        privatize(people.to_batches()[0], release, keep=["label"]),
    ):
        assert found["label"].to_pylist() == labels.tolist()
        entries = {entry.tobytes() for row in public[:count] for entry in row}
        assert not any(entry in written(found) for entry in entries)


def test_nothing_goes_along_under_missing_values(table: pa.Table, release: offaxis.Release) -> None:
    count, secret = table.num_rows, np.frombuffer(b"secrets!", dtype=np.float64)
    values = np.repeat(secret, count)
    inside = pa.StructArray.from_arrays(
        [pa.array(values)], names=["a"], mask=pa.array([True] * count)
    )
    for column in (pa.array(values, mask=np.ones(count, dtype=bool)), inside):
        given = table.append_column("note", column)
        assert b"secrets!" in pickle.dumps(given)
        found = privatize(given, release, keep=["note"])
        assert found["note"].null_count == count
        assert b"secrets!" not in written(found)


def test_a_column_that_cannot_be_copied_is_refused(
    table: pa.Table, release: offaxis.Release
) -> None:
    texts = pa.array([f"note {at}" for at in range(table.num_rows)])
    kinds = pa.array(np.zeros(table.num_rows, dtype=np.int8))
    given = table.append_column("note", pa.UnionArray.from_sparse(kinds, [texts]))
    with pytest.raises(InvalidInput, match=r"type sparse_union.* cannot be copied; cast it"):
        privatize(given, release, keep=["note"])


def test_no_rows_give_no_reports(table: pa.Table, release: offaxis.Release) -> None:
    empty = table.slice(0, 0)
    assert privatize(empty, release).num_rows == 0
    assert decode(privatize(empty, release), release).schema.names == ["vector"]
    batch = pa.RecordBatch.from_pylist([], schema=table.schema)
    assert privatize(batch, release, keep=["id"]).schema.names == ["id", "report"]


def test_what_cannot_be_released_is_named(
    table: pa.Table, release: offaxis.Release, head: Any, public: np.ndarray
) -> None:
    bad: list[tuple[Any, dict[str, Any], str]] = [
        (table, {"vectors": "z"}, "no column 'z'; there are id, vector, diary"),
        (table, {"keep": ["age"]}, "no column 'age'"),
        (table, {"keep": ["id", "vector"]}, "'vector' is private"),
        (table, {"vectors": ["id", "diary"]}, "must hold real numbers"),
        (table, {"vectors": "id"}, "must hold lists of numbers"),
        (table, {"keep": ["id"], "name": "id"}, "a name of its own"),
        ({"vector": [[1.0]]}, {}, "got dict"),
        (pa.table({"vector": [[1.0, 2.0]]}), {}, "dimension 6, got 2"),
        (pa.table({"vector": [[float("nan")] * 6]}), {}, "finite"),
        (pa.table({"vector": [None, [1.0] * 6]}), {}, "missing"),
    ]
    for data, given, message in bad:
        with pytest.raises(InvalidInput, match=message):
            privatize(data, release, **given)
    other = privatize(table, offaxis.fit(head, public, epsilon=2))
    with pytest.raises(InvalidReport, match="belongs to release"):
        decode(other, release)
    with pytest.raises(InvalidInput, match="no column 'report'"):
        decode(table, release)
    with pytest.raises(InvalidInput, match="must hold reports"):
        decode(table, release, reports="diary")
