"""Hostile vectors reach the boundary and beyond, and break a front end that rounds to nearest."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.auditing.inputs import hostile
from offaxis.randomizers.base import Ball, onto_lattice
from offaxis.vectors import row_norms

BALLS = [
    Ball(dim, radius, order) for dim in (1, 2, 6, 64) for radius in (1.0, 0.37) for order in (1, 2)
]


@pytest.mark.parametrize("ball", BALLS, ids=str)
@pytest.mark.parametrize("bound", [1, 3, 1 << 17])
def test_hostile_vectors_are_finite_symmetric_and_near_the_boundary(ball, bound):
    W = hostile(ball, bound, 2000, np.random.default_rng(0))
    assert W.shape[1] == ball.dim
    assert np.isfinite(W).all()
    half = len(W) // 2
    assert (W[:half] == -W[half:]).all()
    with np.errstate(over="ignore"):
        ulps = (row_norms(W, ball.order) / ball.radius - 1) / np.finfo(float).eps
    assert ((ulps > 0) & (ulps < 4)).any()
    assert ((ulps < 0) & (ulps > -4)).any()
    assert (row_norms(W, ball.order) == 0).any()
    assert (np.abs(W) >= 1e300).any()
    assert ((W != 0) & (np.abs(W) < 1e-308)).any()


@pytest.mark.parametrize("ball", [b for b in BALLS if b.dim > 2], ids=str)
@pytest.mark.parametrize("bound", [3, 8, 1 << 17])
def test_rounding_to_nearest_leaves_the_ball_but_the_real_front_end_does_not(ball, bound):
    W = hostile(ball, bound, 2000, np.random.default_rng(0))
    with np.errstate(all="ignore"):
        nearest = np.rint(ball.project(W) / ball.radius * bound)
        kept = onto_lattice(W, ball, bound)
    limit = bound**ball.order
    assert (np.abs(nearest) ** ball.order).sum(axis=1).max() > limit
    assert (np.abs(kept) ** ball.order).sum(axis=1).max() == limit


def test_wide_balls_get_fewer_vectors():
    wide = hostile(Ball(1 << 18, 1.0, 2), 1 << 17, 4000, np.random.default_rng(0))
    assert wide.size < 1 << 25
