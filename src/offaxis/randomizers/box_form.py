"""Pure reports of vectors in a box: what Duchi's, the piecewise and the hybrid one share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers.base import check_budget
from offaxis.randomizers.domain import Box
from offaxis.randomizers.lattice import onto_box
from offaxis.randomizers.vector_parameters import VectorParameters
from offaxis.vectors import Order, Vectors

LARGEST_EPSILON: Final = 100
"""Beyond it a coin shows its other side less often than once in 2**144 throws."""


@dataclass(frozen=True)
class BoxForm(VectorParameters):
    """A pure randomizer on the box ``{w : |w_i| <= radius}``; vectors outside are clipped."""

    kind: ClassVar[str]
    order: ClassVar[Order] = "inf"

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        super().__post_init__()
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
