"""Arrow: a column of vectors becomes a column of reports, for everything that speaks Arrow.

Polars, DuckDB and others hand their tables over without a copy, and take the result back. These are
functions on tables and **not** functions registered with a query engine, on purpose: an engine may
evaluate an expression twice, share it, or try it again after a failure, and every evaluation would
spend the budget. Draw first, store the reports, then query. Large folders of Parquet files have
``offaxis privatize --engine``, where a task that is tried again repeats its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from offaxis.engines.arrow import REPORT, VECTOR, decode_batches
from offaxis.engines.columns import column_of, vectors_of
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.release import Release

__all__ = ["decode", "privatize"]

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingExtra(
        f"offaxis.integrations.arrow needs pyarrow: {installing('arrow')}"
    ) from error


_FLAT: Final = (
    pa.types.is_primitive,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
    pa.types.is_dictionary,
)
"""Types whose values Arrow gathers into new memory; others are made anew of Python's objects."""


def privatize(
    data: Any,
    release: Release,
    *,
    vectors: str | Sequence[str] = VECTOR,
    keep: Sequence[str] = (),
    name: str = REPORT,
) -> Any:
    """Return the reports of a column of vectors, beside the columns to keep.

    **Every call spends the budget again.** A table is released at once; a stream of batches as it
    is read, which can be done only once. Another library's data is read once and becomes a table.

    Parameters
    ----------
    data : Table, RecordBatch, RecordBatchReader, or anything with ``__arrow_c_stream__``
    release : Release
    vectors : str or sequence of str
        A column of lists, or columns of numbers in the order of the vector's entries.
    keep : sequence of str
        Columns that go along. **They are not protected**; all others stay behind. They are made
        anew of their values, as a slice has the memory of the whole. The dictionary of a column
        that has one goes along whole, with values that none of the rows has.
    name : str
        Of the column of reports.

    Returns
    -------
    Table, RecordBatch or RecordBatchReader, as ``data``; a Table for other libraries' tables.

    Raises
    ------
    InvalidInput
        If a column is not there or does not hold vectors of the release.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from offaxis import fit
    >>> from offaxis.integrations.arrow import decode, privatize
    >>> release = fit(np.eye(2), np.random.default_rng(0).normal(size=(99, 2)), epsilon=4)
    >>> people = pa.table({"id": [7, 8], "vector": [[0.1, 1.2], [0.4, 0.3]], "diary": ["…", "…"]})
    >>> reports = privatize(people, release, keep=["id"])
    >>> reports.column_names
    ['id', 'report']
    >>> decode(reports, release).column_names
    ['id', 'vector']
    """
    if name in keep:
        raise InvalidInput(f"the column of reports needs a name of its own, got {name!r}")
    data = _arrow(data)
    schema = data.schema
    private = [vectors] if isinstance(vectors, str) else list(vectors)
    if bare := [column for column in private if column in keep]:
        raise InvalidInput(f"column {bare[0]!r} is private and must not go along; leave it out")
    for column in (*private, *keep):
        if column not in schema.names:
            there = ", ".join(schema.names)
            raise InvalidInput(f"there is no column {column!r}; there are {there}")
    made = pa.schema([*(schema.field(column) for column in keep), pa.field(name, pa.binary())])

    def released(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            columns = [_owned(batch.column(column)) for column in keep]
            reports = pa.array(_reports(batch, release, vectors), pa.binary())
            yield pa.RecordBatch.from_arrays([*columns, reports], schema=made)

    return _mapped(data, made, released)


def decode(data: Any, release: Release, *, reports: str = REPORT) -> Any:
    """Return the data with a column ``vector`` of decoded vectors in place of the reports.

    Parameters
    ----------
    data : Table, RecordBatch, RecordBatchReader, or anything with ``__arrow_c_stream__``
    release : Release
    reports : str
        The column of reports.

    Returns
    -------
    Table, RecordBatch or RecordBatchReader, as ``data``; a Table for other libraries' tables.

    Raises
    ------
    InvalidInput, InvalidReport
        If the column is not there, or holds something else than reports of this release.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from offaxis import fit
    >>> from offaxis.integrations.arrow import decode
    >>> release = fit(np.eye(2), np.random.default_rng(0).normal(size=(99, 2)), epsilon=4)
    >>> reports = pa.table({"report": release.privatize(np.zeros((3, 2)))})
    >>> decode(reports, release)["vector"].type
    FixedSizeListType(fixed_size_list<item: double>[2])
    """
    data = _arrow(data)
    schema = data.schema
    column_of(schema.empty_table(), reports)
    at = schema.get_field_index(reports)
    made = schema.set(at, pa.field(VECTOR, pa.list_(pa.float64(), release.decoder.output_dim)))

    def decoded(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in decode_batches(release, batches, reports=reports):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=made)

    return _mapped(data, made, decoded)


def _arrow(data: Any) -> Any:
    """Return Arrow's own kinds as they are, and other libraries' data as a table, read once."""
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise InvalidInput(
        f"data must be an Arrow table, batch or reader, or a table of a library that speaks Arrow, "
        f"got {type(data).__name__}"
    )


def _mapped(data: Any, schema: Any, change: Any) -> Any:
    """Return data of the same kind after changing its batches, each read once."""
    if isinstance(data, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(schema, change(_some(data)))
    if isinstance(data, pa.RecordBatch):
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        return next(change(_some([data])), empty)
    return pa.Table.from_batches(list(change(_some(data.to_batches()))), schema=schema)


def _some(batches: Any) -> Iterator[Any]:
    return (batch for batch in batches if batch.num_rows)


def _owned(column: Any) -> Any:
    """Return a column made anew of its values.

    A column may lie in memory with other rows, or with vectors it was cut out of one array with,
    and has something under its missing values: pickle and Arrow's own format write some of that.
    """
    if any(is_flat(column.type) for is_flat in _FLAT):
        return column.take(pa.array(np.arange(len(column))))
    try:
        return pa.array(column.to_pylist(), column.type)
    except (pa.ArrowException, TypeError, ValueError):
        raise InvalidInput(
            f"a column of type {column.type} cannot be copied; cast it, or leave it out of keep"
        ) from None


def _reports(batch: Any, release: Release, vectors: str | Sequence[str]) -> list[bytes]:
    if isinstance(vectors, str):
        rows: Any = vectors_of(batch, vectors, release.input_dim)
    else:
        rows = batch.select(list(vectors))
    reports = release.privatize(rows)
    assert isinstance(reports, list), "a batch gives a list"
    return reports
