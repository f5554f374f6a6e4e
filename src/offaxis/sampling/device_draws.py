"""Random numbers of a simulation where its arrays lie: drawn by torch or JAX, for research only."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any

from array_api_compat import array_namespace

from offaxis.arrays import smallest

Array = Any
"""An array of torch or JAX."""


class _OnDevice(ABC):
    """What torch and JAX draw alike, in the terms of the array API."""

    @abstractmethod
    def uniform(self, *shape: int) -> Array: ...

    @abstractmethod
    def integers(self, high: int, *shape: int) -> Array: ...

    @abstractmethod
    def gamma(self, a: Array) -> Array: ...

    def redrawn(self, array: Array, chosen: Array, high: int) -> Array:
        """Draw one for every place: how many are chosen is not known before it is computed."""
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
        """Sets by the order of uniform keys."""
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
        # What torch.distributions draws from as well, which takes no generator.
        return self._torch._standard_gamma(a.to(self.dtype), generator=self._rng)


class JaxDraws(_OnDevice):
    """Numbers of a JAX key, which is split for every draw."""

    def __init__(self, key: Any, dtype: Any) -> None:
        self._random = sys.modules["jax"].random
        self._key, self.dtype = key, dtype

    def _next(self) -> Any:
        self._key, own = self._random.split(self._key)
        return own

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
