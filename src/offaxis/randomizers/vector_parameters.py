"""What every randomizer of vectors is given, read exactly."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from fractions import Fraction

from offaxis.privacy.guarantee import exact_epsilon
from offaxis.randomizers.domain import check_dim, check_radius


@dataclass(frozen=True)
class VectorParameters(ABC):
    """Dimension, radius and budget.

    Parameters
    ----------
    dim : int
    radius : float
        ρ, the size of the domain.
    epsilon : number
        Promised ε, read exactly.
    """

    dim: int
    radius: float
    epsilon: Fraction

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        object.__setattr__(self, "dim", check_dim(self.dim))
        object.__setattr__(self, "radius", check_radius(self.radius))
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
