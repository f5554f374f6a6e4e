"""Spherical Laplace noise on the ℓ2 ball: pure ε, the same in every direction.

The exact form works on integers (pure_lattice_form.py): the input is clipped, truncated toward zero
to integers n with Σn_i² <= R² (checked in integers), and gets noise round(X), X in R^m with a
density proportional to exp(−‖x‖₂ / t), which by the triangle inequality falls by at most
e^{‖k‖₂/t} over a step k. Because n is an integer, n + round(X) = round(n + X): the report is a
function of n + X and loses no more.

This is the K-norm mechanism (Hardt and Talwar 2010) of the ℓ2 ball. Its noise is m·t long on
average; that of Laplace on the ℓ1 ball around the same vectors, of radius √m·ρ, √2 times as long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import namespace
from offaxis.randomizers.pure_lattice_form import PureLatticeForm
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.sampling.rounded_spherical import RoundedSpherical
from offaxis.vectors import Vectors, row_norms

_TAIL: Final = 44


@dataclass(frozen=True)
class SphericalLaplace(PureLatticeForm):
    """Spherical Laplace randomizer on the ℓ2 ball of ``radius`` in R^dim.

    Examples
    --------
    >>> from offaxis.randomizers import SphericalLaplace
    >>> randomizer = SphericalLaplace(dim=64, radius=1.0, epsilon=5)
    >>> str(randomizer.guarantee), round(randomizer.expected_squared_error())  # m(m + 1)(2ρ/ε)²
    ('ε = 5, pure', 666)
    """

    kind: ClassVar[str] = "spherical-laplace"
    wire_id: ClassVar[int] = 8
    order: ClassVar[Literal[1, 2]] = 2

    @property
    def tail(self) -> int:
        """Noise scales that one coordinate exceeds with probability 2 e**-44 at most.

        y + √(2(m + 1)y) with y = 44: E exp(λ X_1/t) = (1 − λ²)^{−(m+1)/2}, a sub-gamma law.
        """
        return _TAIL + math.isqrt(2 * (self.dim + 1) * _TAIL) + 1

    def noise(self, count: int, entropy: RealEntropy) -> NDArray[np.int64]:
        """Draw rounded spherical Laplace noise, whole vectors of it."""
        rows, rest = divmod(count, self.dim)
        if rest:
            raise ValueError(f"noise comes in vectors of {self.dim}, got count={count}")
        return RoundedSpherical(self.dim, self.log2_scale).draw(rows, entropy).reshape(-1)

    def simulate(self, W: Array, rng: Rng) -> Array:
        """Clip and add a Gaussian of random variance, in floating point; never a report."""
        draws = draws_from(rng, W)
        noise = draws.normal(*W.shape)
        # The variance is χ² with m + 1 degrees of freedom.
        variance = draws.chi_square(self.dim + 1, len(W))
        noise *= self.scale * namespace(W).sqrt(variance)[:, None]
        noise += self.domain.project(W)
        return noise

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return −‖v − clip(w)‖₂ / scale, the log density up to a constant independent of w."""
        return -row_norms(V - self.domain.project(W), 2) / self.scale

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return −‖y − n‖₂ / t of the integers y on the wire.

        The density at the middle of y's cell instead of its mass over it: a cell is a tiny part of
        a noise scale wide, and clamped payloads are rarer than e**-40.
        """
        return -row_norms(self.gaps(payloads, W), 2)

    def expected_squared_error(self) -> float:
        """Return m(m + 1) scale² + m step²/12: the noise, and what rounding it adds."""
        return self.dim * ((self.dim + 1) * self.scale**2 + self.step**2 / 12)
