"""Public directions: bit by bit as specified, in any chunks, and ranked exactly."""

from __future__ import annotations

import hashlib

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from offaxis.randomizers import directions
from offaxis.randomizers.directions import (
    PUBLIC_KEY,
    TABLE_SHA256,
    expand,
    nearest,
    products,
    table,
)
from tests.checks import ALPHA, law_p_value

NONCES = np.frombuffer(hashlib.shake_128(b"nonces").digest(12 * 6), dtype=np.uint8).reshape(6, 12)


def plain_vector(nonce: bytes, pair: int, dim: int) -> list[int]:
    """A second implementation of the specification: AES in counter mode, pair by pair."""
    stream = Cipher(algorithms.AES(PUBLIC_KEY), modes.CTR(nonce + bytes(4))).encryptor()
    blocks = -(-dim // 8)
    key_stream = stream.update(bytes(16 * blocks * (pair + 1)))[16 * blocks * pair :]
    words = [int.from_bytes(key_stream[2 * i : 2 * i + 2], "little") for i in range(dim)]
    return [int(table()[k]) for k in words]


@pytest.mark.parametrize("dim", [1, 7, 8, 9, 64])
def test_vectors_are_those_of_the_specification(dim):
    pairs = np.array([[0, 1, 5, 300]] * len(NONCES))
    g = expand(NONCES, pairs, dim)
    for row, nonce in enumerate(NONCES):
        for column, pair in enumerate(pairs[row]):
            assert g[row, column].tolist() == plain_vector(bytes(nonce), int(pair), dim)


def test_every_entry_of_the_table_is_certified():
    """Against Φ⁻¹ with thirty digits, wherever a float could have rounded the wrong way."""
    values = table()
    k = np.arange(1 << 16)
    assert (values % 2 == 1).all()
    assert (values == -values[::-1]).all()
    assert hashlib.sha256(values.astype("<i2").tobytes()).hexdigest() == TABLE_SHA256
    real = 2048 * ndtri((2 * k + 1) / (1 << 17))
    doubtful = np.flatnonzero(np.abs(real - np.rint(real)) < 2e-4)
    assert 5 < doubtful.size < 100
    with mpmath.workdps(30):
        for index in doubtful:
            p = mpmath.mpf(2 * int(index) + 1) / (1 << 17)
            exact = 2048 * mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)
            assert values[index] == 2 * int(mpmath.floor(exact)) + 1


def test_a_different_table_is_detected(monkeypatch):
    monkeypatch.setattr(directions, "ndtri", lambda p: stats.norm.ppf(p) * (1 + 1e-6))
    with pytest.raises(AssertionError, match="table"):
        table.__wrapped__()


def test_coordinates_follow_the_normal_law():
    g = expand(NONCES, np.tile(np.arange(500), (6, 1)), 40).ravel() / directions.spread()
    noise = np.random.default_rng(0).uniform(-1, 1, g.size) / 4096
    assert law_p_value(g + noise, stats.norm.cdf) > ALPHA
    assert law_p_value(0.97 * g, stats.norm.cdf) < ALPHA


@pytest.mark.parametrize("normalise", [True, False])
def test_products_are_exact_integers_in_any_chunks(monkeypatch, normalise):
    inputs = np.random.default_rng(1).integers(-(2**18), 2**18, size=(6, 9))
    whole = products(NONCES, 50, inputs, normalise=normalise)
    for row in range(6):
        for pair in (0, 17, 49):
            g = plain_vector(bytes(NONCES[row]), pair, 9)
            exact = sum(int(n) * v for n, v in zip(inputs[row], g, strict=True))
            score = exact / np.sqrt(float(sum(v * v for v in g))) if normalise else float(exact)
            assert whole[row, pair] == score
    monkeypatch.setattr(directions, "_CHUNK_NUMBERS", 64)
    assert np.array_equal(products(NONCES, 50, inputs, normalise=normalise), whole)


@given(
    st.integers(1, 12).flatmap(
        lambda pairs: st.tuples(
            st.integers(1, pairs),
            st.lists(
                st.lists(
                    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 1e300]),
                    min_size=pairs,
                    max_size=pairs,
                ),
                min_size=1,
                max_size=4,
            ),
        )
    )
)
def test_exactly_the_requested_number_are_near_and_ties_go_to_the_first(case):
    near, rows = case
    indices = nearest(np.array(rows), near)
    for row, chosen in zip(rows, indices.tolist(), strict=True):
        # The specification: sort pairs by descending |score|, then by index; take the first.
        order = sorted(range(len(row)), key=lambda j: (-abs(row[j]), j))[:near]
        assert chosen == sorted(2 * j + (row[j] < 0) for j in order)


def test_a_ranking_of_the_wrong_size_is_an_error():
    with pytest.raises(AssertionError, match="exactly"):
        nearest(np.array([[np.nan, np.nan, 1.0]]), 2)
