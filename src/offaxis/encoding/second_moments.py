"""Second moments of one person: the encoder of reports that tell means and covariances.

A device maps its vector z to public coordinates w = A (z − c), clips w to the ball ‖w‖ <= R, and
reports u = (svec(w wᵀ − h I), a w). The mean of u over people gives the second moments and the mean
of the clipped coordinates. Clipping is part of the public map, so R, h and a are public, and the
guarantee is that of the randomizer after it (docs/proofs.md, second moments).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding.encoders import frozen_map, frozen_shift, tame
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, row_norms

MEAN_SHARE: Final = 0.2
"""κ: the share of the squared length R⁴ that the mean gets, a² = κR².

Of nine coordinates, the covariance of people whose mean moved by one or two public standard
deviations then takes at most 5 % more people than with the best weight, and that of people whose
mean did not move 16 % more than with κ = 0.05."""

SIZES: Final = (1e-20, 1e20)
"""Radii outside this range could overflow in fourth powers."""


@lru_cache(maxsize=64)
def places(rank: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Vectors]:
    """Return the rows i, the columns j >= i and the scales (1 or √2) of the entries of svec."""
    i, j = np.triu_indices(rank)
    scale = np.where(i == j, 1.0, math.sqrt(2))
    for part in (i, j, scale):
        part.setflags(write=False)
    return i, j, scale


def svec(matrices: Vectors) -> Vectors:
    """Return symmetric matrices (…, r, r) as vectors of the same length, (…, r(r + 1)/2).

    Row by row of the upper triangle; entries off the diagonal are multiplied by √2.

    Examples
    --------
    >>> from offaxis.encoding.second_moments import matrix_of, svec
    >>> matrix_of(svec(np.array([[1.0, 2.0], [2.0, 3.0]]))).round(12)
    array([[1., 2.],
           [2., 3.]])
    """
    i, j, scale = places(matrices.shape[-1])
    vectors: Vectors = matrices[..., i, j] * scale
    return vectors


def matrix_of(vectors: Vectors) -> Vectors:
    """Return the symmetric matrices of :func:`svec`."""
    rank = (math.isqrt(8 * vectors.shape[-1] + 1) - 1) // 2
    i, j, scale = places(rank)
    matrices = np.empty((*vectors.shape[:-1], rank, rank))
    matrices[..., i, j] = matrices[..., j, i] = vectors / scale
    return matrices


def products(w: Vectors) -> Vectors:
    """Return svec(w wᵀ) of every row, (n, r(r + 1)/2)."""
    i, j, scale = places(w.shape[1])
    out: Vectors = w[:, i] * w[:, j]
    out *= scale
    return out


@dataclass(frozen=True, eq=False, repr=False)
class SecondMomentsEncoder:
    """u = (svec(w wᵀ − h I), a w) with w = A (z − c), clipped to ‖w‖ <= R.

    Attributes
    ----------
    matrix : (r, m) array
        A.
    centre : (m,) array
        c.
    sizes : (3,) array
        R, h and a.

    Examples
    --------
    >>> from offaxis.encoding import SecondMomentsEncoder
    >>> encoder = SecondMomentsEncoder.of(np.eye(2), np.zeros(2), radius=2.0)
    >>> encoder.output_dim  # three second moments and two means
    5
    >>> bool(np.linalg.norm(encoder.encode(np.array([[30.0, 40.0]]))) <= encoder.reach * (1 + 1e-9))
    True
    """

    kind: ClassVar[str] = "second-moments"

    matrix: Vectors
    centre: Vectors
    sizes: Vectors

    def __post_init__(self) -> None:
        """Check shapes and sizes, and freeze the arrays."""
        matrix, centre = frozen_map(self.matrix, self.centre, axis=1)
        sizes = frozen_shift(self.sizes)
        if sizes.shape != (3,) or not SIZES[0] <= sizes[0] <= SIZES[1]:
            raise InvalidInput(
                f"second moments need a radius between {SIZES[0]:g} and {SIZES[1]:g}, a height and "
                f"a weight of the mean"
            )
        radius, height, weight = sizes
        if not (0 <= height <= radius**2 and 0 < weight <= radius):
            raise InvalidInput(
                "the height is at most the squared radius, and the weight of the mean is positive "
                "and at most the radius"
            )
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "sizes", sizes)

    @classmethod
    def of(cls, matrix: Vectors, centre: Vectors, radius: float) -> SecondMomentsEncoder:
        """Return the encoder of a radius with the height h and weight a of least length.

        With s = ‖w‖², ‖u‖² = s² − 2hs + h²r + a²s is convex in s, so its maximum is at s = 0 or
        s = R². For a² = κR², h = R²/r is best; in one dimension h = (1 + κ)R²/2.
        """
        square = radius**2
        height = min(square / len(matrix), (1 + MEAN_SHARE) * square / 2)
        return cls(matrix, centre, np.array([radius, height, math.sqrt(MEAN_SHARE) * radius]))

    @property
    def rank(self) -> int:
        """Number r of coordinates."""
        return int(self.matrix.shape[0])

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        return int(self.matrix.shape[1])

    @property
    def output_dim(self) -> int:
        """Number of second moments and means: r(r + 1)/2 + r."""
        return self.rank * (self.rank + 3) // 2

    @property
    def reach(self) -> float:
        """The length of the longest encoding."""
        radius, height, weight = self.sizes.tolist()
        square = radius**2
        far = square**2 - 2 * height * square + (weight * radius) ** 2
        return math.sqrt(max(0.0, far) + height**2 * self.rank)

    def coordinates(self, Z: Vectors) -> Vectors:
        """Return w, clipped."""
        radius = float(self.sizes[0])
        w = (tame(Z) - self.centre) @ self.matrix.T
        peak = np.abs(w).max(axis=1, keepdims=True)
        # First to the box, so that no square can overflow.
        w = np.where(peak > radius, w / np.maximum(peak, 1e-300) * radius, w)
        clipped: Vectors = w * (radius / np.maximum(row_norms(w, 2), radius))[:, None]
        return clipped

    def encode(self, Z: Vectors) -> Vectors:
        """Map (n, m) to (n, r(r + 1)/2 + r)."""
        _, height, weight = self.sizes
        with np.errstate(under="ignore"):
            w = self.coordinates(Z)
            i, j, _ = places(self.rank)
            moments = products(w) - height * (i == j)
            return np.hstack([moments, weight * w])

    def moments_of(self, observations: Vectors) -> Vectors:
        """Return (svec(w wᵀ), w) of observations of u, (n, r(r + 1)/2 + r): linear, so unbiased."""
        _, height, weight = self.sizes
        i, j, _ = places(self.rank)
        out = np.array(observations, dtype=np.float64)
        out[:, : i.size] += height * (i == j)
        out[:, i.size :] /= weight
        return out
