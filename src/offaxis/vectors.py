"""Vectors as arrays of any library: checks, conversion to NumPy and back, and row operations.

Contract: ``like(rows, value)`` is of the kind of ``value`` (NumPy, torch, JAX, pandas, Arrow), on
the same device, of the same floating dtype, with the same index or columns. A value that is not
floating point, such as integers or a list, counts as the default floating dtype of its library.
Nothing is imported that the caller has not imported.
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

Vectors = NDArray[np.float64]
"""A batch (n, m) of vectors, or one vector (m,)."""

Array = Any
"""An array of NumPy, torch or JAX."""

A = TypeVar("A", bound=Any)
"""An array of any library, the same one in and out."""

Order = Literal[1, 2, "inf"]
"""The p of an ℓp norm."""

Privatize = TypeVar("Privatize", bound=Callable[..., Any])
_P = TypeVar("_P")

# ---- Checks


def as_number(value: Any, name: str) -> float:
    """Return a finite float, or raise with the value."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidInput(f"{name} must be a number, got {name}={value!r}")
    if not math.isfinite(value):
        raise InvalidInput(f"{name} must be finite, got {name}={value!r}")
    return float(value)


def as_integer(
    value: Any, name: str, low: int, high: int | None = None, *, meaning: str = ""
) -> int:
    """Return an integer of the range as a Python int, or raise with the value."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        what = f" ({meaning})" if meaning else ""
        raise InvalidInput(f"{name} must be an integer {limits}{what}, got {name}={value!r}")
    return int(value)


def as_array(value: Any, name: str = "vectors") -> Vectors:
    """Return a float64 array of real numbers from any kind; copies only if necessary."""
    array = to_numpy(value, name)
    if array.dtype.kind not in "fiu":
        raise InvalidInput(
            f"{name} must hold real numbers, got {type(value).__name__} of dtype {array.dtype}; "
            f"convert them to float32 or float64 first"
        )
    # No NumPy error setting may make the cast of a tiny or huge number fail.
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype=np.float64)


def check_finite(array: Vectors, name: str = "vectors", first_row: int = 0) -> None:
    """Reject NaN and infinity, with the first index."""
    # A sum with an infinity or a NaN is never finite; a sum that overflows is examined below.
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

    ``first_row`` is the index of the first row in a larger batch, for messages.

    Raises
    ------
    InvalidInput
        If the input is empty, not numeric, not finite, or of another dimension than ``dim``.
    """
    array = as_array(value, name)
    batch = as_rows(array, dim, name)
    single = array.ndim == 1
    # A single vector is checked in its original shape, so that a message has one index.
    check_finite(array if single else batch, name, first_row)
    return batch, single


def as_rows(array: A, dim: int | None, name: str = "vectors") -> A:
    """Return one vector (m,) as a batch (1, m), and a batch unchanged; reject other shapes."""
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
    """Make ``privatize`` reject arguments that it does not take, such as a seed."""
    taken = privatize.__kwdefaults__ or {}

    @wraps(privatize)
    def called(self: Any, vectors: Any = None, *others: Any, **named: Any) -> Any:
        if others or named.keys() - taken.keys():
            extra = ", ".join(named) or type(others[0]).__name__
            raise InvalidInput(
                f"privatize takes {' and '.join(['vectors', *taken])} and nothing else, got "
                f"{extra}: no seed reaches a real report; for seeded research use offaxis.simulate"
            )
        return privatize(self, vectors, **named)

    return cast(Privatize, called)


# ---- Kinds of arrays

LARGEST_SINGLE: Final = 2.0**56
"""The largest entry of vectors and maps in single precision, so that products do not overflow."""

SINGLE_RADII: Final = (2.0**-40, 2.0**40)
"""Radii for which squares of clipped vectors stay far inside the range of float32."""


def namespace(*arrays: Any) -> Any:
    """Return the array functions of the arrays' library, under their array API names."""
    # Fast path for NumPy: this is called several times for every released vector.
    return _numpy if type(arrays[0]) is np.ndarray else array_namespace(*arrays)


def special(array: Any) -> Any:
    """Return the special functions of the array's library: expit, ndtr and ndtri, among others."""
    if is_torch_array(array):
        return sys.modules["torch"].special
    if is_jax_array(array):
        return import_module("jax.scipy.special")
    return scipy.special


def device_of(array: Any) -> Any:
    """Return the device of an array, as its library represents it."""
    return device(array)


def has_device(value: Any) -> bool:
    """Return whether the value is an array of a library that computes on devices: torch or JAX."""
    return type(value) is not np.ndarray and bool(is_torch_array(value) or is_jax_array(value))


