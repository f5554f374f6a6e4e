"""Gaussian noise on the ℓ2 ball: (ε, δ), calibrated by the exact privacy profile."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from offaxis.privacy.guarantee import Guarantee, exact_delta, exact_epsilon
from offaxis.randomizers.base import SimulatedOnly
from offaxis.randomizers.domain import Ball, check_dim, check_radius
from offaxis.randomizers.gaussian_calibration import noise_scale
from offaxis.vectors import Vectors, row_dots


@dataclass(frozen=True)
class Gaussian(SimulatedOnly):
    """Gaussian randomizer on the ℓ2 ball of ``radius`` in R^dim; sensitivity Δ = 2·radius.

    Not pure: with probability up to about δ the loss may exceed ε.
    """

    kind: ClassVar[str] = "gaussian"
    wire_id: ClassVar[int] = 2

    dim: int
    radius: float
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        object.__setattr__(self, "dim", check_dim(self.dim))
        object.__setattr__(self, "radius", check_radius(self.radius))
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        object.__setattr__(self, "delta", exact_delta(self.delta))

    @cached_property
    def scale(self) -> float:
        """σ: the standard deviation of the noise in every coordinate."""
        return noise_scale(2 * self.radius, float(self.epsilon), float(self.delta))

    @property
    def domain(self) -> Ball:
        """The ℓ2 ball."""
        return Ball(self.dim, self.radius, 2)

    @property
    def guarantee(self) -> Guarantee:
        """(ε, δ), not pure."""
        return Guarantee(self.epsilon, self.delta)

    @property
    def unbiased(self) -> bool:
        """True: the noise has mean zero."""
        return True

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Clip and add Gaussian noise, in floating point; never a report."""
        noise = rng.standard_normal(W.shape)
        noise *= self.scale
        noise += self.domain.project(W)
        return noise

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return −‖v − clip(w)‖² / 2σ², the log density up to a constant independent of w."""
        gap = V - self.domain.project(W)
        return -row_dots(gap, gap) / (2 * self.scale**2)

    def expected_squared_error(self) -> float:
        """Return dim · σ²."""
        return self.dim * self.scale**2
