from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Ball, Box, Sphere, check_dim, check_radius
from offaxis.simulation.randomizers import unit_directions
from offaxis.vectors import row_norms

any_float = st.floats(allow_nan=False, allow_infinity=False, width=64)
batches = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 7)), elements=any_float)
radii = st.floats(min_value=1e-90, max_value=1e90)
RNG = np.random.default_rng(0)


@given(batches, radii, st.sampled_from([1, 2]))
def test_projection_stays_in_the_ball_up_to_rounding(W, radius, order):
    inside = Ball(W.shape[1], radius, order).project(W)
    assert np.isfinite(inside).all()
    assert (row_norms(inside, order) <= radius * (1 + 1e-14)).all()


@given(batches, radii, st.sampled_from([1, 2]))
def test_projection_keeps_direction_and_what_is_inside(W, radius, order):
    inside = Ball(W.shape[1], radius, order).project(W)
    assert (np.sign(inside) * np.sign(W) >= 0).all()
    norms = row_norms(W, order)
    untouched = norms <= radius * (1 - 1e-14)
    assert np.array_equal(inside[untouched], W[untouched])
    outside = np.isfinite(norms) & (norms > radius * (1 + 1e-14))
    assert np.allclose(row_norms(inside[outside], order), radius, rtol=1e-13, atol=0)


@given(batches, radii, st.sampled_from([1, 2]))
def test_a_row_depends_on_itself_alone(W, radius, order):
    ball = Ball(W.shape[1], radius, order)
    together = ball.project(np.concatenate([W, np.full((1, W.shape[1]), 1.7e308)]))[:-1]
    alone = np.concatenate([ball.project(row[None]) for row in W])
    assert np.array_equal(together, alone)


def test_a_huge_vector_is_clipped_like_a_large_one():
    huge = np.array([[1.7e308, -1.7e308, 0.0]])
    large = np.array([[17.0, -17.0, 0.0]])
    for order in (1, 2):
        ball = Ball(3, 1.0, order)
        assert np.allclose(ball.project(huge), ball.project(large), rtol=1e-14)


@given(batches)
def test_directions_have_length_one_whatever_the_vector(W):
    unit = unit_directions(Sphere(W.shape[1], 1.0), W, RNG)
    assert np.allclose(row_norms(unit, 2), 1.0, rtol=1e-14)


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-160, 1e-139, 1e-101, 1.0, 1e160, 1.7e308])
def test_tiny_and_huge_vectors_keep_their_direction(size):
    unit = unit_directions(Sphere(2, 1.0), np.array([[size, -size]]), RNG)
    assert np.allclose(unit, [[0.5**0.5, -(0.5**0.5)]], rtol=1e-12)


def test_zero_vectors_get_directions_that_average_to_nothing():
    unit = unit_directions(Sphere(3, 1.0), np.zeros((20_000, 3)), np.random.default_rng(3))
    assert np.allclose(row_norms(unit, 2), 1.0)
    assert np.abs(unit.mean(axis=0)).max() < 0.03


def test_a_box_clips_each_coordinate_on_its_own():
    assert np.array_equal(Box(2, 2.0).project(np.array([[-5.0, 1.5]])), [[-2.0, 1.5]])


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf"), 1e200, 1e-200])
def test_a_bad_radius_is_named(radius):
    with pytest.raises(InvalidInput, match="radius"):
        check_radius(radius)


@pytest.mark.parametrize("dim", [0, -3, 2.0, True, None, (1 << 20) + 1])
def test_a_bad_dimension_is_named(dim):
    with pytest.raises(InvalidInput, match="dim"):
        check_dim(dim)
