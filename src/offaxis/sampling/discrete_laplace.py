"""The discrete Laplace distribution, exactly and in bulk.

Contract: ``DiscreteLaplace(log2_scale=b).draw(n, bits)`` returns n independent integers K with
``Pr[K = k] = tanh(1 / 2t) * exp(-|k| / t)``, t = 2**b, except that values with |K| >= 2**24 are
returned as ±2**24. No float is involved, and given uniform input bits the law is exact.

How: write the magnitude in binary, |K| = Σ 2**j β_j. The weight exp(-|K|/t) = Π exp(-β_j 2**j / t)
is a product over the digits, so the digits of a geometric variable are *independent*, with
``Pr[β_j = 1] = 1 / (1 + exp(2**(j - b)))``, and ``Pr[|K| >= 2**24] = exp(-2**(24 - b))``
(Dwork, Kenthapadi, McSherry, Mironov, Naor 2006 build noise from the same fact). A sign bit and
the rejection of "minus zero" (Canonne, Kamath, Steinke 2020, Algorithm 2) give both sides.
Every digit compares 16 random bits with the digits of its probability and fetches more only on a
tie. Ties are rare but not independent of the value: very large magnitudes always come with one, so
whoever times the sampler learns a little (docs/limitations.md). Proof: docs/proofs.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.bernoulli import Probability
from offaxis.sampling.chunks import in_chunks
from offaxis.sampling.enclosure import exp_minus, logistic_minus
from offaxis.sampling.entropy import RandomBits

MAGNITUDE_BITS: Final = 24
SATURATED: Final = 1 << MAGNITUDE_BITS
_WORD_BITS: Final = 16
_CHUNK: Final = 4096
_SIGN: Final = np.uint16(1 << 15)


@dataclass(frozen=True)
class DiscreteLaplace:
    """Sampler of the discrete Laplace law with scale t = 2**log2_scale."""

    log2_scale: int

    def __post_init__(self) -> None:
        """Keep the scale inside the range for which the overflow test below is valid."""
        if not 0 <= self.log2_scale <= MAGNITUDE_BITS - 4:
            raise ValueError(f"log2_scale must lie in 0..20, got {self.log2_scale}")

    @cached_property
    def _digit_probabilities(self) -> list[Probability]:
        """Pr[β_j = 1], most significant digit first."""
        return [
            Probability(partial(logistic_minus, Fraction(2) ** (j - self.log2_scale)))
            for j in reversed(range(MAGNITUDE_BITS))
        ]

    @cached_property
    def _overflow_probability(self) -> Probability:
        return Probability(partial(exp_minus, Fraction(2) ** (MAGNITUDE_BITS - self.log2_scale)))

    @cached_property
    def _thresholds(self) -> NDArray[np.uint16]:
        """First 16 digits of each probability, repeated for a whole chunk of coordinates."""
        heads = [p.digits(_WORD_BITS) for p in self._digit_probabilities]
        return np.tile(np.array(heads, dtype=np.uint16), _CHUNK)

    def draw(self, count: int, bits: RandomBits) -> NDArray[np.int32]:
        """Draw ``count`` independent variables."""
        return in_chunks(self._draw_chunk, count, _CHUNK, bits)

    def _draw_chunk(self, count: int, bits: RandomBits) -> NDArray[np.int32]:
        magnitude = self._magnitudes(count, bits)
        tail = bits.words(count)
        negative = tail >= _SIGN
        # exp(-2**(24 - b)) starts with at least 15 zero digits, so overflow needs 15 zero bits.
        for index in np.flatnonzero((tail & ~_SIGN) == 0):
            if self._overflow_probability.exceeds(_WORD_BITS - 1, bits):
                magnitude[index] = SATURATED
        np.negative(magnitude, out=magnitude, where=negative)
        minus_zero = np.flatnonzero(negative & (magnitude == 0))
        if minus_zero.size:
            magnitude[minus_zero] = self._draw_chunk(minus_zero.size, bits)
        return magnitude

    def _magnitudes(self, count: int, bits: RandomBits) -> NDArray[np.int32]:
        words = bits.words(count * MAGNITUDE_BITS)
        thresholds = self._thresholds[: words.size]
        ones = words < thresholds
        for index in np.flatnonzero(words == thresholds):
            probability = self._digit_probabilities[index % MAGNITUDE_BITS]
            ones[index] = probability.exceeds(_WORD_BITS, bits)
        octets = np.packbits(ones).reshape(count, MAGNITUDE_BITS // 8).astype(np.int32)
        return (octets[:, 0] << 16) | (octets[:, 1] << 8) | octets[:, 2]
