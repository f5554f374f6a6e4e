"""The sets on which randomizers give their guarantee, and how a vector is brought into them.

A domain is what privacy rests on: the guarantee holds between any two *elements of the domain*, so
a randomizer brings every vector it is given into its domain itself and trusts nobody to have done
it before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from offaxis.arrays import A, namespace, with_rows
from offaxis.errors import InvalidInput
from offaxis.sampling.draws import Rng, draws_from
from offaxis.vectors import Vectors, as_integer, row_norms

RADIUS_RANGE = (1e-100, 1e100)
"""Radii outside this range could overflow float64 inside an encoder; none is ever useful."""


LARGEST_DIM = 1 << 20
"""The most coordinates a release may have, here and in its file."""


def check_radius(radius: float, name: str = "radius") -> float:
    """Return the radius as a float, or say what is wrong with it."""
    low, high = RADIUS_RANGE
    if not low <= radius <= high:
        raise InvalidInput(f"{name} must lie between {low} and {high}, got {name}={radius!r}")
    return float(radius)


def check_dim(dim: int) -> int:
    """Return the dimension as an int, or say what is wrong with it."""
    return as_integer(dim, "dim", 1, LARGEST_DIM)


def opposite_poles(dim: int, radius: float) -> tuple[Vectors, Vectors]:
    """Return ±radius along the first axis: as far apart as two vectors of a ball can be."""
    pole = np.zeros(dim)
    pole[0] = radius
    return pole, -pole


def _safe_rescale(W: A) -> tuple[A, A]:
    """Divide each row by its largest magnitude so that its norm cannot over- or underflow."""
    xp = namespace(W)
    peak = xp.max(xp.abs(W), axis=1, keepdims=True)
    positive = peak > 0
    # Two steps: 1 / peak itself overflows for subnormal rows.
    _, exponent = xp.frexp(xp.where(positive, peak, 1.0))
    unit = xp.ldexp(W, -exponent)
    scale = xp.where(positive, xp.max(xp.abs(unit), axis=1, keepdims=True), 1.0)
    return unit / scale, peak


class _Extremes(NamedTuple):
    """Where quick arithmetic ends: the share that clipping keeps, norms whose squares are safe."""

    share: float
    low: float
    high: float
    zero: float


_DOUBLE: Final = _Extremes(1e-280, 1e-140, 1e140, 0.0)
_DOUBLE_ON_DEVICE: Final = _DOUBLE._replace(zero=2.0**-1022)
_SINGLE_ON_DEVICE: Final = _Extremes(1e-30, 1e-17, 1e17, 2.0**-126)


def _extremes(W: Any) -> _Extremes:
    if isinstance(W, np.ndarray):
        return _DOUBLE
    return _DOUBLE_ON_DEVICE if W.dtype.itemsize == 8 else _SINGLE_ON_DEVICE


@dataclass(frozen=True)
class Ball:
    """The ℓp ball ``{w in R^dim : ‖w‖_p <= radius}``, p = 1 or 2; diameter 2·radius."""

    dim: int
    radius: float
    order: Literal[1, 2]

    def project(self, W: A) -> A:
        """Shrink every row radially onto the ball; rows inside it stay as they are.

        Each row depends on itself alone: what one person holds never moves another's vector.
        """
        norms = row_norms(W, self.order)
        share = self.radius / namespace(W).where(norms < self.radius, self.radius, norms)
        projected: A = W * share[:, None]
        # Beyond this the norm or the share is not a normal number any more.
        extreme = ~(share > _extremes(W).share)
        if extreme.any():
            unit, _ = _safe_rescale(W[extreme])
            onto = unit * (self.radius / row_norms(unit, self.order)[:, None])
            projected = with_rows(projected, extreme, onto)
        return projected


@dataclass(frozen=True)
class Sphere:
    """The directions of R^dim; ``radius`` is only the scale of the output."""

    dim: int
    radius: float

    def directions(self, W: A) -> A:
        """Return unit directions; a zero row stays zero. The work is the same for every row.

        A tiny row is rescaled before its norm is taken, never divided by a floor: otherwise the
        length of the result would give it away.
        """
        unit, peak = _safe_rescale(W)
        lengths = namespace(W).where(peak > 0, row_norms(unit, 2)[:, None], 1.0)
        directions: A = unit / lengths
        return directions

    def project(self, W: A, rng: Rng) -> A:
        """Return unit directions, quickly, for simulation; a zero row gets a random one.

        On a device a row without a normal number counts as zero: not all of them have others.
        """
        xp, limits = namespace(W), _extremes(W)
        norms = row_norms(W, 2)
        extreme = ~((norms > limits.low) & (norms < limits.high))
        unit: A = W / xp.where(extreme, 1.0, norms)[:, None]
        if extreme.any():
            rows = W[extreme]
            zero = xp.max(xp.abs(rows), axis=1) <= limits.zero
            if zero.any():
                some = draws_from(rng, W).normal(int(zero.sum()), W.shape[1])
                rows = with_rows(rows, zero, some)
            unit = with_rows(unit, extreme, self.directions(rows))
        return unit


@dataclass(frozen=True)
class Box:
    """The box ``{w in R^dim : |w_i| <= radius}``."""

    dim: int
    radius: float

    def project(self, W: A) -> A:
        """Clip every coordinate on its own."""
        clipped: A = namespace(W).clip(W, -self.radius, self.radius)
        return clipped


@dataclass(frozen=True)
class FiniteSet:
    """The symbols 0 … size-1."""

    size: int


Domain = Ball | Sphere | Box | FiniteSet
