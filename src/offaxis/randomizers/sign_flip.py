"""The length of a vector told by a coin: how a randomizer of directions gives means of vectors.

Contract: with w in the ball of radius ρ and a sign that is + with probability ½ + ‖w‖/2ρ, the
direction ±w/‖w‖ has the mean w/ρ. A zero vector is any direction with a fair coin: mean zero.

The coin is exact and made of integers: w is laid on the lattice of the ball (lattice.py), its
length there rounded down to an integer L <= B, and the sign is + when a uniform integer of [0, 2B),
drawn before w was looked at, lies below B + L. B is a power of two, so that nothing is drawn twice.
The flip happens before the direction is randomized, and needs no privacy of its own: what follows
is pure for every direction it is given.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import namespace
from offaxis.randomizers.domain import Ball
from offaxis.randomizers.lattice import onto_lattice
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.uniform import below
from offaxis.vectors import Vectors, row_norms

LENGTH_BOUND: Final = 1 << 20
"""B: the length of a vector on the boundary, in steps of the lattice."""


def draw_coins(count: int, bits: RandomBits) -> NDArray[np.int64]:
    """Draw uniform integers of [0, 2B), one a vector."""
    return below(2 * LENGTH_BOUND, count, bits)


def lengths(W: Vectors, ball: Ball) -> NDArray[np.int64]:
    """Return L of every row: ⌊√Σn_i²⌋ of its clipped lattice point, 0 <= L <= B."""
    steps = onto_lattice(W, ball, LENGTH_BOUND)
    # The square is at most 2**40, so the correctly rounded root never reaches the next integer.
    roots: NDArray[np.int64] = np.sqrt((steps * steps).sum(axis=1)).astype(np.int64)
    return roots


def signs(W: Vectors, ball: Ball, coins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return +1 with probability (B + L)/2B and −1 otherwise, a row each."""
    return np.where(coins < LENGTH_BOUND + lengths(W, ball), 1, -1)


def keep_probability(W: Vectors, ball: Ball) -> Vectors:
    """Return (B + L)/2B of every row, exactly: a fraction of 21 binary digits."""
    kept: Vectors = (LENGTH_BOUND + lengths(W, ball)) / (2 * LENGTH_BOUND)
    return kept


def simulate_signs(W: Array, ball: Ball, rng: Rng) -> Array:
    """Draw the signs in fast floating point, for research."""
    xp = namespace(W)
    share = xp.clip(row_norms(W, 2) / ball.radius, max=1.0)
    return xp.where(2 * draws_from(rng, W).uniform(len(W)) < 1 + share, 1.0, -1.0)
