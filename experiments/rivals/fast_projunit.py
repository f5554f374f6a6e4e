"""FastProjUnit: PrivUnit after a structured projection (Asi, Feldman, Nelson, Nguyen, Talwar 2023).

Contract: that of :mod:`experiments.rivals.near_sets`, pure ε for any projection and ranking.

The nonce determines signs s_1 and s_2, k of D places (D ≥ m a power of two), and N directions of
R^k. P = (the places of) H s_2 H s_1, applied to w padded to D coordinates: k orthonormal rows. Near
are the c directions of largest component along ±Pw, the rank form of PrivUnit2 (docs/proofs.md §8).
With A_k the mean component of PrivUnit2 in
R^k and z the reported direction, v = ρ Pᵀz/(A_k E‖Pu‖). For a uniform projection
E‖Pu‖ = Γ((k+1)/2)Γ(D/2)/(Γ(k/2)Γ((D+1)/2)), v has the mean w, and for D = m, ‖w‖ = ρ = 1

    E‖v − w‖² = 1/(A_k E‖Pu‖)² − 1.

P only imitates a uniform projection: the bias is too small to be seen (tests/experiments). Two
differences from the publication: two rounds of signs and Hadamard instead of one, since with one
round ‖Pu‖ = √(k/D) always for a u along an axis, which shrinks v by about 1/4k there; and
PrivUnit2 instead of PrivUnitG, since the projected direction is normalised anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc, betainccinv

from experiments.rivals.near_sets import NearSet
from experiments.rivals.public import (
    power_above,
    public_places,
    public_signs,
    seeded_nonces,
    transform,
)
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.randomizers import PrivUnit2, register
from offaxis.randomizers.base import CHOOSE, Sphere
from offaxis.randomizers.caps import half_gamma_ratio
from offaxis.randomizers.directions import Nonces, expand
from offaxis.simulation import draw_observations
from offaxis.vectors import Vectors, as_integer, row_norms

_FIRST: Final = b"rivals first v1."
_SECOND: Final = b"rivals second 1."
_PLACES: Final = b"rivals places 1."

LOSS: Final = 0.03
"""Share of the least squared error that a smaller projection may add, as for our ProjUnit."""

_NUMBERS: Final = 1 << 16


@register
@dataclass(frozen=True)
class FastProjUnit(NearSet):
    """PrivUnit2 of k coordinates of a rotated vector.

    Parameters
    ----------
    directions, near : int, optional
        N and c, as for :class:`offaxis.randomizers.PrivUnit2` in k dimensions.
    projected : int, optional
        k; by default the smallest power of two within three percent of the least error.
    """

    kind: ClassVar[str] = "rivals.fast-projunit"

    projected: int = CHOOSE

    def __post_init__(self) -> None:
        """Read the parameters exactly, fix k and the directions."""
        super().__post_init__()
        if self.projected == CHOOSE:
            chosen = best_projected(self.dim, float(self.epsilon))
            object.__setattr__(self, "projected", chosen)
        size = power_above(self.dim)
        object.__setattr__(self, "projected", as_integer(self.projected, "projected", 1, size))
        inner = PrivUnit2(self.projected, 1.0, self.epsilon, self.directions, self.near)
        object.__setattr__(self, "directions", inner.directions)
        object.__setattr__(self, "near", inner.near)

    @cached_property
    def inner(self) -> PrivUnit2:
        """PrivUnit2 in k dimensions."""
        return PrivUnit2(self.projected, 1.0, self.epsilon, self.directions, self.near)

    @cached_property
    def mean(self) -> float:
        """The mean component of Pᵀz along ±w."""
        return self.inner.mean * mean_length(self.projected, power_above(self.dim))

    def projection(self, W: Vectors, nonces: Nonces) -> Vectors:
        """Return Pw of every row, (n, k)."""
        size = power_above(self.dim)
        out = np.empty((len(W), self.projected))
        for start in range(0, len(W), max(1, _NUMBERS // size)):
            part = slice(start, start + max(1, _NUMBERS // size))
            first, second, places = self._expanded(nonces[part])
            padded = np.zeros((len(places), size))
            padded[:, : self.dim] = W[part]
            rotated = transform(transform(padded * first) * second)
            out[part] = np.take_along_axis(rotated, places, axis=1)
        return out

    def lifted(self, Z: Vectors, nonces: Nonces) -> Vectors:
        """Return Pᵀz of every row without the padding, (n, dim)."""
        size = power_above(self.dim)
        out = np.empty((len(Z), self.dim))
        for start in range(0, len(Z), max(1, _NUMBERS // size)):
            part = slice(start, start + max(1, _NUMBERS // size))
            first, second, places = self._expanded(nonces[part])
            placed = np.zeros((len(places), size))
            np.put_along_axis(placed, places, Z[part], axis=1)
            out[part] = (transform(transform(placed) * second) * first)[:, : self.dim]
        return out

    def _expanded(self, nonces: Nonces) -> tuple[Vectors, Vectors, NDArray[np.int64]]:
        size = power_above(self.dim)
        return (
            public_signs(nonces, size, _FIRST),
            public_signs(nonces, size, _SECOND),
            public_places(nonces, size, self.projected, _PLACES),
        )

    def nearest(self, W: Vectors, nonces: Nonces) -> NDArray[np.int64]:
        """Return exactly c near directions of every row, ascending: (n, c)."""
        with np.errstate(all="ignore"):
            image = self.projection(Sphere(self.dim, 1.0).directions(W), nonces)
            return self.inner.nearest(image, nonces)

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the reported directions, mapped back and scaled to be unbiased."""
        nonces, index = self.named(payloads)
        g = expand(nonces, index[:, None] >> 1, self.projected)[:, 0]
        z = g / row_norms(g, 2)[:, None] * (1.0 - 2.0 * (index & 1))[:, None]
        return self.lifted(z, nonces) * (self.radius / self.mean)

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Draw observations with the law of reports: real projections, simulated PrivUnit2."""
        nonces = seeded_nonces(len(W), rng)
        image = self.projection(self.turned(W, rng), nonces)
        observed: Vectors = draw_observations(self.inner, image, rng)
        scale = self.radius / mean_length(self.projected, power_above(self.dim))
        return self.lifted(observed, nonces) * scale

    def expected_squared_error(self) -> float:
        """Return the error for a uniform projection; padding drops its share of the noise."""
        return self.radius**2 * _error(self.dim, self.inner)


def mean_length(projected: int, size: int) -> float:
    """Return E‖Pu‖ of a uniform projection of R^size to ``projected`` dimensions."""
    if projected == size:
        return 1.0
    return half_gamma_ratio(projected / 2) / half_gamma_ratio(size / 2)


def _error(dim: int, inner: PrivUnit2) -> float:
    """Return E‖v − w‖² at radius one.

    Of Pᵀz the part along u has the square s² = ‖Pu‖² t², E‖Pu‖² = k/D; of the rest, which is
    uniform across u, the share (m − 1)/(D − 1) is kept.
    """
    size, projected = power_above(dim), inner.dim
    mean = inner.mean * mean_length(projected, size)
    if dim == size:
        return float(1 / mean**2 - 1)
    along = projected / size * _square(inner)
    return float((along + (1 - along) * (dim - 1) / (size - 1)) / mean**2 - 1)


def _square(inner: PrivUnit2) -> float:
    """Return E t² of the component of PrivUnit2 along its input."""
    k = inner.dim
    if k == 1:
        return 1.0

    def moment(tail: Vectors) -> Vectors:
        # E[t²; t >= γ] with t² ~ Beta(1/2, (k − 1)/2) is half of 1/k Pr[Beta(3/2, ·) >= γ²].
        square = betainccinv(0.5, (k - 1) / 2, tail)
        over: Vectors = betaincc(1.5, (k - 1) / 2, square) / (2 * k)
        return over

    return inner.ranks.background / k + inner.ranks.expectation(moment)


@lru_cache(maxsize=256)
def best_projected(dim: int, epsilon: float) -> int:
    """Return the smallest power of two within ``LOSS`` of the least error."""
    sizes = [1 << j for j in range(power_above(dim).bit_length())]
    errors = [_error(dim, PrivUnit2(k, 1.0, exact_epsilon(epsilon))) for k in sizes]
    enough = (1 + LOSS) * min(errors)
    return next(k for k, error in zip(sizes, errors, strict=True) if error <= enough)
