"""What clients and server of a masked sum send each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CONSENT = b"offaxis masked sum v1 survivors\0"


@dataclass(frozen=True)
class MaskedUpdate:
    """Step 1, client to server: the update with noise and masks, uniform to who lacks the masks.

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
    """Step 2, server to clients: whose updates arrived; the only set whose sum may be opened.

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
    """Step 2, client to server and on to all survivors: a signature of the set.

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
    """Step 3, client to server: the seed of its own mask, and of its masks with who dropped out.

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


def listed(names: Sequence[str], most: int = 5) -> str:
    """Name who is concerned, in a message: the first few, and how many more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def consent_text(roster_hash: str, round_number: int, names: Sequence[str]) -> bytes:
    """Return what is signed: the roster, the round and the survivors in the roster's order."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(len(name).to_bytes(8, "little") + name.encode())
    return (
        CONSENT + bytes.fromhex(roster_hash) + round_number.to_bytes(8, "little") + digest.digest()
    )
