"""Arrow tables, batches and streams become reports; nothing private is kept with them."""

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
    return pa.table({"id": list(range(10)), "vector": vectors, "diary": ["private"] * 10})


class Foreign:
    """A table of a library that supports Arrow, such as Polars or DuckDB."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class Once(Foreign):
    """A source that can be read once, or that runs a query for every read."""

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
    with pytest.raises(InvalidInput, match="must differ from the columns to keep"):
        privatize(source, release, keep=["report"])
    assert source.runs == 0


def test_only_the_named_columns_are_kept(table: pa.Table, release: offaxis.Release) -> None:
    assert privatize(table, release).column_names == ["report"]
    kept = privatize(table, release, keep=["id"], name="r")
    assert kept.column_names == ["id", "r"]
    assert kept["id"].equals(table["id"])
    assert len(set(kept["r"].to_pylist())) == 10


@pytest.mark.parametrize("kind", ["table", "chunked", "batch", "reader", "foreign"])
def test_the_result_has_the_kind_of_the_data(
    kind: str, table: pa.Table, release: offaxis.Release
) -> None:
    chunked = pa.concat_tables([table.slice(0, 4), table.slice(4, 0), table.slice(4)])
    data = {
        "table": table,
        "chunked": chunked,
        "batch": table.to_batches()[0],
        "reader": chunked.to_reader(),
        "foreign": Foreign(table),
    }[kind]
    result = privatize(data, release, keep=["id"])
    expected = {"batch": pa.RecordBatch, "reader": pa.RecordBatchReader}.get(kind, pa.Table)
    assert isinstance(result, expected)
    rows = result.read_all() if kind == "reader" else result
    assert rows["id"].to_pylist() == list(range(10))
    decoded = decode(rows, release)
    assert isinstance(decoded, pa.RecordBatch if kind == "batch" else pa.Table)
    np.testing.assert_array_equal(
        np.array(decoded["vector"].to_pylist()), release.decode(rows["report"].to_pylist())
    )


def test_a_stream_is_released_once_while_it_is_read(
    table: pa.Table, release: offaxis.Release
) -> None:
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
    assert reader.read_all().num_rows == 0, "a stream can be read once"
    decoded = decode(pa.table({"report": reports}).to_reader(), release)
    assert decoded.read_all()["vector"].to_pylist() == release.decode(reports).tolist()


def test_columns_of_numbers_are_released_as_vectors(
    public: np.ndarray, release: offaxis.Release
) -> None:
    wide = pa.table({name: public[:5, i] for i, name in enumerate("abcdef")} | {"g": [1] * 5})
    reports = privatize(wide, release, vectors=list("abcdef"), keep=["g"])
    assert reports.column_names == ["g", "report"]


def rows_of(table: pa.Table, kind: pa.DataType) -> pa.Table:
    """Return a table with a text column of some type that is a slice of a longer one."""
    texts = pa.array([f"a text too long to be inlined in a view of it {i}" for i in range(40)])
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        column = pa.array([[text] for text in texts.to_pylist()], kind)
    elif pa.types.is_run_end_encoded(kind):
        column = pa.compute.run_end_encode(texts)
    else:
        column = texts.cast(kind)
    assert column.type == kind
    return table.append_column("text", column.slice(3, 10))


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
def test_kept_columns_contain_no_other_rows(
    kind: pa.DataType, table: pa.Table, release: offaxis.Release
) -> None:
    """A slice refers to the memory of the whole column, and pickle writes all of it."""
    data = rows_of(table, kind)
    assert b"view of it 37" in pickle.dumps(data), "the search finds it in the input"
    reports = privatize(data, release, keep=["text"])
    assert reports["text"].to_pylist() == data["text"].to_pylist()
    assert reports["text"].type == kind
    pickled = pickle.dumps(reports)
    assert b"view of it 7" in pickled
    assert b"view of it 37" not in pickled
    stream = privatize(data.to_reader(), release, keep=["text"])
    assert b"view of it 37" not in pickle.dumps(stream.read_all())


def serialized(data: Any) -> bytes:
    """Return the bytes of data as a pickle and in Arrow's format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    return pickle.dumps(data) + sink.getvalue().to_pybytes()


