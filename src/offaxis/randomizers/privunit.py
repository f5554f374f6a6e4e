"""PrivUnit2 and PrivUnitG: pure ε on directions, near the best possible error for large ε.

Contract: the density of the report given direction u is e^ε on ``{v : ⟨v, u⟩ >= γ}`` and 1 outside,
up to one normaliser that does not depend on u. So any two directions are within e^ε. The length of
the input is forgotten: every vector is reported as ρ times its direction, which makes a mean over
people biased (``unbiased`` is False).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaincc, ndtri

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee, decimal, exact_epsilon
from offaxis.randomizers.base import SimulatedOnly
from offaxis.randomizers.domain import Sphere, check_dim, check_radius
from offaxis.randomizers.privunit_calibration import (
    Cap,
    gaussian_cap,
    normalised_mean,
    sphere_cap,
)
from offaxis.sampling.simulation import gaussian_towards, towards
from offaxis.vectors import Vectors, row_dots, row_norms

LARGEST_EPSILON = 100
"""Beyond it e^ε and the size of the cap leave the range of float64."""


@dataclass(frozen=True)
class _DirectionRandomizer(SimulatedOnly):
    """What PrivUnit2 and PrivUnitG share: a sphere, pure ε, one cap."""

    dim: int
    radius: float
    epsilon: Fraction

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        object.__setattr__(self, "dim", check_dim(self.dim))
        object.__setattr__(self, "radius", check_radius(self.radius))
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        if self.epsilon > LARGEST_EPSILON:
            raise InvalidInput(
                f"epsilon must be at most {LARGEST_EPSILON} for {self.kind}, "
                f"got epsilon={decimal(self.epsilon)}"
            )

    @property
    def domain(self) -> Sphere:
        """The unit sphere; ``radius`` is the length given back to a decoded direction."""
        return Sphere(self.dim, self.radius)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)

    @property
    def unbiased(self) -> bool:
        """False: unbiased for ρ·w/‖w‖, not for w."""
        return False


@dataclass(frozen=True)
class PrivUnit2(_DirectionRandomizer):
    """PrivUnit2 on S^{dim−1} (Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018).

    In one dimension it is the sign, told truly with probability e^ε / (e^ε + 1).
    """

    kind: ClassVar[str] = "privunit2"
    wire_id: ClassVar[int] = 3

    @cached_property
    def cap(self) -> Cap:
        """The optimal cap for this ε and dimension."""
        return sphere_cap(float(self.epsilon), self.dim)

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Draw reports in floating point, already scaled to be unbiased for ρ·w/‖w‖."""
        u = self.domain.project(W, rng)
        near = np.greater_equal(rng.random(W.shape[0]), self.cap.far_probability)
        length = self.radius / self.cap.mean
        if self.dim == 1:
            return np.where(near[:, None], length * u, -length * u)
        return towards(u, self._components(near, rng), length, rng)

    def _components(self, near: NDArray[np.bool_], rng: np.random.Generator) -> Vectors:
        """Draw ⟨v, u⟩ given on which side of γ it lies, by inversion of the lower tail."""
        shape = (self.dim - 1) / 2
        uniform = rng.random(near.size)
        quantile = betaincinv(
            shape, shape, uniform * np.where(near, self.cap.mass, self.cap.tail_mass)
        )
        t: Vectors = np.where(near, 1 - 2 * quantile, 2 * quantile - 1)
        return t

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return ε in the cap around w and 0 outside (W must hold no zero row)."""
        u = W / row_norms(W, 2)[:, None]
        component = row_dots(V, u) * (self.cap.mean / self.radius)
        # In one dimension the cap is the single point u.
        threshold = self.cap.threshold if self.dim > 1 else 0.0
        return np.where(component >= threshold, float(self.epsilon), 0.0)

    def expected_squared_error(self) -> float:
        """Return ρ² (1/A² − 1)."""
        return float(self.radius**2 * (1 / self.cap.mean**2 - 1))


@dataclass(frozen=True)
class PrivUnitG(_DirectionRandomizer):
    """PrivUnitG (Asi, Feldman, Talwar 2022): a Gaussian in place of the uniform direction.

    Parameters
    ----------
    output : {"gaussian", "sphere"}
        Report the Gaussian vector itself (the original), or its direction (what the published
        tables of the reshaping paper use).
    """

    kind: ClassVar[str] = "privunitg"
    wire_id: ClassVar[int] = 4

    output: Literal["gaussian", "sphere"] = "gaussian"

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        super().__post_init__()
        if self.output not in ("gaussian", "sphere"):
            raise InvalidInput(f"output must be 'gaussian' or 'sphere', got {self.output!r}")

    @cached_property
    def cap(self) -> Cap:
        """The optimal cap for this ε; the dimension does not enter."""
        return gaussian_cap(float(self.epsilon))

    @cached_property
    def mean(self) -> float:
        """The expected component of the reported vector along the input."""
        if self.output == "gaussian":
            return self.cap.mean
        return normalised_mean(float(self.epsilon), self.dim)

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Draw reports in floating point, already scaled to be unbiased for ρ·w/‖w‖."""
        u = self.domain.project(W, rng)
        near = np.greater_equal(rng.random(W.shape[0]), self.cap.far_probability)
        uniform = rng.random(near.size)
        quantile = ndtri(uniform * np.where(near, self.cap.mass, self.cap.tail_mass))
        v = gaussian_towards(u, np.where(near, -quantile, quantile), rng)
        if self.output == "sphere":
            v /= row_norms(v, 2)[:, None]
        v *= self.radius / self.mean
        return v

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return ε in the cap around w and 0 outside; for the direction form, an integral of it.

        The Gaussian form is reported unnormalised, so its density ratio is read off directly. The
        direction form is post-processing of it: its ratio lies between the two.
        """
        u = W / row_norms(W, 2)[:, None]
        component = row_dots(V, u)
        if self.output == "gaussian":
            component = component * (self.mean / self.radius)
            return np.where(component >= self.cap.threshold, float(self.epsilon), 0.0)
        cosine = component / row_norms(V, 2)
        return self._direction_log_density(cosine)

    def _direction_log_density(self, cosine: Vectors) -> Vectors:
        """Integrate the Gaussian form over the length r ~ χ_dim: 1 + (e^ε − 1) Pr[r cos >= γ]."""
        reach = self.cap.threshold / np.maximum(cosine, 1e-300)
        far = gammaincc(self.dim / 2, np.minimum(reach, 1e150) ** 2 / 2)
        probability = np.where(cosine > 0, far, 0.0)
        density: Vectors = np.log1p(np.expm1(float(self.epsilon)) * probability)
        return density

    def expected_squared_error(self) -> float:
        """Return ρ² dim/γ² for the Gaussian form, ρ² (1/B² − 1) for the direction."""
        if self.output == "gaussian":
            return float(self.radius**2 * self.dim / self.mean**2)
        return float(self.radius**2 * (1 / self.mean**2 - 1))
