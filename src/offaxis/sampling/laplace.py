"""The discrete Laplace distribution, exactly and in bulk.

Contract: ``DiscreteLaplace(b, d).draw(n, bits)`` returns n independent integers K with
``Pr[K = k] = tanh(1 / 2t) * exp(-|k| / t)``, t = 2**b, except that values with |K| >= 2**d are
returned as ±2**d. No float is involved, and given uniform input bits the law is exact.

Method: write the magnitude in binary, |K| = Σ 2**j β_j. The weight exp(-|K|/t) =
Π exp(-β_j 2**j / t) is a product over the digits, so the digits of a geometric variable are
*independent*, with ``Pr[β_j = 1] = 1 / (1 + exp(2**(j - b)))``, and
``Pr[|K| >= 2**d] = exp(-2**(d - b))`` (Dwork, Kenthapadi, McSherry, Mironov, Naor 2006 build noise
from the same fact). A sign bit and the rejection of "minus zero" (Canonne, Kamath, Steinke 2020,
Algorithm 2) give both sides. Every digit compares 16 random bits with the digits of its probability
and fetches more only on a tie.

Ties are rare but not independent of the value: very large magnitudes always involve one, so anyone
who times the sampler learns a little (docs/limitations.md). Proof: docs/proofs.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.probability import Probability, exp_minus, logistic_minus

_WORD_BITS: Final = 16
_CHUNK: Final = 4096
_SIGN: Final = np.uint16(1 << 15)


@dataclass(frozen=True)
class DiscreteLaplace:
    """Sampler of the discrete Laplace law with scale t = 2**log2_scale and ``digits`` digits."""

    log2_scale: int
    digits: int = 24

    def __post_init__(self) -> None:
        """Keep the scale in the range for which the overflow test below is valid."""
        if self.digits not in (24, 32) or not 0 <= self.log2_scale <= self.digits - 4:
            raise ValueError(f"no sampler for log2_scale={self.log2_scale}, digits={self.digits}")

    @property
    def saturated(self) -> int:
        """The magnitude that represents itself and all larger ones."""
        return 1 << self.digits

    @cached_property
    def _digit_probabilities(self) -> list[Probability]:
        """Pr[β_j = 1], most significant digit first."""
        return [
            Probability(partial(logistic_minus, Fraction(2) ** (j - self.log2_scale)))
            for j in reversed(range(self.digits))
        ]

    @cached_property
    def _overflow_probability(self) -> Probability:
        return Probability(partial(exp_minus, Fraction(2) ** (self.digits - self.log2_scale)))

    @cached_property
    def _thresholds(self) -> NDArray[np.uint16]:
        """The first 16 digits of each probability, repeated for a whole chunk of coordinates."""
        heads = [p.digits(_WORD_BITS) for p in self._digit_probabilities]
        return np.tile(np.array(heads, dtype=np.uint16), _CHUNK)

    def draw(self, count: int, bits: RandomBits) -> NDArray[np.int64]:
        """Draw ``count`` independent variables."""
        return in_chunks(self._draw_chunk, count, _CHUNK, bits)

    def draw_each(self, count: int, sources: Sequence[RandomBits]) -> NDArray[np.int64]:
        """Return what ``draw(count, source)`` returns for every source, in fewer steps."""
        if count > _CHUNK:
            return np.stack([self.draw(count, bits) for bits in sources])
        out = np.empty((len(sources), count), dtype=np.int64)
        step = max(1, _CHUNK // max(1, count))
        for start in range(0, len(sources), step):
            out[start : start + step] = self._draw_rows(count, sources[start : start + step])
        return out

    def _draw_chunk(self, count: int, bits: RandomBits) -> NDArray[np.int64]:
        row: NDArray[np.int64] = self._draw_rows(count, [bits])[0]
        return row

    def _draw_rows(self, count: int, sources: Sequence[RandomBits]) -> NDArray[np.int64]:
        """Draw one row of variables per source; no row uses bits of another source."""
        magnitude = self._magnitudes(count, sources)
        tail = _words(count, sources)
        negative = tail >= _SIGN
        # exp(-2**(d - b)) starts with at least 15 zero digits, so overflow needs 15 zero bits.
        for row, index in _places((tail & ~_SIGN) == 0):
            if self._overflow_probability.exceeds(_WORD_BITS - 1, sources[row]):
                magnitude[row, index] = self.saturated
        np.negative(magnitude, out=magnitude, where=negative)
        minus_zero = negative & (magnitude == 0)
        for row in np.flatnonzero(minus_zero.any(axis=1)).tolist():
            again = np.flatnonzero(minus_zero[row])
            magnitude[row, again] = self._draw_chunk(again.size, sources[row])
        return magnitude

    def _magnitudes(self, count: int, sources: Sequence[RandomBits]) -> NDArray[np.int64]:
        words = _words(count * self.digits, sources)
        thresholds = self._thresholds[: words.shape[1]]
        ones = words < thresholds
        for row, index in _places(words == thresholds):
            probability = self._digit_probabilities[index % self.digits]
            ones[row, index] = probability.exceeds(_WORD_BITS, sources[row])
        octets = np.packbits(ones).reshape(len(sources), count, self.digits // 8)
        padded = np.zeros((len(sources), count, 8), dtype=np.uint8)
        padded[..., -octets.shape[2] :] = octets
        return padded.view(">i8")[..., 0].astype(np.int64)


def _places(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the (row, column) of every true entry, much faster than ``np.argwhere``."""
    return [divmod(place, mask.shape[1]) for place in np.flatnonzero(mask).tolist()]


def _words(count: int, sources: Sequence[RandomBits]) -> NDArray[np.uint16]:
    """Return one row of words per source."""
    if len(sources) == 1:
        return sources[0].words(count)[None]
    return np.stack([bits.words(count) for bits in sources])


# ---- Bulk draws

Draw = Callable[[int, RandomBits], NDArray[np.int64]]


def in_chunks(draw: Draw, count: int, chunk: int, bits: RandomBits) -> NDArray[np.int64]:
    """Draw ``count`` variables in chunks of at most ``chunk``, which fit the cache."""
    out = np.empty(count, dtype=np.int64)
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        out[start:stop] = draw(stop - start, bits)
    return out
