"""MVU: an optimised table for each of k sampled coefficients (Chaudhuri, Guo, Rabbat 2022).

Contract: for every two vectors and every payload, ``Pr[payload | w] <= exp(ε) Pr[payload | w']``.

A payload is a public nonce, drawn before the vector is used, and k outputs of b bits. The nonce
determines a tight frame and k of its coefficients (:mod:`experiments.rivals.kashin`). Each chosen
coefficient, a number of [−1, 1] in units of its bound, goes through the same table at budget ε/k
(:mod:`experiments.rivals.tables`): in every column of integer weights max ≤ e^{ε/k} min. The k
draws are independent given the coefficients, so the payload is within (e^{ε/k})^k = e^ε for *any*
two vectors of coefficients. The server returns v = (N/k) Σ (K/√N) output_i u_i. With s(x) the
second moment of an output for the number x, and ‖w‖ = ρ = 1,

    E‖v − w‖² = m K²/k · E s(a_j √N/K) + N (k − 1)/((N − 1) k) · (1 − (m/N) E‖a‖²) − 1.

Differences from the publication: it privatizes every coordinate, at ε/m or with a weaker metric
form of privacy. Under pure ε for the whole vector, k coefficients at ε/k err much less. It searches
tables by a trust region, we by a linear program inside a search over outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from experiments.rivals.kashin import Frame, default_level
from experiments.rivals.public import draw_nonces, joined, parsed, seeded_nonces, symbol_bytes
from experiments.rivals.sqkr import pair_term, typical_shares
from experiments.rivals.tables import STEP, TOTAL, Table, best_table
from offaxis.errors import InvalidInput
from offaxis.randomizers import CustomRandomizer, register
from offaxis.randomizers.base import CHOOSE, Ball, checked_copy
from offaxis.randomizers.directions import NONCE_BYTES, Nonces
from offaxis.sampling.entropy import RealEntropy
from offaxis.vectors import Vectors, as_integer, as_number

MOST_BITS: Final = 3
MOST_SAMPLED: Final = 64
LARGEST_SHARE: Final = 8
"""The largest budget of one coefficient: beyond it the optimiser loses its digits."""


@register
@dataclass(frozen=True)
class Mvu(CustomRandomizer):
    """k Kashin coefficients, each through a table of minimum variance.

    Parameters
    ----------
    sampled : int, optional
        k; by default the one of least error with one bit each, about 0.46 ε.
    bits : int
        b, per coefficient.
    level : float, optional
        K, as for :class:`experiments.rivals.Sqkr`.
    table : str, optional
        The table; by default it is optimised.
    """

    kind: ClassVar[str] = "rivals.mvu"
    unbiased: ClassVar[bool] = True

    sampled: int = CHOOSE
    bits: int = 2
    level: float = float(CHOOSE)
    table: str = ""

    def __post_init__(self) -> None:
        """Read the parameters exactly, fix k, K and the table."""
        super().__post_init__()
        if self.sampled == CHOOSE:
            object.__setattr__(self, "sampled", best_split(float(self.epsilon), self.frame.size))
        most = min(MOST_SAMPLED, self.frame.size)
        object.__setattr__(self, "sampled", as_integer(self.sampled, "sampled", 1, most))
        object.__setattr__(self, "bits", as_integer(self.bits, "bits", 1, MOST_BITS))
        level = default_level(self.dim) if self.level == CHOOSE else self.level
        object.__setattr__(self, "level", as_number(level, "level"))
        if not self.table:
            if self.share > LARGEST_SHARE:
                raise InvalidInput(f"one coefficient takes at most ε = {LARGEST_SHARE}")
            object.__setattr__(self, "table", best_table(self.share, self.bits).text)
        if self.law.outputs.size != 1 << self.bits:
            raise InvalidInput(f"a table of {self.bits} bits has {1 << self.bits} outputs")

    @property
    def share(self) -> Fraction:
        """ε/k, exactly."""
        return self.epsilon / self.sampled

    @cached_property
    def law(self) -> Table:
        """The table, checked at ε/k."""
        return Table(self.table, self.share)

    @property
    def frame(self) -> Frame:
        """The public frames."""
        return Frame(self.dim, self.level)

    @property
    def information_bits(self) -> float:
        """k b: the bits of a report without its nonce."""
        return float(self.sampled * self.bits)

    @property
    def payload_size(self) -> int:
        """A nonce and k b bits."""
        return NONCE_BYTES + symbol_bytes(1 << self.sampled * self.bits)

    @property
    def resolution(self) -> float:
        """A coefficient is rounded by at most a step; N of them add up to √N of that at most."""
        return self.radius * self.level * math.sqrt(self.frame.size) / STEP

    def numbers(self, W: Vectors, nonces: Nonces) -> Vectors:
        """Return the k sampled coefficients of every row, as numbers of [−1, 1]."""
        out = np.empty((len(W), self.sampled))
        frame = self.frame
        unit = Ball(self.dim, self.radius, 2).project(W) / self.radius
        for start in range(0, len(W), frame.rows_at_once):
            part = slice(start, start + frame.rows_at_once)
            shares = frame.coefficients(unit[part], nonces[part])
            places = frame.sample(nonces[part], self.sampled)
            out[part] = np.take_along_axis(shares, places, axis=1)
        return out

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per row of W."""
        W = checked_copy(W, self.dim, entropy)
        # All randomness is drawn before the input is used.
        nonces = draw_nonces(len(W), entropy)
        shape = len(W), self.sampled
        coins, draws = (each.reshape(shape) for each in self.law.draw(math.prod(shape), entropy))
        columns = self.law.columns(self.law.rows(self.numbers(W, nonces), coins), draws)
        symbols = [
            sum(column << self.bits * place for place, column in enumerate(row))
            for row in columns.tolist()
        ]
        return joined(nonces, symbols, 1 << self.sampled * self.bits)

    def _observed(self, nonces: Nonces, columns: NDArray[np.int64]) -> Vectors:
        places = self.frame.sample(nonces, self.sampled)
        return self.radius * self.frame.spread(self.law.outputs[columns], places, nonces)

    def _parsed(self, payloads: list[bytes]) -> tuple[Nonces, NDArray[np.int64]]:
        nonces, symbols = parsed(payloads, 1 << self.sampled * self.bits, self.kind)
        mask = (1 << self.bits) - 1
        columns = [
            [symbol >> self.bits * place & mask for place in range(self.sampled)]
            for symbol in symbols
        ]
        return nonces, np.array(columns, dtype=np.int64).reshape(-1, self.sampled)

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the sum of the frame vectors with the reported outputs."""
        return self._observed(*self._parsed(payloads))

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Draw observations with the law of reports."""
        nonces = seeded_nonces(len(W), rng)
        numbers = self.numbers(np.asarray(W, dtype=np.float64), nonces)
        rows = self.law.rows(numbers, rng.integers(0, STEP, numbers.shape))
        return self._observed(nonces, self.law.columns(rows, rng.integers(0, TOTAL, rows.shape)))

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return the sum of the log probabilities of the reported outputs."""
        nonces, columns = self._parsed(payloads)
        numbers = self.numbers(np.asarray(W, dtype=np.float64), nonces)
        lower, above = self.law.cells(numbers)
        chances = np.array(self.law.weights) / TOTAL
        low, high = chances[lower, columns], chances[lower + 1, columns]
        likelihood: NDArray[np.float64] = np.log(low + above / STEP * (high - low)).sum(axis=1)
        return likelihood

    def expected_squared_error(self) -> float:
        """Return the formula above; its expectations are averages over public frames."""
        shares = typical_shares(self.frame)
        energy = self.level**2 * float((shares**2).mean())
        moment = float(self.law.second_moment(shares).mean())
        own = self.dim * self.level**2 / self.sampled * moment
        return self.radius**2 * (own + pair_term(self.frame, self.sampled, energy) - 1)


def best_split(epsilon: float, most: int) -> int:
    """Return the k of least error with one bit each: the largest k tanh²(ε/2k)."""
    candidates = [k for k in range(1, min(MOST_SAMPLED, most) + 1) if epsilon / k <= LARGEST_SHARE]
    return max(candidates, key=lambda k: k * math.tanh(epsilon / (2 * k)) ** 2)
