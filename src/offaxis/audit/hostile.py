"""Vectors made to break a front end: on the boundary by an ulp, half a step off, tiny and huge.

They are encoded vectors, as a randomizer gets them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from offaxis.randomizers.domain import Ball
from offaxis.vectors import Vectors, row_norms

_ULP: Final = float(np.finfo(np.float64).eps)
_FACTORS: Final = (1 - 2 * _ULP, 1 - _ULP, 1.0, 1 + _ULP, 1 + 2 * _ULP, 1.5, 1e6)
"""Where on a ray to stand, in units of the boundary."""

_EXTREMES: Final = (0.0, -0.0, 5e-324, 1e-310, 2.0**-1022, 1e-160, 1e160, 1e308)
_NUMBERS: Final = 1 << 21
"""So many numbers are made at most: wide releases get fewer vectors."""

_OVER_HALF: Final = 0.5 + 2.0**-12


def hostile(ball: Ball, bound: int, count: int, rng: np.random.Generator) -> Vectors:
    """Return about ``count`` hostile vectors for a ball on a lattice of ``bound`` steps; (n, dim).

    Each comes with its opposite.
    """
    dim = ball.dim
    count = max(1, min(count, _NUMBERS // dim) // 64)
    rays = np.concatenate([_poles(dim, count), _diagonals(dim, count), _random(dim, count, rng)])
    rays *= (ball.radius / row_norms(rays, ball.order))[:, None]
    boundary = np.concatenate([rays * factor for factor in _FACTORS])
    steps = np.concatenate([_one_and_halves(ball, bound, count), _halves(ball, bound, count, rng)])
    extremes = np.zeros((2 * len(_EXTREMES), dim))
    extremes[::2] = np.array(_EXTREMES)[:, None]
    extremes[1::2, 0] = _EXTREMES
    W = np.concatenate([boundary, steps * (ball.radius / bound), extremes])
    return np.concatenate([W, -W])


def _poles(dim: int, count: int) -> Vectors:
    return np.eye(min(dim, count), dim)


def _diagonals(dim: int, count: int) -> Vectors:
    """Return vectors with 2, 3, 4, 6, … equal entries."""
    widths = np.unique(np.geomspace(2, max(2, dim), min(count, 12)).astype(int))
    return (np.arange(dim) < widths[:, None]).astype(np.float64)


def _random(dim: int, count: int, rng: np.random.Generator) -> Vectors:
    """Return random directions, dense and sparse, and some with entries of all sizes."""
    dense = rng.standard_normal((count, dim))
    sparse = dense * (rng.random((count, dim)) < 3 / dim)
    sparse[:, 0] += 1.0
    return np.concatenate([dense, sparse, dense * 10.0 ** rng.uniform(-12, 0, (count, dim))])


def _one_and_halves(ball: Ball, bound: int, count: int) -> Vectors:
    """Return, in steps, one large entry and j entries just over half a step, on the boundary.

    Rounding to nearest moves the j entries up by half a step each, and so out of the ball.
    """
    most = min(ball.dim - 1, int((bound / _OVER_HALF) ** ball.order))
    js = np.unique(np.geomspace(1, max(1, most), count).astype(int))
    js = js[js <= most]
    rest = np.maximum(0.0, bound**ball.order - js * _OVER_HALF**ball.order) ** (1 / ball.order)
    places = np.arange(ball.dim)
    small = np.where((places > 0) & (places <= js[:, None]), _OVER_HALF, 0.0)
    # The large entry rounds up too if it stands just over half a step.
    up = np.maximum(0.0, np.floor(rest - _OVER_HALF) + _OVER_HALF)
    W = np.concatenate([small, small])
    W[:, 0] = np.concatenate([rest, up])
    return W


def _halves(ball: Ball, bound: int, count: int, rng: np.random.Generator) -> Vectors:
    """Return, in steps, random vectors inside the ball whose entries all stand over half a step."""
    directions = rng.standard_normal((count, ball.dim))
    room = bound - _OVER_HALF * ball.dim ** (1 / ball.order)
    directions *= (max(0.0, room) / row_norms(directions, ball.order))[:, None]
    over = np.floor(np.abs(directions)) + _OVER_HALF
    # Where there is no room for all entries, only as many as fit are kept.
    within = np.cumsum(over**ball.order, axis=1) <= bound**ball.order
    return np.where(within, np.copysign(over, directions), 0.0)
