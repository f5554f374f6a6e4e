"""Columns of Arrow tables as arrays: lists of numbers as vectors, and ids.

Error messages name the column but never its contents, which may be private.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.tables import to_numpy
from offaxis.vectors import Vectors


def arrow() -> Any:
    """Return pyarrow; raise with the install command if it is missing."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra(
            f".parquet files need pyarrow: {installing('arrow')}, or use .npy, .npz or .csv"
        ) from None
    return pyarrow


def is_number(kind: Any) -> bool:
    """Whether an Arrow type holds real numbers."""
    types = arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind))


def is_list(kind: Any) -> bool:
    """Whether an Arrow type holds lists of numbers, of fixed or variable size."""
    types = arrow().types
    a_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(a_list and is_number(kind.value_type))


def same_type(first: Any, second: Any) -> bool:
    """Whether two Arrow types are the same; the name of the items of a list does not matter."""
    if is_list(first) and is_list(second) and type(first) is type(second):
        same = bool(first.value_type == second.value_type)
        return same and getattr(first, "list_size", 0) == getattr(second, "list_size", 0)
    return bool(first == second)


def is_binary(kind: Any) -> bool:
    """Whether an Arrow type holds bytes of variable length."""
    types = arrow().types
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def is_id(kind: Any) -> bool:
    """Whether an Arrow type holds integers, text or bytes."""
    types = arrow().types
    text = types.is_string(kind) or types.is_large_string(kind)
    octets = (
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )
    return bool(types.is_integer(kind) or text or octets)


def rows_of(lists: Any, where: str) -> NDArray[Any]:
    """Return a column of lists as (n, m); raise for missing lists and different lengths."""
    return to_numpy(lists, f"the lists of {where}")


def lists_of(rows: NDArray[Any], *, fixed: bool = True) -> Any:
    """Return vectors (n, m) as an Arrow column of lists, of fixed or variable size."""
    pa = arrow()
    flat = pa.array(np.ascontiguousarray(rows).ravel())
    if fixed:
        return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    offsets = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, flat)


def column_of(batch: Any, name: str) -> Any:
    """Return a column of a batch; raise with the existing names if it is missing."""
    if name not in batch.schema.names:
        raise InvalidInput(
            f"there is no column {name!r}; the columns are {', '.join(batch.schema.names)}"
        )
    return batch.column(name)


def vectors_of(batch: Any, name: str, dim: int | None = None) -> Vectors:
    """Return a column of lists as finite little-endian float64 vectors (n, dim)."""
    column = column_of(batch, name)
    where = f"column {name!r}"
    if not is_list(column.type):
        raise InvalidInput(f"{where} must hold lists of numbers, its type is {column.type}")
    with np.errstate(all="ignore"):
        rows = np.ascontiguousarray(rows_of(column, where), dtype="<f8")
    if dim is not None and rows.shape[1] != dim:
        raise InvalidInput(f"{where} must hold vectors of dimension {dim}, got {rows.shape[1]}")
    if not np.isfinite(rows).all():
        raise InvalidInput(
            f"{where} must hold finite numbers; remove or replace NaN and infinity before they "
            f"reach a release"
        )
    return rows


def ids_of(batch: Any, name: str) -> list[Any]:
    """Return a column of ids: integers, text or bytes, none missing."""
    column = column_of(batch, name)
    if not is_id(column.type):
        raise InvalidInput(
            f"column {name!r} must hold whole numbers, text or bytes, its type is {column.type}"
        )
    return values_of(column, name)


def values_of(column: Any, name: str) -> list[Any]:
    """Return a column as a list; raise for missing values."""
    if column.null_count:
        raise InvalidInput(f"column {name!r} has missing values; remove those rows first")
    values: list[Any] = column.to_pylist()
    return values
