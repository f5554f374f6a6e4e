"""Two sides of local gradient releases: a client counts its rounds, a server averages."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from offaxis.decoding import Aggregate, aggregate
from offaxis.errors import BudgetExceeded
from offaxis.federated.gradients import LocalGradients, checked_rows, total
from offaxis.privacy.guarantee import Guarantee
from offaxis.vectors import Vectors, as_integer


@dataclass(eq=False)
class LocalClient:
    """A client that sends a bundle a round and stops when its budget is spent.

    It forgets what it has sent when the program ends; a :class:`~offaxis.privacy.Ledger` does not.

    Parameters
    ----------
    recipe : DirectGradient or PermutedGradients
    rounds : int
        How many bundles it may send, ever.
    sent : int
        How many it has sent; keep it when the client restarts.

    Examples
    --------
    >>> from offaxis.federated import DirectGradient, LocalClient
    >>> public = np.random.default_rng(0).normal(0.3, 1, (400, 5))
    >>> client = LocalClient(DirectGradient.fit(public, samples=20, epsilon=2), rounds=3)
    >>> print(client.guarantee)  # of all rounds together
    ε = 6, pure
    >>> bundle = client.report(public[:20])
    >>> client.sent
    1
    """

    recipe: LocalGradients
    rounds: int = 1
    sent: int = 0
    _lock: Any = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the numbers."""
        as_integer(self.rounds, "rounds", 1)
        as_integer(self.sent, "sent", 0)

    @property
    def guarantee(self) -> Guarantee:
        """What all bundles of this client promise together."""
        return total(self.recipe.release, self.recipe.reports * self.rounds)

    def report(self, gradients: Any) -> tuple[bytes, ...]:
        """Make the bundle of a round.

        Raises
        ------
        BudgetExceeded
            If all rounds are spent.
        """
        rows = checked_rows(gradients, self.recipe.samples, self.recipe.dim)
        with self._lock:
            if self.sent >= self.rounds:
                raise BudgetExceeded(
                    f"{self.sent} of {self.rounds} bundles were sent; nothing is left"
                )
            self.sent += 1  # before anything is drawn: what is lost on the way is spent, too
        return self.recipe.report(rows)


@dataclass(frozen=True, eq=False)
class LocalServer:
    """Averages the bundles of many clients.

    Examples
    --------
    >>> from offaxis.federated import DirectGradient, LocalServer
    >>> public = np.random.default_rng(0).normal(0.3, 1, (400, 5))
    >>> recipe = DirectGradient.fit(public, samples=20, epsilon=8)
    >>> server = LocalServer(recipe)
    >>> bundles = [recipe.report(public[:20]) for _ in range(30)]
    >>> server.average(bundles).estimate.shape, server.decode(bundles[0]).shape
    ((5,), (5,))
    """

    recipe: LocalGradients

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate one client's mean gradient."""
        return self.recipe.decode(bundle)

    def average(
        self, bundles: Iterable[Iterable[bytes]], weights: Iterable[float] | None = None
    ) -> Aggregate:
        """Estimate the mean over clients, with standard errors; weights are public."""
        return aggregate((self.decode(bundle)[None] for bundle in bundles), weights)
