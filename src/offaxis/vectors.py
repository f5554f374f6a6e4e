"""Kinds of arrays: whatever a caller holds becomes NumPy, and an answer goes back as it came.

Contract: ``like(rows, value)`` is of the kind of ``value`` (NumPy, torch, JAX, pandas, Arrow), on
its device, of its floating dtype, with its index or columns. What is not floating point, such as
integers or a list, counts as the kind's usual floating dtype. Nothing is imported that the caller
has not imported: a value's own library is asked.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from copy import copy
from functools import wraps
from importlib import import_module
from typing import Any, Final, Literal, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import scipy.special
from array_api_compat import array_namespace, device, is_jax_array, is_torch_array
from array_api_compat import numpy as _numpy
from numpy.typing import NDArray

from offaxis import tables
from offaxis.errors import InvalidInput
from offaxis.tables import as_dtype, check_range

_P = TypeVar("_P")

A = TypeVar("A", bound=Any)
"""An array of any library, the same one in and out."""

Array = Any
"""An array of NumPy, torch or JAX."""


LARGEST_SINGLE: Final = 2.0**56
"""Vectors and maps in single precision have no larger entries, so that products do not overflow."""

SINGLE_RADII: Final = (2.0**-40, 2.0**40)
"""Radii whose squares, and those of what is clipped to them, are far from the ends of float32."""


def namespace(*arrays: Any) -> Any:
    """Return the array functions of the arrays' library, by the names of the array API standard."""
    # Asked several times for every vector that is released, mostly about NumPy.
    return _numpy if type(arrays[0]) is np.ndarray else array_namespace(*arrays)


def special(array: Any) -> Any:
    """Return the special functions of the array's library: expit, ndtr and ndtri, among others."""
    if is_torch_array(array):
        return sys.modules["torch"].special
    if is_jax_array(array):
        return import_module("jax.scipy.special")
    return scipy.special


def device_of(array: Any) -> Any:
    """Return where an array lies, in the words of its own library."""
    return device(array)


def has_device(value: Any) -> bool:
    """Return whether the value is an array of a library that computes on devices: torch or JAX."""
    return type(value) is not np.ndarray and bool(is_torch_array(value) or is_jax_array(value))


def to_numpy(value: Any, name: str = "vectors") -> NDArray[Any]:
    """Return any kind of array or table as NumPy, of any dtype; copies only where it must.

    Raises
    ------
    InvalidInput
        If rows differ in length, entries are missing, or a table has columns of other things.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidInput(f"{name} must not be masked: fill or drop masked entries first")
    if is_torch_array(value):
        value = value.detach().cpu()
        # NumPy has no bfloat16.
        value = value.float() if value.is_floating_point() and value.itemsize == 2 else value
    elif is_jax_array(value) and value.dtype.itemsize == 2 and is_floating(value):
        value = value.astype(np.float32)
    elif tables.is_table(value):
        return tables.to_numpy(value, name)
    try:
        return np.asarray(value)
    except ValueError:
        raise InvalidInput(f"{name} must all have the same length") from None


def like(rows: NDArray[np.float64], value: Any) -> Any:
    """Return NumPy vectors as the kind of the vectors ``value`` that they answer."""
    if tables.is_table(value):
        return tables.like(rows, value)
    if has_device(value):
        return on_device(rows, value)
    dtype = value.dtype if isinstance(value, np.ndarray) else rows.dtype
    return as_dtype(rows, dtype) if dtype.kind == "f" else rows


def on_device(rows: NDArray[Any], beside: Any) -> Any:
    """Return a NumPy array beside a torch or JAX one: its kind, device and floating dtype."""
    dtype = floating_dtype(beside)
    check_range(rows, float(namespace(beside).finfo(dtype).max), str(dtype))
    if is_torch_array(beside):
        torch = sys.modules["torch"]
        return torch.tensor(rows, dtype=dtype, device=beside.device)
    first = next(iter(beside.devices()))
    return namespace(beside).asarray(rows, dtype=dtype, device=first)


def is_floating(array: Any) -> bool:
    """Return whether the dtype is a real floating one."""
    return bool(namespace(array).isdtype(array.dtype, "real floating"))


def floating_dtype(array: Any) -> Any:
    """Return the array's dtype, or its library's usual one where it is not floating point."""
    if is_floating(array):
        return array.dtype
    return namespace(array).__array_namespace_info__().default_dtypes()["real floating"]


def working_dtype(array: Any) -> Any:
    """Return the dtype to compute in: the array's own, but float32 where that has two bytes."""
    dtype = floating_dtype(array)
    return namespace(array).float32 if dtype.itemsize == 2 else dtype


_moved: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
"""Parts whose arrays lie on a device, by where: a map is carried there once."""


def moved(part: _P, beside: Any) -> _P:
    """Return a copy of a frozen part (an encoder, a decoder) whose arrays lie beside an array.

    NumPy arrays lie beside NumPy arrays, so that the part itself is returned.
    """
    if not has_device(beside):
        return part
    where = (str(device_of(beside)), str(floating_dtype(beside)), type(beside).__module__)
    kept = _moved.setdefault(part, {})
    if where not in kept:
        there = copy(part)
        for field in dataclasses.fields(part):  # type: ignore[arg-type]
            object.__setattr__(there, field.name, _carried(getattr(part, field.name), beside))
        kept[where] = there
    found: _P = kept[where]
    return found


def _carried(value: Any, beside: Any) -> Any:
    """Return an array, or a tuple of arrays, beside another; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(_carried(one, beside) for one in value)
    if not isinstance(value, np.ndarray):
        return value
    if floating_dtype(beside).itemsize < 8:
        check_range(value, LARGEST_SINGLE, "single precision with room for products")
    return on_device(value, beside)


def smallest(array: Any) -> float:
    """Return the smallest normal number of the array's dtype."""
    return float(namespace(array).finfo(array.dtype).smallest_normal)


def scattered(places: Any, values: Any, width: int) -> Any:
    """Return rows of zeros of the given width with each row's values at its places."""
    if is_jax_array(values):
        xp = namespace(values)
        zeros = xp.zeros((len(values), width), dtype=values.dtype)
        return xp.put_along_axis(zeros, places, values, axis=1, inplace=False)
    if is_torch_array(values):
        return values.new_zeros((len(values), width)).scatter_(1, places, values)
    out = np.zeros((len(values), width))
    np.put_along_axis(out, places, values, axis=1)
    return out


def with_rows(array: A, chosen: Any, rows: Any) -> A:
    """Return the array with its chosen rows (a mask) replaced, in their order.

    A NumPy array is changed in place; JAX has no assignment, so its rows are found by counting.
    """
    if isinstance(array, np.ndarray):
        array[chosen] = rows
        return array
    xp = namespace(array)
    place = xp.clip(xp.cumulative_sum(xp.astype(chosen, xp.int32)) - 1, min=0)
    mask = xp.reshape(chosen, (-1,) + (1,) * (array.ndim - 1))
    replaced: A = xp.where(mask, xp.take(rows, place, axis=0), array)
    return replaced


# ----------------------------------------------------------------------------
# Batches of vectors: checked at the door, and the few row-wise operations everybody needs.

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
