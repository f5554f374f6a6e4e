"""Public directions: how a nonce expands to vectors, bit by bit (docs/report-format.md).

A nonce of 12 bytes expands to any number of pairs of opposite vectors. Pair j takes B = ⌈m/8⌉
blocks of the AES-128 counter key stream under a *public* key, from block j·B on, with the counter
block ``nonce ‖ 32-bit big-endian block number``. Coordinate i of the pair's first vector is
``TABLE[k]``, k the i-th little-endian 16-bit word of those blocks; the second vector is its
negative. Vector 2j is the first of pair j, vector 2j + 1 the second. ``TABLE`` holds odd integers
that follow the normal law: 2⌊2048·Φ⁻¹((2k + 1)/2¹⁷)⌋ + 1. Under another public key the same nonce
expands to unrelated vectors: the rows of a projection.

Nothing here is secret and no guarantee rests on it: a poor generator would only cost utility.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from functools import cache
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy.special import ndtri

from offaxis.vectors import Vectors

NONCE_BYTES: Final = 12
PUBLIC_KEY: Final = b"offaxis rank v1."
PROJECTION_KEY: Final = b"offaxis proj v1."
TABLE_SHA256: Final = "9d3456d114aad5a18526ed2817a4a3a91b756da278a9ad0fd211b47c8e6ae33f"
_BLOCK: Final = 16
_WORDS: Final = _BLOCK // 2
_CHUNK_NUMBERS: Final = 1 << 16
"""Coordinates expanded at a time, so that they stay in the cache."""

Nonces = NDArray[np.uint8]
"""(n, 12): one nonce per row."""


@cache
def table() -> Vectors:
    """Return the 65,536 odd integers, as exact float64."""
    k = np.arange(1 << 16)
    values: Vectors = 2 * np.floor(2048 * ndtri((2 * k + 1) / (1 << 17))) + 1
    if hashlib.sha256(values.astype("<i2").tobytes()).hexdigest() != TABLE_SHA256:
        raise AssertionError("the table of directions is different on this machine")
    return values


@cache
def spread() -> float:
    """Return the root mean square of the table: the length of one standard deviation."""
    return math.sqrt(float((table() ** 2).mean()))


def blocks_per_pair(dim: int) -> int:
    """Return B, the number of key-stream blocks per pair."""
    return -(-dim // _WORDS)


def key_stream(nonces: Nonces, blocks: NDArray[np.int64], key: bytes) -> NDArray[np.uint16]:
    """Return the words of the given blocks of each row's nonce: (n, …, 8) for blocks (n, …)."""
    counters = np.empty((*blocks.shape, _BLOCK // 4), dtype=">u4")
    counters[..., :3] = nonces.view(">u4").reshape(-1, *(1,) * (blocks.ndim - 1), 3)
    counters[..., 3] = blocks
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    words = np.frombuffer(cipher.update(counters.data.cast("B")), dtype="<u2")
    return words.reshape(*blocks.shape, _WORDS)


def expand(nonces: Nonces, pairs: NDArray[np.int64], dim: int, key: bytes = PUBLIC_KEY) -> Vectors:
    """Return the first vector of each given pair: (n, p, dim) for pairs (n, p), row by row."""
    blocks = blocks_per_pair(dim)
    words = key_stream(nonces, pairs[..., None] * blocks + np.arange(blocks), key)
    first: Vectors = table()[words.reshape(*pairs.shape, blocks * _WORDS)[..., :dim]]
    return first


def _expanded(
    nonces: Nonces, pairs: int, dim: int, key: bytes
) -> Iterator[tuple[slice, slice, Vectors]]:
    """Yield slices of rows, slices of their pairs, and the first vectors of these, in chunks."""
    per_chunk = max(1, _CHUNK_NUMBERS // dim)
    rows_at_once = max(1, per_chunk // pairs)
    for row in range(0, len(nonces), rows_at_once):
        part = slice(row, row + rows_at_once)
        for first in range(0, pairs, per_chunk):
            indices = np.arange(first, min(first + per_chunk, pairs))
            per_row = np.broadcast_to(indices, (len(nonces[part]), indices.size))
            yield part, slice(first, first + indices.size), expand(nonces[part], per_row, dim, key)


def products(
    nonces: Nonces,
    pairs: int,
    inputs: NDArray[np.int64],
    *,
    normalise: bool,
    key: bytes = PUBLIC_KEY,
) -> Vectors:
    """Return the correlation of every row's input with the first vectors of its pairs.

    The result is ⟨n, g⟩, exact in integers, as float64: with |n|² <= 2**40, |g_i| < 2**15 and
    dim <= 2**20 every partial sum stays below 2**53, so that no order of summation changes it. With
    ``normalise`` it is divided by √⟨g, g⟩; both operations are correctly rounded, so the result is
    the same on every machine.
    """
    rows, dim = inputs.shape
    out = np.empty((rows, pairs))
    directions = inputs.astype(np.float64)[:, :, None]
    for part, chunk, g in _expanded(nonces, pairs, dim, key):
        score = (g @ directions[part])[:, :, 0]
        if normalise:
            score /= np.sqrt(np.einsum("rpi,rpi->rp", g, g))
        out[part, chunk] = score
    return out


def combination(nonces: Nonces, weights: Vectors, dim: int, key: bytes = PUBLIC_KEY) -> Vectors:
    """Return Σ_j weight_j g_j of every row, over the first vectors of its pairs: (n, dim).

    This is the transpose of :func:`products`. It is exact too for up to 2**20 integer weights below
    2**15: no partial sum reaches 2**53.
    """
    rows, pairs = weights.shape
    out = np.zeros((rows, dim))
    for part, chunk, g in _expanded(nonces, pairs, dim, key):
        out[part] += (weights[part, None, chunk] @ g)[:, 0]
    return out


def nearest(score: Vectors, near: int) -> NDArray[np.int64]:
    """Return the ``near`` vectors of highest score of every row, ascending; ties by index.

    One vector of each pair counts, the one whose score is not negative. Exactly ``near`` distinct
    indices are returned for any scores, which is all that a guarantee requires.
    """
    size = np.abs(score)
    threshold = np.partition(size, size.shape[1] - near, axis=1)[:, -near, None]
    above, level = size > threshold, size == threshold
    ties_taken = near - above.sum(axis=1, keepdims=True)
    chosen = above | (level & (np.cumsum(level, axis=1) <= ties_taken))
    if (chosen.sum(axis=1) != near).any():
        raise AssertionError(f"a ranking did not choose exactly {near} directions")
    row, pair = np.nonzero(chosen)
    indices: NDArray[np.int64] = 2 * pair + (score[row, pair] < 0)
    return indices.reshape(len(score), near)
