"""What every rival shares: public randomness from a nonce, and payloads of a nonce and a symbol.

Nothing here is secret and no guarantee rests on it. A nonce is drawn before the input is used; the
key stream of AES under a public key expands it, as for the directions of offaxis.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

from offaxis.errors import InvalidReport
from offaxis.randomizers.directions import NONCE_BYTES, Nonces, key_stream
from offaxis.sampling.entropy import RandomBits
from offaxis.vectors import Vectors

_PER_BLOCK = 8

# ---- Nonces and what they expand to


def draw_nonces(count: int, bits: RandomBits) -> Nonces:
    """Draw the nonces of reports."""
    return bits.words(count * NONCE_BYTES // 2).view(np.uint8).reshape(-1, NONCE_BYTES)


def seeded_nonces(count: int, rng: np.random.Generator) -> Nonces:
    """Draw nonces for a simulation."""
    return rng.integers(0, 256, (count, NONCE_BYTES), dtype=np.uint8)


def _words(nonces: Nonces, count: int, key: bytes) -> NDArray[np.uint16]:
    blocks = np.arange(-(-count // _PER_BLOCK))
    stream = key_stream(nonces, np.broadcast_to(blocks, (len(nonces), blocks.size)), key)
    return stream.reshape(len(nonces), -1)[:, :count]


def public_signs(nonces: Nonces, count: int, key: bytes) -> Vectors:
    """Return ``count`` independent fair signs per nonce, (n, count)."""
    words = np.ascontiguousarray(_words(nonces, -(-count // 16), key)).astype("<u2")
    octets = words.view(np.uint8).reshape(len(nonces), -1)
    bits = np.unpackbits(octets, axis=1, bitorder="little")[:, :count].astype(np.float64)
    return 1.0 - 2.0 * bits


def public_places(nonces: Nonces, size: int, chosen: int, key: bytes) -> NDArray[np.int64]:
    """Return ``chosen`` distinct places of ``size`` per nonce, (n, chosen).

    Places are ordered by random keys of 32 bits. Equal keys are rare, and then the first place
    comes first: a bias of the order 2⁻³², of utility only.
    """
    words = np.ascontiguousarray(_words(nonces, 2 * size, key)).astype("<u2")
    keys = words.view("<u4").reshape(len(nonces), size)
    places: NDArray[np.int64] = np.argsort(keys, axis=1, kind="stable")[:, :chosen]
    return places


# ---- The Hadamard transform


def power_above(number: int) -> int:
    """Return the smallest power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


@lru_cache(maxsize=16)
def _factor(size: int) -> Vectors:
    matrix: Vectors = np.asarray(hadamard(size), dtype=np.float64) / np.sqrt(size)
    return matrix


def transform(X: Vectors) -> Vectors:
    """Return HX of every row, H the symmetric orthogonal Hadamard matrix of a power of two.

    H of p·q is the Kronecker product of those of p and q, so two small products do the work.
    """
    rows, size = X.shape
    p = 1 << (size.bit_length() - 1) // 2
    q = size // p
    right = (X.reshape(-1, q) @ _factor(q)).reshape(rows, p, q)
    product: Vectors = np.matmul(_factor(p), right).reshape(rows, size)
    return product


# ---- Payloads: a nonce, and a symbol in little-endian bytes


def symbol_bytes(limit: int) -> int:
    """Return the bytes of a symbol below ``limit``."""
    return max(1, ((limit - 1).bit_length() + 7) // 8)


def joined(nonces: Nonces, symbols: list[int], limit: int) -> list[bytes]:
    """Return payloads of nonces and symbols below ``limit``."""
    size = symbol_bytes(limit)
    return [
        nonce.tobytes() + symbol.to_bytes(size, "little")
        for nonce, symbol in zip(nonces, symbols, strict=True)
    ]


def parsed(payloads: list[bytes], limit: int, kind: str) -> tuple[Nonces, list[int]]:
    """Split payloads into nonces and symbols, strictly."""
    size = NONCE_BYTES + symbol_bytes(limit)
    if any(len(payload) != size for payload in payloads):
        raise InvalidReport(f"a {kind} payload has {size} bytes")
    symbols = [int.from_bytes(payload[NONCE_BYTES:], "little") for payload in payloads]
    if symbols and max(symbols) >= limit:
        raise InvalidReport(f"a {kind} payload names a symbol that does not exist")
    octets = np.frombuffer(b"".join(payload[:NONCE_BYTES] for payload in payloads), np.uint8)
    return octets.reshape(-1, NONCE_BYTES).copy(), symbols
