"""RRSC: a randomly rotated simplex as codebook (Isik, Chen, Özgür, Weissman, No 2023).

Contract: that of :mod:`experiments.rivals.near_sets`, pure ε for any rotation and ranking.

The nonce determines a uniformly random rotation of a regular simplex with M ≤ m + 1 vertices of
length one. Near are the c vertices of largest component along ±w. The components of the vertices
along a unit vector are √(M/(M − 1)) (g_i − ḡ)/R, with M independent normal g_i and R the length of
a normal vector of R^m; R is independent of the ratios. All vertices add up to zero, so the reported
one has the mean component

    A = (e^ε − 1)/(c e^ε + M − c) · √(M/(M − 1)) · E Σ_near g_i / E χ_m,

and v = ρ/A times the vertex has the mean w and, for ‖w‖ = ρ = 1, the squared error 1/A² − 1.
With independent vertices the factor √(M/(M − 1)) is missing: that is what a simplex gains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from experiments.rivals.near_sets import NearSet
from offaxis.errors import InvalidInput
from offaxis.randomizers import register
from offaxis.randomizers.base import CHOOSE, Sphere
from offaxis.randomizers.caps import half_gamma_ratio
from offaxis.randomizers.directions import Nonces, expand
from offaxis.vectors import Vectors, as_integer, row_norms

_SIMPLEX: Final = b"rivals simplex1."

MOST_VERTICES: Final = 1 << 12
LOSS: Final = 0.005
"""Share of the correlation with the largest simplex that the default may lose, as in offaxis."""

_NUMBERS: Final = 1 << 21
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)


@register
@dataclass(frozen=True)
class RotatedSimplex(NearSet):
    """One of M vertices of a simplex that every nonce rotates anew.

    Parameters
    ----------
    directions : int, optional
        M, the vertices, at most m + 1; by default the smallest power of two that loses at most half
        a percent of the correlation, or the largest one.
    near : int, optional
        c; by default the one of least error.
    """

    kind: ClassVar[str] = "rivals.rotated-simplex"

    def __post_init__(self) -> None:
        """Read the parameters exactly and fix M and c."""
        super().__post_init__()
        epsilon = float(self.epsilon)
        if self.directions == CHOOSE:
            object.__setattr__(self, "directions", best_vertices(self.dim, epsilon))
        most = min(self.dim + 1, MOST_VERTICES)
        object.__setattr__(self, "directions", as_integer(self.directions, "directions", 2, most))
        if self.near == CHOOSE:
            object.__setattr__(self, "near", best_near(self.directions, epsilon))
        object.__setattr__(self, "near", as_integer(self.near, "near", 1, self.directions - 1))
        if epsilon > 100:
            raise InvalidInput("epsilon must be at most 100")

    @cached_property
    def mean(self) -> float:
        """A: the mean component of the reported vertex along ±w."""
        return mean_component(self.dim, self.directions, self.near, float(self.epsilon))

    def codebook(self, nonces: Nonces) -> Vectors:
        """Return the vertices of every nonce, (n, M, dim)."""
        g = expand(
            nonces, np.tile(np.arange(self.directions - 1), (len(nonces), 1)), self.dim, _SIMPLEX
        )
        q, r = np.linalg.qr(np.swapaxes(g, 1, 2))
        # With positive diagonal the factors are unique, and the rotation is uniform.
        q = q * np.sign(np.einsum("rii->ri", r))[:, None, :]
        rotated: Vectors = np.matmul(regular_simplex(self.directions), np.swapaxes(q, 1, 2))
        return rotated

    def nearest(self, W: Vectors, nonces: Nonces) -> NDArray[np.int64]:
        """Return exactly c vertices of largest component per row, ascending: (n, c)."""
        out = np.empty((len(W), self.near), dtype=np.int64)
        directions = Sphere(self.dim, 1.0).directions(W)
        for start in range(0, len(W), self._rows_at_once):
            part = slice(start, start + self._rows_at_once)
            codebook = self.codebook(nonces[part])
            score = np.matmul(codebook, directions[part][:, :, None])[:, :, 0]
            out[part] = np.sort(np.argsort(-score, axis=1, kind="stable")[:, : self.near], axis=1)
        return out

    @property
    def _rows_at_once(self) -> int:
        return max(1, _NUMBERS // (self.directions * self.dim))

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the reported vertices, scaled to be unbiased."""
        nonces, index = self.named(payloads)
        out = np.empty((len(index), self.dim))
        for start in range(0, len(index), self._rows_at_once):
            part = slice(start, start + self._rows_at_once)
            codebook = self.codebook(nonces[part])
            out[part] = codebook[np.arange(len(codebook)), index[part]]
        return out * (self.radius / self.mean)

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Draw observations with the law of reports, without rotations.

        Given its component t along the direction, the vertex is uniform on the sphere around it.
        """
        U, rows, M = self.turned(W, rng), len(W), self.directions
        g = rng.standard_normal((rows, M))
        g -= g.mean(axis=1, keepdims=True)
        beyond = self.dim - M + 1
        rest = rng.chisquare(beyond, rows) if beyond else np.zeros(rows)
        g *= (math.sqrt(M / (M - 1)) / np.sqrt((g * g).sum(axis=1) + rest))[:, None]
        g = -np.sort(-g, axis=1)
        far = (M - self.near) * math.exp(-float(self.epsilon))
        is_near = rng.random(rows) < self.near / (self.near + far)
        rank = np.where(
            is_near,
            rng.integers(0, self.near, rows),
            rng.integers(self.near, M, rows),
        )
        t = np.take_along_axis(g, rank[:, None], axis=1)
        across = rng.standard_normal((rows, self.dim))
        across -= (across * U).sum(axis=1, keepdims=True) * U
        if self.dim > 1:
            across /= row_norms(across, 2)[:, None]
        sine = np.sqrt(np.maximum(0.0, 1 - t * t))
        observed: Vectors = (t * U + sine * across) * (self.radius / self.mean)
        return observed

    def expected_squared_error(self) -> float:
        """Return ρ² (1/A² − 1); a vector inside the ball adds ρ² − ‖w‖²."""
        return self.radius**2 * (1 / self.mean**2 - 1)


@lru_cache(maxsize=8)
def regular_simplex(vertices: int) -> Vectors:
    """Return M unit vectors of R^{M−1} with the inner products −1/(M − 1), (M, M − 1)."""
    step = np.arange(1, vertices)
    corners = np.triu(np.ones((vertices, vertices - 1)))
    corners[step, step - 1] = -step
    corners /= np.sqrt(step * (step + 1.0))
    return corners * math.sqrt(vertices / (vertices - 1))


@lru_cache(maxsize=4096)
def _near_sum(vertices: int, near: int) -> float:
    """Return E of the sum of the ``near`` largest of M independent normal numbers.

    It is M E φ(γ(T)), T ~ Beta(c, M − c), with Pr[g ≥ γ(T)] = T: summation by parts, as for ranks.
    """
    # Nodes in a variable that is dense at both ends: x = s²(3 − 2s), dx = 6s(1 − s) ds.
    s, w = (_NODES + 1) / 2, _WEIGHTS / 2
    tails = betaincinv(near, vertices - near, s * s * (3 - 2 * s))
    densities = np.exp(-(ndtri(tails) ** 2) / 2) / math.sqrt(2 * math.pi)
    return vertices * float((w * 6 * s * (1 - s)) @ densities)


def mean_component(dim: int, vertices: int, near: int, epsilon: float) -> float:
    """Return A."""
    scaled = near + (vertices - near) * math.exp(-epsilon)
    length = math.sqrt(2) * half_gamma_ratio(dim / 2)
    lift = -math.expm1(-epsilon) / scaled * math.sqrt(vertices / (vertices - 1))
    return lift * _near_sum(vertices, near) / length


@lru_cache(maxsize=512)
def best_near(vertices: int, epsilon: float) -> int:
    """Return the c with the largest A; A has one maximum in c."""
    low, high = 1, max(1, vertices // 2)
    while low < high:
        middle = (low + high) // 2
        if mean_component(2, vertices, middle, epsilon) < mean_component(
            2, vertices, middle + 1, epsilon
        ):
            low = middle + 1
        else:
            high = middle
    return low


@lru_cache(maxsize=512)
def best_vertices(dim: int, epsilon: float) -> int:
    """Return the default M."""
    most = min(dim + 1, MOST_VERTICES)
    sizes = [1 << j for j in range(1, most.bit_length()) if 1 << j <= most]

    def mean(size: int) -> float:
        return mean_component(dim, size, best_near(size, epsilon), epsilon)

    return next(size for size in sizes if mean(size) >= (1 - LOSS) * mean(sizes[-1]))
