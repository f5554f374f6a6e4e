"""Quantiles that simulations need, for every kind of array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from scipy.special import betaincinv, ndtr

from offaxis.arrays import moved, namespace, special
from offaxis.vectors import Vectors

_GRID: Final = 1 << 16
_LARGEST_DEVIATE: Final = 9.0
"""A standard normal variable is larger once in 10^19 times."""


def deviate(tail: Any) -> Any:
    """Return the d with Pr[|X| >= d] = tail, X standard normal."""
    return -special(tail).ndtri(tail / 2)


def cosine(tail: Any, dim: int) -> Any:
    """Return the t with Pr[|T| >= t] = tail, T a coordinate of a uniform unit vector of R^dim.

    (1 − T)/2 has the law Beta((dim − 1)/2, (dim − 1)/2). No device inverts it, so there the
    quantiles of the normal law lead to a table.
    """
    if isinstance(tail, np.ndarray):
        shape = (dim - 1) / 2
        return 1 - 2 * betaincinv(shape, shape, tail / 2)
    return moved(sphere_component(dim), tail)(deviate(tail))


@dataclass(frozen=True, eq=False)
class SphereComponent:
    """The map from |N(0, 1)| to |T|, T a coordinate of a uniform unit vector, by quantiles.

    Tabulated: the map is smooth, and linear interpolation between 65,536 points is off by less
    than 1e-10, while the inverse of the incomplete beta function takes ten times as long.
    """

    values: Vectors
    slopes: Vectors

    def __call__(self, deviate: Any) -> Any:
        """Return |T| for every |N|."""
        xp = namespace(deviate)
        place = xp.clip(deviate, max=_LARGEST_DEVIATE) * (_GRID / _LARGEST_DEVIATE)
        index = xp.clip(xp.astype(place, xp.int32), max=_GRID - 1)
        low, slope = xp.take(self.values, index), xp.take(self.slopes, index)
        return low + (place - index) * slope


@lru_cache(maxsize=16)
def sphere_component(dim: int) -> SphereComponent:
    """Return the map for a dimension of at least two."""
    grid = np.linspace(0.0, _LARGEST_DEVIATE, _GRID + 1)
    shape = (dim - 1) / 2
    values = 1 - 2 * betaincinv(shape, shape, ndtr(-grid))
    return SphereComponent(values, np.diff(values))
