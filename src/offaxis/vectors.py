"""Batches of vectors: checked at the door, and the few row-wise operations everybody needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import A, has_device, namespace, to_numpy
from offaxis.errors import InvalidInput

Vectors = NDArray[np.float64]
Privatize = TypeVar("Privatize", bound=Callable[..., Any])


def as_number(value: Any, name: str) -> float:
    """Return a finite float, or name what was given instead."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidInput(f"{name} must be a number, got {name}={value!r}")
    if not math.isfinite(value):
        raise InvalidInput(f"{name} must be finite, got {name}={value!r}")
    return float(value)


def as_integer(
    value: Any, name: str, low: int, high: int | None = None, *, meaning: str = ""
) -> int:
    """Return a whole number of the range as Python's own, or name what was given instead."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        what = f" ({meaning})" if meaning else ""
        raise InvalidInput(f"{name} must be an integer {limits}{what}, got {name}={value!r}")
    return int(value)


def as_array(value: Any, name: str = "vectors") -> Vectors:
    """Return a float64 array of real numbers from any kind, copying only when it must."""
    array = to_numpy(value, name)
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
        place = where[0] if array.ndim == 1 else (where[0] + first_row, *where[1:])
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
    batch = as_rows(array, dim, name)
    single = array.ndim == 1
    # A single vector is checked as it was given, so that a message counts along it.
    check_finite(array if single else batch, name, first_row)
    return batch, single


def as_rows(array: A, dim: int | None, name: str = "vectors") -> A:
    """Return one vector (m,) as a batch (1, m), and a batch as it is; refuse any other shape."""
    shape = tuple(array.shape)
    if len(shape) not in (1, 2):
        raise InvalidInput(f"{name} must be one vector or a batch (n, m), got shape {shape}")
    batch: A = array[None, :] if len(shape) == 1 else array
    if dim is not None and batch.shape[1] != dim:
        raise InvalidInput(f"{name} must have dimension {dim}, got {batch.shape[1]}")
    if 0 in shape:
        raise InvalidInput(f"{name} must not be empty, got shape {shape}")
    return batch


def vectors_alone(privatize: Privatize) -> Privatize:
    """Tell who gives a method that makes real reports a seed why it takes none."""

    @wraps(privatize)
    def called(self: Any, vectors: Any, *others: Any, **named: Any) -> Any:
        if others or named:
            given = ", ".join(named) or type(others[0]).__name__
            raise InvalidInput(
                f"privatize takes vectors and nothing else, got {given}: no seed reaches a real "
                f"report; for seeded research use simulate"
            )
        return privatize(self, vectors)

    return cast(Privatize, called)


def row_dots(X: A, Y: A) -> A:
    """Return ⟨X_i, Y_i⟩ for every row i, of any kind of array."""
    dots: A = namespace(X, Y).einsum("ij,ij->i", X, Y)
    return dots


Order = Literal[1, 2, "inf"]
"""The p of an ℓp norm."""


def row_norms(W: A, order: Order) -> A:
    """Return the ℓ1, ℓ2 or ℓ∞ norm of every row, of any kind of array."""
    norms: A
    if has_device(W):
        norms = namespace(W).linalg.vector_norm(W, ord=float(order), axis=1)
    elif order == "inf":
        norms = np.abs(W).max(axis=1)
    else:  # NumPy's own norm takes twice as long
        with np.errstate(over="ignore"):
            norms = np.abs(W).sum(axis=1) if order == 1 else np.sqrt(row_dots(W, W))
    return norms
