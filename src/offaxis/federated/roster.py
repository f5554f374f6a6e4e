"""The roster of a secure aggregation: its plan and its members, with their public keys and weights.

A roster is one public document in canonical form. Its SHA-256 hash identifies it; clients compare
the hash before they join. The private keys of a client are in :class:`ClientKeys`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from offaxis.errors import InvalidDocument, InvalidInput
from offaxis.federated.confinement import Confined
from offaxis.federated.plan import MOST_CLIENTS, SecureAggregationPlan
from offaxis.formats.strict_json import canonical_json, shown
from offaxis.privacy.guarantee import exact
from offaxis.sampling.entropy import fresh_key

_NAME: Final = re.compile(r"[!-~]{1,100}", re.ASCII)
_KEY: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_OVERFLOW_BITS: Final = 40
"""A sum overflows with a probability of at most 2**-40 in all rounds; it costs no privacy."""
_MOST_BYTES: Final = 1 << 26


@dataclass(frozen=True)
class Member:
    """A client in a roster: its name, two public keys in hexadecimal and its public weight.

    Examples
    --------
    >>> from offaxis.federated import ClientKeys, Member
    >>> member = ClientKeys.generate().member("clinic-1", weight=3)  # on the client
    >>> Member(member.name, member.exchange, member.signing, "3") == member  # on the server
    True
    """

    name: str
    exchange: str
    signing: str
    weight: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        """Check the form only; whom the keys belong to must be verified by people."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidInput(
                f"a name has 1 to 100 visible ASCII characters, got {self.name!r:.120}"
            )
        for key in (self.exchange, self.signing):
            if not isinstance(key, str) or not _KEY.fullmatch(key):
                raise InvalidInput(
                    f"{self.name}: a public key has 64 lower-case hexadecimal digits"
                )
        weight = exact(self.weight, "weight")
        if weight <= 0:
            raise InvalidInput(f"{self.name}: weight must be positive, got weight={weight}")
        object.__setattr__(self, "weight", weight)


class ClientKeys(Confined):
    """The two private keys of a client; they never leave it.

    They are drawn from the operating system's randomness. The object gives them out only in the
    process that made it, so that a forked process cannot sign too, and cannot be copied or pickled.

    Examples
    --------
    >>> from offaxis.federated import ClientKeys
    >>> keys = ClientKeys.generate()
    >>> restored = ClientKeys.from_bytes(keys.to_bytes())  # 64 bytes, to be kept secret
    >>> restored.member("a") == keys.member("a")
    True
    """

    def __init__(self, exchange: X25519PrivateKey, signing: Ed25519PrivateKey) -> None:
        super().__init__()
        self._exchange, self._signing = exchange, signing

    @property
    def exchange(self) -> X25519PrivateKey:
        """The private key of the masks; only in the process that made this object."""
        self.check_process()
        return self._exchange

    @property
    def signing(self) -> Ed25519PrivateKey:
        """The private key of the signatures; only in the process that made this object."""
        self.check_process()
        return self._signing

    @classmethod
    def generate(cls) -> ClientKeys:
        """Draw new keys."""
        return cls.from_bytes(fresh_key() + fresh_key())

    @classmethod
    def from_bytes(cls, data: bytes) -> ClientKeys:
        """Read the bytes that :meth:`to_bytes` wrote."""
        if len(data) != 64:
            raise InvalidDocument(f"the keys of a client have 64 bytes, got {len(data)}")
        exchange = X25519PrivateKey.from_private_bytes(data[:32])
        return cls(exchange, Ed25519PrivateKey.from_private_bytes(data[32:]))

    def to_bytes(self) -> bytes:
        """Write both private keys; anyone who reads them can remove this client's masks."""
        return self.exchange.private_bytes_raw() + self.signing.private_bytes_raw()

    def member(self, name: str, weight: Any = 1) -> Member:
        """Return the public part, for a roster."""
        exchange = self._exchange.public_key().public_bytes_raw().hex()
        signing = self._signing.public_key().public_bytes_raw().hex()
        return Member(name, exchange, signing, exact(weight, "weight"))

    @property
    def fingerprint(self) -> str:
        """The start of the public signing key, used as a name.

        Too short to verify a client: compare roster hashes for that.
        """
        return self._signing.public_key().public_bytes_raw()[:8].hex()

    def __repr__(self) -> str:
        """Show nothing of the keys."""
        return "ClientKeys(…)"


