"""The plan of a secure aggregation: its public parameters, its noise and its guarantee.

The guarantee is about the sums that are opened. It is not a local guarantee. All numbers are
certified: they are computed in fractions and rounded so that the guarantee still holds. Proofs are
in docs/proofs.md, "Secure aggregation". They have three steps:

1. One discrete Gaussian with the parameter v on every coordinate, under a sum that one client
   changes by Δ in ℓ2, is ρ-zCDP with ρ = Δ²/2v; over rounds ρ adds up (Canonne, Kamath,
   Steinke 2020).
2. A ρ becomes (ε, δ) by their Proposition 12 (:func:`certified_delta`).
3. A sum of n discrete Gaussians is not exactly one: its probabilities are within e^{±τ} of it
   (Kairouz, Liu, Steinke 2021). On the default lattice τ is negligible, but it is counted
   (:func:`sum_divergence`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Final

from scipy.optimize import minimize_scalar

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import decimal, exact_delta, exact_epsilon
from offaxis.randomizers.base import check_dim, check_radius
from offaxis.sampling.discrete_gaussian import LARGEST_VARIANCE
from offaxis.sampling.probability import exp_minus
from offaxis.vectors import as_integer, as_number

MOST_CLIENTS: Final = 1 << 16
_MOST_ROUNDS: Final = 1 << 20
_DEFAULT_BOUND: Final = 1 << 18

ASSUMPTIONS: Final = (
    "the roster is authentic: any client the server invents is a colluder; compare its hash",
    "at most the stated number of clients collude with the server, and the others run this code",
    "X25519, HKDF-SHA256, Ed25519 and AES-256 in counter mode are not broken",
    "participation in a round, the weights and the parameters are public and not protected",
    "every client keeps its state: a client restored to an older state could answer twice",
)


@dataclass(frozen=True)
class DistributedGuarantee:
    """(ε, δ) of everything that is opened in all rounds, towards the server and the colluders.

    For any two data sets of *one client* (replacement of all its data, in every round) the opened
    sums are (ε, δ)-indistinguishable, if at most ``colluders`` clients share what they know with
    the server. It is **not** a local guarantee: the noise that protects a client is the sum of many
    clients' shares, and a single share is too little. It also rests on assumptions that a local
    release does not need. So it is not a :class:`~offaxis.privacy.Guarantee` and cannot be used
    where one is required.

    Attributes
    ----------
    epsilon, delta : Fraction
        For all rounds together.
    rounds : int
        How many sums may be opened in total.
    threshold, colluders : int
        The fewest clients in a sum, and how many of them may collude.
    assumptions : tuple of str

    Examples
    --------
    >>> from offaxis.federated import DistributedGuarantee
    >>> guarantee = DistributedGuarantee(4, "1e-5", rounds=20, threshold=8, colluders=2)
    >>> print(guarantee)
    ε = 4, δ = 1e-05 for the sums of 20 rounds (distributed, not local; up to 2 colluders)
    >>> guarantee.local, guarantee.unit
    (False, 'client')
    """

    epsilon: Fraction
    delta: Fraction
    rounds: int
    threshold: int
    colluders: int
    assumptions: tuple[str, ...] = ASSUMPTIONS

    def __post_init__(self) -> None:
        """Convert ε and δ to exact fractions and check the counts."""
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        object.__setattr__(self, "delta", exact_delta(self.delta))
        if not 0 <= self.colluders < self.threshold:
            raise InvalidInput(
                f"colluders must be fewer than the threshold, got colluders={self.colluders}, "
                f"threshold={self.threshold}"
            )

    @property
    def local(self) -> bool:
        """False: a single client is protected by masks, not by noise."""
        return False

    @property
    def unit(self) -> str:
        """The unit of protection: all data of one client."""
        return "client"

    def __str__(self) -> str:
        """Return the guarantee in words, and that it is not local."""
        return (
            f"ε = {decimal(self.epsilon)}, δ = {decimal(self.delta)} for the sums of "
            f"{self.rounds} rounds (distributed, not local; up to {self.colluders} colluders)"
        )


@dataclass(frozen=True)
class SecureAggregationPlan:
    """The public parameters that all clients of a secure aggregation agree on.

    The roster contains them. An update is clipped to the ℓ2 norm ``clip``, multiplied by the
    client's public weight and placed on a lattice on which the heaviest client's ball has the
    radius ``bound``. There one client moves the sum by at most Δ = 2·bound. Every client adds a
    discrete Gaussian with the parameter ``share_variance``, chosen so that ``threshold −
    colluders`` shares provide (ε, δ) over all ``rounds``. Sampling of clients is not counted as
    amplification.

    Parameters
    ----------
    dim : int
        Dimension of an update.
    clip : float
        ℓ2 norm to which every client clips its update.
    epsilon, delta : number
        The guarantee for all rounds together, read exactly.
    rounds : int
        How many sums may be opened in total.
    threshold : int
        The fewest clients in a sum; a round with fewer survivors is refused.
    colluders : int
        How many of them may share all they know with the server, including their noise.
    bound : int
        Radius of the heaviest client's ball in lattice steps.

    Examples
    --------
    >>> from offaxis.federated import SecureAggregationPlan
    >>> plan = SecureAggregationPlan(
    ...     dim=650, clip=1.0, epsilon=4, delta="1e-5", rounds=20, threshold=8
    ... )
    >>> print(plan.guarantee)
    ε = 4, δ = 1e-05 for the sums of 20 rounds (distributed, not local; up to 0 colluders)
    >>> round(float(plan.rho), 3), round(plan.noise_multiplier, 2)  # ρ of all rounds; σ/clip
    (0.373, 10.35)
    """

    dim: int
    clip: float
    epsilon: Fraction
    delta: Fraction
    rounds: int
    threshold: int
    colluders: int = 0
    bound: int = _DEFAULT_BOUND

    def __post_init__(self) -> None:
        """Check the parameters, and that noise with this guarantee exists."""
        object.__setattr__(self, "dim", check_dim(self.dim))
        object.__setattr__(self, "clip", check_radius(as_number(self.clip, "clip"), "clip"))
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        object.__setattr__(self, "delta", exact_delta(self.delta))
        self._check_integer("rounds", 1, _MOST_ROUNDS)
        self._check_integer("threshold", 1, MOST_CLIENTS)
        self._check_integer("colluders", 0, self.threshold - 1)
        self._check_integer("bound", 1, 1 << 30)
        if self.bound**2 * self.dim >= 1 << 63:
            raise InvalidInput(
                f"bound={self.bound} is too fine for dim={self.dim}: bound² · dim must stay below "
                f"2**63; use a smaller bound"
            )
        _ = self.share_variance

    def _check_integer(self, name: str, low: int, high: int) -> None:
        object.__setattr__(self, name, as_integer(getattr(self, name), name, low, high))

    @property
    def sensitivity(self) -> int:
        """Δ: how far one client can move the sum, in lattice steps (ℓ2, by replacement)."""
        return 2 * self.bound

    @property
    def honest_shares(self) -> int:
        """How many shares of noise remain in an opened sum if all colluders remove theirs."""
        return self.threshold - self.colluders

    @cached_property
    def share_variance(self) -> int:
        """The parameter of every client's discrete Gaussian, in lattice steps², rounded up."""
        rho = Fraction(largest_rho(self.epsilon, self.delta))
        if not rho:
            raise InvalidInput(f"no noise achieves epsilon={self.epsilon}, delta={self.delta}")
        for _ in range(40):
            variance = math.ceil(self._rho_times_variance / rho)
            if variance > LARGEST_VARIANCE:
                raise InvalidInput(
                    f"this guarantee needs noise of 2**{math.log2(variance) / 2:.0f} lattice "
                    f"steps, more than can be drawn; use a smaller bound than {self.bound}"
                )
            if self._certifies(variance):
                return variance
            rho *= Fraction(63, 64)
        raise InvalidInput(
            f"the lattice is too coarse to certify this guarantee; use a larger bound than "
            f"{self.bound}"
        )

    @property
    def _rho_times_variance(self) -> Fraction:
        return Fraction(self.sensitivity**2 * self.rounds, 2 * self.honest_shares)

    def _certifies(self, variance: int) -> bool:
        """Return whether this variance provides (ε, δ), with the divergence of the sum counted."""
        divergence = self.rounds * self.dim * sum_divergence(variance, self.honest_shares)
        epsilon_left = self.epsilon - 2 * divergence
        if epsilon_left <= 0 or divergence > 1:
            return False
        # e^x <= 1 + 2x for x <= 1.
        delta = certified_delta(self._rho_times_variance / variance, epsilon_left)
        return delta * (1 + 2 * divergence) <= self.delta

    @property
    def rho(self) -> Fraction:
        """ρ of all rounds together, towards the server and the colluders (zCDP)."""
        return self._rho_times_variance / self.share_variance

    @property
    def noise_multiplier(self) -> float:
        """σ of the noise of all honest shares over the radius of the heaviest client's ball."""
        return math.sqrt(self.honest_shares * self.share_variance) / self.bound

    @cached_property
    def guarantee(self) -> DistributedGuarantee:
        """The guarantee of all opened sums together."""
        return DistributedGuarantee(
            self.epsilon, self.delta, self.rounds, self.threshold, self.colluders
        )


