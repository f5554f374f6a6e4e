"""ProjUnit: PrivUnitG on a random projection, for vectors of many dimensions.

Contract: that of the rank form (rank_form.py), pure ε without any assumption. Projecting only
changes which directions are near, never how many.

A nonce stands for a Gaussian k × m matrix G and, under another key, for N directions of R^k. The
client ranks these by their correlation with Gw, exactly c are near, and it reports one as PrivUnitG
does. The server maps it back: v = ±(ρ/A) Gᵀg_j in standard units. With u = w/‖w‖ and a = Gu, the
component of v along u is ⟨g, a⟩, and what lies across u is seen through columns of G that are
independent of a, so its mean is zero:

    A = E‖a‖ · E t = √2 Γ((k + 1)/2)/Γ(k/2) · E t,

t the component of g along a, whose law is PrivUnitG's. This takes the table's integers for normal
numbers; what that misses is far below what any number of reports shows.

A report expands k·m + N·k/2 numbers where PrivUnitG expands N·m/2. Reading one takes k·m more, so a
server works harder. The method is that of Asi, Feldman, Nelson, Nguyen, Talwar 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from offaxis.errors import InvalidInput
from offaxis.randomizers.base import CHOOSE
from offaxis.randomizers.directions import (
    PROJECTION_KEY,
    Nonces,
    blocks_per_pair,
    combination,
    products,
    spread,
)
from offaxis.randomizers.domain import Ball, Sphere
from offaxis.randomizers.lattice import onto_lattice
from offaxis.randomizers.privunit import (
    gaussian_component,
    gaussian_log_density,
    gaussian_mean,
    gaussian_square,
)
from offaxis.randomizers.privunit_calibration import Cap, gaussian_cap, half_gamma_ratio
from offaxis.randomizers.rank_form import INPUT_BOUND, RankForm
from offaxis.randomizers.ranks import MOST_BLOCKS, Ranks, choose
from offaxis.sampling.simulation import gaussian_towards
from offaxis.vectors import Vectors, row_dots

LOSS: Final = 0.03
"""Share of the least squared error that a smaller projection may cost."""

_DENSITY_ROWS: Final = 64


@dataclass(frozen=True)
class ProjUnit(RankForm):
    """PrivUnitG in k dimensions, reached by a public random projection a report.

    Parameters
    ----------
    projected : int, optional
        k, at most ``dim``. When not given: the smallest power of two whose expected squared error
        is within three percent of the best. Against PrivUnitG the projection itself costs about
        ε/k of the error, so it suits dimensions of some hundreds and more; in lower ones k comes
        near ``dim`` and PrivUnitG is better and cheaper.
    """

    kind: ClassVar[str] = "projunit"
    wire_id: ClassVar[int] = 11
    ranked_by_angle: ClassVar[bool] = False

    projected: int = CHOOSE

    def _settle_dimension(self) -> None:
        most = most_projected(self.dim)
        if self.projected == CHOOSE:
            object.__setattr__(self, "projected", _best_projected(self.dim, float(self.epsilon)))
        if (
            isinstance(self.projected, bool)
            or not isinstance(self.projected, int | np.integer)
            or not 1 <= self.projected <= most
        ):
            raise InvalidInput(
                f"projected must be an integer from 1 to {most} at dimension {self.dim}, "
                f"got projected={self.projected!r}"
            )
        object.__setattr__(self, "projected", int(self.projected))

    @property
    def ranked_dim(self) -> int:
        """k, the dimension of the public directions."""
        return self.projected

    @property
    def cap(self) -> Cap:
        """The optimal cap for this ε; no dimension enters."""
        return gaussian_cap(float(self.epsilon))

    @property
    def _cap_mass(self) -> float:
        return self.cap.mass

    @cached_property
    def _length(self) -> float:
        """The mean length of a projected unit vector."""
        return _mean_length(self.projected)

    @property
    def ideal_mean(self) -> float:
        """The component that infinitely many directions of R^k would give."""
        return self._length * self.cap.mean

    def _mean(self, ranks: Ranks) -> float:
        return self._length * gaussian_mean(ranks)

    def _ranked(self, inputs: NDArray[np.int64], nonces: Nonces) -> NDArray[np.int64]:
        """Return Gn on the integers of R^k; G n itself is exact (directions.py)."""
        image = products(nonces, self.projected, inputs, normalise=False, key=PROJECTION_KEY)
        k = self.projected
        return onto_lattice(Sphere(k, 1.0).directions(image), Ball(k, 1.0, 2), INPUT_BOUND)

    def _observed(self, g: Vectors, nonces: Nonces) -> Vectors:
        return combination(nonces, g, self.dim, PROJECTION_KEY) / spread() ** 2

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Draw reports in floating point, already scaled to be unbiased for the target.

        No matrix is drawn: given g, Gᵀg is ‖g‖ times a normal vector whose component along u is
        ⟨g, a⟩/‖g‖, and that needs the length of a and the component t of g along a alone.
        """
        u = self._simulated_directions(W, rng)
        t = gaussian_component(*self.ranks.draw(len(u), rng))
        k = self.projected
        across = rng.chisquare(k - 1, len(u)) if k > 1 else 0.0
        length = np.maximum(np.sqrt(t * t + across), np.finfo(float).tiny)
        image = np.sqrt(rng.chisquare(k, len(u)))
        v = gaussian_towards(u, t / length * image, rng)
        v *= (length * (self.radius / self.mean))[:, None]
        return v

    def _log_density(self, V: Vectors, U: Vectors) -> NDArray[np.float64]:
        """Return the log density of the observation alone, by quadrature over what it hides.

        Against the law x = Gᵀg of a public g the density is E[L(⟨x, u⟩/‖a‖) | x], L that of a
        component of PrivUnitG. Given x, r = ‖g‖ has density r^{k−1−m} exp(−r²/2 − ‖x‖²/2r²), up to
        a constant, and ‖a‖² = ⟨x, u⟩²/r² + χ²_{k−1}. A server that keeps the nonce knows more.
        """
        scale = self.mean / self.radius
        along, square = scale * row_dots(V, U), scale * scale * row_dots(V, V)
        density = np.zeros(len(V))
        forward = np.flatnonzero(along > 0)  # away from w it is flat
        hidden, weights = _chi_square_nodes(self.projected - 1)
        for start in range(0, forward.size, _DENSITY_ROWS):
            row = forward[start : start + _DENSITY_ROWS]
            r2, share = self._squared_lengths(square[row])
            image = np.sqrt((along[row, None] ** 2 / r2)[:, :, None] + hidden)
            ratio = np.exp(gaussian_log_density(self.ranks, along[row, None, None] / image))
            density[row] = np.log(((ratio @ weights) * share).sum(axis=1))
        return density

    def _squared_lengths(self, square: Vectors) -> tuple[Vectors, Vectors]:
        """Return nodes of r² given ‖x‖², a row each, and their weights: even steps of s = log r.

        About its mode, r² = M, the log density is −(B − M) s − M (e^{2s} − 1)/2 − B (e^{−2s} − 1)/2
        with B = ‖x‖²/M. It falls below −40 where M (e^{2s} − 1 − 2s) reaches 80, and B on the left.
        """
        gap = self.dim - self.projected
        right = 2 * square / (gap + np.sqrt(gap * gap + 4 * square))
        left = square / right
        ends = [0.5 * np.log1p(80 / x + np.log1p(80 / x)) for x in (left, right)]
        wide = 8 / np.sqrt(2 * left + 2 * right)
        step = np.linspace(-np.minimum(ends[0], wide), np.minimum(ends[1], wide), 33, axis=1)
        up, down = np.exp(2 * step), np.exp(-2 * step)
        fall = 2 * gap * step + right[:, None] * (up - 1) + left[:, None] * (down - 1)
        weight = np.exp(-fall / 2)
        return right[:, None] * up, weight / weight.sum(axis=1, keepdims=True)

    def expected_squared_error(self) -> float:
        """Return ρ² ((k E t² + (m − 1)(k − 1 + E t²))/A² − 1).

        A vector inside the ball, as target, has ρ² − ‖w‖² more.
        """
        return float(self.radius**2 * _squared_error(self.dim, self.projected, self.ranks))


