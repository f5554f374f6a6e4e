"""The smallest Gaussian noise for (ε, δ), by the exact privacy profile (Balle and Wang 2018).

For sensitivity Δ and noise σ write h = Δ/σ. The mechanism is (ε, δ)-DP exactly when

    δ >= Φ(h/2 − ε/h) − e^ε Φ(−h/2 − ε/h).

The classical σ = Δ √(2 ln(1.25/δ)) / ε is *not* used anywhere: it is proved for ε <= 1 only and
promises too much for large ε. ``noise_scale`` solves for σ in floating point; ``certified_delta``
is what a promise rests on: an upper bound by outward rounding, for rational h and ε.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr

from offaxis.sampling.enclosure import exp_minus, normal_tail

_ROOT_HALF = math.sqrt(0.5)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_FAR = 40
_ROUND_UP = 1.0 + 2.0**-40
"""σ is raised by this factor, more than the solver can err, so that the promise is kept."""


def _mills(x: float) -> float:
    """Return Q(x)/φ(x), which neither under- nor overflows for x > −37."""
    return math.sqrt(math.pi / 2) * float(erfcx(x * _ROOT_HALF))


def log_delta(h: float, epsilon: float) -> float:
    """Return the logarithm of the smallest δ at ε of Gaussian noise with Δ/σ = h.

    With x = ε/h − h/2 the two terms share the factor φ(x): δ = φ(x) [R(x) − R(x + h)], R the Mills
    ratio. This form has no cancellation unless h is small, where the difference is integrated:
    R(x) − R(x+h) = ∫ (1 − y R(y)) dy.
    """
    x = epsilon / h - h / 2
    if x < -6.0:  # Φ(−x) is 1 to rounding and the second term is small beside it
        return math.log(float(ndtr(-x)) - math.exp(epsilon + float(log_ndtr(-x - h))))
    if h > 0.5:
        difference = _mills(x) - _mills(x + h)
    else:
        y = x + h * (_NODES + 1) / 2
        integrand = [1.0 - yi * _mills(yi) if yi < 20 else _mills_slope(yi) for yi in y]
        difference = h / 2 * float(_WEIGHTS @ integrand)
    return math.log(difference) - x * x / 2 - math.log(2 * math.pi) / 2


def _mills_slope(y: float) -> float:
    """Return 1 − y R(y) for large y by its asymptotic series (no cancellation)."""
    term = total = 1.0 / (y * y)
    for k in range(2, 9):
        term *= -(2 * k - 1) / (y * y)
        total += term
    return total


def noise_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return the smallest σ that is (ε, δ)-DP for the ℓ2 sensitivity Δ, rounded up by 1e-12."""
    target = math.log(delta)

    def gap(log_h: float) -> float:
        return log_delta(math.exp(log_h), epsilon) - target

    low = high = math.log(math.sqrt(2 * epsilon))
    while gap(low) > 0:
        low -= 1.0
    while gap(high) < 0:
        high += 1.0
    log_h = brentq(gap, low, high, xtol=1e-15, rtol=8.9e-16, maxiter=200) if low < high else low
    return sensitivity / math.exp(log_h) * _ROUND_UP


def certified_delta(h: Fraction, epsilon: Fraction, bits: int) -> Fraction:
    """Return an upper bound on the smallest δ at ε of Gaussian noise with Δ/σ = h.

    Integer arithmetic, rounded against the promise; off by less than about 2**-bits.
    """
    x = epsilon / h - h / 2
    if x < -_FAR:  # next to no noise
        return Fraction(1)
    if x > _FAR:  # Pr[Z >= x] <= e^{−x²/2} / 2 says enough, and the series would take for ever
        return Fraction(exp_minus(x * x / 2, bits)[1], 2 << bits)
    low, _ = _upper_tail(x + h, bits + math.ceil(epsilon * 3 / 2) + 4)
    _, high = _upper_tail(x, bits)
    return high - low * _exp_below(epsilon, bits)


def _upper_tail(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Enclose Pr[Z >= x]."""
    low, high = (Fraction(side, 2 << bits) for side in normal_tail(abs(x), bits))
    return (low, high) if x >= 0 else (1 - high, 1 - low)


def _exp_below(x: Fraction, bits: int) -> Fraction:
    """Return a lower bound on e^x."""
    precision = bits + 3 * math.ceil(x)
    return Fraction(1 << precision, exp_minus(x, precision)[1])
