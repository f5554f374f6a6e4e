"""SQKR: k signs of Kashin coefficients, reported together (Chen, Kairouz, Özgür 2020).

Contract: for every two vectors and every payload, ``Pr[payload | w] <= exp(ε) Pr[payload | w']``.

A payload is a public nonce, drawn before the vector is used, and k bits. The nonce determines a
tight frame and which k of its N coefficients are used. The device computes Kashin coefficients a
(:mod:`experiments.rivals.kashin`), rounds the k chosen ones to signs with mean a_j √N/K, and so
names one of the 2^k patterns. The report is k-ary randomized response over all 2^k patterns: the
named one has weight e^ε, every other 1, and the normaliser e^ε + 2^k − 1 is a constant. So the
ratio is at most e^ε for *any* way of naming a pattern, rounding errors included.

With t = (e^ε − 1)/(e^ε + 2^k − 1) a reported sign has t times the mean of the true one. The server
returns v = (N/k) Σ (K/√N) (sign_i/t) u_i, which has the mean w, and for ‖w‖ = ρ = 1

    E‖v − w‖² = m K²/(k t²) + N (k − 1)/((N − 1) k t) · (1 − (m/N) E‖a‖²) − 1.

Differences from the publication: the k coefficients are distinct, which is slightly better, and k
is the one of least error instead of ⌈ε⌉.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from experiments.rivals.kashin import Frame, default_level
from experiments.rivals.public import draw_nonces, joined, parsed, seeded_nonces, symbol_bytes
from offaxis.randomizers import CustomRandomizer, register
from offaxis.randomizers.base import CHOOSE, Ball, checked_copy
from offaxis.randomizers.directions import NONCE_BYTES, Nonces
from offaxis.sampling.choices import below, place, response_of
from offaxis.sampling.entropy import RealEntropy
from offaxis.vectors import Vectors, as_integer, as_number

COIN: Final = 1 << 20
"""Coefficients are rounded to multiples of 1/COIN before an exact coin decides the sign."""

MOST_SAMPLED: Final = 24

_FRAMES: Final = 64


@register
@dataclass(frozen=True)
class Sqkr(CustomRandomizer):
    """Signs of k Kashin coefficients by one response over 2^k patterns.

    Parameters
    ----------
    sampled : int, optional
        k; by default the one of least error.
    level : float, optional
        K; by default one that nearly every vector of the ball has coefficients for.
    """

    kind: ClassVar[str] = "rivals.sqkr"
    unbiased: ClassVar[bool] = True

    sampled: int = CHOOSE
    level: float = float(CHOOSE)

    def __post_init__(self) -> None:
        """Read the parameters exactly and fix k and K."""
        super().__post_init__()
        if self.sampled == CHOOSE:
            object.__setattr__(self, "sampled", best_sampled(float(self.epsilon), self.frame.size))
        most = min(MOST_SAMPLED, self.frame.size)
        object.__setattr__(self, "sampled", as_integer(self.sampled, "sampled", 1, most))
        level = default_level(self.dim) if self.level == CHOOSE else self.level
        object.__setattr__(self, "level", as_number(level, "level"))

    @property
    def frame(self) -> Frame:
        """The public frames."""
        return Frame(self.dim, self.level)

    @property
    def patterns(self) -> int:
        """2^k."""
        return 1 << self.sampled

    @property
    def information_bits(self) -> float:
        """k: the bits of a report without its nonce."""
        return float(self.sampled)

    @property
    def payload_size(self) -> int:
        """A nonce and k bits."""
        return NONCE_BYTES + symbol_bytes(self.patterns)

    @property
    def resolution(self) -> float:
        """A coefficient is rounded by half a step; N of them add up to √N of that at most."""
        return self.radius * self.level * math.sqrt(self.frame.size) / (2 * COIN)

    @cached_property
    def kept(self) -> float:
        """t: the share of the mean of a sign that its report keeps."""
        return kept_share(self.sampled, float(self.epsilon))

    def means(self, W: Vectors, nonces: Nonces) -> NDArray[np.int64]:
        """Return the means of the k signs of every row, as integers of −COIN … COIN, checked."""
        out = np.empty((len(W), self.sampled), dtype=np.int64)
        frame = self.frame
        unit = Ball(self.dim, self.radius, 2).project(W) / self.radius
        for start in range(0, len(W), frame.rows_at_once):
            part = slice(start, start + frame.rows_at_once)
            shares = frame.coefficients(unit[part], nonces[part])
            places = frame.sample(nonces[part], self.sampled)
            chosen = np.take_along_axis(shares, places, axis=1)
            out[part] = np.rint(COIN * chosen).astype(np.int64)
        return np.clip(out, -COIN, COIN)

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per row of W."""
        W = checked_copy(W, self.dim, entropy)
        # All randomness is drawn before the input is used.
        nonces = draw_nonces(len(W), entropy)
        response = response_of(self.patterns, 1, self.epsilon)
        is_near, offset = response.draw(len(W), entropy)
        coins = below(2 * COIN, len(W) * self.sampled, entropy).reshape(len(W), -1)
        own = self._pattern(self.means(W, nonces), coins)
        return joined(nonces, place(is_near, offset, own[:, None]).tolist(), self.patterns)

    def _pattern(self, means: NDArray[np.int64], coins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pattern whose bit i is set where coin i makes sign i positive."""
        pattern: NDArray[np.int64] = (coins < COIN + means) @ (1 << np.arange(self.sampled))
        return pattern

    def _observed(self, nonces: Nonces, patterns: NDArray[np.int64]) -> Vectors:
        bits = patterns[:, None] >> np.arange(self.sampled) & 1
        signs = (2.0 * bits.astype(np.float64) - 1.0) / self.kept
        places = self.frame.sample(nonces, self.sampled)
        return self.radius * self.frame.spread(signs, places, nonces)

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the sum of the frame vectors with the reported signs, scaled to be unbiased."""
        nonces, patterns = parsed(payloads, self.patterns, self.kind)
        return self._observed(nonces, np.array(patterns, dtype=np.int64))

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Draw observations with the law of reports."""
        nonces = seeded_nonces(len(W), rng)
        coins = rng.integers(0, 2 * COIN, (len(W), self.sampled))
        own = self._pattern(self.means(np.asarray(W, dtype=np.float64), nonces), coins)
        # Any pattern with probability 1 − t, else the own one: the same law as the response.
        other = rng.integers(0, self.patterns, len(W))
        return self._observed(nonces, np.where(rng.random(len(W)) < self.kept, own, other))

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return log(1 + (e^ε − 1) Pr[the device names the reported pattern])."""
        nonces, patterns = parsed(payloads, self.patterns, self.kind)
        share = self.means(np.asarray(W, dtype=np.float64), nonces) / COIN
        bits = np.array(patterns)[:, None] >> np.arange(self.sampled) & 1
        named = np.where(bits == 1, 1 + share, 1 - share).prod(axis=1) / self.patterns
        ratio: NDArray[np.float64] = np.log1p(np.expm1(float(self.epsilon)) * named)
        return ratio

    def expected_squared_error(self) -> float:
        """Return the formula above; E‖a‖² is an average over public frames."""
        shares = typical_shares(self.frame)
        energy = self.level**2 * float((shares**2).mean())
        own = self.dim * self.level**2 / (self.sampled * self.kept**2)
        across = pair_term(self.frame, self.sampled, energy) / self.kept
        return self.radius**2 * (own + across - 1)


def kept_share(sampled: int, epsilon: float) -> float:
    """Return t = (e^ε − 1)/(e^ε + 2^k − 1)."""
    far = ((1 << sampled) - 1) * math.exp(-epsilon)
    return -math.expm1(-epsilon) / (1 + far)


def best_sampled(epsilon: float, most: int) -> int:
    """Return the k with the largest k t²: the one of least error, but for the small pair term."""
    candidates = range(1, min(MOST_SAMPLED, most) + 1)
    return max(candidates, key=lambda k: k * kept_share(k, epsilon) ** 2)


def typical_shares(frame: Frame) -> Vectors:
    """Return coefficients of one unit vector under some seeded frames."""
    pole = np.zeros((_FRAMES, frame.dim))
    pole[:, 0] = 1.0
    return frame.coefficients(pole, seeded_nonces(_FRAMES, np.random.default_rng(0)))


def pair_term(frame: Frame, sampled: int, energy: float) -> float:
    """Return the part of E‖v‖² from pairs of coefficients with independent unbiased values.

    A pair (i, j) of the k(k − 1)/(N(N − 1)) chosen ones adds (N/k)² a_i a_j ⟨u_i, u_j⟩, and over
    all pairs the sum of a_i a_j ⟨u_i, u_j⟩ is 1 − (m/N)‖a‖²; ``energy`` is E‖a‖².
    """
    size = frame.size
    pairs = size * (sampled - 1) / ((size - 1) * sampled)
    return pairs * (1 - frame.dim / size * energy)
