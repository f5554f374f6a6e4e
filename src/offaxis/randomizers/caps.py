"""Calibration of PrivUnit2 and PrivUnitG: the ideal cap, and its finite form with ranks.

Both report a random vector v whose density is e^ε where the component t = ⟨v, u⟩ along the input
is at least γ, and 1 elsewhere. Only the law of t differs: a coordinate of a uniform unit vector
(PrivUnit2, Bhowmick et al. 2018) or a standard normal (PrivUnitG, Asi, Feldman, Talwar 2022). With
P = Pr[t >= γ] and M = E[t; t >= γ] the mean of t is A(γ) = (e^ε − 1) M / ((e^ε − 1) P + 1). It is
largest at the γ with A(γ) = γ.

A report names one of finitely many public directions instead of a point of the sphere.
:class:`Ranks` is the law of that finite form, and :func:`choose` the smallest one for a stated loss
of correlation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, betaincc, betaincinv, erfcx, ndtr

from offaxis.randomizers.directions import blocks_per_pair
from offaxis.vectors import Vectors

# ---- The ideal cap

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_HALF_GAMMA_SERIES = (1, -1 / 8, 1 / 128, 5 / 1024, -21 / 32768, -399 / 262144, 869 / 4194304)
"""Γ(x + 1/2) / (Γ(x) √x) in powers of 1/x; the next term is below 1e-15 from x = 60 on."""


@dataclass(frozen=True)
class Cap:
    """A calibrated cap.

    Attributes
    ----------
    threshold : float
        γ, the smallest component along the input that counts as near.
    mass : float
        P, the probability of the cap under the uniform (or Gaussian) law.
    mean : float
        A, the expected component of the report along the input.
    """

    threshold: float
    mass: float
    mean: float


def half_gamma_ratio(x: float) -> float:
    """Return Γ(x + 1/2) / Γ(x), up to rounding, for x >= 1/2."""
    steps = 1.0
    while x < 60:  # Γ(x + 1/2)/Γ(x) = x/(x + 1/2) times the same ratio at x + 1
        steps *= x / (x + 0.5)
        x += 1
    series = float(np.polynomial.polynomial.polyval(1 / x, _HALF_GAMMA_SERIES))
    return steps * math.sqrt(x) * series


def _sphere_cap(slope: float, dim: int) -> tuple[float, float, float]:
    """Return γ, P, log M of the cap of S^{dim−1} with γ = slope/√(1 + slope²) > 0."""
    threshold = slope / math.hypot(1.0, slope)
    sine2 = 1 / (1 + slope * slope)
    if threshold < 0.5:
        mass = 0.5 * float(betaincc(0.5, (dim - 1) / 2, threshold * threshold))
    else:
        mass = 0.5 * float(betainc((dim - 1) / 2, 0.5, sine2))
    density = half_gamma_ratio((dim - 1) / 2) / math.sqrt(math.pi)
    log_sine2 = math.log1p(-threshold * threshold) if threshold < 0.5 else math.log(sine2)
    return threshold, mass, math.log(density / (dim - 1)) + (dim - 1) / 2 * log_sine2


@lru_cache(maxsize=1024)
def sphere_cap(epsilon: float, dim: int) -> Cap:
    """Calibrate PrivUnit2 on S^{dim−1}.

    Solved in the logarithm of cot(angle), which is accurate for caps from a hemisphere (ε → 0) to
    a very narrow one (dim = 2, ε = 50, where 1 − γ is below 1e-14).
    """
    if dim == 1:  # two points: the near one with probability e^ε / (e^ε + 1)
        return Cap(1.0, 0.5, math.tanh(epsilon / 2))
    log_gain = epsilon + math.log(-math.expm1(-epsilon))  # log(e^ε − 1)

    def log_mean(slope: float) -> tuple[float, float]:
        threshold, mass, log_moment = _sphere_cap(slope, dim)
        lift = log_gain + math.log(mass) if mass > 0 else -math.inf
        return log_gain + log_moment - float(np.logaddexp(0.0, lift)), threshold

    def gap(log_slope: float) -> float:
        mean, threshold = log_mean(math.exp(log_slope))
        return mean - math.log(threshold)

    log_slope = brentq(gap, -40.0, 40.0, xtol=1e-15, rtol=8.9e-16, maxiter=500)
    slope = math.exp(log_slope)
    threshold, mass, _ = _sphere_cap(slope, dim)
    return Cap(threshold, mass, math.exp(log_mean(slope)[0]))


@lru_cache(maxsize=1024)
def gaussian_cap(epsilon: float) -> Cap:
    """Calibrate PrivUnitG, in any dimension: γ Z(γ) = (e^ε − 1) φ(γ), Z = e^ε Q(γ) + Φ(γ)."""
    gain = -math.expm1(-epsilon)  # (e^ε − 1) e^{−ε}

    def mean(threshold: float) -> float:
        # Divided through by e^ε φ(γ): gain / (R + e^{−ε} Φ/φ), R the Mills ratio of γ.
        mills = math.sqrt(math.pi / 2) * float(erfcx(threshold / math.sqrt(2)))
        inverse_density = math.sqrt(2 * math.pi) * math.exp(threshold * threshold / 2 - epsilon)
        return gain / (mills + inverse_density * float(ndtr(threshold)))

    def gap(log_threshold: float) -> float:
        return math.log(mean(math.exp(log_threshold))) - log_threshold

    highest = math.log(math.sqrt(2 * epsilon) + 1)  # beyond it the cap is rarer than e^{−ε}
    threshold = math.exp(brentq(gap, -30.0, highest, xtol=1e-15, rtol=8.9e-16, maxiter=500))
    return Cap(threshold, float(ndtr(-threshold)), mean(threshold))


@lru_cache(maxsize=1024)
def normalised_mean(epsilon: float, dim: int) -> float:
    """Return E⟨v/‖v‖, u⟩ for the PrivUnitG vector v in R^dim, by quadrature.

    The angular law of a Gaussian with ⟨v, u⟩ >= γ integrates in closed form over the angle. One
    smooth integral over s ~ χ_dim remains:
    A · √(2π) c/(dim − 1) · E[s / √(s² + γ²)], c = Γ(dim/2) / (√π Γ((dim − 1)/2)).
    """
    cap = gaussian_cap(epsilon)
    if dim == 1:  # v/‖v‖ is the sign of t
        lift = -math.expm1(-epsilon) * cap.mass
        return lift / (lift + math.exp(-epsilon))
    return cap.mean * float(normalising_factor(np.array([cap.threshold]), dim)[0])


def normalising_factor(thresholds: Vectors, dim: int) -> Vectors:
    """Return E[t/‖v‖; t >= γ] / E[t; t >= γ] for a Gaussian v in R^dim, dim >= 2, at each γ."""
    constant = math.sqrt(2) * half_gamma_ratio((dim - 1) / 2) / (dim - 1)
    lengths, weights = chi_nodes(dim)
    factor: Vectors = constant * (lengths / np.hypot(lengths, thresholds[:, None])) @ weights
    return factor


@lru_cache(maxsize=64)
def chi_nodes(dim: int) -> tuple[Vectors, Vectors]:
    """Return nodes and weights of the law of χ_dim, by Gauss–Legendre panels.

    Panels have width at most one, while the law has standard deviation below one. Near zero their
    widths double from one panel to the next, so that a kink of s / √(s² + γ²) at any small γ is
    resolved.
    """
    centre = math.sqrt(dim - 0.5)
    low, high = max(0.0, centre - 14.0), centre + 14.0
    doubling = high * 2.0 ** -np.arange(1, 40)
    edges = np.union1d(np.linspace(low, high, 30), doubling[doubling > low])
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    s = middle[:, None] + half[:, None] * _NODES
    log_density = (dim - 1) * np.log(s / centre) + (centre**2 - s**2) / 2
    weight = half[:, None] * _WEIGHTS * np.exp(log_density)
    return s.ravel(), (weight / weight.sum()).ravel()


def angle_moment(quantile: Vectors, dim: int) -> Vectors:
    """Return E[t; t >= 1 − 2q] of a coordinate t of a uniform unit vector, dim >= 2, at each q."""
    density = half_gamma_ratio((dim - 1) / 2) / math.sqrt(math.pi)
    moment: Vectors = density / (dim - 1) * (4 * quantile * (1 - quantile)) ** ((dim - 1) / 2)
    return moment


# ---- The rank form: finitely many directions

LOSS: Final = 0.005
"""Share of the ideal correlation with the input that finitely many directions may lose."""

MOST_BLOCKS: Final = 1 << 22
"""Blocks of eight coordinates that a report may expand, in about a quarter of a second. At
dimension 64 this suffices for ε up to about 15."""

_RANK_NODES, _RANK_WEIGHTS = np.polynomial.legendre.leggauss(8)


def _quantiles() -> tuple[Vectors, Vectors]:
    """Return nodes and weights on (0, 1), dense at both ends."""
    ends = 2.0 ** -np.arange(1, 31)
    edges = np.concatenate([[0.0], ends[::-1], 1 - ends[1:], [1.0]])
    half = np.diff(edges) / 2
    nodes = edges[:-1, None] + half[:, None] * (_RANK_NODES + 1)
    return nodes.ravel(), (half[:, None] * _RANK_WEIGHTS).ravel()


@dataclass(frozen=True)
class Ranks:
    """The law of a report over n pairs of opposite directions, c of them near, at budget ε.

    With t the component of a direction along the input, the c directions of largest t (at most one
    per pair) have weight e^ε and the 2n − c others 1. For a direction with component t, let a be
    the probability that a random |t| is larger. Among n independent pairs the c-th smallest a has
    the law Beta(c, n − c + 1), and summation by parts gives for every function f with moment
    F(γ) = E[f(t); t >= γ]

        E Σ_{near} f(t) = 2n E F(γ(A)),  A ~ Beta(c, n − c),  γ(a) the point with Pr[|t| >= γ] = a

    (A = 1 when c = n). As n grows with c/n held at the mass of the ideal cap, A concentrates there
    and the law tends to the ideal one.
    """

    pairs: int
    near: int
    epsilon: float

    @cached_property
    def _normaliser(self) -> float:
        """(c e^ε + 2n − c) e^{−ε}."""
        return self.near + (2 * self.pairs - self.near) * math.exp(-self.epsilon)

    @property
    def far_probability(self) -> float:
        """The probability that the reported direction is not a near one."""
        return (2 * self.pairs - self.near) * math.exp(-self.epsilon) / self._normaliser

    @property
    def background(self) -> float:
        """The share of the law that is independent of the input: 2n / (c e^ε + 2n − c)."""
        return 2 * self.pairs * math.exp(-self.epsilon) / self._normaliser

    @cached_property
    def _edge_tails(self) -> tuple[Vectors, Vectors]:
        """Quadrature of A ~ Beta(c, n − c)."""
        if self.near == self.pairs:
            return np.ones(1), np.ones(1)
        nodes, weights = _quantiles()
        return betaincinv(self.near, self.pairs - self.near, nodes), weights

    def expectation(self, moment: Callable[[Vectors], Vectors]) -> float:
        """Return E f(t) of the report without its background, given F as a function of a."""
        tails, weights = self._edge_tails
        gain = -math.expm1(-self.epsilon) * 2 * self.pairs / self._normaliser
        return gain * float(weights @ moment(tails))

    def log_density(self, tail: Vectors, towards: NDArray[np.bool_]) -> Vectors:
        """Return the log density, against the public law, of a direction with Pr[|t| >= …] = tail.

        ``towards`` is whether the component along the input is positive. A server that keeps the
        nonce knows which directions are near and sees e^ε or 1; without the nonce it sees this
        average.
        """
        if self.near == self.pairs:
            chance = np.ones_like(tail)
        else:
            chance = betainc(self.pairs - self.near, self.near, 1 - tail)
        gain = np.expm1(self.epsilon) * np.where(towards, chance, 0.0)
        density: Vectors = np.log1p(gain)
        return density


def most_pairs(dim: int) -> int:
    """Return the largest number of pairs of directions of a report."""
    return max(1, MOST_BLOCKS // blocks_per_pair(dim))


def choose(
    dim: int, epsilon: float, cap_mass: float, mean: Callable[[Ranks], float], ideal: float
) -> Ranks:
    """Return the smallest ranks whose mean component reaches (1 − LOSS) of the ideal one.

    The share of near directions is that of the ideal cap. If even one near direction would take
    more than ``MOST_BLOCKS`` blocks, the largest allowed number of directions is used; the loss is
    then larger, and the error that the randomizer declares includes it.
    """
    most = most_pairs(dim)

    def ranks(near: int) -> Ranks:
        pairs = min(max(near, round(near / (2 * cap_mass))), most)
        return Ranks(pairs, min(near, pairs), epsilon)

    def enough(near: int) -> bool:
        candidate = ranks(near)
        return candidate.pairs == most or mean(candidate) >= (1 - LOSS) * ideal

    high = 1
    while not enough(high):
        high *= 2
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return ranks(high)
