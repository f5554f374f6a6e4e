"""Encoders are total, act on each row alone, and reject maps that could overflow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from offaxis.encoding import (
    AffineEncoder,
    ArgmaxEncoder,
    BoxEncoder,
    Frame,
    NetworkEncoder,
    ShiftEncoder,
)
from offaxis.encoding.encoders import LARGEST_ENTRY
from offaxis.errors import InvalidInput

any_float = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(arrays(np.float64, (3, 4), elements=any_float), st.sampled_from([1.0, LARGEST_ENTRY]))
def test_every_finite_vector_has_a_finite_encoding(Z, size):
    """Otherwise a client's failure to answer would reveal something about its vector."""
    rng = np.random.default_rng(0)
    encoder = AffineEncoder(rng.uniform(-1, 1, (2, 4)) * size, np.array([size, -size, 0.0, 1.0]))
    assert np.isfinite(encoder.encode(Z)).all()
    assert np.isfinite(ShiftEncoder(np.zeros(4)).encode(Z)).all()
    limits = np.array([1e-100, 2.0])
    assert (np.abs(BoxEncoder(encoder.matrix, encoder.centre, limits).encode(Z)) <= limits).all()
    symbols = ArgmaxEncoder(encoder.matrix, encoder.centre, np.zeros(2)).encode(Z)
    assert symbols.dtype.kind == "i"
    assert set(symbols.tolist()) <= {0, 1}


def test_a_map_need_not_be_square():
    encoder = AffineEncoder(np.ones((2, 5)), np.zeros(5))
    assert (encoder.input_dim, encoder.output_dim) == (5, 2)
    assert encoder.encode(np.ones((3, 5))).shape == (3, 2)


def test_huge_vectors_keep_their_direction():
    encoder = AffineEncoder(np.eye(2), np.array([1.0, 2.0]))
    encoded = encoder.encode(np.array([[1.5e308, -0.75e308]]))
    assert encoded[0, 0] / encoded[0, 1] == pytest.approx(-2.0)


def test_ordinary_vectors_are_unchanged():
    Z = np.random.default_rng(1).standard_normal((5, 3))
    assert np.array_equal(ShiftEncoder(np.zeros(3)).encode(Z), Z)


def test_a_frozen_map_cannot_be_changed():
    encoder = AffineEncoder(np.eye(2), np.zeros(2))
    with pytest.raises(ValueError, match="read-only"):
        encoder.matrix[0, 0] = 5


@pytest.mark.parametrize(
    ("matrix", "centre"),
    [
        (np.eye(2), np.zeros(3)),
        (np.ones(2), np.zeros(2)),
        (np.full((1, 2), np.nan), np.zeros(2)),
        (np.full((1, 2), 1e200), np.zeros(2)),
        (np.ones((1, 2)), np.array([np.inf, 0])),
        (np.ones((0, 2)), np.zeros(2)),
    ],
)
def test_a_map_that_could_fail_on_some_vector_is_an_error(matrix, centre):
    with pytest.raises(InvalidInput):
        AffineEncoder(matrix, centre)


@pytest.mark.parametrize("other", [0.0, 1e4, -1e300, 5e-324])
@pytest.mark.parametrize("rows", [2, 300])
def test_no_row_of_a_batch_influences_another(other, rows):
    """Rows may belong to different people, and a person's guarantee covers one report only."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((rows, 6))
    changed = Z.copy()
    changed[0] = other
    for encoder in (
        AffineEncoder(rng.uniform(-1, 1, (4, 6)), np.ones(6)),
        ShiftEncoder(np.ones(6)),
        BoxEncoder(rng.uniform(-1, 1, (4, 6)), np.ones(6), np.ones(4)),
        ArgmaxEncoder(rng.uniform(-1, 1, (4, 6)), np.ones(6), np.zeros(4)),
        NetworkEncoder([rng.uniform(-1, 1, (5, 6)), np.ones((2, 5))], [np.ones(5), np.zeros(2)]),
    ):
        assert np.array_equal(encoder.encode(Z)[1:], encoder.encode(changed)[1:])
    # The broken control: centring a batch on its mean mixes every row into every report.
    assert not np.array_equal((Z - Z.mean(axis=0))[1:], (changed - changed.mean(axis=0))[1:])


@pytest.mark.parametrize("limits", [np.ones(3), np.array([1.0, 0.0]), np.array([1.0, -1.0])])
def test_a_box_needs_a_positive_half_width_per_coordinate(limits):
    with pytest.raises(InvalidInput, match="positive half widths"):
        BoxEncoder(np.ones((2, 3)), np.zeros(3), limits)


def test_a_bias_of_another_size_is_an_error():
    with pytest.raises(InvalidInput, match="do not fit"):
        ArgmaxEncoder(np.ones((2, 3)), np.zeros(3), np.zeros(3))


def test_the_first_of_equal_scores_is_the_symbol():
    encoder = ArgmaxEncoder(np.ones((3, 2)), np.zeros(2), np.array([0.0, 1.0, 1.0]))
    assert encoder.encode(np.zeros((2, 2))).tolist() == [1, 1]


def test_frames_compose():
    rng = np.random.default_rng(4)
    first, second = rng.standard_normal((2, 3, 3))
    outer = Frame(rng.standard_normal(3), first, np.linalg.inv(first))
    shift = rng.standard_normal(3)
    both = outer.then(second, np.linalg.inv(second), shift)
    assert both.back is not None
    Z = rng.standard_normal((5, 3))
    expected = (outer.encoder.encode(Z) - shift) @ second.T
    np.testing.assert_allclose(both.encoder.encode(Z), expected, atol=1e-10)
    np.testing.assert_allclose(expected @ both.back.T + both.centre, Z, atol=1e-10)
    covariance = np.cov(Z.T)
    np.testing.assert_allclose(both.covariance_of(covariance), np.cov(expected.T), atol=1e-9)
    np.testing.assert_allclose(both.mean_of(Z.mean(axis=0)), expected.mean(axis=0), atol=1e-10)
