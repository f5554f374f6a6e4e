"""From real vectors to integers whose bound is checked in integers.

Float clipping leaves the ball by an ulp about half the time. Here the last word has an exact sum of
integers, so what the noise protects is bounded without any appeal to floating point.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offaxis.randomizers.domain import Ball
from offaxis.vectors import Vectors


def onto_l1_lattice(W: Vectors, radius: float, bound: int) -> NDArray[np.int32]:
    """Clip rows to the ℓ1 ball and truncate toward zero onto the lattice of step radius/bound.

    Returns integers with ``Σ|n_i| <= bound`` in every row, whatever finite W is given.
    """
    clipped = Ball(W.shape[1], radius, 1).project(W)
    # |clipped / radius| <= 1 up to rounding, so the product fits far inside int32.
    steps = np.trunc(clipped / radius * bound).astype(np.int32)
    excess = np.abs(steps).sum(axis=1, dtype=np.int64) - bound
    while (excess > 0).any():
        rows = np.flatnonzero(excess > 0)
        largest = np.abs(steps[rows]).argmax(axis=1)
        value = steps[rows, largest]
        cut = np.minimum(np.abs(value), excess[rows]).astype(np.int32)
        steps[rows, largest] = value - np.sign(value) * cut
        excess = np.abs(steps).sum(axis=1, dtype=np.int64) - bound
    return steps
