"""Kinds of arrays: whatever a caller holds becomes NumPy, and an answer goes back as it came.

Contract: ``like(rows, value)`` is of the kind of ``value`` (NumPy, torch, JAX, pandas, Arrow), on
its device, of its floating dtype, with its index or columns. What is not floating point, such as
integers or a list, counts as the kind's usual floating dtype. Nothing is imported that the caller
has not imported: a value's own library is asked.
"""

from __future__ import annotations

import dataclasses
import sys
from copy import copy
from importlib import import_module
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import scipy.special
from array_api_compat import array_namespace, device, is_jax_array, is_torch_array
from array_api_compat import numpy as _numpy
from numpy.typing import NDArray

from offaxis.arrays import tables
from offaxis.arrays.dtypes import as_dtype, check_range
from offaxis.errors import InvalidInput

_P = TypeVar("_P")

A = TypeVar("A", bound=Any)
"""An array of any library, the same one in and out."""


LARGEST_SINGLE: Final = 2.0**56
"""Vectors and maps in single precision have no larger entries, so that products do not overflow."""


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
