"""Rivals that report one of N public directions, exactly c of which are near.

Contract: for every two vectors and every payload, ``Pr[payload | w] <= exp(ε) Pr[payload | w']``.

A payload is a public nonce, drawn before the vector is used, and an index. Each near direction has
weight e^ε, every other 1. The normaliser c e^ε + N − c does not depend on w, so the ratio is at
most e^ε for *any* set of exactly c directions, chosen at random or not: rounding errors of what
the nonce expands to, of the ranking and of the sign cost utility, never privacy.

The sign encodes the length, as for means in offaxis (docs/proofs.md §8): directions are ranked
along w with probability ½ + ‖w‖/2ρ, along −w otherwise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from experiments.rivals.public import draw_nonces, joined, parsed, symbol_bytes
from offaxis.randomizers import CustomRandomizer
from offaxis.randomizers.base import CHOOSE, Ball, Sphere, checked_copy
from offaxis.randomizers.directions import NONCE_BYTES, Nonces
from offaxis.randomizers.privunit import draw_coins, keep_probability, signs
from offaxis.sampling.choices import place, response_of
from offaxis.sampling.entropy import RealEntropy
from offaxis.vectors import Vectors, row_norms


@dataclass(frozen=True)
class NearSet(CustomRandomizer):
    """What they share; a subclass fixes N and c, ranks, reads and simulates."""

    unbiased: ClassVar[bool] = True

    directions: int = CHOOSE
    near: int = CHOOSE

    @property
    def information_bits(self) -> float:
        """log2 N: the bits of a report without its nonce."""
        return math.log2(self.directions)

    @property
    def payload_size(self) -> int:
        """A nonce and an index."""
        return NONCE_BYTES + symbol_bytes(self.directions)

    @property
    def ball(self) -> Ball:
        """The domain."""
        return Ball(self.dim, self.radius, 2)

    @abstractmethod
    def nearest(self, W: Vectors, nonces: Nonces) -> NDArray[np.int64]:
        """Return exactly c directions of every row, ascending: (n, c)."""

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per row of W."""
        W = checked_copy(W, self.dim, entropy)
        # All randomness is drawn before the input is used.
        nonces = draw_nonces(len(W), entropy)
        response = response_of(self.directions, self.near, self.epsilon)
        is_near, offset = response.draw(len(W), entropy)
        coins = draw_coins(len(W), entropy)
        near = self.nearest(W * signs(W, self.ball, coins)[:, None], nonces)
        if near.shape != (len(W), self.near) or (np.diff(near, axis=1) <= 0).any():
            raise AssertionError(f"a ranking did not choose exactly {self.near} directions")
        return joined(nonces, place(is_near, offset, near).tolist(), self.directions)

    def named(self, payloads: list[bytes]) -> tuple[Nonces, NDArray[np.int64]]:
        """Return the nonces and the indices of payloads, strictly."""
        nonces, index = parsed(payloads, self.directions, self.kind)
        return nonces, np.array(index, dtype=np.int64)

    def turned(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Return simulated unit directions ±w/‖w‖; those of zero are of the first axis."""
        W = self.ball.project(np.asarray(W, dtype=np.float64))
        lengths = np.minimum(row_norms(W, 2) / self.radius, 1.0)
        U = Sphere(self.dim, 1.0).directions(W)
        U[lengths == 0, 0] = 1.0
        signed: Vectors = U * np.where(rng.random(len(W)) < (1 + lengths) / 2, 1.0, -1.0)[:, None]
        return signed

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return log(1 + (e^ε − 1) q), q the probability that the reported direction is near."""
        nonces, index = self.named(payloads)
        W = np.asarray(W, dtype=np.float64)
        kept = keep_probability(W, self.ball)
        q = kept * (self.nearest(W, nonces) == index[:, None]).any(axis=1)
        q = q + (1 - kept) * (self.nearest(-W, nonces) == index[:, None]).any(axis=1)
        ratio: NDArray[np.float64] = np.log1p(np.expm1(float(self.epsilon)) * q)
        return ratio
