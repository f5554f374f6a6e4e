"""Domains, the checks of parameters, and the integer lattice: no input leaves its domain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from offaxis.errors import InvalidInput
from offaxis.randomizers import base
from offaxis.randomizers.base import (
    BOX_BOUND,
    Ball,
    Box,
    Sphere,
    check_dim,
    check_radius,
    onto_box,
    onto_lattice,
)
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
def test_projection_keeps_directions_and_rows_inside_the_ball(W, radius, order):
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
def test_directions_of_any_vector_have_length_one(W):
    unit = unit_directions(Sphere(W.shape[1], 1.0), W, RNG)
    assert np.allclose(row_norms(unit, 2), 1.0, rtol=1e-14)


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-160, 1e-139, 1e-101, 1.0, 1e160, 1.7e308])
def test_tiny_and_huge_vectors_keep_their_direction(size):
    unit = unit_directions(Sphere(2, 1.0), np.array([[size, -size]]), RNG)
    assert np.allclose(unit, [[0.5**0.5, -(0.5**0.5)]], rtol=1e-12)


def test_zero_vectors_get_directions_that_average_to_zero():
    unit = unit_directions(Sphere(3, 1.0), np.zeros((20_000, 3)), np.random.default_rng(3))
    assert np.allclose(row_norms(unit, 2), 1.0)
    assert np.abs(unit.mean(axis=0)).max() < 0.03


def test_a_box_clips_each_coordinate_separately():
    assert np.array_equal(Box(2, 2.0).project(np.array([[-5.0, 1.5]])), [[-2.0, 1.5]])


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf"), 1e200, 1e-200])
def test_an_error_names_a_bad_radius(radius):
    with pytest.raises(InvalidInput, match="radius"):
        check_radius(radius)


@pytest.mark.parametrize("dim", [0, -3, 2.0, True, None, (1 << 20) + 1])
def test_an_error_names_a_bad_dimension(dim):
    with pytest.raises(InvalidInput, match="dim"):
        check_dim(dim)


# ---- Lattice

rows = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=any_float)
bounds = st.integers(1, 1 << 21)
orders = st.sampled_from([1, 2])


def size(steps: np.ndarray, order: int) -> list[int]:
    """Σ|n_i|^p of every row in Python integers."""
    return [sum(abs(n) ** order for n in row) for row in steps.tolist()]


@given(rows, st.floats(1e-90, 1e90), bounds, orders)
def test_no_lattice_point_leaves_the_ball(W, radius, bound, order):
    steps = onto_lattice(W, Ball(W.shape[1], radius, order), bound)
    assert max(size(steps, order)) <= bound**order


@given(rows, st.floats(1e-90, 1e90), bounds, orders)
def test_truncation_goes_toward_zero(W, radius, bound, order):
    steps = onto_lattice(W, Ball(W.shape[1], radius, order), bound)
    assert (np.sign(steps) * np.sign(W) >= 0).all()
    with np.errstate(over="ignore"):
        inside = np.abs(W).sum(axis=1) < radius * (1 - 1e-9)
    largest = np.abs(W[inside] / radius * bound) * (1 + 1e-12)
    assert (np.abs(steps[inside]) <= largest).all()


@pytest.mark.parametrize("order", [1, 2])
def test_float_clipping_alone_would_leave_the_ball(order):
    """Broken control: rounding to nearest after the float clip exceeds the bound."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((20_000, 8))
    bound = 1000
    ball = Ball(8, 1.0, order)
    nearest = np.rint(ball.project(W * 1e6) * bound).astype(int)
    assert max(size(nearest, order)) > bound**order
    assert max(size(onto_lattice(W * 1e6, ball, bound), order)) <= bound**order


def test_a_vertex_reaches_the_bound_exactly():
    for order in (1, 2):
        steps = onto_lattice(np.array([[0.0, -3.0], [1.0, 0.0]]), Ball(2, 1.0, order), 12_345)
        assert steps.tolist() == [[0, -12_345], [12_345, 0]]


class Sloppy(Ball):
    """A ball whose projection does nothing; its dimension is not used."""

    def __init__(self, order=1):
        super().__init__(dim=3, radius=1.0, order=order)

    def project(self, W):
        return W


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.9, -0.4, 0.0], [6, -4, 0]),
        ([0.1, 0.1, 0.1], [1, 1, 1]),
        ([0.6, 0.5, 0.0], [5, 5, 0]),  # an excess of exactly one step
        ([-0.6, 0.5, 0.0], [-5, 5, 0]),
        ([5.0, 5.0, 5.0], [3, 3, 4]),
    ],
)
def test_an_excess_is_subtracted_from_the_largest_entries(row, expected):
    steps = onto_lattice(np.array([row]), Sloppy(), 10)
    assert steps.tolist() == [expected]


@pytest.mark.parametrize(
    "row", [[np.nan, 0.0], [np.inf, 0.0], [-np.inf, 1.0], [-(2.0**63), 0.0], [2.0**31, 2.0**31]]
)
def test_overflow_cannot_bypass_the_check(row):
    """In 32 bits the absolute value of -2**31 is -2**31; the check must not be misled by it."""
    if not np.isfinite(row).all():
        with pytest.raises(InvalidInput, match="not finite"):
            onto_lattice(np.array([row]), Sloppy(), 65_536)
        return
    steps = onto_lattice(np.array([row]), Sloppy(), 65_536)
    assert np.abs(steps.astype(np.int64)).sum() == 65_536


def test_a_row_that_could_not_be_shrunk_is_never_returned(monkeypatch):
    monkeypatch.setattr(base, "_shrink", lambda *_: None)
    with pytest.raises(AssertionError, match="outside the ball"):
        onto_lattice(np.array([[0.6, 0.5, 0.0]]), Sloppy(), 10)


def test_lattice_points_are_exactly_those_of_truncation():
    W = np.array([[0.19, -0.19, 0.0], [0.999, 0.0, 0.0], [0.25, 0.25, -0.5]])
    assert onto_lattice(W, Ball(3, 1.0, 1), 10).tolist() == [[1, -1, 0], [9, 0, 0], [2, 2, -5]]


def test_an_excess_in_the_euclidean_norm_is_subtracted_too():
    steps = onto_lattice(np.array([[0.8, -0.8, 0.0]]), Sloppy(order=2), 10)
    assert steps.tolist() == [[7, -7, 0]]


def test_a_bound_whose_check_could_overflow_is_rejected():
    with pytest.raises(ValueError, match="64-bit"):
        onto_lattice(np.zeros((1, 1 << 20)), Ball(1 << 20, 1.0, 2), 1 << 22)


@given(st.lists(any_float, min_size=1, max_size=6), st.floats(1e-90, 1e90))
def test_no_coordinate_leaves_the_box(values, radius):
    steps = onto_box(np.array([values]), Box(len(values), radius))
    assert all(abs(n) <= BOX_BOUND for n in steps[0].tolist())
    assert (np.sign(steps[0]) * np.sign(values) >= 0).all()
