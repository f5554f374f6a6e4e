"""Vectors in .parquet files: one column of lists, or one column of numbers a coordinate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput, MissingExtra

COLUMN = "vector"
"""The column that decoded vectors are written to."""


def arrow() -> Any:
    """Return pyarrow, or say how to get it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra(
            ".parquet files need pyarrow: run pip install 'offaxis[arrow]', "
            "or use .npy, .npz or .csv"
        ) from None
    return pyarrow


def read_parquet(path: Path, name: str | None = None) -> NDArray[Any]:
    """Return a column, or all of a file's columns, as (n, m)."""
    pa = arrow()
    try:
        names = pa.parquet.read_schema(path).names
        if name is not None and name not in names:
            raise InvalidInput(f"{path} has no column {name!r}; it has {', '.join(names)}")
        table = pa.parquet.read_table(path, columns=None if name is None else [name])
    except pa.ArrowException as error:
        raise InvalidInput(f"{path} is not a readable .parquet file: {error}") from None
    if any(column.null_count for column in table.columns):
        raise InvalidInput(f"{path} has missing values; remove or replace those rows first")
    lists = [_is_list(pa, column.type) for column in table.columns]
    if lists == [True]:
        return _from_lists(pa, path, table.column(0))
    if not lists or not all(_is_number(pa, column.type) for column in table.columns):
        raise InvalidInput(
            f"{path} must have one column of lists or only columns of numbers; "
            f"choose one of {', '.join(names)} as {path}:column"
        )
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def _is_number(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_list(pa: Any, kind: Any) -> bool:
    types = pa.types
    a_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(a_list and _is_number(pa, kind.value_type))


def _from_lists(pa: Any, path: Path, column: Any) -> NDArray[Any]:
    lists = column.combine_chunks()
    lengths = pa.compute.list_value_length(lists).unique().to_pylist()
    if len(lengths) != 1:
        raise InvalidInput(
            f"{path}: the lists must all have the same length, got {sorted(lengths)[:5] or 'none'}"
        )
    values = lists.flatten()
    if values.null_count:
        raise InvalidInput(f"{path} has missing values; remove or replace those rows first")
    flat: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return flat.reshape(len(lists), lengths[0])


def write_parquet(file: BinaryIO, array: NDArray[Any]) -> None:
    """Write one vector or a batch as one column of lists of constant length."""
    pa = arrow()
    batch = np.atleast_2d(array)
    flat = pa.array(np.ascontiguousarray(batch).ravel())
    column = pa.FixedSizeListArray.from_arrays(flat, batch.shape[1])
    pa.parquet.write_table(pa.table({COLUMN: column}), file)
