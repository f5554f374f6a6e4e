"""The law of PrivUnit in rank form: how many directions, how many of them near, and what is lost.

A nonce gives n pairs of opposite directions. With t the component of a direction along the input,
the c directions of largest t (one of a pair at most) weigh e^ε and the 2n − c others 1. Let a be
the probability that |t| is larger than it is. Among n independent pairs the c-th smallest a has
the law Beta(c, n − c + 1), and summation by parts gives for every function f with moment
F(γ) = E[f(t); t >= γ]

    E Σ_{near} f(t) = 2n E F(γ(A)),  A ~ Beta(c, n − c),  γ(a) the point with Pr[|t| >= γ] = a

(A = 1 when c = n). As n grows with c/n held at the mass of the ideal cap, A concentrates there and
the ideal law returns. ``choose`` takes the fewest directions for a stated loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from offaxis.arrays import namespace
from offaxis.randomizers.directions import blocks_per_pair
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.vectors import Vectors

LOSS: Final = 0.005
"""Share of the ideal correlation with the input that the finite number of directions may cost."""

MOST_BLOCKS: Final = 1 << 22
"""Blocks of eight coordinates a report may expand, which takes about a quarter of a second. At
dimension 64 this is enough for budgets up to about 15."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def _quantiles() -> tuple[Vectors, Vectors]:
    """Return nodes and weights on (0, 1), dense at both ends."""
    ends = 2.0 ** -np.arange(1, 31)
    edges = np.concatenate([[0.0], ends[::-1], 1 - ends[1:], [1.0]])
    half = np.diff(edges) / 2
    nodes = edges[:-1, None] + half[:, None] * (_NODES + 1)
    return nodes.ravel(), (half[:, None] * _WEIGHTS).ravel()


@dataclass(frozen=True)
class Ranks:
    """n pairs of directions, c of them near, at budget ε."""

    pairs: int
    near: int
    epsilon: float

    @cached_property
    def _normaliser(self) -> float:
        """(c e^ε + 2n − c) e^{−ε}."""
        return self.near + (2 * self.pairs - self.near) * math.exp(-self.epsilon)

    @property
    def far_probability(self) -> float:
        """How often the reported direction is not a near one."""
        return (2 * self.pairs - self.near) * math.exp(-self.epsilon) / self._normaliser

    @property
    def background(self) -> float:
        """The share of the law that does not look at the input at all: 2n / (c e^ε + 2n − c)."""
        return 2 * self.pairs * math.exp(-self.epsilon) / self._normaliser

    @cached_property
    def _edge_tails(self) -> tuple[Vectors, Vectors]:
        """Quadrature of A ~ Beta(c, n − c)."""
        if self.near == self.pairs:
            return np.ones(1), np.ones(1)
        nodes, weights = _quantiles()
        return betaincinv(self.near, self.pairs - self.near, nodes), weights

    def expectation(self, moment: Callable[[Vectors], Vectors]) -> float:
        """Return E f(t) of the report beyond its background, F given as a function of a."""
        tails, weights = self._edge_tails
        gain = -math.expm1(-self.epsilon) * 2 * self.pairs / self._normaliser
        return gain * float(weights @ moment(tails))

    def log_density(self, tail: Vectors, towards: NDArray[np.bool_]) -> Vectors:
        """Return the log density, against the public law, of a direction with Pr[|t| >= …] = tail.

        ``towards`` says whether the component along the input is positive. A server that keeps the
        nonce knows which directions are near and sees e^ε or 1; without it this average remains.
        """
        if self.near == self.pairs:
            chance = np.ones_like(tail)
        else:
            chance = betainc(self.pairs - self.near, self.near, 1 - tail)
        gain = np.expm1(self.epsilon) * np.where(towards, chance, 0.0)
        density: Vectors = np.log1p(gain)
        return density

    def draw(self, count: int, rng: Rng) -> tuple[Array, Array]:
        """Simulate (tail, towards) of reports: the reported direction's rank, then its tail."""
        draws = draws_from(rng)
        n, c = self.pairs, self.near
        place = draws.integers(2 * n - c, count)
        near = draws.uniform(count) >= self.far_probability
        place = draws.redrawn(place, near, c)
        # The others are the opposites of the near ones, then both vectors of every other pair.
        beyond = ~near & (place >= c)
        rank = namespace(place).where(beyond, c + (place - c) // 2, place)
        towards = near | (beyond & ((place - c) % 2 == 0))
        return draws.beta(rank + 1, n - rank), towards


def most_pairs(dim: int) -> int:
    """Return how many pairs of directions a report may have."""
    return max(1, MOST_BLOCKS // blocks_per_pair(dim))


def choose(
    dim: int, epsilon: float, cap_mass: float, mean: Callable[[Ranks], float], ideal: float
) -> Ranks:
    """Return the smallest ranks whose mean component reaches (1 − LOSS) of the ideal one.

    The share of near directions is that of the ideal cap. When even one near direction would take
    more than ``MOST_BLOCKS`` blocks, as many directions as fit are taken; the loss is then
    larger, and what the randomizer declares about itself says so.
    """
    most = most_pairs(dim)

    def ranks(near: int) -> Ranks:
        pairs = min(max(near, round(near / (2 * cap_mass))), most)
        return Ranks(pairs, min(near, pairs), epsilon)

    def enough(near: int) -> bool:
        tried = ranks(near)
        return tried.pairs == most or mean(tried) >= (1 - LOSS) * ideal

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
