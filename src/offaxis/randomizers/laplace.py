"""Laplace noise on the ℓ1 ball: pure ε.

Contract: for every two inputs, ``Pr[report = y | w] <= exp(ε) Pr[report = y | w']``.

The exact form works on integers (lattice_form.py). With t = 2**b a public noise scale and
R = floor(ε t / 2), the ball of radius ρ is laid on the lattice of step g = ρ / R: the input is
clipped, truncated toward zero to integers n with Σ|n_i| <= R (checked in integers), and every
coordinate gets independent discrete Laplace noise of scale t. Two inputs differ by at most 2R in
ℓ1, so the loss is at most 2R / t <= ε, as an exact rational. Rounding costs no sensitivity because
in the local model the sensitivity is the diameter of the encoded set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee, decimal
from offaxis.randomizers.base import CHOOSE
from offaxis.randomizers.domain import Ball
from offaxis.randomizers.lattice_form import LatticeForm
from offaxis.randomizers.payload import Width, largest_magnitude
from offaxis.sampling.discrete_laplace import DiscreteLaplace
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.simulation import add_laplace
from offaxis.vectors import Vectors, row_norms

_TAIL: Final = 44
"""Noise scales kept free above the bound: a coordinate is clamped with probability e**-44."""

_sampler = lru_cache(maxsize=32)(DiscreteLaplace)


_FINE: Final = 32
"""Steps a coordinate that the bound should leave on average: truncation then costs a percent."""


def widest_log2_scale(epsilon: Fraction, width: Width) -> int:
    """Return the largest b with bound and tails inside the payload: (ε/2 + 44) 2**b <= largest."""
    return math.floor(largest_magnitude(width) / (epsilon / 2 + _TAIL)).bit_length() - 1


def choose_log2_scale(epsilon: Fraction, dim: int) -> int:
    """Return the b of three bytes a coordinate, or of four where three are too coarse."""
    narrow = widest_log2_scale(epsilon, 3)
    if epsilon * (1 << narrow) / 2 >= _FINE * dim:
        return narrow
    return widest_log2_scale(epsilon, 4)


@dataclass(frozen=True)
class Laplace(LatticeForm):
    """Laplace randomizer on the ℓ1 ball of ``radius`` in R^dim.

    Parameters
    ----------
    dim : int
    radius : float
        ρ; inputs outside the ball are clipped onto it.
    epsilon : number
        Promised ε, read exactly.
    log2_scale : int, optional
        b of the lattice; chosen from epsilon when not given.
    """

    kind: ClassVar[str] = "laplace"
    wire_id: ClassVar[int] = 1

    log2_scale: int = CHOOSE

    def __post_init__(self) -> None:
        """Fix the lattice and check, exactly, that it keeps the promise."""
        super().__post_init__()
        if self.log2_scale == CHOOSE:
            object.__setattr__(self, "log2_scale", choose_log2_scale(self.epsilon, self.dim))
        widest = widest_log2_scale(self.epsilon, 4)
        if not 0 <= self.log2_scale <= widest or self.bound < 1:
            raise InvalidInput(
                f"log2_scale must lie in 0..{widest} and leave a bound of at least 1 at "
                f"epsilon={decimal(self.epsilon)}, got log2_scale={self.log2_scale}"
            )
        if self.realised_epsilon > self.epsilon:
            raise InvalidInput(f"the lattice gives ε={self.realised_epsilon} > {self.epsilon}")

    @cached_property
    def bound(self) -> int:
        """R: the largest Σ|n_i| of an encoded vector, in lattice steps."""
        return math.floor(self.epsilon * self.noise_steps / 2)

    @property
    def noise_steps(self) -> int:
        """The scale t of the discrete Laplace law."""
        return 1 << self.log2_scale

    @property
    def width(self) -> Width:
        """Three bytes a coordinate where bound and tails fit, four otherwise."""
        return 3 if self.log2_scale <= widest_log2_scale(self.epsilon, 3) else 4

    @property
    def realised_epsilon(self) -> Fraction:
        """2R/t: the exact privacy loss of the integer mechanism, at most ``epsilon``."""
        return Fraction(2 * self.bound, self.noise_steps)

    @property
    def domain(self) -> Ball:
        """The ℓ1 ball."""
        return Ball(self.dim, self.radius, 1)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)

    def noise(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Draw discrete Laplace noise."""
        return _sampler(self.log2_scale, 8 * self.width).draw(count, entropy)

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Clip and add continuous Laplace noise, in floating point; never a report."""
        return add_laplace(self.domain.project(W), self.scale, rng)

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return −‖v − clip(w)‖₁ / b, the log density up to a constant independent of w."""
        return -row_norms(V - self.domain.project(W), 1) / self.scale

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return −‖y − n‖₁ / t of the integers y on the wire."""
        return -row_norms(self.gaps(payloads, W), 1)

    def expected_squared_error(self) -> float:
        """Return dim times the variance of the discrete Laplace law, in the input's units."""
        return self.dim * self.step**2 / (2 * math.sinh(0.5 / self.noise_steps) ** 2)
