"""Who takes part in masked sums, with which keys and weights: one public document and its hash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from offaxis.errors import InvalidDocument, InvalidInput
from offaxis.federated.members import Member
from offaxis.federated.plan import MOST_CLIENTS, MaskingPlan
from offaxis.formats.strict_json import canonical_json, shown

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
