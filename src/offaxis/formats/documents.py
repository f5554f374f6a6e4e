"""Documents signed by a publisher: rounds of collection, and signatures of releases and rounds.

Contract: a document has one canonical form, and no other is accepted: a signed document cannot be
changed by a byte. A signature is about one hash in one role: a signed release cannot pass for a
round, nor a round for a release. The private key stays with the publisher; collectors and devices
know the public key.
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
from offaxis.formats.release_file import Sha256
from offaxis.formats.strict_json import canonical_json, parse_json, shown

__all__ = [
    "Round",
    "load_key",
    "new_key",
    "public_key",
    "save_key",
    "sign_release",
    "sign_round",
    "verify_release",
    "verify_round",
]

LARGEST_ROUND: Final = 32_768
"""The most bytes of a round's document."""

NAME: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_FIRST_YEAR: Final = 2000
_MOST_GROUPS: Final = 500
_LONGEST_KEEPING: Final = 36_500


def _read_time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise ValueError("a time must be text such as 2026-11-01T00:00:00Z")
    return datetime.strptime(value, _TIME).replace(tzinfo=UTC)


def _whole_second(value: datetime) -> datetime:
    if value.tzinfo is None or value.utcoffset() != timedelta(0) or value.microsecond:
        raise ValueError("a time must be in UTC and in whole seconds")
    if value.year < _FIRST_YEAR:
        raise ValueError(f"a time must be in the year {_FIRST_YEAR} or later")
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
    """A period in which each device may send one report of one release.

    Attributes
    ----------
    name, study : str
        Lower-case letters, digits and hyphens.
    number : int
        Increases within a study, so that a device detects a replayed older round.
    release : str
        Hash of the release to report with.
    opens, closes : datetime
        UTC, whole seconds.
    groups : tuple of str
        Labels that a device may send with its report, in the clear.
    keep_days : int
        Days after closing until the reports are deleted; their means are kept.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from offaxis.formats.documents import Round
    >>> day = datetime(2026, 11, 1, tzinfo=UTC)
    >>> energy = Round(
    ...     name="energy-7",
    ...     study="energy",
    ...     number=7,
    ...     release="ab" * 32,
    ...     opens=day,
    ...     closes=day.replace(day=8),
    ...     groups=("north", "south"),
    ... )
    >>> energy.to_bytes()[:48]
    b'{"closes":"2026-11-08T00:00:00Z","groups":["nort'
    >>> Round.from_bytes(energy.to_bytes()) == energy
    True
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
    def _check(self) -> Self:
        if not self.opens < self.closes:
            raise ValueError("a round must close after it opens")
        if len(set(self.groups)) < len(self.groups):
            raise ValueError("a group is listed twice")
        return self

    def to_bytes(self) -> bytes:
        """Return the document in the canonical form that is signed."""
        return canonical_json(self.model_dump(mode="json")).encode()

    @classmethod
    def from_bytes(cls, document: bytes) -> Round:
        """Read an untrusted document strictly.

        Raises
        ------
        InvalidDocument
            If it is not a round, or not in canonical form.
        """
        if len(document) > LARGEST_ROUND:
            raise InvalidDocument(f"a round's document has at most {LARGEST_ROUND} bytes")
        try:
            round_ = cls.model_validate(parse_json(document.decode()))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise InvalidDocument(f"this is not a round: {where}: {shown(first['msg'])}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidDocument(f"this is not a round: {shown(str(error))}") from None
        if round_.to_bytes() != document:
            raise InvalidDocument("this round is not in canonical form; write it again")
        return round_

    @property
    def digest(self) -> bytes:
        """SHA-256 of the document."""
        return hashlib.sha256(self.to_bytes()).digest()


# ---- Keys and signatures

RELEASE: Final = b"offaxis release v1\0"
ROUND: Final = b"offaxis round v1\0"


def new_key() -> Ed25519PrivateKey:
    """Return a new private key of a publisher.

    Examples
    --------
    >>> from offaxis.formats.documents import new_key
    >>> len(new_key().public_key().public_bytes_raw())
    32
    """
    return Ed25519PrivateKey.generate()


def save_key(key: Ed25519PrivateKey, path: Path) -> None:
    """Write a private key to a file that only its owner can read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from offaxis.formats.documents import new_key, save_key
    >>> save_key(new_key(), Path("publisher.key"))
    >>> oct(Path("publisher.key").stat().st_mode & 0o777)
    '0o600'
    """
    with replacing(path) as file:
        Path(file.name).chmod(0o600)
        file.write(key.private_bytes_raw().hex().encode() + b"\n")


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key from a file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from offaxis.formats.documents import load_key, new_key, save_key
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
    >>> from offaxis.formats.documents import new_key, public_key
    >>> text = new_key().public_key().public_bytes_raw().hex()  # what devices are configured with
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
    >>> from offaxis.formats.documents import new_key, sign_release
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
    >>> from offaxis.formats.documents import new_key, sign_round, verify_round
    >>> first, last = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC)
    >>> fields = {"name": "energy-7", "study": "energy", "number": 7, "release": "ab" * 32}
    >>> energy = Round(**fields, opens=first, closes=last)
    >>> key = new_key()
    >>> verify_round(key.public_key(), energy, sign_round(key, energy))  # raises if it is invalid
    """
    return key.sign(ROUND + round_.digest)


def verify_release(key: Ed25519PublicKey, release_hash: str, signature: bytes) -> None:
    """Raise InvalidDocument unless the key signed this release.

    Examples
    --------
    >>> from offaxis.formats.documents import new_key, sign_release, verify_release
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
    >>> from offaxis.formats.documents import new_key, sign_release, verify_round
    >>> first, last = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC)
    >>> fields = {"name": "energy-7", "study": "energy", "number": 7, "release": "ab" * 32}
    >>> energy = Round(**fields, opens=first, closes=last)
    >>> key = new_key()
    >>> verify_round(key.public_key(), energy, sign_release(key, "ab" * 32))  # the wrong role
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
