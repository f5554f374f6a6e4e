"""Gaussian noise on the ℓ2 ball: (ε, δ), calibrated by the exact privacy profile.

Contract: for every two inputs and every set S of reports,
``Pr[report in S | w] <= exp(ε) Pr[report in S | w'] + δ``.

For sensitivity Δ and noise σ write h = Δ/σ. The Gaussian mechanism is (ε, δ)-DP exactly when

    δ >= Φ(h/2 − ε/h) − e^ε Φ(−h/2 − ε/h)

(Balle and Wang 2018). The classical σ = Δ √(2 ln(1.25/δ)) / ε is *not* used anywhere: it is proved
only for ε <= 1 and does not keep the guarantee for large ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee, decimal, exact_delta
from offaxis.randomizers.base import CHOOSE, Ball, check_budget
from offaxis.randomizers.laplace import LatticeForm, Width, largest_magnitude
from offaxis.sampling.entropy import RealEntropy
from offaxis.sampling.gaussian import RoundedGaussian
from offaxis.sampling.probability import exp_minus, normal_tail
from offaxis.vectors import Vectors, as_integer, row_dots

LARGEST_EPSILON: Final = 1000
"""Beyond it the certificate takes longer than a second, and the guarantee is meaningless."""

LOG2_SCALES: Final[dict[Width, int]] = {3: 17, 4: 20}
"""The finest lattice of each payload width."""

_TAIL: Final = 40
"""Standard deviations reserved above the bound: clamping is rarer than e**-800."""

_FINE: Final = 32
"""Average steps per coordinate that the bound should allow: truncation then costs a percent."""

_sampler = lru_cache(maxsize=16)(RoundedGaussian)


@dataclass(frozen=True)
class Gaussian(LatticeForm):
    """Gaussian randomizer on the ℓ2 ball of ``radius`` in R^dim; sensitivity Δ = 2·radius.

    Not pure: the loss exceeds ε with a probability many times δ at small ε, 16 times at ε = 1 and
    δ = 1e-5 (docs/proofs.md §6).

    The exact form works on integers. The noise has standard deviation s = 2**b in lattice steps;
    the ball of radius ρ is mapped to the lattice of step ρ/R. The input is clipped and truncated
    toward zero to integers n with Σn_i² <= R² (checked in integers), and every coordinate gets
    independent noise round(s·Z). Because n is an integer, n + round(s·Z) = round(n + s·Z): the
    report is a function of the ideal Gaussian mechanism of sensitivity 2R and noise s, and inherits
    its (ε, δ). R is the largest bound whose δ, computed by outward rounding, is within the
    guarantee.

    Parameters
    ----------
    dim : int
    radius : float
        ρ; inputs outside the ball are clipped onto it.
    epsilon, delta : number
        The guaranteed ε and δ, read exactly.
    log2_scale : int, optional
        b of the lattice: the noise has a standard deviation of 2**b steps. Chosen by default.
    bound : int, optional
        R of the lattice; by default the largest possible.

    Examples
    --------
    >>> from offaxis.randomizers import Gaussian
    >>> randomizer = Gaussian(dim=64, radius=1.0, epsilon=5, delta=1e-5)
    >>> round(randomizer.scale, 3), bool(randomizer.realised_delta <= randomizer.delta)
    (1.784, True)
    """

    kind: ClassVar[str] = "gaussian"
    wire_id: ClassVar[int] = 2
    order: ClassVar[Literal[2]] = 2

    delta: Fraction
    log2_scale: int = CHOOSE
    bound: int = CHOOSE

    def __post_init__(self) -> None:
        """Fix the lattice and check, with outward rounding, that it keeps the guarantee."""
        super().__post_init__()
        object.__setattr__(self, "delta", exact_delta(self.delta))
        check_budget(self.epsilon, LARGEST_EPSILON, self.kind)
        if self.log2_scale == CHOOSE:
            lattice = choose_lattice(self.dim, self.epsilon, self.delta)
            object.__setattr__(self, "log2_scale", lattice)
        scale = as_integer(self.log2_scale, "log2_scale", 0, LOG2_SCALES[4])
        object.__setattr__(self, "log2_scale", scale)
        largest = largest_bound(self.log2_scale, self.dim)
        if self.bound == CHOOSE:
            bound = choose_bound(self.log2_scale, self.epsilon, self.delta)
            object.__setattr__(self, "bound", min(bound, largest))
        if not 1 <= self.bound <= largest:
            raise InvalidInput(
                f"no Gaussian lattice of bound={self.bound} fits epsilon={decimal(self.epsilon)} "
                f"and delta={decimal(self.delta)}; use a larger epsilon or delta"
            )
        if self.realised_delta > self.delta:
            raise InvalidInput(
                f"the lattice gives δ={float(self.realised_delta):.3g}, more than the guaranteed "
                f"delta={decimal(self.delta)}; use a smaller bound"
            )

    @property
    def realised_delta(self) -> Fraction:
        """A certified upper bound on the δ of the integer mechanism at ε, at most ``delta``."""
        return realised_delta(self.bound, self.log2_scale, self.epsilon, self.delta)

    @property
    def noise_steps(self) -> int:
        """The standard deviation s of the noise."""
        return 1 << self.log2_scale

    @property
    def width(self) -> Width:
        """Three bytes per coordinate up to b = 17, four beyond."""
        return width_of(self.log2_scale)

    @property
    def domain(self) -> Ball:
        """The ℓ2 ball."""
        return Ball(self.dim, self.radius, self.order)

    @property
    def guarantee(self) -> Guarantee:
        """(ε, δ), not pure."""
        return Guarantee(self.epsilon, self.delta)

    def noise(self, count: int, entropy: RealEntropy) -> NDArray[np.int64]:
        """Draw rounded Gaussian noise."""
        return _sampler(self.log2_scale).draw(count, entropy)

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return −‖v − clip(w)‖² / 2σ², the log density up to a constant independent of w."""
        gap = V - self.domain.project(W)
        return -row_dots(gap, gap) / (2 * self.scale**2)

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return −‖y − n‖² / 2s² of the integers y on the wire."""
        gap = self.gaps(payloads, W)
        return -row_dots(gap, gap) / 2

    def expected_squared_error(self) -> float:
        """Return dim · (σ² + step²/12): the error of the noise and of rounding it."""
        return self.dim * (self.scale**2 + self.step**2 / 12)


# ---- Lattice


def width_of(log2_scale: int) -> Width:
    """Return the bytes per coordinate of a lattice."""
    return 3 if log2_scale <= LOG2_SCALES[3] else 4


def largest_bound(log2_scale: int, dim: int) -> int:
    """Return the largest R whose tails fit the payload and which can be checked."""
    fitting = largest_magnitude(width_of(log2_scale)) - (_TAIL << log2_scale)
    return min(fitting, math.isqrt(((1 << 63) - 1) // dim))


@lru_cache(maxsize=256)
def realised_delta(bound: int, log2_scale: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return a certified δ at ε of the lattice mechanism, to 64 digits beyond those of δ."""
    bits = 64 + math.ceil(1 / delta).bit_length()
    return certified_delta(Fraction(2 * bound, 1 << log2_scale), epsilon, bits)


