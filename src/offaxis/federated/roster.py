"""Clients of masked sums: their private keys, and what a roster says of them."""

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
from offaxis.federated.plan import MOST_CLIENTS, MaskingPlan
from offaxis.formats.strict_json import canonical_json, shown
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


# ----------------------------------------------------------------------------
# Who takes part in masked sums, with which keys and weights: one public document and its hash.

_OVERFLOW_BITS: Final = 40
"""A sum leaves the ring with a probability of at most 2**-40 in all rounds; it costs no privacy."""
_LARGEST: Final = 1 << 26


@dataclass(frozen=True, init=False)
class Roster:
    """The plan and the members, in one order that all clients share.

    The hash stands for all of it; every mask and every signature is bound to it. A server that
    shows two clients different rosters gets masks that do not cancel and signatures that fit none.

    Parameters
    ----------
    plan : MaskingPlan
    members : sequence of Member

    Examples
    --------
    >>> from offaxis.federated import ClientKeys, MaskingPlan, Roster
    >>> plan = MaskingPlan(dim=10, clip=1, epsilon=4, delta="1e-5", rounds=1, threshold=2)
    >>> small, large = ClientKeys.generate(), ClientKeys.generate()
    >>> roster = Roster(plan, [small.member("a", weight=1), large.member("b", weight=3)])
    >>> roster.names, roster.bounds == (plan.bound // 3, plan.bound)
    (('a', 'b'), True)
    >>> roster.ring_bits, roster.step == 3 / plan.bound, roster.total_weight(["b"])
    (24, True, 3.0)
    >>> Roster.from_bytes(roster.to_bytes()).hash == roster.hash  # compare it with other clients
    True
    >>> roster.place("b"), roster.check(["b", "a"])
    (1, ('a', 'b'))
    """

    plan: MaskingPlan
    members: tuple[Member, ...]

    def __init__(self, plan: MaskingPlan, members: Iterable[Member]) -> None:
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "members", tuple(members))
        if not plan.threshold <= len(self.members) <= MOST_CLIENTS:
            raise InvalidInput(
                f"a roster needs at least threshold={plan.threshold} members and has at most "
                f"{MOST_CLIENTS}, got {len(self.members)}"
            )
        for field in ("name", "exchange", "signing"):
            if len({getattr(one, field) for one in self.members}) < len(self.members):
                raise InvalidInput(f"two members have the same {field}; each must have its own")
        if min(self.bounds) < 1:
            light = self.members[self.bounds.index(min(self.bounds))]
            raise InvalidInput(
                f"the weight {light.weight} of {light.name} vanishes beside the largest; take a "
                f"larger bound than {plan.bound}, or weights closer to each other"
            )
        if self.ring_bits > 64:
            raise InvalidInput("the sum does not fit 64 bits; take a smaller bound")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in the roster's order."""
        return tuple(one.name for one in self.members)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def place(self, name: str) -> int:
        """Return where a member stands."""
        if name not in self._places:
            raise InvalidInput(f"{shown(name)} is not in the roster")
        return self._places[name]

    def check(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return names in the roster's order; refuse strangers and names that come twice."""
        if len(set(names)) < len(names):
            raise InvalidInput("a name comes twice among the survivors")
        return tuple(sorted(names, key=self.place))

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """R_k = ⌊bound · w_k / max w⌋: the radius of each client's ball in lattice steps."""
        heaviest = max(one.weight for one in self.members)
        return tuple(math.floor(self.plan.bound * one.weight / heaviest) for one in self.members)

    @cached_property
    def step(self) -> float:
        """The length of a lattice step, in units of weight times update."""
        heaviest = max(one.weight for one in self.members)
        return float(heaviest) * self.plan.clip / self.plan.bound

    @cached_property
    def ring_bits(self) -> int:
        """b, in whole bytes: sums are taken modulo 2**b.

        Each coordinate of the sum is at most Σ R_k, and the noise of all K clients is sub-Gaussian
        with the variance K·v: it passes √(2Kv ln(2·2**40·dim·rounds)) with a probability of at most
        2**-40 in any coordinate of any round.
        """
        plan, clients = self.plan, len(self.members)
        odds = (_OVERFLOW_BITS + 1) * math.log(2) + math.log(plan.dim * plan.rounds)
        noise = math.ceil(math.sqrt(2 * clients * plan.share_variance * odds)) + 1
        return 8 * math.ceil(((sum(self.bounds) + noise).bit_length() + 1) / 8)

    def total_weight(self, names: Iterable[str]) -> float:
        """Return the sum of the weights of some members."""
        return float(sum(self.members[self.place(name)].weight for name in names))

    def to_bytes(self) -> bytes:
        """Write the document in its one form."""
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
            If it is no roster, or not in the one form.
        """
        if len(document) > _LARGEST:
            raise InvalidDocument(f"a roster has at most {_LARGEST} bytes, got {len(document)}")
        try:
            read = json.loads(document)
            found = cls(MaskingPlan(**read["plan"]), [Member(*row) for row in read["members"]])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidDocument(f"this is no roster: {shown(str(error))}") from None
        if found.to_bytes() != document:
            raise InvalidDocument("this roster is not in the form that is hashed; write it again")
        return found

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the document, in hexadecimal: what clients compare."""
        return hashlib.sha256(self.to_bytes()).hexdigest()
