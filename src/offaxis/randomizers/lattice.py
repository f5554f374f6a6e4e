"""From real vectors to integers whose bound is checked in integers: the front end of every release.

Float clipping leaves the ball by an ulp about half the time. Here the last word has an exact sum of
integers, so what the noise protects is bounded without any appeal to floating point.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.randomizers.domain import Ball, Box
from offaxis.vectors import Vectors

BOX_BOUND: Final = 1 << 20
"""R of the box: its half width in lattice steps."""


def onto_lattice(W: Vectors, ball: Ball, bound: int) -> NDArray[np.int64]:
    """Clip rows to the ball and truncate toward zero onto the lattice of step radius/bound.

    Returns integers with ``Σ|n_i| <= bound`` (p = 1) or ``Σ n_i² <= bound²`` (p = 2) in every row,
    whatever finite W is given. Each row depends on itself alone.

    Raises
    ------
    InvalidInput
        If W is not finite. Nothing but the last check below stands between a float and the noise,
        so it is made in 64-bit integers, of every row, always.
    """
    allowed = bound**ball.order
    if bound < 1 or allowed * W.shape[1] >= 1 << 63:
        raise ValueError(f"a bound of {bound} cannot be checked in 64-bit integers")
    clipped = ball.project(W)
    if not np.isfinite(clipped).all():
        raise InvalidInput("a vector that is not finite cannot be laid on the lattice")
    # Bounded as a float, so that no cast can wrap; inside the ball this changes nothing.
    steps = np.clip(np.trunc(clipped / ball.radius * bound), -bound, bound).astype(np.int64)
    for row in np.flatnonzero(_size(steps, ball.order) > allowed):
        _shrink(steps[row], ball.order, allowed)
    if (_size(steps, ball.order) > allowed).any():
        raise AssertionError("an encoded vector lies outside the ball")
    return steps


def _size(steps: NDArray[np.int64], order: int) -> NDArray[np.int64]:
    """Return Σ|n_i|^order of every row, in integers."""
    size: NDArray[np.int64] = (np.abs(steps) if order == 1 else steps * steps).sum(axis=-1)
    return size


def _shrink(steps: NDArray[np.int64], order: int, allowed: int) -> None:
    """Take single steps off the largest entries of a row until it is inside the ball."""
    while _size(steps, order) > allowed:
        largest = int(np.argmax(np.abs(steps)))
        steps[largest] -= np.sign(steps[largest])


def onto_box(W: Vectors, box: Box) -> NDArray[np.int64]:
    """Clip every coordinate and truncate toward zero onto −R … R, R = 2**20, checked."""
    clipped = box.project(W)
    if not np.isfinite(clipped).all():
        raise InvalidInput("a vector that is not finite cannot be laid on the lattice")
    steps = np.clip(np.trunc(clipped / box.radius * BOX_BOUND), -BOX_BOUND, BOX_BOUND)
    integers: NDArray[np.int64] = steps.astype(np.int64)
    if (np.abs(integers) > BOX_BOUND).any():
        raise AssertionError("an encoded vector lies outside the box")
    return integers
