"""Masks and messages of secure aggregation.

A mask is a uniform vector modulo 2**b, expanded from a seed that two clients share or that one
client drew. An update is multiplied by its weight before it is masked, so the pairwise masks r_k of
a round add up to zero modulo 2**b, and the masks of the *updates*, r_k / w_k, are in the null space
of the weights W. The other order would lose bits: an even weight times a uniform mask modulo 2**b
is always even.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from offaxis.errors import InvalidDocument
from offaxis.sampling.entropy import KEY_BYTES, KeyStream

Ring = NDArray[np.uint64]
"""Elements of the integers modulo 2**b, in 64 bits."""

# Domain separators: part of the protocol, so their wording never changes.
_PAIR: Final = b"offaxis masked sum v1 pair\0"
_CONSENT: Final = b"offaxis masked sum v1 survivors\0"


def shared_secret(own: X25519PrivateKey, public: str, name: str) -> bytes:
    """Return the secret that only these two clients share."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
    except ValueError:
        raise InvalidDocument(f"the exchange key of {name} is not a valid X25519 key") from None


def pair_seed(secret: bytes, roster_hash: str, round_number: int, names: tuple[str, str]) -> bytes:
    """Return the seed of one pair in one round; ``names`` are in the roster's order.

    The seed is bound to the roster and the round, so revealing it reveals nothing about any other.
    """
    info = _PAIR + round_number.to_bytes(8, "little")
    for name in names:
        info += len(name).to_bytes(8, "little") + name.encode()
    return HKDF(SHA256(), KEY_BYTES, salt=bytes.fromhex(roster_hash), info=info).derive(secret)


def expand(seed: bytes, dim: int, ring_bits: int) -> Ring:
    """Expand a seed to a uniform vector; each seed is used for one vector only."""
    if len(seed) != KEY_BYTES:
        raise InvalidDocument(f"a seed has {KEY_BYTES} bytes, got {len(seed)}")
    words = KeyStream(seed).words(4 * dim).view("<u8").astype(np.uint64)
    return reduce(words, ring_bits)


def reduce(values: Ring, ring_bits: int) -> Ring:
    """Reduce modulo 2**b the results of arithmetic modulo 2**64."""
    reduced: Ring = values & np.uint64((1 << ring_bits) - 1)
    return reduced


def to_ring(integers: NDArray[np.int64], ring_bits: int) -> Ring:
    """Return integers modulo 2**b."""
    return reduce(integers.astype(np.int64).view(np.uint64), ring_bits)


def from_ring(values: Ring, ring_bits: int) -> NDArray[np.int64]:
    """Return the representatives from −2**(b−1) to 2**(b−1) − 1."""
    shift = np.uint64(64 - ring_bits)
    signed: NDArray[np.int64] = (values << shift).view(np.int64) >> np.int64(64 - ring_bits)
    return signed


def pack(values: Ring, ring_bits: int) -> bytes:
    """Write b/8 bytes per number, little-endian."""
    octets = values.astype("<u8").view(np.uint8).reshape(-1, 8)
    return octets[:, : ring_bits // 8].tobytes()


def unpack(payload: bytes, dim: int, ring_bits: int) -> Ring:
    """Read the bytes that :func:`pack` wrote."""
    width = ring_bits // 8
    if len(payload) != width * dim:
        raise InvalidDocument(
            f"a masked update has {width * dim} bytes, got {len(payload)}; "
            f"the client uses another roster"
        )
    octets = np.zeros((dim, 8), dtype=np.uint8)
    octets[:, :width] = np.frombuffer(payload, dtype=np.uint8).reshape(dim, width)
    return octets.view("<u8")[:, 0].astype(np.uint64)


# ---- Messages between clients and server


@dataclass(frozen=True)
class MaskedUpdate:
    """Step 1, client to server: the update with noise and masks.

    To anyone without the masks the payload is uniformly distributed.

    Examples
    --------
    >>> from offaxis.federated import MaskedUpdate
    >>> MaskedUpdate(round_number=1, name="a", payload=bytes(30)).name
    'a'
    """

    round_number: int
    name: str
    payload: bytes = field(repr=False)


@dataclass(frozen=True)
class Survivors:
    """Step 2, server to clients: the clients whose updates arrived.

    Only the sum over this set may be opened.

    Examples
    --------
    >>> from offaxis.federated import Survivors
    >>> Survivors(round_number=1, names=("a", "b")).names
    ('a', 'b')
    """

    round_number: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Consent:
    """Step 2, client to server and on to all survivors: a signature over the set of survivors.

    Examples
    --------
    >>> from offaxis.federated import Consent
    >>> Consent(round_number=1, name="a", signature=bytes(64)).round_number
    1
    """

    round_number: int
    name: str
    signature: bytes = field(repr=False)


@dataclass(frozen=True)
class Opening:
    """Step 3, client to server: seeds of its own mask and of those shared with dropped clients.

    Examples
    --------
    >>> from offaxis.federated import Opening
    >>> Opening(1, "a", self_seed=bytes(32), pair_seeds={"c": bytes(32)}).name
    'a'
    """

    round_number: int
    name: str
    self_seed: bytes = field(repr=False)
    pair_seeds: Mapping[str, bytes] = field(repr=False)


def consent_text(roster_hash: str, round_number: int, names: Sequence[str]) -> bytes:
    """Return the bytes to sign: the roster, the round and the survivors in the roster's order."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(len(name).to_bytes(8, "little") + name.encode())
    return (
        _CONSENT + bytes.fromhex(roster_hash) + round_number.to_bytes(8, "little") + digest.digest()
    )


def listed(names: Sequence[str], most: int = 5) -> str:
    """List names in a message: the first few, then how many more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
