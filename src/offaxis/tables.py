"""Vectors in pandas and Arrow tables: converted to NumPy and back.

A table holds one vector per row: columns of numbers side by side (DataFrame, Table), or one column
of lists (Series of lists, Arrow lists, a Table with one such column). A single column of numbers is
one vector.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput


def is_pandas(value: Any) -> bool:
    """Return whether the value is a DataFrame or a Series."""
    return _is_instance(value, "pandas", "DataFrame", "Series")


def is_arrow(value: Any) -> bool:
    """Return whether the value is an Arrow array or table."""
    return _is_instance(value, "pyarrow", "Array", "ChunkedArray", "Table", "RecordBatch")


def is_table(value: Any) -> bool:
    """Return whether the value is a pandas or Arrow object."""
    return is_pandas(value) or is_arrow(value)


def to_numpy(value: Any, name: str) -> NDArray[Any]:
    """Return the numbers of a table as NumPy, one vector per row."""
    return _from_pandas(value, name) if is_pandas(value) else _from_arrow(value, name)


def like(rows: NDArray[np.float64], value: Any) -> Any:
    """Return rows as the same kind of table as ``value``."""
    return _like_pandas(rows, value) if is_pandas(value) else _like_arrow(rows, value)


def _is_instance(value: Any, library: str, *names: str) -> bool:
    """Return whether the value is an instance of one of these classes of a loaded library."""
    loaded = sys.modules.get(library)
    classes = [getattr(loaded, name, None) for name in names]
    return any(isinstance(value, cls) for cls in classes if isinstance(cls, type))


# ---- pandas


def _from_pandas(value: Any, name: str) -> NDArray[Any]:
    if value.ndim == 2:
        wrong = [str(c) for c, d in value.dtypes.items() if getattr(d, "kind", "O") not in "fiu"]
        if wrong:
            raise InvalidInput(f"{name} must be columns of real numbers, but {wrong[0]!r} is not")
        numbers: NDArray[Any] = value.to_numpy(np.float64, na_value=np.nan)
        return numbers
    if getattr(value.dtype, "kind", "O") in "fiu":
        vector: NDArray[Any] = value.to_numpy(np.float64, na_value=np.nan)
        return vector
    try:
        return np.asarray(value.to_list())
    except ValueError:
        raise InvalidInput(f"{name} must all have the same length") from None


def _like_pandas(rows: NDArray[np.float64], value: Any) -> Any:
    pandas = sys.modules["pandas"]
    if value.ndim == 2:
        kinds = {d for d in value.dtypes if isinstance(d, np.dtype) and d.kind == "f"}
        dtype = np.result_type(*kinds) if len(kinds) == len(set(value.dtypes)) else rows.dtype
        columns = value.columns if rows.shape[1] == value.shape[1] else None
        return pandas.DataFrame(as_dtype(rows, dtype), index=value.index, columns=columns)
    if rows.ndim == 1:
        dtype = value.dtype if value.dtype in (np.float16, np.float32) else rows.dtype
        index = value.index if rows.size == len(value) else None
        return pandas.Series(as_dtype(rows, dtype), index=index, name=value.name)
    first = value.iloc[0]
    arrays = isinstance(first, np.ndarray)
    dtype = first.dtype if arrays and first.dtype.kind == "f" else rows.dtype
    vectors = list(as_dtype(rows, dtype)) if arrays else rows.tolist()
    return pandas.Series(vectors, index=value.index, name=value.name)


# ---- Arrow


def _columns(value: Any) -> list[Any]:
    """Return the columns of a table, or an array as the only column, without chunks."""
    pa = sys.modules["pyarrow"]
    columns = value.columns if isinstance(value, pa.Table | pa.RecordBatch) else [value]
    arrays = []
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        arrays.append(array.storage if isinstance(array, pa.ExtensionArray) else array)
    return arrays


def _is_list(array: Any) -> bool:
    types = sys.modules["pyarrow"].types
    return bool(
        types.is_fixed_size_list(array.type)
        or types.is_list(array.type)
        or types.is_large_list(array.type)
    )


def _numbers(array: Any, name: str) -> NDArray[Any]:
    types = sys.modules["pyarrow"].types
    if not (types.is_floating(array.type) or types.is_integer(array.type)):
        raise InvalidInput(f"{name} must hold real numbers, got Arrow's {array.type}")
    if array.null_count:
        raise InvalidInput(f"{name} must not have missing entries: fill or drop them first")
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers


def _from_arrow(value: Any, name: str) -> NDArray[Any]:
    columns = _columns(value)
    is_array = not hasattr(value, "column_names")
    if len(columns) == 1 and _is_list(columns[0]):
        lists = columns[0]
        if lists.null_count:
            raise InvalidInput(f"{name} must not have missing rows: drop them first")
        numbers = _numbers(lists.flatten(), name)
        lengths = np.diff(lists.offsets) if hasattr(lists, "offsets") else np.zeros(1)
        if (lengths != lengths[:1]).any():
            raise InvalidInput(f"{name} must all have the same length")
        return numbers.reshape(len(lists), -1) if len(lists) else numbers.reshape(0, 0)
    if is_array:
        return _numbers(columns[0], name)
    return np.column_stack([_numbers(column, name) for column in columns])


def _arrow_dtype(columns: list[Any]) -> Any:
    """Return the floating dtype of columns, float64 unless all are floating point."""
    types = sys.modules["pyarrow"].types
    inner = [column.type.value_type if _is_list(column) else column.type for column in columns]
    if not all(types.is_floating(kind) for kind in inner):
        return np.dtype(np.float64)
    return np.result_type(*(kind.to_pandas_dtype() for kind in inner))


def _like_arrow(rows: NDArray[np.float64], value: Any) -> Any:
    pa = sys.modules["pyarrow"]
    columns = _columns(value)
    rows = as_dtype(rows, _arrow_dtype(columns))
    is_lists = len(columns) == 1 and _is_list(columns[0])
    if rows.ndim == 1:
        arrays = [pa.array(rows)]
    elif is_lists:
        flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
        arrays = [pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])]
    else:
        arrays = [pa.array(np.ascontiguousarray(column)) for column in rows.T]
    if isinstance(value, pa.Table | pa.RecordBatch):
        same = len(arrays) == len(columns)
        names = value.schema.names if same else [str(i) for i in range(len(arrays))]
        return type(value).from_arrays(arrays, names=names)
    return pa.chunked_array(arrays) if isinstance(value, pa.ChunkedArray) else arrays[0]


# ---- Floating dtypes


def as_dtype(rows: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """Return the rows in a NumPy floating dtype, or raise if a number does not fit."""
    if np.dtype(dtype) == rows.dtype:
        return rows
    check_range(rows, float(np.finfo(dtype).max), str(np.dtype(dtype)))
    with np.errstate(under="ignore"):
        return rows.astype(dtype)


def check_range(rows: NDArray[Any], largest: float, dtype: str) -> None:
    """Reject numbers beyond the largest one of a dtype, which would become infinite."""
    if largest >= np.finfo(np.float64).max or not rows.size:
        return
    if max(rows.max(), -rows.min()) > largest:
        raise InvalidInput(
            f"a number does not fit into {dtype}, whose largest number is {largest:.4g}; "
            f"pass the vectors as float32, float64 or bfloat16"
        )
