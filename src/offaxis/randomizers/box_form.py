"""Reports of coordinates in a box: what Duchi's and the piecewise randomizer share."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.privacy.guarantee import Guarantee, exact_epsilon
from offaxis.randomizers.base import check_budget
from offaxis.randomizers.domain import Box, check_dim, check_radius
from offaxis.randomizers.lattice import onto_box
from offaxis.vectors import Vectors

LARGEST_EPSILON: Final = 100
"""Beyond it a coin shows its other side less often than once in 2**144 throws."""


@dataclass(frozen=True)
class BoxForm:
    """A pure randomizer on the box ``{w : |w_i| <= radius}`` in R^dim.

    Parameters
    ----------
    dim : int
    radius : float
        ρ; coordinates outside the box are clipped onto it.
    epsilon : number
        Promised ε, read exactly.
    """

    kind: ClassVar[str]

    dim: int
    radius: float
    epsilon: Fraction

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        object.__setattr__(self, "dim", check_dim(self.dim))
        object.__setattr__(self, "radius", check_radius(self.radius))
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        check_budget(self.epsilon, LARGEST_EPSILON, self.kind)

    @property
    def domain(self) -> Box:
        """The box."""
        return Box(self.dim, self.radius)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)

    @property
    def unbiased(self) -> bool:
        """True: the mean of the observation is w, up to the width of a lattice step."""
        return True

    def integers(self, W: Vectors) -> NDArray[np.int64]:
        """Return the coordinates of W on the integers −2**20 … 2**20, checked."""
        return onto_box(W, self.domain)

    def worst_pair(self) -> tuple[Vectors, Vectors]:
        """Return two opposite corners."""
        corner = np.full(self.dim, self.radius)
        return corner, -corner
