"""Clients of masked sums: their private keys, and what a roster says of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from offaxis.errors import InvalidDocument, InvalidInput
from offaxis.privacy.guarantee import exact
from offaxis.sampling.entropy import fresh_key

_NAME: Final = re.compile(r"[!-~]{1,100}", re.ASCII)
_KEY: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Member:
    """A client: its name, its two public keys in hexadecimal, its public weight.

    Examples
    --------
    >>> from offaxis.federated import ClientKeys, Member
    >>> keys = ClientKeys.generate()
    >>> member = keys.member("clinic-1", weight=3)
    >>> Member(member.name, member.exchange, member.signing, "3") == member
    True
    """

    name: str
    exchange: str
    signing: str
    weight: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        """Check the form; whether the keys are whose they should be is for people to check."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidInput(f"a name has 1 to 100 visible ASCII signs, got {self.name!r:.120}")
        for key in (self.exchange, self.signing):
            if not isinstance(key, str) or not _KEY.fullmatch(key):
                raise InvalidInput(f"{self.name}: a public key has 64 small hexadecimal digits")
        weight = exact(self.weight, "weight")
        if weight <= 0:
            raise InvalidInput(f"{self.name}: weight must be positive, got weight={weight}")
        object.__setattr__(self, "weight", weight)


class ClientKeys:
    """The two private keys of a client, drawn from the operating system; they never leave it.

    Examples
    --------
    >>> from offaxis.federated import ClientKeys
    >>> keys = ClientKeys.generate()
    >>> again = ClientKeys.from_bytes(keys.to_bytes())  # 64 bytes, to be kept secret
    >>> again.member("a") == keys.member("a"), again.fingerprint == keys.fingerprint
    (True, True)
    """

    def __init__(self, exchange: X25519PrivateKey, signing: Ed25519PrivateKey) -> None:
        self.exchange, self.signing = exchange, signing

    @classmethod
    def generate(cls) -> ClientKeys:
        """Draw new keys."""
        return cls.from_bytes(fresh_key() + fresh_key())

    @classmethod
    def from_bytes(cls, data: bytes) -> ClientKeys:
        """Read what :meth:`to_bytes` wrote."""
        if len(data) != 64:
            raise InvalidDocument(f"the keys of a client have 64 bytes, got {len(data)}")
        exchange = X25519PrivateKey.from_private_bytes(data[:32])
        return cls(exchange, Ed25519PrivateKey.from_private_bytes(data[32:]))

    def to_bytes(self) -> bytes:
        """Write both private keys: whoever reads them can take off this client's masks."""
        return self.exchange.private_bytes_raw() + self.signing.private_bytes_raw()

    def member(self, name: str, weight: Any = 1) -> Member:
        """Return the public side, for a roster."""
        exchange = self.exchange.public_key().public_bytes_raw().hex()
        signing = self.signing.public_key().public_bytes_raw().hex()
        return Member(name, exchange, signing, exact(weight, "weight"))

    @property
    def fingerprint(self) -> str:
        """A name made of a public key, the same wherever the keys are. Compare rosters instead."""
        return self.signing.public_key().public_bytes_raw()[:8].hex()

    def __repr__(self) -> str:
        """Show nothing of the keys."""
        return "ClientKeys(…)"
