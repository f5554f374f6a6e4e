"""Exact randomized response: one of several symbols, the preferred ones e^ε times as likely.

Contract: ``Response(size, near, epsilon)`` stands for the law on ``size`` symbols that gives weight
e^ε to each of ``near`` preferred symbols and 1 to each other. Its normaliser near·e^ε + size − near
is the same whichever symbols are preferred, so changing them changes no probability by more than
the factor e^ε: pure ε for *any* way of choosing them. With near = 1 this is k-ary randomized
response (Warner 1965; Kairouz, Oh, Viswanath 2014).

The draw is made before anybody knows which symbols are preferred: first which of the two groups,
by a coin with the exact, irrational probability near / (near + (size − near) e^{−ε}), then which
member of it, uniformly. No rejection depends on the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.bernoulli import Probability
from offaxis.sampling.enclosure import preferred
from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.uniform import MOST, below


@dataclass(frozen=True)
class Response:
    """The law above; ε is a fraction and is kept exactly."""

    size: int
    near: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        """Refuse a group that is empty."""
        if not 1 <= self.near < self.size <= MOST or self.epsilon <= 0:
            raise ValueError(f"no such response: {self}")

    @cached_property
    def _near_probability(self) -> Probability:
        return Probability(partial(preferred, self.near, self.size - self.near, self.epsilon))

    def draw(self, count: int, bits: RandomBits) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Draw ``count`` responses as (is it a preferred symbol, its place in its group)."""
        is_near = self._near_probability.draw(count, bits)
        # Both places are drawn for every response: which one is used must not show in the work.
        near = below(self.near, count, bits)
        far = below(self.size - self.near, count, bits)
        return is_near, np.where(is_near, near, far)


response_of = lru_cache(maxsize=128)(Response)
"""The same law for everybody who asks for it: its digits are computed once."""


def place(
    is_near: NDArray[np.bool_], offset: NDArray[np.int64], preferred: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the symbols a draw stands for, given each row's preferred symbols, ascending.

    The k-th symbol outside an ascending list a_0 < a_1 < … is k plus the number of i with
    a_i − i <= k.
    """
    skipped = (preferred - np.arange(preferred.shape[1]) <= offset[:, None]).sum(axis=1)
    chosen = np.take_along_axis(preferred, np.where(is_near, offset, 0)[:, None], axis=1)[:, 0]
    return np.where(is_near, chosen, offset + skipped)
