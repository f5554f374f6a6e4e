from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from offaxis.errors import InvalidInput
from offaxis.randomizers import lattice
from offaxis.randomizers.lattice import onto_l1_lattice

any_float = st.floats(allow_nan=False, allow_infinity=False, width=64)
batches = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=any_float)
bounds = st.integers(1, 1 << 22)


@given(batches, st.floats(1e-90, 1e90), bounds)
def test_clipping_never_leaves_the_ball(W, radius, bound):
    steps = onto_l1_lattice(W, radius, bound)
    assert (np.abs(steps.astype(np.int64)).sum(axis=1) <= bound).all()


@given(batches, st.floats(1e-90, 1e90), bounds)
def test_truncation_goes_toward_zero(W, radius, bound):
    steps = onto_l1_lattice(W, radius, bound)
    assert (np.sign(steps) * np.sign(W) >= 0).all()


def test_float_clipping_alone_would_leave_the_ball():
    """The twin: rounding to nearest, or trusting the float clip, exceeds the bound."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((20_000, 8))
    bound = 1000
    nearest = np.rint(W / np.abs(W).sum(axis=1, keepdims=True) * bound)
    assert (np.abs(nearest).sum(axis=1) > bound).any()
    steps = onto_l1_lattice(W * 1e6, 1.0, bound)
    assert (np.abs(steps).sum(axis=1) <= bound).all()


def test_a_vertex_reaches_the_bound_exactly():
    steps = onto_l1_lattice(np.array([[0.0, -3.0], [1.0, 0.0]]), 1.0, 12_345)
    assert steps.tolist() == [[0, -12_345], [12_345, 0]]


class Sloppy:
    """A projector that leaves everything where it is."""

    def __init__(self, *_):
        pass

    def project(self, W):
        return W


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.9, -0.4, 0.0], [6, -4, 0]),
        ([0.1, 0.1, 0.1], [1, 1, 1]),
        ([0.6, 0.5, 0.0], [5, 5, 0]),  # an excess of exactly one step
        ([-0.6, 0.5, 0.0], [-5, 5, 0]),
        ([5.0, 5.0, 5.0], [0, 0, 10]),
    ],
)
def test_an_excess_is_taken_from_the_largest_entries(monkeypatch, row, expected):
    monkeypatch.setattr(lattice, "Ball", Sloppy)
    steps = onto_l1_lattice(np.array([row]), 1.0, 10)
    assert steps.tolist() == [expected]


@pytest.mark.parametrize(
    "row", [[np.nan, 0.0], [np.inf, 0.0], [-np.inf, 1.0], [-(2.0**63), 0.0], [2.0**31, 2.0**31]]
)
def test_nothing_slips_past_the_check_by_overflow(monkeypatch, row):
    """-2**31 is its own absolute value in 32 bits; the check must not be fooled by it."""
    monkeypatch.setattr(lattice, "Ball", Sloppy)
    if not np.isfinite(row).all():
        with pytest.raises(InvalidInput, match="not finite"):
            onto_l1_lattice(np.array([row]), 1.0, 65_536)
        return
    steps = onto_l1_lattice(np.array([row]), 1.0, 65_536)
    assert np.abs(steps.astype(np.int64)).sum() == 65_536


def test_a_row_that_could_not_be_shrunk_is_never_returned(monkeypatch):
    monkeypatch.setattr(lattice, "Ball", Sloppy)
    monkeypatch.setattr(lattice, "_shrink", lambda steps, excess: None)
    with pytest.raises(AssertionError, match="outside the ball"):
        onto_l1_lattice(np.array([[0.6, 0.5, 0.0]]), 1.0, 10)


def test_lattice_points_are_exactly_those_of_truncation():
    W = np.array([[0.19, -0.19, 0.0], [0.999, 0.0, 0.0], [0.25, 0.25, -0.5]])
    assert onto_l1_lattice(W, 1.0, 10).tolist() == [[1, -1, 0], [9, 0, 0], [2, 2, -5]]
