"""The sets on which randomizers give their guarantee, and how a vector is brought into them.

A domain is what privacy rests on: the guarantee holds between any two *elements of the domain*, so
a randomizer brings every vector it is given into its domain itself and trusts nobody to have done
it before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, row_norms

RADIUS_RANGE = (1e-100, 1e100)
"""Radii outside this range could overflow float64 inside an encoder; none is ever useful."""


LARGEST_DIM = 1 << 20
"""The most coordinates a release may have, here and in its file."""


def check_radius(radius: float) -> float:
    """Return the radius as a float, or say what is wrong with it."""
    low, high = RADIUS_RANGE
    if not low <= radius <= high:
        raise InvalidInput(f"radius must lie between {low} and {high}, got radius={radius!r}")
    return float(radius)


def check_dim(dim: int) -> int:
    """Return the dimension as an int, or say what is wrong with it."""
    if (
        isinstance(dim, bool)
        or not isinstance(dim, int | np.integer)
        or not 1 <= dim <= LARGEST_DIM
    ):
        raise InvalidInput(f"dim must be an integer from 1 to {LARGEST_DIM}, got dim={dim!r}")
    return int(dim)


def opposite_poles(dim: int, radius: float) -> tuple[Vectors, Vectors]:
    """Return ±radius along the first axis: as far apart as two vectors of a ball can be."""
    pole = np.zeros(dim)
    pole[0] = radius
    return pole, -pole


def _safe_rescale(W: Vectors) -> tuple[Vectors, Vectors]:
    """Divide each row by its largest magnitude so that its norm cannot over- or underflow."""
    peak = np.abs(W).max(axis=1, keepdims=True)
    positive = peak > 0
    # Two steps: 1 / peak itself overflows for subnormal rows.
    _, exponent = np.frexp(np.where(positive, peak, 1.0))
    unit = np.ldexp(W, -exponent)
    scale = np.where(positive, np.abs(unit).max(axis=1, keepdims=True), 1.0)
    return unit / scale, peak


@dataclass(frozen=True)
class Ball:
    """The ℓp ball ``{w in R^dim : ‖w‖_p <= radius}``, p = 1 or 2; diameter 2·radius."""

    dim: int
    radius: float
    order: Literal[1, 2]

    def project(self, W: Vectors) -> Vectors:
        """Shrink every row radially onto the ball; rows inside it stay as they are.

        Each row depends on itself alone: what one person holds never moves another's vector.
        """
        norms = row_norms(W, self.order)
        share = self.radius / np.maximum(norms, self.radius)
        projected = W * share[:, None]
        # Beyond this the norm or the share is not a normal float64 any more.
        extreme = ~(share > 1e-280)
        if extreme.any():
            unit, _ = _safe_rescale(W[extreme])
            projected[extreme] = unit * (self.radius / row_norms(unit, self.order)[:, None])
        return projected


@dataclass(frozen=True)
class Sphere:
    """The directions of R^dim; ``radius`` is only the scale of the output."""

    dim: int
    radius: float

    def directions(self, W: Vectors) -> Vectors:
        """Return unit directions; a zero row stays zero. The work is the same for every row.

        A tiny row is rescaled before its norm is taken, never divided by a floor: otherwise the
        length of the result would give it away.
        """
        unit, peak = _safe_rescale(W)
        lengths = np.where(peak > 0, row_norms(unit, 2)[:, None], 1.0)
        return unit / lengths

    def project(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Return unit directions, quickly, for simulation; a zero row gets a random one."""
        norms = row_norms(W, 2)
        # In this range squares neither over- nor underflow.
        extreme = ~((norms > 1e-140) & (norms < 1e140))
        unit = W / np.where(extreme, 1.0, norms)[:, None]
        if extreme.any():
            rows = W[extreme]
            zero = ~rows.any(axis=1)
            rows[zero] = rng.standard_normal((int(zero.sum()), W.shape[1]))
            unit[extreme] = self.directions(rows)
        return unit


@dataclass(frozen=True)
class Box:
    """The box ``{w in R^dim : |w_i| <= radius}``."""

    dim: int
    radius: float

    def project(self, W: Vectors) -> Vectors:
        """Clip every coordinate on its own."""
        return np.clip(W, -self.radius, self.radius)


@dataclass(frozen=True)
class FiniteSet:
    """The symbols 0 … size-1."""

    size: int


Domain = Ball | Sphere | Box | FiniteSet
