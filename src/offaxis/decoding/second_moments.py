"""What a release of second moments knows about the public: the way back, and public moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding.pairs import PairDecoder
from offaxis.encoding.encoders import frozen_map, frozen_matrix, frozen_shift
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.vectors import Vectors

ESTIMATE_INSTEAD: Final = (
    "a report of this release is about the squares and products of a vector's coordinates, so it "
    "decodes to no vector: estimate the mean and the covariance of many people with "
    "offaxis.learning.second_moments(release, reports)"
)


@dataclass(frozen=True, eq=False, repr=False)
class SecondMomentsDecoder(PairDecoder):
    """The way back to vectors, z = B w + c, and the public moments of the clipped coordinates w.

    Attributes
    ----------
    back : (m, r) array
        B.
    centre : (m,) array
        c, the public mean.
    mean : (r,) array
        E w over the public vectors, clipped as on devices.
    second : (r, r) array
        E w wᵀ.

    Examples
    --------
    >>> from offaxis.decoding import SecondMomentsDecoder
    >>> SecondMomentsDecoder(np.eye(3, 2), np.zeros(3), np.zeros(2), np.eye(2)).input_dim
    5
    """

    kind: ClassVar[str] = "second-moments"
    instead: ClassVar[str] = ESTIMATE_INSTEAD

    back: Vectors
    centre: Vectors
    mean: Vectors
    second: Vectors

    def __post_init__(self) -> None:
        """Check shapes, symmetry and signs, and freeze the arrays."""
        back, centre = frozen_map(self.back, self.centre, axis=0)
        mean, second = frozen_shift(self.mean), frozen_matrix(self.second)
        rank = back.shape[1]
        if mean.shape != (rank,) or second.shape != (rank, rank):
            raise InvalidInput(f"public moments of {rank} coordinates have other shapes")
        if not np.allclose(second, second.T, atol=1e-9) or (np.diag(second) < 0).any():
            raise InvalidInput("second moments are a symmetric matrix with positive squares")
        for name, array in (("back", back), ("centre", centre), ("mean", mean), ("second", second)):
            object.__setattr__(self, name, array)

    @property
    def input_dim(self) -> int:
        """Dimension of an observation: second moments and means."""
        return int(self.mean.size * (self.mean.size + 3) // 2)

    def decode(self, observations: NDArray[Any]) -> NoReturn:
        """Raise: estimate moments of many people instead."""
        raise BiasedDecoder(ESTIMATE_INSTEAD)
