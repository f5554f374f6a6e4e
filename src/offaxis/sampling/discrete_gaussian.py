"""The discrete Gaussian distribution, exactly and in bulk.

Contract: ``DiscreteGaussian(v).draw(n, bits)`` returns n independent integers K with
``Pr[K = k] = exp(-k² / 2v) / Σ_j exp(-j² / 2v)``. No float is involved, and given uniform input
bits the law is exact.

Method (Canonne, Kamath, Steinke 2020, Algorithm 3, with t = 2**b near √v instead of ⌊√v⌋ + 1, which
changes only the speed): a discrete Laplace variable Y of scale t is kept with probability exp(-γ),
γ = (|Y| − v/t)² / 2v, and redrawn otherwise; exp(-|Y|/t)·exp(-γ) is exp(-Y²/2v) times a constant.
The coin exp(-γ) is flipped through the binary digits of γ: with γ = Σ 2**j β_j + rest it shows
heads when a coin exp(-2**j) does for every β_j = 1 and a coin exp(-rest) does too. 24 digits after
the point are computed in 64-bit integers, rounded down. The rest is below 2**-20, so 16 random bits
nearly always decide; otherwise the rest is evaluated as an exact fraction.

Proof: docs/proofs.md. Ties and large values take longer; the guarantee covers the value, not the
running time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.laplace import DiscreteLaplace
from offaxis.sampling.probability import Probability, exp_minus

LARGEST_VARIANCE: Final = 1 << 54
_CHUNK: Final = 1 << 14
_FRACTION: Final = 24
"""Digits of γ after the point."""
_FAR: Final = 16
"""Laplace scales beyond which γ does not fit 64 bits; reached by one draw in nine million."""
_KEPT: Final = 30
"""Leading digits of |Y|·t − v that are squared in 64 bits."""
_ALL_ONES: Final = (1 << 16) - 1


@dataclass(frozen=True)
class DiscreteGaussian:
    """Sampler of the discrete Gaussian law with the integer parameter ``variance``.

    The variance of the samples is slightly smaller; from about 4 on the difference is negligible.
    The privacy guarantee depends on the parameter.

    Examples
    --------
    >>> from offaxis.sampling.entropy import Entropy
    >>> noise = DiscreteGaussian(100).draw(1000, Entropy())
    >>> noise.dtype, bool(abs(noise).max() < 100)  # ten standard deviations
    (dtype('int64'), True)
    """

    variance: int

    def __post_init__(self) -> None:
        """Keep all integers below inside 64 bits."""
        whole = isinstance(self.variance, int) and not isinstance(self.variance, bool)
        if not whole or not 1 <= self.variance <= LARGEST_VARIANCE:
            raise ValueError(
                f"variance must be an integer from 1 to 2**54, got variance={self.variance!r}"
            )

    @cached_property
    def log2_scale(self) -> int:
        """The b of t = 2**b, such that t² and the variance differ by a factor of at most 2."""
        return self.variance.bit_length() // 2

    @cached_property
    def _laplace(self) -> DiscreteLaplace:
        return DiscreteLaplace(self.log2_scale, 24 if self.log2_scale <= 18 else 32)

    @cached_property
    def _shift(self) -> int:
        """How many digits of |Y|·t − v are dropped; it has at most 2b + 4."""
        return max(0, 2 * self.log2_scale + 4 - _KEPT)

    def draw(self, count: int, bits: RandomBits) -> NDArray[np.int64]:
        """Draw ``count`` independent variables."""
        out = np.empty(count, dtype=np.int64)
        filled = 0
        while filled < count:
            # About 3 of 4 are kept. The surplus is discarded without looking at its values.
            size = min(_CHUNK, (count - filled) * 3 // 2 + 16)
            proposed = self._unbounded(size, bits)
            kept = proposed[self._keep(np.abs(proposed), bits)][: count - filled]
            out[filled : filled + kept.size] = kept
            filled += kept.size
        return out

    def _unbounded(self, count: int, bits: RandomBits) -> NDArray[np.int64]:
        """Draw Laplace variables without the sampler's limit on the magnitude.

        The sampler's last magnitude represents itself and everything above it. Beyond it a
        geometric variable has the same law as from zero, so another one is added: a Laplace
        variable that is not negative.
        """
        drawn = self._laplace.draw(count, bits)
        for place in np.flatnonzero(np.abs(drawn) >= self._laplace.saturated).tolist():
            magnitude, more = self._laplace.saturated, self._laplace.saturated
            while more == self._laplace.saturated:
                more = -1
                while more < 0:
                    more = int(self._laplace.draw(1, bits)[0])
                magnitude += more
            drawn[place] = magnitude if drawn[place] > 0 else -magnitude
        return drawn

    def _keep(self, magnitude: NDArray[np.int64], bits: RandomBits) -> NDArray[np.bool_]:
        """Flip a coin exp(-γ) for every proposal."""
        near = magnitude < _FAR << self.log2_scale
        keep = np.zeros(magnitude.shape, dtype=bool)
        for place in np.flatnonzero(~near).tolist():
            keep[place] = _coin(self._gamma(int(magnitude[place])), bits)
        places = np.flatnonzero(near)
        known = self._digits(magnitude[places])
        alive = self._whole_coins(known, bits)
        places, known = places[alive], known[alive]
        # Heads of exp(-rest): its first 16 digits are ones, so only a word of ones is undecided.
        heads = bits.words(places.size) != _ALL_ONES
        for index in np.flatnonzero(~heads).tolist():
            gamma = self._gamma(int(magnitude[places[index]]))
            rest = gamma - Fraction(int(known[index]), 1 << _FRACTION)
            heads[index] = _coin(rest, bits, matched=16)
        keep[places] = heads
        return keep

    def _gamma(self, magnitude: int) -> Fraction:
        """Return γ as an exact fraction."""
        t, v = 1 << self.log2_scale, self.variance
        return Fraction((magnitude * t - v) ** 2, 2 * v * t * t)

    def _digits(self, magnitude: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ⌊γ·2**24⌋ or up to 11 less: never above γ, and less than 2**-20 below it."""
        gap = np.abs((magnitude << self.log2_scale) - self.variance) >> self._shift
        # 2v·t² in the same units, rounded up, so that the quotient is smaller.
        below = -(-(2 * self.variance << 2 * self.log2_scale) // (1 << 2 * self._shift))
        quotient, rest = np.divmod(gap * gap, below)
        for _ in range(_FRACTION // 8):
            step, rest = np.divmod(rest << 8, below)
            quotient = (quotient << 8) + step
        digits: NDArray[np.int64] = quotient
        return digits

    def _whole_coins(self, known: NDArray[np.int64], bits: RandomBits) -> NDArray[np.bool_]:
        """Flip a coin exp(-2**j) for every digit j that is one; true where all show heads."""
        alive = np.ones(known.shape, dtype=bool)
        for j in range(int(known.max(initial=0)).bit_length()):
            flipped = np.flatnonzero(alive & (known >> j & 1).astype(bool))
            alive[flipped] = _power_coin(j - _FRACTION).draw(flipped.size, bits)
        return alive


_POWERS: dict[int, Probability] = {}


def _power_coin(exponent: int) -> Probability:
    """Return a coin of probability exp(-2**exponent), whose digits are computed once."""
    if exponent not in _POWERS:
        _POWERS[exponent] = Probability(partial(exp_minus, Fraction(2) ** exponent))
    return _POWERS[exponent]


def _coin(x: Fraction, bits: RandomBits, matched: int = 0) -> bool:
    """Flip a coin exp(-x) whose first ``matched`` digits have already been matched."""
    return x == 0 or Probability(partial(exp_minus, x)).exceeds(matched, bits)
