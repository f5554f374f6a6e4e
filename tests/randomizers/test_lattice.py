from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from offaxis.errors import InvalidInput
from offaxis.randomizers import base as lattice
from offaxis.randomizers.base import Ball, onto_lattice

any_float = st.floats(allow_nan=False, allow_infinity=False, width=64)
batches = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=any_float)
bounds = st.integers(1, 1 << 21)
orders = st.sampled_from([1, 2])


def size(steps: np.ndarray, order: int) -> list[int]:
    """Σ|n_i|^p of every row in Python's own integers."""
    return [sum(abs(n) ** order for n in row) for row in steps.tolist()]


@given(batches, st.floats(1e-90, 1e90), bounds, orders)
def test_clipping_never_leaves_the_ball(W, radius, bound, order):
    steps = onto_lattice(W, Ball(W.shape[1], radius, order), bound)
    assert max(size(steps, order)) <= bound**order


@given(batches, st.floats(1e-90, 1e90), bounds, orders)
def test_truncation_goes_toward_zero(W, radius, bound, order):
    steps = onto_lattice(W, Ball(W.shape[1], radius, order), bound)
    assert (np.sign(steps) * np.sign(W) >= 0).all()
    with np.errstate(over="ignore"):
        inside = np.abs(W).sum(axis=1) < radius * (1 - 1e-9)
    room = np.abs(W[inside] / radius * bound) * (1 + 1e-12)
    assert (np.abs(steps[inside]) <= room).all()


@pytest.mark.parametrize("order", [1, 2])
def test_float_clipping_alone_would_leave_the_ball(order):
    """The twin: rounding to nearest, or trusting the float clip, exceeds the bound."""
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


class Sloppy:
    """A ball that leaves every vector where it is."""

    radius = 1.0

    def __init__(self, order=1):
        self.order = order

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
def test_an_excess_is_taken_from_the_largest_entries(row, expected):
    steps = onto_lattice(np.array([row]), Sloppy(), 10)
    assert steps.tolist() == [expected]


@pytest.mark.parametrize(
    "row", [[np.nan, 0.0], [np.inf, 0.0], [-np.inf, 1.0], [-(2.0**63), 0.0], [2.0**31, 2.0**31]]
)
def test_nothing_slips_past_the_check_by_overflow(row):
    """-2**31 is its own absolute value in 32 bits; the check must not be fooled by it."""
    if not np.isfinite(row).all():
        with pytest.raises(InvalidInput, match="not finite"):
            onto_lattice(np.array([row]), Sloppy(), 65_536)
        return
    steps = onto_lattice(np.array([row]), Sloppy(), 65_536)
    assert np.abs(steps.astype(np.int64)).sum() == 65_536


def test_a_row_that_could_not_be_shrunk_is_never_returned(monkeypatch):
    monkeypatch.setattr(lattice, "_shrink", lambda *_: None)
    with pytest.raises(AssertionError, match="outside the ball"):
        onto_lattice(np.array([[0.6, 0.5, 0.0]]), Sloppy(), 10)


def test_lattice_points_are_exactly_those_of_truncation():
    W = np.array([[0.19, -0.19, 0.0], [0.999, 0.0, 0.0], [0.25, 0.25, -0.5]])
    assert onto_lattice(W, Ball(3, 1.0, 1), 10).tolist() == [[1, -1, 0], [9, 0, 0], [2, 2, -5]]


def test_an_excess_is_taken_off_in_the_euclidean_norm_too():
    steps = onto_lattice(np.array([[0.8, -0.8, 0.0]]), Sloppy(order=2), 10)
    assert steps.tolist() == [[7, -7, 0]]


def test_a_bound_whose_check_could_overflow_is_refused():
    with pytest.raises(ValueError, match="64-bit"):
        onto_lattice(np.zeros((1, 1 << 20)), Ball(1 << 20, 1.0, 2), 1 << 22)
