"""Which rounds and releases a device accepts, whatever a collector claims.

Contract: a round is accepted if the publisher whose key the device holds signed it, or if it names
the one release that is pinned on the device; if both are set, both must hold. A release is accepted
if its content has the hash that the round names, and if the guarantee computed from its parameters
is within the device's own limit for one report.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, Final, get_args

from offaxis.card import is_sequence
from offaxis.client.transport import Transport
from offaxis.errors import InvalidDocument, InvalidInput, RoundRefused
from offaxis.formats import release_file
from offaxis.formats.documents import Round, public_key, verify_round
from offaxis.formats.strict_json import canonical_json, shown
from offaxis.privacy.composition import Limit
from offaxis.privacy.guarantee import Guarantee, Unit, decimal, exact, exact_epsilon
from offaxis.release import Release

_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Offer:
    """A round that the device trusts; its ``state`` is only claimed by the collector.

    Examples
    --------
    >>> from offaxis.client import Offer
    >>> from offaxis.formats.documents import Round
    >>> times = {"opens": "2026-11-01T00:00:00Z", "closes": "2026-12-01T00:00:00Z"}
    >>> round_ = Round(name="energy-7", study="energy", number=7, release="0af1" * 16, **times)
    >>> offer = Offer(round_, state="open")  # as Device.rounds() returns them
    >>> offer.round.name, offer.state
    ('energy-7', 'open')
    """

    round: Round
    state: str


@dataclass(frozen=True)
class Terms:
    """The configuration of a device.

    Attributes
    ----------
    url : str
        The collector's address.
    publisher : str or None
        Public key, 64 hexadecimal digits, that must have signed a round.
    release : str or None
        Hash of the only release to report. At least one of ``publisher`` and ``release`` is set.
    epsilon, delta : str
        The largest privacy cost of one report, read exactly.
    unit : {"item", "user"}
        The least unit of privacy that a release must have. A release with unit "user" is answered
        once per study, or as one sequence.
    token : str or None
        Authenticates the device to the collector.
    ca_file : str or None
        Certificates to trust instead of the system's.

    Examples
    --------
    >>> import offaxis
    >>> from base64 import b64encode
    >>> from offaxis.client import Terms
    >>> from offaxis.formats.release_file import to_bytes
    >>> from offaxis.formats.documents import new_key, sign_round
    >>> key = new_key()
    >>> publisher = key.public_key().public_bytes_raw().hex()
    >>> terms = Terms("https://collect.example", epsilon="3", publisher=publisher)
    >>> terms.most.epsilon, Terms.from_json(terms.to_json()) == terms
    (Fraction(3, 1), True)

    A round is trusted if the publisher signed it, and a release if its hash and guarantee fit:

    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    >>> from offaxis.formats.documents import Round
    >>> times = {"opens": "2026-11-01T00:00:00Z", "closes": "2026-12-01T00:00:00Z"}
    >>> round_ = Round(name="energy-7", study="energy", number=7, release=release.hash, **times)
    >>> signature = b64encode(sign_round(key, round_)).decode()
    >>> document = round_.model_dump(mode="json")
    >>> entry = {"document": document, "signature": signature, "state": "open"}
    >>> terms.offer(entry).round == round_
    True
    >>> terms.offer(entry | {"signature": signature[::-1]})
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidDocument: ...
    >>> terms.accept(to_bytes(release), release.hash).guarantee.epsilon  # recomputed
    Fraction(2, 1)
    """

    url: str
    epsilon: str
    delta: str = "0"
    unit: Unit = "item"
    publisher: str | None = None
    release: str | None = None
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    def __post_init__(self) -> None:
        """Reject terms under which any collector could be trusted."""
        if self.publisher is None and self.release is None:
            raise InvalidInput("a device needs its publisher's key or the hash of its release")
        if self.publisher is not None:
            public_key(self.publisher)
        if self.release is not None and not _HASH.fullmatch(self.release):
            raise InvalidInput(
                f"a release's hash is 64 lower-case hexadecimal digits, got {shown(self.release)}"
            )
        if self.unit not in get_args(Unit):
            raise InvalidInput(f"unit must be 'item' or 'user', got unit={self.unit!r}")
        most = self.most
        object.__setattr__(self, "epsilon", str(most.epsilon))
        object.__setattr__(self, "delta", str(most.delta))

    @property
    def most(self) -> Guarantee:
        """The largest privacy cost of one report."""
        return Guarantee(exact_epsilon(self.epsilon), exact(self.delta, "delta"), self.unit)

    def transport(self, patience: float) -> Transport:
        """Return the connection to the collector."""
        return Transport(self.url, token=self.token, ca_file=self.ca_file, patience=patience)

    def offer(self, entry: Any) -> Offer:
        """Read one round from a collector's response.

        Raises
        ------
        InvalidDocument
            If it is not a round, or the publisher did not sign it.
        RoundRefused
            If it names another release than the pinned one.
        """
        document = entry.get("document") if isinstance(entry, dict) else None
        if not isinstance(document, dict):
            raise InvalidDocument("the collector's response has no document of a round")
        try:
            round_ = Round.from_bytes(canonical_json(document).encode())
        except (ValueError, RecursionError) as error:
            raise InvalidDocument(f"the collector returned an invalid round: {error}") from None
        if self.publisher is not None:
            signature = _signature(entry.get("signature"))
            verify_round(public_key(self.publisher), round_, signature)
        if self.release is not None and round_.release != self.release:
            raise RoundRefused(
                f"round {round_.name} uses release {round_.release[:8]}…, this device reports "
                f"{self.release[:8]}… only"
            )
        state = entry.get("state")
        return Offer(round_, state if isinstance(state, str) else "unknown")

    def accept(self, content: bytes, release_hash: str) -> Release:
        """Read a release and recompute its guarantee.

        Raises
        ------
        InvalidRelease
            If it is not a release, or not the one with this hash.
        RoundRefused
            If its guarantee is weaker than this device requires.
        """
        release = release_file.from_bytes(content, expect=release_hash, with_plugins=False)
        guarantee, most = release.guarantee, self.most
        if guarantee.epsilon > most.epsilon or guarantee.delta > most.delta:
            # The guarantee of a sequence is that of all its reports.
            what = "sequence" if is_sequence(release) else "report"
            raise RoundRefused(
                f"a {what} would have {guarantee}; this device allows up to ε = "
                f"{decimal(most.epsilon)}, δ = {decimal(most.delta)} per report or sequence"
            )
        if (guarantee.unit, self.unit) == ("item", "user"):
            raise RoundRefused("the guarantee is per item; this device requires one per user")
        return release

    def to_json(self) -> str:
        """Return the terms as one line of JSON."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Read terms that :meth:`to_json` wrote."""
        return cls(**json.loads(text))


def largest_report(limits: Sequence[Limit]) -> Fraction:
    """Return the ε that a report or a sequence may have by default: the smallest limit in all.

    Limits per period are left to the ledger, which counts a sequence by the answers drawn and
    reported in each period. Without a limit in all, the smallest of them counts.
    """
    in_all = [limit.epsilon for limit in limits if limit.seconds is None]
    return min(in_all or [limit.epsilon for limit in limits])


def _signature(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InvalidDocument("the round has no signature") from None