def to_numpy(value: Any, name: str = "vectors") -> NDArray[Any]:
    """Return any kind of array or table as NumPy, of any dtype; copies only if necessary.

    Raises
    ------
    InvalidInput
        If rows differ in length, entries are missing, or a table has columns without numbers.
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
    """Return NumPy vectors as the same kind as ``value``, the vectors they were computed from."""
    if tables.is_table(value):
        return tables.like(rows, value)
    if has_device(value):
        return on_device(rows, value)
    dtype = value.dtype if isinstance(value, np.ndarray) else rows.dtype
    return as_dtype(rows, dtype) if dtype.kind == "f" else rows


def on_device(rows: NDArray[Any], template: Any) -> Any:
    """Return a NumPy array with the kind, device and floating dtype of a torch or JAX array."""
    dtype = floating_dtype(template)
    check_range(rows, float(namespace(template).finfo(dtype).max), str(dtype))
    if is_torch_array(template):
        torch = sys.modules["torch"]
        return torch.tensor(rows, dtype=dtype, device=template.device)
    first = next(iter(template.devices()))
    return namespace(template).asarray(rows, dtype=dtype, device=first)


def is_floating(array: Any) -> bool:
    """Return whether the dtype is a real floating one."""
    return bool(namespace(array).isdtype(array.dtype, "real floating"))


def floating_dtype(array: Any) -> Any:
    """Return the array's dtype, or its library's default where that is not floating point."""
    if is_floating(array):
        return array.dtype
    return namespace(array).__array_namespace_info__().default_dtypes()["real floating"]


def working_dtype(array: Any) -> Any:
    """Return the dtype to compute in: that of the array, or float32 for two-byte floats."""
    dtype = floating_dtype(array)
    return namespace(array).float32 if dtype.itemsize == 2 else dtype


_moved: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
"""Copies of parts on devices, by device: a map is copied to each device once."""


def moved(part: _P, template: Any) -> _P:
    """Return a frozen part (an encoder, a decoder) with its arrays on the device of ``template``.

    For a NumPy array this is the part itself.
    """
    if not has_device(template):
        return part
    where = (str(device_of(template)), str(floating_dtype(template)), type(template).__module__)
    copies = _moved.setdefault(part, {})
    if where not in copies:
        duplicate = copy(part)
        for field in dataclasses.fields(part):  # type: ignore[arg-type]
            object.__setattr__(duplicate, field.name, _move(getattr(part, field.name), template))
        copies[where] = duplicate
    moved_part: _P = copies[where]
    return moved_part


def _move(value: Any, template: Any) -> Any:
    """Return an array or a tuple of arrays on the device; other values unchanged."""
    if isinstance(value, tuple):
        return tuple(_move(item, template) for item in value)
    if not isinstance(value, np.ndarray):
        return value
    if floating_dtype(template).itemsize < 8:
        check_range(value, LARGEST_SINGLE, "single precision with room for products")
    return on_device(value, template)


def smallest(array: Any) -> float:
    """Return the smallest normal number of the array's dtype."""
    return float(namespace(array).finfo(array.dtype).smallest_normal)


def scattered(places: Any, values: Any, width: int) -> Any:
    """Return rows of zeros of the given width, with the values of each row at its places."""
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
    """Return the array with the rows that the mask ``chosen`` selects replaced, in order.

    A NumPy array is changed in place. JAX has no assignment, so rows are looked up by counting.
    """
    if isinstance(array, np.ndarray):
        array[chosen] = rows
        return array
    xp = namespace(array)
    place = xp.clip(xp.cumulative_sum(xp.astype(chosen, xp.int32)) - 1, min=0)
    mask = xp.reshape(chosen, (-1,) + (1,) * (array.ndim - 1))
    replaced: A = xp.where(mask, xp.take(rows, place, axis=0), array)
    return replaced


# ---- Row operations, for arrays of any library

_BLOCK_NUMBERS: Final = 1 << 15
"""Numbers that are squared at a time, so that they stay in the cache."""


def row_dots(X: A, Y: A) -> A:
    """Return ⟨X_i, Y_i⟩ for every row i.

    The library chooses the order of summation, so the last bits of a row can depend on the number
    of rows and on their layout. Nothing that a report is made of may use it; see :func:`row_norms`.
    """
    dots: A = namespace(X, Y).einsum("ij,ij->i", X, Y)
    return dots


def row_norms(W: A, order: Order) -> A:
    """Return the ℓ1, ℓ2 or ℓ∞ norm of every row.

    Contract for NumPy arrays: the norm of a row is, to the last bit, a function of the row alone.
    It does not depend on other rows, on the memory layout or on threads. The terms are added in one
    fixed order, by IEEE operations on single numbers, which round alike on every processor. A
    repeated task would otherwise give a report of the same noise but another lattice point, and the
    difference of the two reports would show the vector (docs/proofs.md, "Bulk jobs").
    """
    norms: A
    if has_device(W):
        norms = namespace(W).linalg.vector_norm(W, ord=float(order), axis=1)
    elif order == "inf":
        norms = np.abs(W).max(axis=1)
    else:
        # einsum and sum choose their order by shape and strides.
        with np.errstate(over="ignore", under="ignore"):
            sums = _power_sums(W, order)
            norms = cast(A, sums if order == 1 else np.sqrt(sums))
    return norms


def _power_sums(W: NDArray[Any], order: Literal[1, 2]) -> NDArray[Any]:
    """Return Σ_j |W_ij|^order of every row, in a fixed order of summation."""
    rows = max(1, _BLOCK_NUMBERS // max(1, W.shape[1]))
    sums = np.zeros(len(W), dtype=W.dtype)
    for start in range(0, len(W), rows):
        part = slice(start, start + rows)
        sums[part] = _halving_sums(W[part].T, order)
    return sums


def _halving_sums(columns: NDArray[Any], order: Literal[1, 2]) -> NDArray[Any]:
    """Return Σ_j |x_j|^order over the first axis.

    Of k terms, the last ⌊k/2⌋ are added to the first ⌊k/2⌋ elementwise, until one is left. This
    tree depends on k alone. No term takes part in more than ⌈log2 k⌉ additions, so that the result
    is more accurate than a sum from left to right.
    """
    # One row of the array per coordinate, in memory order: additions run over the vectors.
    terms = np.abs(columns, order="C") if order == 1 else np.multiply(columns, columns, order="C")
    count = len(terms)
    while count > 1:
        half = count // 2
        terms[:half] += terms[count - half : count]
        count -= half
    total: NDArray[Any] = terms[0]
    return total
