"""What masked aggregation promises: something about the sum, which is not a local guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import decimal, exact_delta, exact_epsilon

ASSUMPTIONS: Final = (
    "the roster is authentic: who invents clients invents colluders; compare its hash with others",
    "at most the stated number of clients collude with the server, and the others run this code",
    "X25519, HKDF-SHA256, Ed25519 and AES-256 in counter mode are not broken",
    "who takes part in a round, the weights and the parameters are public and not protected",
    "every client keeps its state: one that goes back to an older state could answer twice",
)


@dataclass(frozen=True)
class DistributedGuarantee:
    """(ε, δ) of everything that is opened in all rounds, towards the server and the colluders.

    For any two data sets of *one client* (replacement of all that it holds, in every round) the
    opened sums are (ε, δ)-indistinguishable, if no more than ``colluders`` clients share what they
    know with the server. It is **not** a local guarantee: the noise that protects a client is the
    sum of many clients' shares, and a single share protects nobody enough. It rests on the
    assumptions, which a local release does not need. So it is no
    :class:`~offaxis.privacy.Guarantee` and cannot stand where one is asked for.

    Attributes
    ----------
    epsilon, delta : Fraction
        For all rounds together.
    rounds : int
        How many sums may be opened in all.
    threshold, colluders : int
        Fewest clients in a sum, and most of them that may collude.
    assumptions : tuple of str

    Examples
    --------
    >>> from offaxis.federated import DistributedGuarantee
    >>> promise = DistributedGuarantee(4, "1e-5", rounds=20, threshold=8, colluders=2)
    >>> print(promise)
    ε = 4, δ = 1e-05 for the sums of 20 rounds (distributed, not local; up to 2 colluders)
    >>> promise.local, promise.unit
    (False, 'client')
    """

    epsilon: Fraction
    delta: Fraction
    rounds: int
    threshold: int
    colluders: int
    assumptions: tuple[str, ...] = ASSUMPTIONS

    def __post_init__(self) -> None:
        """Read the numbers exactly."""
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        object.__setattr__(self, "delta", exact_delta(self.delta))
        if not 0 <= self.colluders < self.threshold:
            raise InvalidInput(
                f"colluders must be fewer than the threshold, got colluders={self.colluders}, "
                f"threshold={self.threshold}"
            )

    @property
    def local(self) -> bool:
        """False: a client alone is protected by masks, not by noise."""
        return False

    @property
    def unit(self) -> str:
        """What is protected: all data of one client."""
        return "client"

    def __str__(self) -> str:
        """Return the promise, and that it is not local."""
        return (
            f"ε = {decimal(self.epsilon)}, δ = {decimal(self.delta)} for the sums of "
            f"{self.rounds} rounds (distributed, not local; up to {self.colluders} colluders)"
        )
