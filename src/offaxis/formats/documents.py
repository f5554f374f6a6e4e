"""What a publisher signs: releases, and the rounds in which they are asked for.

Contract: a signature speaks of one hash, in one role. A signed release cannot pass for a round, nor
a round for a release, and neither can be changed by a byte. The key that signs stays with the
publisher; collectors and devices know its public half.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from offaxis.errors import InvalidDocument
from offaxis.files import replacing
from offaxis.formats.fields import Sha256
from offaxis.formats.strict_json import canonical_json, parse_json, shown

RELEASE: Final = b"offaxis release v1\0"
ROUND: Final = b"offaxis round v1\0"
LARGEST_ROUND: Final = 32_768
"""Bytes of a round's document."""

NAME: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_FIRST_YEAR: Final = 2000
_MOST_GROUPS: Final = 500
_LONGEST_KEEPING: Final = 36_500


def _read_time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise ValueError("a time is text such as 2026-11-01T00:00:00Z")
    return datetime.strptime(value, _TIME).replace(tzinfo=UTC)


def _whole_second(value: datetime) -> datetime:
    if value.tzinfo is None or value.utcoffset() != timedelta(0) or value.microsecond:
        raise ValueError("a time is in UTC and in whole seconds")
    if value.year < _FIRST_YEAR:
        raise ValueError(f"a time is in the year {_FIRST_YEAR} or later")
    return value


Time = Annotated[
    datetime,
    BeforeValidator(_read_time),
    AfterValidator(_whole_second),
    PlainSerializer(lambda value: value.strftime(_TIME)),
]
Name = Annotated[str, Field(pattern=NAME)]
Group = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[!-~][ -~]*$")]


class Round(BaseModel):
    """A time in which each device may send one report of one release.

    Attributes
    ----------
    name, study : str
        Small letters, digits and hyphens.
    number : int
        Ascends within a study, so that a device notices when it is led back to an older round.
    release : str
        Hash of the release that is asked for.
    opens, closes : datetime
        UTC, whole seconds.
    groups : tuple of str
        Labels a device may send its report with, in the clear.
    keep_days : int
        Days after closing until the reports are deleted; their means stay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    study: Name
    number: Annotated[int, Field(ge=0, le=2**53)]
    release: Sha256
    opens: Time
    closes: Time
    groups: Annotated[tuple[Group, ...], Field(max_length=_MOST_GROUPS)] = ()
    keep_days: Annotated[int, Field(ge=0, le=_LONGEST_KEEPING)] = 30

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.opens < self.closes:
            raise ValueError("a round closes after it opens")
        if len(set(self.groups)) < len(self.groups):
            raise ValueError("a group stands twice")
        return self

    def to_bytes(self) -> bytes:
        """Write the document in the one form that is signed."""
        return canonical_json(self.model_dump(mode="json")).encode()

    @classmethod
    def from_bytes(cls, document: bytes) -> Round:
        """Read an untrusted document strictly.

        Raises
        ------
        InvalidDocument
            If it is no round, or not in the one form.
        """
        if len(document) > LARGEST_ROUND:
            raise InvalidDocument(f"a round's document has up to {LARGEST_ROUND} bytes")
        try:
            found = cls.model_validate(parse_json(document.decode()))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise InvalidDocument(f"this is no round: {where}: {shown(first['msg'])}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidDocument(f"this is no round: {shown(str(error))}") from None
        if found.to_bytes() != document:
            raise InvalidDocument("this round is not in the form that is signed; write it again")
        return found

    @property
    def digest(self) -> bytes:
        """SHA-256 of the document."""
        return hashlib.sha256(self.to_bytes()).digest()


def new_key() -> Ed25519PrivateKey:
    """Return a fresh key of a publisher."""
    return Ed25519PrivateKey.generate()


def save_key(key: Ed25519PrivateKey, path: Path) -> None:
    """Write a private key to a file that only its owner can read."""
    with replacing(path) as file:
        path_of = Path(file.name)
        path_of.chmod(0o600)
        file.write(key.private_bytes_raw().hex().encode() + b"\n")


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key."""
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))
    except (OSError, ValueError) as error:
        raise InvalidDocument(f"cannot read a key from {path}: {error}") from None


def public_key(text: str) -> Ed25519PublicKey:
    """Return a public key from its 64 hexadecimal digits."""
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        raise InvalidDocument("a public key has 64 hexadecimal digits") from None


def sign_release(key: Ed25519PrivateKey, release_hash: str) -> bytes:
    """Return the signature of a release, 64 bytes."""
    return key.sign(RELEASE + bytes.fromhex(release_hash))


def sign_round(key: Ed25519PrivateKey, round_: Round) -> bytes:
    """Return the signature of a round, 64 bytes."""
    return key.sign(ROUND + round_.digest)


def verify_release(key: Ed25519PublicKey, release_hash: str, signature: bytes) -> None:
    """Raise InvalidDocument unless the key signed this release."""
    _verify(key, signature, RELEASE + bytes.fromhex(release_hash), "release")


def verify_round(key: Ed25519PublicKey, round_: Round, signature: bytes) -> None:
    """Raise InvalidDocument unless the key signed this round."""
    _verify(key, signature, ROUND + round_.digest, "round")


def _verify(key: Ed25519PublicKey, signature: bytes, message: bytes, what: str) -> None:
    try:
        key.verify(signature, message)
    except InvalidSignature:
        raise InvalidDocument(f"the {what} is not signed by the publisher's key") from None
