"""Into another floating dtype, without an infinity that would pass for an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput


def as_dtype(rows: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """Return the rows in a floating dtype of NumPy's, unless it cannot hold them."""
    if np.dtype(dtype) == rows.dtype:
        return rows
    check_range(rows, float(np.finfo(dtype).max), str(np.dtype(dtype)))
    with np.errstate(under="ignore"):
        return rows.astype(dtype)


def check_range(rows: NDArray[Any], largest: float, dtype: str) -> None:
    """Refuse numbers beyond the largest one of a dtype."""
    if largest >= np.finfo(np.float64).max or not rows.size:
        return
    if max(rows.max(), -rows.min()) > largest:
        raise InvalidInput(
            f"a number does not fit into {dtype}, whose largest number is {largest:.4g}; "
            f"pass the vectors as float32, float64 or bfloat16"
        )
