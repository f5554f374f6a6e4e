"""Arrow: turn a column of vectors into a column of reports, in any library that supports Arrow.

Polars, DuckDB and others pass their tables without a copy and accept the result. These are
functions on tables and deliberately **not** functions registered with a query engine. An engine may
evaluate an expression twice, share it, or retry it after a failure, and every evaluation would
spend the budget. Draw the reports first, store them, then query. For large folders of Parquet files
use ``offaxis privatize --engine``, where a task that is retried repeats its reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from offaxis.encoding.pairs import NOT_PASSED
from offaxis.engines.arrow import (
    REPORT,
    VECTOR,
    AnswerColumns,
    answer_columns,
    decode_batches,
    nonempty,
    private_rows,
)
from offaxis.engines.columns import column_of
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.release import Release

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingExtra(
        f"offaxis.integrations.arrow needs pyarrow: {installing('arrow')}"
    ) from error

__all__ = ["decode", "privatize"]

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
"""Types whose values Arrow copies to new memory; others are rebuilt from Python objects."""


def privatize(
    data: Any,
    release: Release,
    *,
    vectors: str | Sequence[str] = VECTOR,
    answers: AnswerColumns = None,
    keep: Sequence[str] = (),
    name: str = REPORT,
) -> Any:
    """Return the reports of a column of vectors, together with the columns to keep.

    **Every call spends the budget again.** A table is released at once. A stream of batches is
    released while it is read, which is possible only once. Data of another library are read once
    and become a table.

    Parameters
    ----------
    data : Table, RecordBatch, RecordBatchReader, or anything with ``__arrow_c_stream__``
    release : Release
    vectors : str or sequence of str
        A column of lists, or columns of numbers in the order of the vector's entries.
    answers : str or mapping, optional
        For a release of pairs: the column of the private answer, or a mapping from the names of
        several answers to their columns. A missing value is a missing answer.
    keep : sequence of str
        Columns to keep. **They are not protected**; all others are dropped. They are copied value
        by value, because a slice refers to the memory of the whole column. A dictionary-encoded
        column keeps its whole dictionary, including values that occur in none of the rows.
    name : str
        Name of the column of reports.

    Returns
    -------
    Table, RecordBatch or RecordBatchReader, like ``data``; a Table for data of other libraries.

    Raises
    ------
    InvalidInput
        If a column is missing or does not hold vectors of the release.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from offaxis import fit
    >>> from offaxis.integrations.arrow import decode, privatize
    >>> release = fit(
    ...     np.eye(2), np.random.default_rng(0).normal(size=(99, 2)), epsilon=4, mechanism="laplace"
    ... )
    >>> people = pa.table({"id": [7, 8], "vector": [[0.1, 1.2], [0.4, 0.3]], "diary": ["…", "…"]})
    >>> reports = privatize(people, release, keep=["id"])
    >>> reports.column_names
    ['id', 'report']
    >>> decode(reports, release).column_names
    ['id', 'vector']
    """
    if name in keep:
        raise InvalidInput(f"name must differ from the columns to keep, got name={name!r}")
    data = _arrow(data)
    schema = data.schema
    of_answers = answer_columns(release, answers)
    private = [vectors] if isinstance(vectors, str) else list(vectors)
    private += of_answers.values()
    if exposed := [column for column in private if column in keep]:
        raise InvalidInput(f"column {exposed[0]!r} is private; remove it from keep")
    for column in (*private, *keep):
        if column not in schema.names:
            names = ", ".join(schema.names)
            raise InvalidInput(f"there is no column {column!r}; the columns are {names}")
    target = pa.schema([*(schema.field(column) for column in keep), pa.field(name, pa.binary())])

    def released(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            columns = [_copied(batch.column(column)) for column in keep]
            reports = pa.array(_reports(batch, release, vectors, of_answers), pa.binary())
            yield pa.RecordBatch.from_arrays([*columns, reports], schema=target)

    return _mapped(data, target, released)


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
    Table, RecordBatch or RecordBatchReader, like ``data``; a Table for data of other libraries.

    Raises
    ------
    InvalidInput, InvalidReport
        If the column is missing or does not hold reports of this release.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from offaxis import fit
    >>> from offaxis.integrations.arrow import decode
    >>> release = fit(
    ...     np.eye(2), np.random.default_rng(0).normal(size=(99, 2)), epsilon=4, mechanism="laplace"
    ... )
    >>> reports = pa.table({"report": release.privatize(np.zeros((3, 2)))})
    >>> decode(reports, release)["vector"].type
    FixedSizeListType(fixed_size_list<item: double>[2])
    """
    data = _arrow(data)
    schema = data.schema
    column_of(schema.empty_table(), reports)
    at = schema.get_field_index(reports)
    target = schema.set(at, pa.field(VECTOR, pa.list_(pa.float64(), release.decoder.output_dim)))

    def decoded(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in decode_batches(release, batches, reports=reports):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=target)

    return _mapped(data, target, decoded)


def _arrow(data: Any) -> Any:
    """Return Arrow data unchanged, and data of other libraries as a table, read once."""
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise InvalidInput(
        f"data must be an Arrow table, batch or reader, or have __arrow_c_stream__, "
        f"got {type(data).__name__}"
    )


def _mapped(data: Any, schema: Any, change: Any) -> Any:
    """Apply a change to all batches, each read once; return data of the same kind."""
    if isinstance(data, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(schema, change(nonempty(data)))
    if isinstance(data, pa.RecordBatch):
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        return next(change(nonempty([data])), empty)
    return pa.Table.from_batches(list(change(nonempty(data.to_batches()))), schema=schema)


def _copied(column: Any) -> Any:
    """Return a copy of a column that shares no memory with it.

    A column may share memory with other rows, or with the vectors if both are slices of one array,
    and holds values under its missing entries. Pickle and Arrow's format write some of that.
    """
    if any(is_flat(column.type) for is_flat in _FLAT):
        return column.take(pa.array(np.arange(len(column))))
    try:
        return pa.array(column.to_pylist(), column.type)
    except (pa.ArrowException, TypeError, ValueError):
        raise InvalidInput(
            f"a column of type {column.type} cannot be copied; cast it, or leave it out of keep"
        ) from None


def _reports(
    batch: Any, release: Release, vectors: str | Sequence[str], answers: Mapping[str, str]
) -> list[bytes]:
    if isinstance(vectors, str):
        reports = release.privatize(private_rows(batch, release, vectors, answers))
    else:
        if release.asked and not answers:
            raise InvalidInput(
                "this release asks for answers: pass answers=..., the column of each"
            )
        given = {name: batch.column(column).to_pylist() for name, column in answers.items()}
        reports = release.privatize(batch.select(list(vectors)), answers=given or NOT_PASSED)
    assert isinstance(reports, list), "a batch returns a list"
    return reports