@lru_cache(maxsize=256)
def choose_bound(log2_scale: int, epsilon: Fraction, delta: Fraction) -> int:
    """Return the largest R whose certified δ is within the guarantee, 0 if none exists."""

    def kept(bound: int) -> bool:
        return not bound or realised_delta(bound, log2_scale, epsilon, delta) <= delta

    # δ grows with R. The floating-point solution is nearly always R itself; otherwise bisect.
    guess = math.floor((1 << log2_scale) / noise_scale(2.0, float(epsilon), float(delta)))
    if kept(guess):
        return guess
    low, high = 0, guess
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def choose_lattice(dim: int, epsilon: Fraction, delta: Fraction) -> int:
    """Return the b of three bytes per coordinate, or of four where three are too coarse."""
    narrow = LOG2_SCALES[3]
    fine = choose_bound(narrow, epsilon, delta) >= _FINE * math.sqrt(dim)
    return narrow if fine else LOG2_SCALES[4]


# ---- Calibration
#
# ``noise_scale`` solves for σ in floating point. The guarantee rests on ``certified_delta``: an
# upper bound by outward rounding, for rational h and ε.

_ROOT_HALF = math.sqrt(0.5)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_FAR = 40
_ROUND_UP = 1.0 + 2.0**-40
"""σ is raised by this factor, more than the solver's error, so that the guarantee is kept."""


def _mills(x: float) -> float:
    """Return Q(x)/φ(x), which neither under- nor overflows for x > −37."""
    return math.sqrt(math.pi / 2) * float(erfcx(x * _ROOT_HALF))


def log_delta(h: float, epsilon: float) -> float:
    """Return the logarithm of the smallest δ at ε of Gaussian noise with Δ/σ = h.

    With x = ε/h − h/2 the two terms share the factor φ(x): δ = φ(x) [R(x) − R(x + h)], R the Mills
    ratio. This form has no cancellation unless h is small; there the difference is integrated:
    R(x) − R(x+h) = ∫ (1 − y R(y)) dy.
    """
    x = epsilon / h - h / 2
    if x < -6.0:  # Φ(−x) is 1 up to rounding and the second term is small compared with it
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

    Integer arithmetic, rounded upward; off by less than about 2**-bits.
    """
    x = epsilon / h - h / 2
    if x < -_FAR:  # almost no noise
        return Fraction(1)
    if x > _FAR:  # Pr[Z >= x] <= e^{−x²/2} / 2 suffices, and the series would take too long
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
