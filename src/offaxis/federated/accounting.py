"""What noise that many clients add together promises: certified numbers, rounded against us.

Three steps (proofs: docs/proofs.md, "Masked sums"). One discrete Gaussian with the parameter v on
every coordinate, under a sum that one client changes by Δ in ℓ2, is ρ-zCDP with ρ = Δ²/2v; over
rounds ρ adds up (Canonne, Kamath, Steinke 2020). A ρ becomes (ε, δ) by their Proposition 12. And a
sum of n discrete Gaussians is not quite one: its probabilities are within e^{±τ} of it (Kairouz,
Liu, Steinke 2021), with a τ that the lattice makes absurdly small, but that is counted.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

from scipy.optimize import minimize_scalar

from offaxis.sampling.enclosure import exp_minus

_BITS: Final = 256
_TWO_PI_SQUARED: Final = Fraction(19_739, 1000)
"""A little below 2π² = 19.7392…"""
_TERMS: Final = 24
_GRID: Final = 1 << 20
"""Denominator of the orders at which the bound is evaluated; any order is valid."""


def certified_delta(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return a δ, rounded up, at which every ρ-zCDP mechanism is (ε, δ)-DP.

    δ = min over α > 1 of exp((α − 1)(αρ − ε)) · (1 − 1/α)^α / (α − 1). The order is sought in
    floating point; the bound at that order is then computed in integers, with
    α ln(1 − 1/α) <= −Σ_{j=1}^{24} α^{1−j}/j. So the search can cost tightness, never truth.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from offaxis.federated import certified_delta
    >>> float(certified_delta(Fraction(1, 2), Fraction(5)))
    2.896...e-06
    """
    alpha = _order(float(rho), float(epsilon))
    exponent = (alpha - 1) * (epsilon - alpha * rho)
    exponent += sum((alpha ** (1 - j) / j for j in range(1, _TERMS + 1)), Fraction(0))
    if exponent <= 0:
        return Fraction(1)
    bound = Fraction(exp_minus(exponent, _BITS)[1], 1 << _BITS) / (alpha - 1)
    return min(Fraction(1), bound)


def _log_delta(alpha: float, rho: float, epsilon: float) -> float:
    tail = alpha * math.log1p(-1 / alpha)
    return (alpha - 1) * (alpha * rho - epsilon) + tail - math.log(alpha - 1)


def _order(rho: float, epsilon: float) -> Fraction:
    """Return the best order, as a fraction."""

    def at(log_above_one: float) -> float:
        return _log_delta(1 + math.exp(log_above_one), rho, epsilon)

    found = minimize_scalar(at, bounds=(-9.0, 30.0), method="bounded", options={"xatol": 1e-6})
    return 1 + Fraction(max(1, round(math.exp(found.x) * _GRID)), _GRID)


@lru_cache(maxsize=256)
def largest_rho(epsilon: Fraction, delta: Fraction) -> float:
    """Return the largest ρ whose ``certified_delta`` at ε is within δ, up to a rounding below.

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
