"""Where the random numbers of a simulation come from: one seam for NumPy, torch and JAX.

For research only: a seeded source never makes a report (sampling/entropy.py does). A simulation
is written once, in terms of the array API, and draws from whichever source belongs to its arrays.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol, runtime_checkable

import numpy as np
from array_api_compat import is_jax_array

from offaxis.arrays import working_dtype
from offaxis.errors import InvalidInput
from offaxis.sampling.device_draws import JaxDraws, TorchDraws
from offaxis.sampling.subsets import by_keys

Array = Any
"""An array of NumPy, torch or JAX."""

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
        """Return integers with the chosen places, a mask, drawn again below ``high``."""
        ...

    def chi_square(self, degrees: int, count: int) -> Array:
        """χ² of so many degrees of freedom."""
        ...

    def beta(self, a: Array, b: Array) -> Array:
        """Beta with the parameters of each place, positive integers."""
        ...

    def columns(self, columns: int, chosen: int, rows: int) -> Array:
        """Distinct columns, uniform: (rows, chosen) integers."""
        ...

    def subsets(self, columns: int, chosen: int, rows: int) -> tuple[Array, Array]:
        """Uniform sets of columns as masks (rows, columns), and a uniform member of each."""
        ...


def draws_from(rng: Rng, beside: Array = None) -> Draws:
    """Return the source that ``rng`` stands for, of arrays like the one given.

    Raises
    ------
    InvalidInput
        If ``rng`` is no generator, or one of another library or device than the array's.
    """
    if isinstance(rng, np.random.Generator):
        return NumpyDraws(rng)
    if isinstance(rng, Draws):
        return rng
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(rng, torch.Generator):
        if not isinstance(beside, torch.Tensor) or beside.device.type != rng.device.type:
            place = getattr(beside, "device", type(beside).__name__)
            raise InvalidInput(
                f"a torch.Generator on {rng.device} draws for tensors there, the vectors are on "
                f"{place}; make it with torch.Generator(device=vectors.device), or pass a NumPy one"
            )
        return TorchDraws(rng, working_dtype(beside), beside.device)
    if is_jax_array(rng) and is_jax_array(beside):
        return JaxDraws(rng, working_dtype(beside))
    raise InvalidInput(
        f"rng must be a numpy Generator, such as numpy.random.default_rng(0), or for tensors a "
        f"torch.Generator, for JAX arrays a key; got {type(rng).__name__}"
    )


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
        """Draw only as many as are chosen."""
        array[chosen] = self._rng.integers(0, high, size=int(chosen.sum()))
        return array

    def chi_square(self, degrees: int, count: int) -> Array:
        """χ²."""
        return self._rng.chisquare(degrees, count)

    def beta(self, a: Array, b: Array) -> Array:
        """Beta."""
        return self._rng.beta(a, b)

    def columns(self, columns: int, chosen: int, rows: int) -> Array:
        """Columns of the smallest uniform numbers, in no order."""
        return self._rng.random((rows, columns)).argpartition(chosen - 1, axis=1)[:, :chosen]

    def subsets(self, columns: int, chosen: int, rows: int) -> tuple[Array, Array]:
        """Sets by keys of 32 bits, without a shuffle."""

        def keys(count: int) -> Array:
            return self._rng.integers(0, 1 << 32, count, dtype=np.uint32)

        return by_keys(columns, chosen, rows, keys)