@dataclass(frozen=True, init=False)
class Roster:
    """The plan and the members, in one order that all clients share.

    Every mask and every signature is bound to the roster's hash. A server that shows two clients
    different rosters gets masks that do not cancel and signatures that do not verify.

    Parameters
    ----------
    plan : SecureAggregationPlan
    members : sequence of Member

    Examples
    --------
    >>> from offaxis.federated import ClientKeys, Roster, SecureAggregationPlan
    >>> plan = SecureAggregationPlan(
    ...     dim=10, clip=1, epsilon=4, delta="1e-5", rounds=1, threshold=2
    ... )
    >>> small, large = ClientKeys.generate(), ClientKeys.generate()
    >>> roster = Roster(plan, [small.member("a", weight=1), large.member("b", weight=3)])
    >>> roster.names, roster.total_weight(["a", "b"])
    (('a', 'b'), 4.0)
    >>> Roster.from_bytes(roster.to_bytes()).hash == roster.hash  # compare it with other clients
    True
    """

    plan: SecureAggregationPlan
    members: tuple[Member, ...]

    def __init__(self, plan: SecureAggregationPlan, members: Iterable[Member]) -> None:
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "members", tuple(members))
        if not plan.threshold <= len(self.members) <= MOST_CLIENTS:
            raise InvalidInput(
                f"a roster needs at least threshold={plan.threshold} members and has at most "
                f"{MOST_CLIENTS}, got {len(self.members)}"
            )
        for field in ("name", "exchange", "signing"):
            if len({getattr(member, field) for member in self.members}) < len(self.members):
                raise InvalidInput(f"two members have the same {field}; each must have its own")
        if min(self.bounds) < 1:
            lightest = self.members[self.bounds.index(min(self.bounds))]
            raise InvalidInput(
                f"the weight {lightest.weight} of {lightest.name} vanishes next to the largest; "
                f"use a larger bound than {plan.bound}, or weights closer to each other"
            )
        if self.ring_bits > 64:
            raise InvalidInput("the sum does not fit into 64 bits; use a smaller bound")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in the roster's order."""
        return tuple(member.name for member in self.members)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def place(self, name: str) -> int:
        """Return the index of a member."""
        if name not in self._places:
            raise InvalidInput(f"{shown(name)} is not in the roster")
        return self._places[name]

    def check(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return names in the roster's order; raise for unknown and repeated names."""
        if len(set(names)) < len(names):
            raise InvalidInput("a name appears twice among the survivors")
        return tuple(sorted(names, key=self.place))

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """R_k = ⌊bound · w_k / max w⌋: the radius of each client's ball in lattice steps."""
        heaviest = max(member.weight for member in self.members)
        return tuple(math.floor(self.plan.bound * m.weight / heaviest) for m in self.members)

    @cached_property
    def step(self) -> float:
        """The length of a lattice step, in units of weight times update."""
        heaviest = max(member.weight for member in self.members)
        return float(heaviest) * self.plan.clip / self.plan.bound

    @cached_property
    def ring_bits(self) -> int:
        """b, in whole bytes: sums are taken modulo 2**b.

        Each coordinate of the sum is at most Σ R_k, and the noise of all K clients is sub-Gaussian
        with the variance K·v: it exceeds √(2Kv ln(2·2**40·dim·rounds)) with a probability of at
        most 2**-40 in any coordinate of any round.
        """
        plan, clients = self.plan, len(self.members)
        odds = (_OVERFLOW_BITS + 1) * math.log(2) + math.log(plan.dim * plan.rounds)
        noise = math.ceil(math.sqrt(2 * clients * plan.share_variance * odds)) + 1
        return 8 * math.ceil(((sum(self.bounds) + noise).bit_length() + 1) / 8)

    def total_weight(self, names: Iterable[str]) -> float:
        """Return the sum of the weights of these members."""
        return float(sum(self.members[self.place(name)].weight for name in names))

    def to_bytes(self) -> bytes:
        """Write the document in canonical form."""
        plan = self.plan
        return canonical_json(
            {
                "format": "offaxis roster 1",
                "plan": {
                    "dim": plan.dim,
                    "clip": plan.clip,
                    "epsilon": str(plan.epsilon),
                    "delta": str(plan.delta),
                    "rounds": plan.rounds,
                    "threshold": plan.threshold,
                    "colluders": plan.colluders,
                    "bound": plan.bound,
                },
                "members": [[m.name, m.exchange, m.signing, str(m.weight)] for m in self.members],
            }
        ).encode()

    @classmethod
    def from_bytes(cls, document: bytes) -> Roster:
        """Read an untrusted document strictly.

        Raises
        ------
        InvalidDocument
            If it is not a roster, or not in canonical form.
        """
        if len(document) > _MOST_BYTES:
            raise InvalidDocument(f"a roster has at most {_MOST_BYTES} bytes, got {len(document)}")
        try:
            fields = json.loads(document)
            members = [Member(*row) for row in fields["members"]]
            roster = cls(SecureAggregationPlan(**fields["plan"]), members)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidDocument(f"this is not a roster: {shown(str(error))}") from None
        if roster.to_bytes() != document:
            raise InvalidDocument("this roster is not in canonical form; write it again")
        return roster

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the document, in hexadecimal; clients compare it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()