@pytest.mark.parametrize("first", ["labels", "vectors"])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_kept_columns_contain_no_vectors(
    first: str, count: int, public: np.ndarray, release: offaxis.Release
) -> None:
    """Labels and vectors are slices of one array, as in a memory-mapped file."""
    rows, labels = public[:count].ravel(), np.arange(float(count))
    parts = [labels, rows] if first == "labels" else [rows, labels]
    whole, place = pa.array(np.concatenate(parts)), 0 if first == "labels" else len(rows)
    values = whole.slice(count - place if first == "labels" else 0, len(rows))
    people = pa.table(
        {
            "vector": pa.FixedSizeListArray.from_arrays(values, 6),
            "label": whole.slice(place, count),
        }
    )
    assert public[0].tobytes() in pickle.dumps(people.select(["label"]))
    for reports in (
        privatize(people, release, keep=["label"]),
        privatize(people.to_batches()[0], release, keep=["label"]),
    ):
        assert reports["label"].to_pylist() == labels.tolist()
        entries = {entry.tobytes() for row in public[:count] for entry in row}
        assert not any(entry in serialized(reports) for entry in entries)


def test_values_under_missing_entries_are_not_kept(
    table: pa.Table, release: offaxis.Release
) -> None:
    count, secret = table.num_rows, np.frombuffer(b"secrets!", dtype=np.float64)
    values = np.repeat(secret, count)
    struct = pa.StructArray.from_arrays(
        [pa.array(values)], names=["a"], mask=pa.array([True] * count)
    )
    for column in (pa.array(values, mask=np.ones(count, dtype=bool)), struct):
        data = table.append_column("note", column)
        assert b"secrets!" in pickle.dumps(data)
        reports = privatize(data, release, keep=["note"])
        assert reports["note"].null_count == count
        assert b"secrets!" not in serialized(reports)


def test_a_column_that_cannot_be_copied_raises(table: pa.Table, release: offaxis.Release) -> None:
    texts = pa.array([f"note {at}" for at in range(table.num_rows)])
    kinds = pa.array(np.zeros(table.num_rows, dtype=np.int8))
    data = table.append_column("note", pa.UnionArray.from_sparse(kinds, [texts]))
    with pytest.raises(InvalidInput, match=r"type sparse_union.* cannot be copied; cast it"):
        privatize(data, release, keep=["note"])


def test_no_rows_give_no_reports(table: pa.Table, release: offaxis.Release) -> None:
    empty = table.slice(0, 0)
    assert privatize(empty, release).num_rows == 0
    assert decode(privatize(empty, release), release).schema.names == ["vector"]
    batch = pa.RecordBatch.from_pylist([], schema=table.schema)
    assert privatize(batch, release, keep=["id"]).schema.names == ["id", "report"]


def test_invalid_data_raise_with_the_reason(
    table: pa.Table, release: offaxis.Release, head: Any, public: np.ndarray
) -> None:
    invalid: list[tuple[Any, dict[str, Any], str]] = [
        (table, {"vectors": "z"}, "no column 'z'; the columns are id, vector, diary"),
        (table, {"keep": ["age"]}, "no column 'age'"),
        (table, {"keep": ["id", "vector"]}, "'vector' is private"),
        (table, {"vectors": ["id", "diary"]}, "must hold real numbers"),
        (table, {"vectors": "id"}, "must hold lists of numbers"),
        (table, {"keep": ["id"], "name": "id"}, "must differ from the columns to keep"),
        ({"vector": [[1.0]]}, {}, "got dict"),
        (pa.table({"vector": [[1.0, 2.0]]}), {}, "dimension 6, got 2"),
        (pa.table({"vector": [[float("nan")] * 6]}), {}, "finite"),
        (pa.table({"vector": [None, [1.0] * 6]}), {}, "missing"),
    ]
    for data, options, message in invalid:
        with pytest.raises(InvalidInput, match=message):
            privatize(data, release, **options)
    other = privatize(table, offaxis.fit(head, public, epsilon=2, mechanism="laplace"))
    with pytest.raises(InvalidReport, match="belongs to release"):
        decode(other, release)
    with pytest.raises(InvalidInput, match="no column 'report'"):
        decode(table, release)
    with pytest.raises(InvalidInput, match="must hold reports"):
        decode(table, release, reports="diary")
