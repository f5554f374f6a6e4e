"""What a client learnt, as rows of numbers that never make it refuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from offaxis.vectors import Vectors, as_array, as_rows


def usable_rows(value: Any, dim: int, name: str) -> Vectors:
    """Return (n, dim) rows; one that holds a NaN or an infinity counts as zero.

    A server chooses the model, and with it for which data an update overflows: a client that
    refused to answer then would answer exactly, without noise.
    """
    rows = as_rows(as_array(value, name), dim, name)
    return np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
