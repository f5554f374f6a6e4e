"""Spherical Laplace noise on the ℓ2 ball: pure ε, the same in every direction.

Contract: for every two inputs and every report y,
``Pr[report = y | w] <= exp(ε) Pr[report = y | w']``.

The exact form works on integers (lattice_form.py). With t = 2**b a public noise scale and
R = floor(ε t / 2), the ball of radius ρ is laid on the lattice of step ρ/R: the input is clipped,
truncated toward zero to integers n with Σn_i² <= R² (checked in integers), and gets noise round(X),
X in R^m with a density proportional to exp(−‖x‖₂ / t). Two inputs differ by at most 2R in ℓ2, so by
the triangle inequality the loss of n + X is at most 2R / t <= ε, as an exact rational. Because n is
an integer, n + round(X) = round(n + X): the report is a function of n + X and loses no more.

This is the K-norm mechanism (Hardt and Talwar 2010) of the ℓ2 ball. Its noise is m·t long on
average; that of Laplace on the ℓ1 ball around the same vectors, of radius √m·ρ, √2 times as long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee, decimal
from offaxis.randomizers.base import CHOOSE
from offaxis.randomizers.domain import Ball
from offaxis.randomizers.lattice_form import LatticeForm
from offaxis.randomizers.payload import Width, largest_magnitude
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.rounded_spherical import RoundedSpherical
from offaxis.vectors import Vectors, row_norms

_TAIL: Final = 44
"""A coordinate is clamped with probability 2 e**-44 at most."""

_FINE: Final = 32
"""Steps a coordinate that the bound should leave on average: truncation then costs a percent."""


def tail(dim: int) -> int:
    """Return noise scales that one coordinate exceeds with probability 2 e**-44 at most.

    y + √(2(m + 1)y) with y = 44: E exp(λ X_1/t) = (1 − λ²)^{−(m+1)/2}, a sub-gamma law.
    """
    return _TAIL + math.isqrt(2 * (dim + 1) * _TAIL) + 1


def widest_log2_scale(dim: int, epsilon: Fraction, width: Width) -> int:
    """Return the largest b with bound and tails inside the payload, and a bound to be checked.

    (ε/2 + tail) 2**b <= largest, and m·R² <= m·(ε/2)² 4**b below 2**63.
    """
    room = math.floor(largest_magnitude(width) / (epsilon / 2 + tail(dim)))
    checkable = math.floor(math.isqrt(((1 << 63) - 1) // dim) / (epsilon / 2))
    return min(room, checkable).bit_length() - 1


def choose_log2_scale(dim: int, epsilon: Fraction) -> int:
    """Return the b of three bytes a coordinate, or of four where three are too coarse."""
    narrow = widest_log2_scale(dim, epsilon, 3)
    if (epsilon * (1 << narrow) / 2) ** 2 >= _FINE**2 * dim:
        return narrow
    return widest_log2_scale(dim, epsilon, 4)


@dataclass(frozen=True)
class SphericalLaplace(LatticeForm):
    """Spherical Laplace randomizer on the ℓ2 ball of ``radius`` in R^dim.

    Parameters
    ----------
    dim : int
    radius : float
        ρ; inputs outside the ball are clipped onto it.
    epsilon : number
        Promised ε, read exactly.
    log2_scale : int, optional
        b of the lattice; chosen from epsilon and dim when not given.
    """

    kind: ClassVar[str] = "spherical-laplace"
    wire_id: ClassVar[int] = 8

    log2_scale: int = CHOOSE

    def __post_init__(self) -> None:
        """Fix the lattice and check, exactly, that it keeps the promise."""
        super().__post_init__()
        if self.log2_scale == CHOOSE:
            object.__setattr__(self, "log2_scale", choose_log2_scale(self.dim, self.epsilon))
        widest = widest_log2_scale(self.dim, self.epsilon, 4)
        if not 0 <= self.log2_scale <= widest or self.bound < 1:
            raise InvalidInput(
                f"log2_scale must lie in 0..{widest} and leave a bound of at least 1 at "
                f"epsilon={decimal(self.epsilon)}, got log2_scale={self.log2_scale}"
            )
        if self.realised_epsilon > self.epsilon:
            raise InvalidInput(f"the lattice gives ε={self.realised_epsilon} > {self.epsilon}")

    @cached_property
    def bound(self) -> int:
        """R: the largest ‖n‖₂ of an encoded vector, in lattice steps."""
        return math.floor(self.epsilon * self.noise_steps / 2)

    @property
    def noise_steps(self) -> int:
        """The scale t of the noise: its density falls by e every t steps."""
        return 1 << self.log2_scale

    @cached_property
    def width(self) -> Width:
        """Three bytes a coordinate where bound and tails fit, four otherwise."""
        return 3 if self.log2_scale <= widest_log2_scale(self.dim, self.epsilon, 3) else 4

    @property
    def realised_epsilon(self) -> Fraction:
        """2R/t: the largest loss of two points of the ball, at most ``epsilon``."""
        return Fraction(2 * self.bound, self.noise_steps)

    @property
    def domain(self) -> Ball:
        """The ℓ2 ball."""
        return Ball(self.dim, self.radius, 2)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)

    def noise(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Draw rounded spherical Laplace noise, whole vectors of it."""
        rows, rest = divmod(count, self.dim)
        if rest:
            raise ValueError(f"noise comes in vectors of {self.dim}, got count={count}")
        return RoundedSpherical(self.dim, self.log2_scale).draw(rows, entropy).reshape(-1)

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Clip and add a Gaussian of random variance, in floating point; never a report."""
        noise = rng.standard_normal(W.shape)
        # 2Γ((m + 1)/2) is χ² with m + 1 degrees of freedom: the variance.
        variance = 2 * rng.standard_gamma((self.dim + 1) / 2, size=len(W))
        noise *= self.scale * np.sqrt(variance)[:, None]
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
