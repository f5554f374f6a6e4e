"""The public parameters of masked aggregation, and the noise that they ask of every client."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from offaxis.errors import InvalidInput
from offaxis.federated.accounting import certified_delta, largest_rho, sum_divergence
from offaxis.federated.guarantee import DistributedGuarantee
from offaxis.privacy.guarantee import exact_delta, exact_epsilon
from offaxis.randomizers.domain import check_dim, check_radius
from offaxis.sampling.discrete_gaussian import LARGEST_VARIANCE
from offaxis.vectors import as_number

BOUND: Final = 1 << 18
MOST_ROUNDS: Final = 1 << 20
MOST_CLIENTS: Final = 1 << 16


@dataclass(frozen=True)
class MaskingPlan:
    """What all clients of a masked sum agree on; the same for each, public, and in the roster.

    An update is clipped to the ℓ2 norm ``clip``, multiplied by the client's public weight and laid
    on a lattice on which the heaviest client's ball has the radius ``bound``. One client moves the
    sum by at most Δ = 2·bound there. Every client adds a discrete Gaussian with the parameter
    ``share_variance``, chosen so that ``threshold − colluders`` shares keep (ε, δ) over all
    ``rounds``. Nothing is claimed for sampling clients.

    Parameters
    ----------
    dim : int
        Numbers in an update.
    clip : float
        ℓ2 norm to which every client clips its update.
    epsilon, delta : number
        Promise for all rounds together, read exactly.
    rounds : int
        How many sums may be opened, in all.
    threshold : int
        Fewest clients in a sum; with fewer survivors a round is refused.
    colluders : int
        How many of them may tell the server all they know, their noise too.
    bound : int
        Radius of the heaviest client's ball in lattice steps.

    Examples
    --------
    >>> from offaxis.federated import MaskingPlan
    >>> plan = MaskingPlan(dim=650, clip=1.0, epsilon=4, delta="1e-5", rounds=20, threshold=8)
    >>> print(plan.guarantee)
    ε = 4, δ = 1e-05 for the sums of 20 rounds (distributed, not local; up to 0 colluders)
    >>> plan.sensitivity == 2 * plan.bound and plan.honest_shares == 8
    True
    >>> round(float(plan.rho), 3), round(plan.noise_multiplier, 2)  # ρ of all rounds; σ/clip
    (0.373, 10.35)
    >>> plan.share_variance * 8 >= (plan.sensitivity ** 2 * 20) / (2 * 0.374)
    True
    """

    dim: int
    clip: float
    epsilon: Fraction
    delta: Fraction
    rounds: int
    threshold: int
    colluders: int = 0
    bound: int = BOUND

    def __post_init__(self) -> None:
        """Refuse what cannot be promised."""
        object.__setattr__(self, "dim", check_dim(self.dim))
        object.__setattr__(self, "clip", check_radius(as_number(self.clip, "clip"), "clip"))
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        object.__setattr__(self, "delta", exact_delta(self.delta))
        _whole(self.rounds, "rounds", 1, MOST_ROUNDS)
        _whole(self.threshold, "threshold", 1, MOST_CLIENTS)
        _whole(self.colluders, "colluders", 0, self.threshold - 1)
        _whole(self.bound, "bound", 1, 1 << 30)
        if self.bound**2 * self.dim >= 1 << 63:
            raise InvalidInput(
                f"bound={self.bound} is too fine for dim={self.dim}: bound² · dim must stay below "
                f"2**63; take a smaller bound"
            )
        _ = self.share_variance

    @property
    def sensitivity(self) -> int:
        """Δ: how far one client can move the sum, in lattice steps (ℓ2, by replacement)."""
        return 2 * self.bound

    @property
    def honest_shares(self) -> int:
        """How many shares of noise no set of colluders can take away from an opened sum."""
        return self.threshold - self.colluders

    @cached_property
    def share_variance(self) -> int:
        """The parameter of every client's discrete Gaussian, in lattice steps², rounded up."""
        rho = Fraction(largest_rho(self.epsilon, self.delta))
        if not rho:
            raise InvalidInput(f"no noise keeps epsilon={self.epsilon}, delta={self.delta}")
        for _ in range(40):
            variance = math.ceil(self._rho_times_variance / rho)
            if variance > LARGEST_VARIANCE:
                raise InvalidInput(
                    f"this promise needs noise of 2**{math.log2(variance) / 2:.0f} lattice steps, "
                    f"more than can be drawn; take a smaller bound than {self.bound}"
                )
            if self._keeps(variance):
                return variance
            rho *= Fraction(63, 64)
        raise InvalidInput(
            f"the lattice is too coarse to count this promise; take a larger bound than "
            f"{self.bound}"
        )

    @property
    def _rho_times_variance(self) -> Fraction:
        return Fraction(self.sensitivity**2 * self.rounds, 2 * self.honest_shares)

    def _keeps(self, variance: int) -> bool:
        """Certify the promise: Gaussian noise, and what a sum of shares differs from it."""
        apart = self.rounds * self.dim * sum_divergence(variance, self.honest_shares)
        left = self.epsilon - 2 * apart
        if left <= 0 or apart > 1:
            return False
        # e^x <= 1 + 2x for x <= 1.
        delta = certified_delta(self._rho_times_variance / variance, left)
        return delta * (1 + 2 * apart) <= self.delta

    @property
    def rho(self) -> Fraction:
        """ρ of all rounds together, towards the server and the colluders (zCDP)."""
        return self._rho_times_variance / self.share_variance

    @property
    def noise_multiplier(self) -> float:
        """σ of the noise that cannot be taken away, over the norm of the heaviest client's ball."""
        return math.sqrt(self.honest_shares * self.share_variance) / self.bound

    @cached_property
    def guarantee(self) -> DistributedGuarantee:
        """What is promised about all opened sums."""
        return DistributedGuarantee(
            self.epsilon, self.delta, self.rounds, self.threshold, self.colluders
        )


def _whole(value: Any, name: str, least: int, most: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise InvalidInput(
            f"{name} must be a whole number from {least} to {most}, got {name}={value!r}"
        )
