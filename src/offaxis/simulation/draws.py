"""The random numbers of a simulation: one interface to NumPy, torch and JAX generators.

For research only: a seeded source never makes a report (sampling/entropy.py does). A simulation is
written once, in terms of the array API, and draws from the source that matches its arrays.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import numpy as np
from array_api_compat import array_namespace, is_jax_array

from offaxis.errors import InvalidInput
from offaxis.sampling.choices import by_keys
from offaxis.vectors import Array, smallest, working_dtype

Rng = Any
"""numpy.random.Generator, torch.Generator, a JAX key, or :class:`Draws`."""


@runtime_checkable
class Draws(Protocol):
    """Independent random numbers of the usual laws, as arrays of one library."""

    @property
    def dtype(self) -> Any:
        """The floating dtype of the numbers."""
        ...

    def normal(self, *shape: int) -> Array:
        """Standard normal."""
        ...

    def laplace(self, *shape: int) -> Array:
        """Laplace of scale one."""
        ...

    def uniform(self, *shape: int) -> Array:
        """Uniform on [0, 1)."""
        ...

    def signs(self, *shape: int) -> Array:
        """−1 or +1, as floating point."""
        ...

    def integers(self, high: int, *shape: int) -> Array:
        """Uniform on 0 … high − 1."""
        ...

    def redrawn(self, array: Array, chosen: Array, high: int) -> Array:
        """Return the integers with those selected by the mask ``chosen`` redrawn below ``high``."""
        ...

    def chi_square(self, degrees: int, count: int) -> Array:
        """χ² with this many degrees of freedom."""
        ...

    def beta(self, a: Array, b: Array) -> Array:
        """Beta with the elementwise parameters a and b, positive integers."""
        ...

    def columns(self, columns: int, chosen: int, rows: int) -> Array:
        """Distinct columns, uniform: (rows, chosen) integers."""
        ...

    def subsets(self, columns: int, chosen: int, rows: int) -> tuple[Array, Array]:
        """Uniform sets of columns as masks (rows, columns), and a uniform member of each."""
        ...


def draws_from(rng: Rng, template: Array = None) -> Draws:
    """Return the source of random numbers for ``rng``, as arrays like ``template``.

    Raises
    ------
    InvalidInput
        If ``rng`` is not a generator, or its library or device differs from that of the array.
    """
    if isinstance(rng, np.random.Generator):
        return NumpyDraws(rng)
    if isinstance(rng, Draws):
        return rng
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(rng, torch.Generator):
        if not isinstance(template, torch.Tensor) or template.device.type != rng.device.type:
            place = getattr(template, "device", type(template).__name__)
            raise InvalidInput(
                f"a torch.Generator on {rng.device} draws tensors there, but the vectors are on "
                f"{place}; use torch.Generator(device=vectors.device) or a NumPy generator"
            )
        return TorchDraws(rng, working_dtype(template), template.device)
    if is_jax_array(rng) and is_jax_array(template):
        return JaxDraws(rng, working_dtype(template))
    raise InvalidInput(
        f"rng must be a numpy Generator, such as numpy.random.default_rng(0), or for tensors a "
        f"torch.Generator, for JAX arrays a key; got {type(rng).__name__}"
    )


# ---- Sources


class NumpyDraws:
    """float64 numbers of a NumPy generator."""

    dtype = np.float64

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def normal(self, *shape: int) -> Array:
        """Standard normal."""
        return self._rng.standard_normal(shape)

    def laplace(self, *shape: int) -> Array:
        """Laplace of scale one.

        An exponential variable with a random sign bit: several times faster than ``rng.laplace``.
        """
        noise = self._rng.standard_exponential(shape)
        octets = self._rng.integers(0, 256, size=-(-noise.size // 8), dtype=np.uint8)
        signs = np.unpackbits(octets, count=noise.size).astype(np.uint64)
        signs <<= np.uint64(63)
        bits = noise.reshape(-1).view(np.uint64)
        bits |= signs
        return noise

    def uniform(self, *shape: int) -> Array:
        """Uniform on [0, 1)."""
        return self._rng.random(shape)

    def signs(self, *shape: int) -> Array:
        """−1 or +1."""
        return 2 * self._rng.integers(0, 2, shape, dtype=np.int8).astype(np.float64) - 1

    def integers(self, high: int, *shape: int) -> Array:
        """Uniform on 0 … high − 1."""
        return self._rng.integers(0, high, shape)

    def redrawn(self, array: Array, chosen: Array, high: int) -> Array:
        """Redraw the chosen elements, and only those."""
        array[chosen] = self._rng.integers(0, high, size=int(chosen.sum()))
        return array

    def chi_square(self, degrees: int, count: int) -> Array:
        """χ²."""
        return self._rng.chisquare(degrees, count)

    def beta(self, a: Array, b: Array) -> Array:
        """Beta."""
        return self._rng.beta(a, b)

    def columns(self, columns: int, chosen: int, rows: int) -> Array:
        """Columns of the smallest uniform numbers, in no particular order."""
        return self._rng.random((rows, columns)).argpartition(chosen - 1, axis=1)[:, :chosen]

    def subsets(self, columns: int, chosen: int, rows: int) -> tuple[Array, Array]:
        """Subsets by 32-bit keys, without a shuffle."""

        def keys(count: int) -> Array:
            return self._rng.integers(0, 1 << 32, count, dtype=np.uint32)

        return by_keys(columns, chosen, rows, keys)


class _OnDevice(ABC):
    """Draws that torch and JAX share, in terms of the array API."""

    @abstractmethod
    def uniform(self, *shape: int) -> Array: ...

    @abstractmethod
    def integers(self, high: int, *shape: int) -> Array: ...

    @abstractmethod
    def gamma(self, a: Array) -> Array: ...

    def redrawn(self, array: Array, chosen: Array, high: int) -> Array:
        """Draw for every element, since the number of chosen ones is known only on the device."""
        return array_namespace(array).where(chosen, self.integers(high, *array.shape), array)

    def chi_square(self, degrees: int, count: int) -> Array:
        """χ²: twice a gamma variable of half the degrees."""
        return 2 * self.gamma((self.integers(1, count) + degrees) / 2)

    def beta(self, a: Array, b: Array) -> Array:
        """X / (X + Y) of two gamma variables."""
        x, y = self.gamma(a), self.gamma(b)
        # Never zero: its quantiles are infinite.
        return array_namespace(x).clip(x / (x + y), min=smallest(x))

    def columns(self, columns: int, chosen: int, rows: int) -> Array:
        """Columns of the smallest uniform numbers, in their order."""
        keys = self.uniform(rows, columns)
        return array_namespace(keys).argsort(keys, axis=1)[:, :chosen]

    def subsets(self, columns: int, chosen: int, rows: int) -> tuple[Array, Array]:
        """Subsets by the order of uniform keys."""
        order = self.columns(columns, columns, rows)
        xp = array_namespace(order)
        return xp.argsort(order, axis=1) < chosen, order[:, chosen - 1]


class TorchDraws(_OnDevice):
    """Numbers of a torch generator, on its device."""

    def __init__(self, rng: Any, dtype: Any, device: Any) -> None:
        self._torch = sys.modules["torch"]
        self._rng, self.dtype = rng, dtype
        self._options = {"dtype": dtype, "device": device}

    def _empty(self, shape: tuple[int, ...]) -> Array:
        return self._torch.empty(shape, **self._options)

    def normal(self, *shape: int) -> Array:
        """Standard normal."""
        return self._empty(shape).normal_(generator=self._rng)

    def laplace(self, *shape: int) -> Array:
        """Laplace of scale one: an exponential variable with a random sign."""
        noise = self._empty(shape).exponential_(generator=self._rng)
        octets = self._torch.randint(
            0, 2, shape, generator=self._rng, dtype=self._torch.int8, device=noise.device
        )
        return noise.mul_(octets.mul_(2).sub_(1))

    def uniform(self, *shape: int) -> Array:
        """Uniform on [0, 1)."""
        return self._empty(shape).uniform_(generator=self._rng)

    def signs(self, *shape: int) -> Array:
        """−1 or +1."""
        return self._empty(shape).random_(0, 2, generator=self._rng).mul_(2).sub_(1)

    def integers(self, high: int, *shape: int) -> Array:
        """Uniform on 0 … high − 1."""
        device = self._options["device"]
        return self._torch.randint(0, high, shape, generator=self._rng, device=device)

    def gamma(self, a: Array) -> Array:
        """Gamma of scale one."""
        # torch.distributions uses this function too, but accepts no generator.
        return self._torch._standard_gamma(a.to(self.dtype), generator=self._rng)


class JaxDraws(_OnDevice):
    """Numbers of a JAX key, which is split for every draw."""

    def __init__(self, key: Any, dtype: Any) -> None:
        self._random = sys.modules["jax"].random
        self._key, self.dtype = key, dtype

    def _next(self) -> Any:
        self._key, subkey = self._random.split(self._key)
        return subkey

    def normal(self, *shape: int) -> Array:
        """Standard normal."""
        return self._random.normal(self._next(), shape, self.dtype)

    def laplace(self, *shape: int) -> Array:
        """Laplace of scale one."""
        return self._random.laplace(self._next(), shape, self.dtype)

    def uniform(self, *shape: int) -> Array:
        """Uniform on [0, 1)."""
        return self._random.uniform(self._next(), shape, self.dtype)

    def signs(self, *shape: int) -> Array:
        """−1 or +1."""
        return self._random.rademacher(self._next(), shape, self.dtype)

    def integers(self, high: int, *shape: int) -> Array:
        """Uniform on 0 … high − 1."""
        return self._random.randint(self._next(), shape, 0, high)

    def gamma(self, a: Array) -> Array:
        """Gamma of scale one."""
        return self._random.gamma(self._next(), a.astype(self.dtype), dtype=self.dtype)