# ---- Certified accounting

_BITS: Final = 256
_TWO_PI_SQUARED: Final = Fraction(19_739, 1000)
"""A little below 2π² = 19.7392…"""
_TERMS: Final = 24
_GRID: Final = 1 << 20
"""Denominator of the orders at which the bound is evaluated; any order is valid."""


def certified_delta(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return a δ, rounded up, at which every ρ-zCDP mechanism is (ε, δ)-DP.

    δ = min over α > 1 of exp((α − 1)(αρ − ε)) · (1 − 1/α)^α / (α − 1). The order α is searched in
    floating point; the bound at that order is then computed in integers, with
    α ln(1 − 1/α) <= −Σ_{j=1}^{24} α^{1−j}/j. So the search can cost tightness, never validity.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from offaxis.federated import certified_delta
    >>> float(certified_delta(Fraction(1, 2), Fraction(5)))
    2.896...e-06
    """
    alpha = _best_order(float(rho), float(epsilon))
    exponent = (alpha - 1) * (epsilon - alpha * rho)
    exponent += sum((alpha ** (1 - j) / j for j in range(1, _TERMS + 1)), Fraction(0))
    if exponent <= 0:
        return Fraction(1)
    bound = Fraction(exp_minus(exponent, _BITS)[1], 1 << _BITS) / (alpha - 1)
    return min(Fraction(1), bound)


def _best_order(rho: float, epsilon: float) -> Fraction:
    """Return an order α close to the one with the smallest δ, as a fraction."""

    def log_delta(log_above_one: float) -> float:
        alpha = 1 + math.exp(log_above_one)
        tail = alpha * math.log1p(-1 / alpha)
        return (alpha - 1) * (alpha * rho - epsilon) + tail - math.log(alpha - 1)

    best = minimize_scalar(
        log_delta, bounds=(-9.0, 30.0), method="bounded", options={"xatol": 1e-6}
    )
    return 1 + Fraction(max(1, round(math.exp(best.x) * _GRID)), _GRID)


@lru_cache(maxsize=256)
def largest_rho(epsilon: Fraction, delta: Fraction) -> float:
    """Return the largest ρ whose ``certified_delta`` at ε is at most δ, rounded down.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from offaxis.federated import largest_rho
    >>> round(largest_rho(Fraction(1), Fraction(1, 10**5)), 3)
    0.031
    """
    low, high = 0.0, float(epsilon)
    for _ in range(60):
        middle = (low + high) / 2
        if middle and certified_delta(Fraction(middle), epsilon) <= delta:
            low = middle
        else:
            high = middle
    return low


def sum_divergence(share_variance: int, shares: int) -> Fraction:
    """Bound τ: by how much a sum of discrete Gaussians differs from one, in one coordinate.

    For n independent discrete Gaussians with the parameter v, and every integer k,
    ``|ln Pr[sum = k] − ln Pr[one with parameter nv = k]| <= τ``, where, with x = exp(-2π² v/2),
    τ = (n − 1) · 2q/(1 − q) and q = 2x/(1 − x).

    Examples
    --------
    >>> from offaxis.federated import sum_divergence
    >>> float(sum_divergence(2, shares=100)) < 2e-6 and sum_divergence(2, shares=1) == 0
    True
    """
    if shares <= 1:
        return Fraction(0)
    x = Fraction(exp_minus(_TWO_PI_SQUARED * share_variance / 2, _BITS)[1], 1 << _BITS)
    q = 2 * x / (1 - x)
    return (shares - 1) * 2 * q / (1 - q)
