"""What stands beside a private vector in an item, in memory of its own.

A label cut out of the same tensor or array as its vector shares that memory, and torch writes the
whole of it to a file with the label, vectors included. So tensors and arrays are copied, also in
tuples, lists, dicts and arrays of objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.recfunctions import repack_fields

from offaxis.errors import InvalidInput


def columns_of(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return tuples of one length as columns that share no memory with them.

    A column of tensors of one shape is one tensor, which torch hands to workers as one piece
    without a copy; any other is a list.

    Raises
    ------
    InvalidInput
        If the tuples are not of one length.
    """
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise InvalidInput(f"items must be tuples of one length, got {lengths} beside the vector")
    return [_column(list(values)) for values in zip(*rows, strict=True)]


def _column(values: list[Any]) -> Any:
    if all(type(value) is torch.Tensor and value.layout == torch.strided for value in values):
        kinds = {(value.shape, value.dtype, value.device) for value in values}
        if len(kinds) == 1:
            return torch.stack([value.detach() for value in values])
    return [_own(value) for value in values]


def _packed(dtype: Any) -> Any:
    return repack_fields(dtype, recurse=True) if dtype.names else dtype


def _own(value: Any) -> Any:
    """Return a copy of tensors and arrays, in tuples, lists and dicts too; all else as it is."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.void):  # a row of a record array
        return _own(np.asarray(value))[()]
    if isinstance(value, np.ndarray):
        # Fields left out of a view stand between the others, and a copy has them, too.
        copied = np.array(value, dtype=_packed(value.dtype), copy=True, subok=True)
        if copied.dtype == object:
            copied[...] = np.frompyfunc(_own, 1, 1)(copied)
        return copied
    if isinstance(value, dict):
        return {key: _own(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_own(inner) for inner in value]
    if isinstance(value, tuple):
        inside = [_own(inner) for inner in value]
        return type(value)(*inside) if hasattr(value, "_fields") else tuple(inside)
    return value