def most_projected(dim: int) -> int:
    """Return the largest k: of ``dim`` and what a report may expand."""
    return min(dim, MOST_BLOCKS // blocks_per_pair(dim))


def _mean_length(projected: int) -> float:
    """Return E χ_k."""
    return math.sqrt(2) * half_gamma_ratio(projected / 2)


def _squared_error(dim: int, projected: int, ranks: Ranks) -> float:
    """Return the expected squared error at radius one."""
    mean = _mean_length(projected) * gaussian_mean(ranks)
    square = gaussian_square(ranks)
    energy = projected * square + (dim - 1) * (projected - 1 + square)
    return energy / mean**2 - 1


def _best_projected(dim: int, epsilon: float) -> int:
    """Return the smallest power of two (or the most) within ``LOSS`` of the least error."""
    most = most_projected(dim)
    cap = gaussian_cap(epsilon)
    sizes = [*(1 << j for j in range(most.bit_length()) if 1 << j < most), most]
    errors = [
        _squared_error(dim, k, choose(k, epsilon, cap.mass, gaussian_mean, cap.mean)) for k in sizes
    ]
    enough = (1 + LOSS) * min(errors)
    return next(k for k, error in zip(sizes, errors, strict=True) if error <= enough)


def _chi_square_nodes(degrees: int) -> tuple[Vectors, Vectors]:
    """Return nodes and weights of χ²: Gauss–Legendre on its quantiles."""
    if degrees == 0:
        return np.zeros(1), np.ones(1)
    nodes, weights = np.polynomial.legendre.leggauss(32)
    return 2 * gammaincinv(degrees / 2, (nodes + 1) / 2), weights / 2
