"""Batches of vectors: checked at the door, and the few row-wise operations everybody needs."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput

Vectors = NDArray[np.float64]


def as_number(value: Any, name: str) -> float:
    """Return a finite float, or name what was given instead."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidInput(f"{name} must be a number, got {name}={value!r}")
    if not math.isfinite(value):
        raise InvalidInput(f"{name} must be finite, got {name}={value!r}")
    return float(value)


def as_array(value: Any, name: str = "vectors") -> Vectors:
    """Return a float64 array of real numbers, copying only when the dtype asks for it."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidInput(f"{name} must not be masked: fill or drop masked entries first")
    if hasattr(value, "detach"):  # a torch tensor; NumPy has no bfloat16
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() and value.itemsize == 2 else value
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidInput(f"{name} must all have the same length") from None
    if array.dtype.kind not in "fiu":
        raise InvalidInput(
            f"{name} must hold real numbers, got {type(value).__name__} of dtype {array.dtype}; "
            f"convert them to float32 or float64 first"
        )
    # No setting of NumPy's may make the cast of a tiny or huge number fail.
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype=np.float64)


def check_finite(array: Vectors, name: str = "vectors", first_row: int = 0) -> None:
    """Refuse NaN and infinity, naming the first place."""
    # A sum with an infinity or a NaN in it is never finite; one that overflows is looked at below.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):
            return
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        where = tuple(int(i) for i in bad[0])
        place = (where[0] + first_row, *where[1:])
        raise InvalidInput(
            f"{name} must be finite, got {array[where]} at index {place}; "
            f"remove or replace such entries before they reach a release"
        )


def as_batch(
    value: Any, dim: int | None, name: str = "vectors", *, first_row: int = 0
) -> tuple[Vectors, bool]:
    """Return (n, m) float64 vectors and whether a single vector was given.

    ``first_row`` is the place of the first row in a larger whole, for messages.

    Raises
    ------
    InvalidInput
        If the input is empty, not numeric, not finite, or of another dimension than ``dim``.
    """
    array = as_array(value, name)
    if array.ndim not in (1, 2):
        raise InvalidInput(f"{name} must be one vector or a batch (n, m), got shape {array.shape}")
    single = array.ndim == 1
    batch = array[None, :] if single else array
    if dim is not None and batch.shape[1] != dim:
        raise InvalidInput(f"{name} must have dimension {dim}, got {batch.shape[1]}")
    if batch.shape[0] == 0 or batch.shape[1] == 0:
        raise InvalidInput(f"{name} must not be empty, got shape {array.shape}")
    check_finite(batch, name, first_row)
    return batch, single


def row_dots(A: Vectors, B: Vectors) -> Vectors:
    """Return ⟨A_i, B_i⟩ for every row i."""
    dots: Vectors = np.einsum("ij,ij->i", A, B)
    return dots


Order = Literal[1, 2, "inf"]
"""The p of an ℓp norm."""


def row_norms(W: Vectors, order: Order) -> Vectors:
    """Return the ℓ1, ℓ2 or ℓ∞ norm of every row."""
    if order == "inf":
        largest: Vectors = np.abs(W).max(axis=1)
        return largest
    with np.errstate(over="ignore"):
        norms: Vectors = np.abs(W).sum(axis=1) if order == 1 else np.sqrt(row_dots(W, W))
    return norms
