"""Who publishes: keys, and signatures of releases and rounds.

Contract: a signature speaks of one hash, in one role. A signed release cannot pass for a round, nor
a round for a release, and neither can be changed by a byte. The key that signs stays with the
publisher; collectors and devices know its public half.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from offaxis.errors import InvalidDocument
from offaxis.files import replacing
from offaxis.formats.documents import Round

__all__ = [
    "load_key",
    "new_key",
    "public_key",
    "save_key",
    "sign_release",
    "sign_round",
    "verify_release",
    "verify_round",
]

RELEASE: Final = b"offaxis release v1\0"
ROUND: Final = b"offaxis round v1\0"


def new_key() -> Ed25519PrivateKey:
    """Return a fresh key of a publisher.

    Examples
    --------
    >>> from offaxis.formats.signing import new_key
    >>> len(new_key().public_key().public_bytes_raw())
    32
    """
    return Ed25519PrivateKey.generate()


def save_key(key: Ed25519PrivateKey, path: Path) -> None:
    """Write a private key to a file that only its owner can read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from offaxis.formats.signing import new_key, save_key
    >>> save_key(new_key(), Path("publisher.key"))
    >>> oct(Path("publisher.key").stat().st_mode & 0o777)
    '0o600'
    """
    with replacing(path) as file:
        path_of = Path(file.name)
        path_of.chmod(0o600)
        file.write(key.private_bytes_raw().hex().encode() + b"\n")


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key.

    Examples
    --------
    >>> from pathlib import Path
    >>> from offaxis.formats.signing import load_key, new_key, save_key
    >>> key = new_key()
    >>> save_key(key, Path("publisher.key"))
    >>> load_key(Path("publisher.key")).private_bytes_raw() == key.private_bytes_raw()
    True
    """
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))
    except (OSError, ValueError) as error:
        raise InvalidDocument(f"cannot read a key from {path}: {error}") from None


def public_key(text: str) -> Ed25519PublicKey:
    """Return a public key from its 64 hexadecimal digits.

    Examples
    --------
    >>> from offaxis.formats.signing import new_key, public_key
    >>> text = new_key().public_key().public_bytes_raw().hex()  # what devices are told
    >>> public_key(text).public_bytes_raw().hex() == text
    True
    """
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        raise InvalidDocument("a public key has 64 hexadecimal digits") from None


def sign_release(key: Ed25519PrivateKey, release_hash: str) -> bytes:
    """Return the signature of a release, 64 bytes.

    Examples
    --------
    >>> from offaxis.formats.signing import new_key, sign_release
    >>> len(sign_release(new_key(), "ab" * 32))
    64
    """
    return key.sign(RELEASE + bytes.fromhex(release_hash))


def sign_round(key: Ed25519PrivateKey, round_: Round) -> bytes:
    """Return the signature of a round, 64 bytes.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from offaxis.formats.documents import Round
    >>> from offaxis.formats.signing import new_key, sign_round, verify_round
    >>> first, last = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC)
    >>> known = {"name": "energy-7", "study": "energy", "number": 7, "release": "ab" * 32}
    >>> energy = Round(**known, opens=first, closes=last)
    >>> key = new_key()
    >>> verify_round(key.public_key(), energy, sign_round(key, energy))  # silence is consent
    """
    return key.sign(ROUND + round_.digest)


def verify_release(key: Ed25519PublicKey, release_hash: str, signature: bytes) -> None:
    """Raise InvalidDocument unless the key signed this release.

    Examples
    --------
    >>> from offaxis.formats.signing import new_key, sign_release, verify_release
    >>> key, release = new_key(), "ab" * 32
    >>> signature = sign_release(key, release)
    >>> verify_release(key.public_key(), release, signature)
    >>> verify_release(new_key().public_key(), release, signature)
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidDocument: the release is not signed by the publisher's key
    """
    _verify(key, signature, RELEASE + bytes.fromhex(release_hash), "release")


def verify_round(key: Ed25519PublicKey, round_: Round, signature: bytes) -> None:
    """Raise InvalidDocument unless the key signed this round.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from offaxis.formats.documents import Round
    >>> from offaxis.formats.signing import new_key, sign_release, verify_round
    >>> first, last = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC)
    >>> known = {"name": "energy-7", "study": "energy", "number": 7, "release": "ab" * 32}
    >>> energy = Round(**known, opens=first, closes=last)
    >>> key = new_key()
    >>> verify_round(key.public_key(), energy, sign_release(key, "ab" * 32))  # another role
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidDocument: the round is not signed by the publisher's key
    """
    _verify(key, signature, ROUND + round_.digest, "round")


def _verify(key: Ed25519PublicKey, signature: bytes, message: bytes, what: str) -> None:
    try:
        key.verify(signature, message)
    except InvalidSignature:
        raise InvalidDocument(f"the {what} is not signed by the publisher's key") from None
