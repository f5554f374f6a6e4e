"""The server of a secure aggregation: collects updates, announces survivors, opens only the sum."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidDocument, RoundRefused
from offaxis.federated import masks
from offaxis.federated.masks import MaskedUpdate, Opening, Survivors, listed
from offaxis.federated.plan import DistributedGuarantee
from offaxis.federated.roster import Roster
from offaxis.vectors import Vectors


@dataclass(frozen=True, eq=False)
class AggregatedSum:
    """An opened sum; the result of a round.

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
    >>> from offaxis.federated import AggregatedSum, DistributedGuarantee
    >>> guarantee = DistributedGuarantee(4, "1e-5", rounds=1, threshold=2, colluders=0)
    >>> opened = AggregatedSum(np.array([3.0]), np.array([768]), ("a", "b"), 2.0, 0.1, guarantee)
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


class SecureAggregationRound:
    """One round on the server.

    A message that does not belong to the round raises an error that names the client and the
    reason.

    Examples
    --------
    :class:`~offaxis.federated.SecureAggregationClient` shows a whole round.

    >>> from offaxis.federated import (
    ...     ClientKeys, Roster, SecureAggregationPlan, SecureAggregationRound,
    ... )
    >>> plan = SecureAggregationPlan(
    ...     dim=2, clip=1, epsilon=4, delta="1e-5", rounds=1, threshold=2
    ... )
    >>> roster = Roster(plan, [ClientKeys.generate().member(name) for name in "ab"])
    >>> round_ = SecureAggregationRound(roster, 1)
    >>> round_.survivors()
    Traceback (most recent call last):
        ...
    offaxis.errors.RoundRefused: 0 updates arrived in round 1, but a sum needs 2; ...
    """

    def __init__(self, roster: Roster, round_number: int) -> None:
        self.roster, self.round_number = roster, round_number
        self._updates: dict[str, masks.Ring] = {}
        self._survivors: tuple[str, ...] = ()
        self._openings: dict[str, Opening] = {}

    def add(self, update: MaskedUpdate) -> None:
        """Add a masked update: one per client, before survivors are announced."""
        self._check_message(update, self.roster.names)
        if update.name in self._updates or self._survivors:
            raise RoundRefused(
                f"the update of {update.name} is a second one or too late; it is left out"
            )
        dim, bits = self.roster.plan.dim, self.roster.ring_bits
        self._updates[update.name] = masks.unpack(update.payload, dim, bits)

    def survivors(self) -> Survivors:
        """Return the set that clients are to consent to; it is fixed from here on.

        Raises
        ------
        RoundRefused
            If fewer clients than the threshold are left.
        """
        threshold = self.roster.plan.threshold
        if len(self._updates) < threshold:
            raise RoundRefused(
                f"{len(self._updates)} updates arrived in round {self.round_number}, but a sum "
                f"needs {threshold}; nothing is revealed about any client; start a new round"
            )
        self._survivors = self.roster.check(list(self._updates))
        return Survivors(self.round_number, self._survivors)

    def add_opening(self, opening: Opening) -> None:
        """Add a survivor's seeds."""
        self._check_message(opening, self._survivors)
        dropped = {name for name in self.roster.names if name not in self._survivors}
        if set(opening.pair_seeds) != dropped:
            raise InvalidDocument(f"{opening.name} opens other masks than those of dropped clients")
        self._openings[opening.name] = opening

    def missing_openings(self) -> tuple[str, ...]:
        """Return the survivors that have not opened yet."""
        return tuple(name for name in self._survivors if name not in self._openings)

    def result(self) -> AggregatedSum:
        """Remove all masks and return the sum.

        Raises
        ------
        RoundRefused
            If a survivor has not opened; then nothing is revealed about any client.
        """
        if not self._survivors:
            raise RoundRefused(
                f"round {self.round_number} has no survivors yet; call survivors(), collect their "
                f"consents, and add their openings first"
            )
        if self.missing_openings():
            raise RoundRefused(
                f"no opening from {listed(self.missing_openings())} in round {self.round_number}; "
                f"nothing is revealed about any client; add it, or start a new round"
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
        return AggregatedSum(
            integers.astype(np.float64) * self.roster.step,
            integers,
            self._survivors,
            self.roster.total_weight(self._survivors),
            self.roster.step * math.sqrt(len(self._survivors) * plan.share_variance),
            plan.guarantee,
        )

    def _check_message(self, message: MaskedUpdate | Opening, senders: Iterable[str]) -> None:
        if message.round_number != self.round_number or message.name not in senders:
            raise InvalidDocument(
                f"a message of {message.name} for round {message.round_number} does not belong "
                f"to round {self.round_number}"
            )
