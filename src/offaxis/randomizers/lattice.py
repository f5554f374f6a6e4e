"""From real vectors to integers whose bound is checked in integers.

Float clipping leaves the ball by an ulp about half the time. Here the last word has an exact sum of
integers, so what the noise protects is bounded without any appeal to floating point.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.randomizers.domain import Ball
from offaxis.vectors import Vectors


def onto_l1_lattice(W: Vectors, radius: float, bound: int) -> NDArray[np.int32]:
    """Clip rows to the ℓ1 ball and truncate toward zero onto the lattice of step radius/bound.

    Returns integers with ``Σ|n_i| <= bound`` in every row, whatever finite W is given. Each row
    depends on itself alone.

    Raises
    ------
    InvalidInput
        If W is not finite. Nothing but the last check below stands between a float and the noise,
        so it is made in 64-bit integers, of every row, always.
    """
    clipped = Ball(W.shape[1], radius, 1).project(W)
    if not np.isfinite(clipped).all():
        raise InvalidInput("a vector that is not finite cannot be laid on the lattice")
    # Bounded as a float, so that no cast can wrap; inside the ball this changes nothing.
    steps = np.clip(np.trunc(clipped / radius * bound), -bound, bound).astype(np.int64)
    excess = np.abs(steps).sum(axis=1) - bound
    for row in np.flatnonzero(excess > 0):
        _shrink(steps[row], int(excess[row]))
    if (np.abs(steps).sum(axis=1) > bound).any():
        raise AssertionError("an encoded vector lies outside the ball")
    return steps.astype(np.int32)


def _shrink(steps: NDArray[np.int64], excess: int) -> None:
    """Take ``excess`` steps off a row, from its largest entries first."""
    for index in np.argsort(-np.abs(steps), kind="stable"):
        cut = min(abs(int(steps[index])), excess)
        steps[index] -= np.sign(steps[index]) * cut
        excess -= cut
        if not excess:
            return
