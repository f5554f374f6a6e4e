"""Vectors in .parquet files: one column of lists, or one column of numbers a coordinate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from offaxis.engines.columns import arrow, is_list, is_number, lists_of, rows_of
from offaxis.errors import InvalidInput

COLUMN = "vector"
"""The column that decoded vectors are written to."""


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
    lists = [is_list(column.type) for column in table.columns]
    if lists == [True]:
        return rows_of(table.column(0), str(path))
    if not lists or not all(is_number(column.type) for column in table.columns):
        raise InvalidInput(
            f"{path} must have one column of lists or only columns of numbers; "
            f"choose one of {', '.join(names)} as {path}:column"
        )
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def write_parquet(file: BinaryIO, array: NDArray[Any]) -> None:
    """Write one vector or a batch as one column of lists of constant length."""
    pa = arrow()
    batch = np.atleast_2d(array)
    pa.parquet.write_table(pa.table({COLUMN: lists_of(batch)}), file)
