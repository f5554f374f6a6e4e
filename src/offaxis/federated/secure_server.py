"""The server of a masked sum: collects, announces who is left, opens the sum and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidDocument, RoundRefused
from offaxis.federated import masks
from offaxis.federated.masks import MaskedUpdate, Opening, Survivors, listed
from offaxis.federated.plan import DistributedGuarantee
from offaxis.federated.roster import Roster
from offaxis.vectors import Vectors


@dataclass(frozen=True, eq=False)
class MaskedSum:
    """An opened sum.

    Attributes
    ----------
    total : array (dim,)
        Σ w_k u_k over the survivors, plus the noise; u_k are the clipped updates.
    integers : array (dim,) of int64
        The same, in lattice steps.
    survivors : tuple of str
    weight : float
        Σ w_k over the survivors.
    noise_std : float
        Standard deviation of all the noise in each coordinate of ``total``.
    guarantee : DistributedGuarantee

    Examples
    --------
    >>> from offaxis.federated import DistributedGuarantee, MaskedSum
    >>> promise = DistributedGuarantee(4, "1e-5", rounds=1, threshold=2, colluders=0)
    >>> opened = MaskedSum(np.array([3.0]), np.array([768]), ("a", "b"), 2.0, 0.1, promise)
    >>> opened.mean
    array([1.5])
    """

    total: Vectors
    integers: NDArray[np.int64] = field(repr=False)
    survivors: tuple[str, ...]
    weight: float
    noise_std: float
    guarantee: DistributedGuarantee

    @property
    def mean(self) -> Vectors:
        """The weighted mean of the survivors' clipped updates, plus noise."""
        return self.total / self.weight


class MaskedRound:
    """One round on the server's side. What does not fit the round is refused, with who and why.

    Examples
    --------
    See :class:`~offaxis.federated.MaskedClient` for a whole round.

    >>> from offaxis.federated import ClientKeys, MaskedRound, MaskingPlan, Roster
    >>> plan = MaskingPlan(dim=2, clip=1, epsilon=4, delta="1e-5", rounds=1, threshold=2)
    >>> roster = Roster(plan, [ClientKeys.generate().member(name) for name in "ab"])
    >>> round_ = MaskedRound(roster, 1)
    >>> round_.survivors()
    Traceback (most recent call last):
        ...
    offaxis.errors.RoundRefused: 0 updates arrived in round 1, and a sum needs 2; ...
    >>> round_.missing_openings()
    ()
    """

    def __init__(self, roster: Roster, round_number: int) -> None:
        self.roster, self.round_number = roster, round_number
        self._updates: dict[str, masks.Ring] = {}
        self._survivors: tuple[str, ...] = ()
        self._openings: dict[str, Opening] = {}

    def _own(self, message: Any, known: Iterable[str]) -> None:
        if message.round_number != self.round_number or message.name not in known:
            raise InvalidDocument(
                f"a message of {message.name} for round {message.round_number} does not belong "
                f"to round {self.round_number}"
            )

    def add(self, update: MaskedUpdate) -> None:
        """Take a masked update, once a client and before survivors are announced."""
        self._own(update, self.roster.names)
        if update.name in self._updates or self._survivors:
            raise RoundRefused(f"{update.name} comes twice or too late; its update is left out")
        dim, bits = self.roster.plan.dim, self.roster.ring_bits
        self._updates[update.name] = masks.unpack(update.payload, dim, bits)

    def survivors(self) -> Survivors:
        """Return the set that clients are asked to consent to; it is fixed from here on.

        Raises
        ------
        RoundRefused
            If fewer than the threshold are left.
        """
        least = self.roster.plan.threshold
        if len(self._updates) < least:
            raise RoundRefused(
                f"{len(self._updates)} updates arrived in round {self.round_number}, and a sum "
                f"needs {least}; nothing is learnt of anybody; start a new round"
            )
        self._survivors = self.roster.check(list(self._updates))
        return Survivors(self.round_number, self._survivors)

    def add_opening(self, opening: Opening) -> None:
        """Take a survivor's seeds."""
        self._own(opening, self._survivors)
        if set(opening.pair_seeds) != set(self._dropped()):
            raise InvalidDocument(f"{opening.name} opens other masks than those of who dropped out")
        self._openings[opening.name] = opening

    def missing_openings(self) -> tuple[str, ...]:
        """Return the survivors that have not opened yet."""
        return tuple(name for name in self._survivors if name not in self._openings)

    def _dropped(self) -> list[str]:
        return [name for name in self.roster.names if name not in self._survivors]

    def result(self) -> MaskedSum:
        """Take off all masks and return the sum.

        Raises
        ------
        RoundRefused
            If a survivor has not opened: then nothing can be learnt, of anybody.
        """
        if not self._survivors:
            raise RoundRefused(
                f"round {self.round_number} has no survivors yet; call survivors(), let them "
                f"consent, and add their openings first"
            )
        if self.missing_openings():
            raise RoundRefused(
                f"no opening of {listed(self.missing_openings())} in round {self.round_number}; "
                f"nothing is learnt of anybody; add it, or start a new round"
            )
        plan, bits = self.roster.plan, self.roster.ring_bits
        total = np.zeros(plan.dim, dtype=np.uint64)
        for name in self._survivors:
            opening = self._openings[name]
            total += self._updates[name] - masks.expand(opening.self_seed, plan.dim, bits)
            for other, seed in opening.pair_seeds.items():
                mask = masks.expand(seed, plan.dim, bits)
                first = self.roster.place(name) < self.roster.place(other)
                total = total - mask if first else total + mask
        integers = masks.from_ring(masks.reduce(total, bits), bits)
        return MaskedSum(
            integers.astype(np.float64) * self.roster.step,
            integers,
            self._survivors,
            self.roster.total_weight(self._survivors),
            self.roster.step * math.sqrt(len(self._survivors) * plan.share_variance),
            plan.guarantee,
        )
