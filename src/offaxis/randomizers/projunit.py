"""ProjUnit: PrivUnitG on a random projection, for vectors of many dimensions.

Contract: that of the rank form (:class:`RankForm`), pure ε with no assumption beyond the
generator's. Projecting only changes which directions are near, never how many.

A nonce expands to a Gaussian k × m matrix G and, under another key, to N directions of R^k. The
client ranks these by their correlation with Gw; exactly c are near, and it reports one as PrivUnitG
does. The server maps it back: v = ±(ρ/A) Gᵀg_j in standard units. With u = w/‖w‖ and a = Gu, the
component of v along u is ⟨g, a⟩. The part orthogonal to u depends on columns of G that are
independent of a, so its mean is zero:

    A = E‖a‖ · E t = √2 Γ((k + 1)/2)/Γ(k/2) · E t,

t the component of g along a, with the law of PrivUnitG. This treats the integers of the table as
normal numbers; the difference is far below what any number of reports could show.

A report expands k·m + N·k/2 numbers where PrivUnitG expands N·m/2. Reading one takes k·m more, so
the server has more work. The method is that of Asi, Feldman, Nelson, Nguyen, Talwar 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.randomizers.base import CHOOSE, Ball, Sphere, onto_lattice
from offaxis.randomizers.caps import MOST_BLOCKS, Cap, Ranks, choose, gaussian_cap, half_gamma_ratio
from offaxis.randomizers.directions import (
    PROJECTION_KEY,
    Nonces,
    blocks_per_pair,
    combination,
    products,
    spread,
)
from offaxis.randomizers.privunit import (
    INPUT_BOUND,
    RankForm,
    gaussian_log_density,
    gaussian_mean,
    gaussian_square,
)
from offaxis.vectors import Vectors, as_integer, row_dots

LOSS: Final = 0.03
"""Share of the least squared error that a smaller projection may add."""

_DENSITY_ROWS: Final = 64


@dataclass(frozen=True)
class ProjUnit(RankForm):
    """PrivUnitG in k dimensions, after a public random projection that is fresh in every report.

    Parameters
    ----------
    projected : int, optional
        k, at most ``dim``. By default the smallest power of two whose expected squared error is
        within three percent of the best. Compared with PrivUnitG the projection adds about ε/k of
        the error, so it suits dimensions of a few hundred and more; in lower dimensions k is close
        to ``dim`` and PrivUnitG is better and cheaper.

    Examples
    --------
    >>> from offaxis.randomizers import PrivUnitG, ProjUnit
    >>> randomizer = ProjUnit(dim=512, radius=1.0, epsilon=3)
    >>> randomizer.projected  # the directions are ranked in this dimension
    64
    >>> whole = PrivUnitG(dim=512, radius=1.0, epsilon=3)
    >>> round(randomizer.expected_squared_error() / whole.expected_squared_error(), 2)
    1.03
    """

    kind: ClassVar[str] = "projunit"
    wire_id: ClassVar[int] = 11
    ranked_by_angle: ClassVar[bool] = False

    projected: int = CHOOSE

    def _fix_ranked_dim(self) -> None:
        most = most_projected(self.dim)
        if self.projected == CHOOSE:
            object.__setattr__(self, "projected", _best_projected(self.dim, float(self.epsilon)))
        object.__setattr__(self, "projected", as_integer(self.projected, "projected", 1, most))

    @property
    def ranked_dim(self) -> int:
        """k, the dimension of the public directions."""
        return self.projected

    @property
    def cap(self) -> Cap:
        """The optimal cap for this ε, in any dimension."""
        return gaussian_cap(float(self.epsilon))

    @cached_property
    def _length(self) -> float:
        """The mean length of a projected unit vector."""
        return _mean_length(self.projected)

    @property
    def ideal_mean(self) -> float:
        """The expected component with infinitely many directions of R^k."""
        return self._length * self.cap.mean

    def _mean(self, ranks: Ranks) -> float:
        return self._length * gaussian_mean(ranks)

    def _ranked(self, inputs: NDArray[np.int64], nonces: Nonces) -> NDArray[np.int64]:
        """Return Gn as integers of R^k; Gn itself is exact (directions.products)."""
        image = products(nonces, self.projected, inputs, normalise=False, key=PROJECTION_KEY)
        k = self.projected
        return onto_lattice(Sphere(k, 1.0).directions(image), Ball(k, 1.0, 2), INPUT_BOUND)

    def _observed(self, g: Vectors, nonces: Nonces) -> Vectors:
        return combination(nonces, g, self.dim, PROJECTION_KEY) / spread() ** 2

    def _log_density(self, V: Vectors, U: Vectors) -> NDArray[np.float64]:
        """Return the log density of the observation alone, by quadrature over the hidden lengths.

        Against the law x = Gᵀg of a public g the density is E[L(⟨x, u⟩/‖a‖) | x], L that of a
        component of PrivUnitG. Given x, r = ‖g‖ has density r^{k−1−m} exp(−r²/2 − ‖x‖²/2r²), up to
        a constant, and ‖a‖² = ⟨x, u⟩²/r² + χ²_{k−1}. A server that keeps the nonce knows more.
        """
        scale = self.mean / self.radius
        along, square = scale * row_dots(V, U), scale * scale * row_dots(V, V)
        density = np.zeros(len(V))
        forward = np.flatnonzero(along > 0)  # pointing away from w the density is flat
        hidden, weights = _hidden_square(self.projected - 1)
        for start in range(0, forward.size, _DENSITY_ROWS):
            row = forward[start : start + _DENSITY_ROWS]
            gap = self.dim - self.projected
            mode = 2 * square[row] / (gap + np.sqrt(gap * gap + 4 * square[row]))
            r2, share = _square_nodes(mode, mode + gap, 65)
            image = np.sqrt((along[row, None] ** 2 / r2)[:, :, None] + hidden)
            ratio = np.exp(gaussian_log_density(self.ranks, along[row, None, None] / image))
            density[row] = np.log(((ratio @ weights) * share).sum(axis=1))
        return density

    def expected_squared_error(self) -> float:
        """Return ρ² ((k E t² + (m − 1)(k − 1 + E t²))/A² − 1).

        As target, a vector inside the ball adds ρ² − ‖w‖².
        """
        return float(self.radius**2 * _squared_error(self.dim, self.projected, self.ranks))


def most_projected(dim: int) -> int:
    """Return the largest k: at most ``dim`` and what a report may expand."""
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
    """Return the smallest power of two (or the largest k) within ``LOSS`` of the least error."""
    most = most_projected(dim)
    cap = gaussian_cap(epsilon)
    sizes = [*(1 << j for j in range(most.bit_length()) if 1 << j < most), most]
    errors = [
        _squared_error(dim, k, choose(k, epsilon, cap.mass, gaussian_mean, cap.mean)) for k in sizes
    ]
    enough = (1 + LOSS) * min(errors)
    return next(k for k, error in zip(sizes, errors, strict=True) if error <= enough)


def _hidden_square(degrees: int) -> tuple[Vectors, Vectors]:
    """Return nodes and weights of χ²; with zero degrees of freedom it is zero."""
    if degrees == 0:
        return np.zeros(1), np.ones(1)
    # With few degrees the law has a long tail at zero, in log r, which needs more nodes.
    count = 64 + 512 // degrees
    nodes, weights = _square_nodes(np.array([float(degrees)]), np.zeros(1), count)
    return nodes[0], weights[0]


def _square_nodes(mode: Vectors, pull: Vectors, count: int) -> tuple[Vectors, Vectors]:
    """Return nodes of r², one row per mode, and weights: even steps of s = log r about its mode.

    The log density of s is (M − B) s − (M e^{2s} + B e^{−2s})/2, up to a constant; M is the mode of
    r² and B the pull that keeps r from zero. To the right of the mode it has fallen by
    M φ(s) + B ψ(s), φ = (e^{2s} − 1)/2 − s, ψ = s − (1 − e^{−2s})/2 >= s²/(1 + s); to the left with
    M and B exchanged. The nodes end where one of the two terms has reached 40.
    """

    def reach(fast: Vectors, slow: Vectors) -> Vectors:
        with np.errstate(divide="ignore"):
            y, q = 80 / fast, 40 / slow
        ends: Vectors = np.minimum(
            np.log1p(y + np.sqrt(2 * y)) / 2, (q + np.sqrt(q * q + 4 * q)) / 2
        )
        return ends

    s = np.linspace(-reach(pull, mode), reach(mode, pull), count, axis=1)
    M, B = mode[:, None], pull[:, None]
    weight = np.exp((M - B) * s - (M * np.expm1(2 * s) + B * np.expm1(-2 * s)) / 2)
    return M * np.exp(2 * s), weight / weight.sum(axis=1, keepdims=True)
