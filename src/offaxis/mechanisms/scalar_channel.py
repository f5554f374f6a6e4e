"""The interval channel of least mean squared error for a scalar answer, for a public prior.

A channel here is k-ary response over an interval partition of the answers, decoded to the posterior
mean. With E = e^ε − 1, cell masses m_j and centred cell sums s_j = Σ π(x)(x − x̄), symbol y has
probability (E m_y + 1)/(E + k) and decodes to x̄ + E s_y/(E m_y + 1), because Σ_j s_j = 0. So the
mean squared error is

    Var − Σ_j (E s_j)²/(E m_j + 1)/(e^ε + k − 1).

A dynamic program over n bins finds the interval partition with the largest sum for every k, in
O(n²k).

**This error is what a mechanism achieves, not a limit.** No channel on a few values was better:
:func:`certify` solves the linear program over all of them, and the two always agreed
(docs/proofs.md §15). But the search ends at 256 cells and 2,048 bins, so from ε ≈ 15 on better
channels exist.
The proved limit is :func:`offaxis.theory.scalar_limit.least_scalar_error`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.vectors import Vectors, as_array, check_finite

LARGEST_EPSILON: Final = 100.0

_MOST_CELLS: Final = 256

_PATIENCE: Final = 16

_FEWEST_BINS: Final = 128

_MOST_BINS: Final = 2048

_MOST_CERTIFIED: Final = 12

_NO_GAP: Final = 1e-12
"""Answers that differ by less, relative to their range, are the same up to rounding."""


def refined_channel(answers: Any, epsilon: Any, most: int = _MOST_CELLS) -> ScalarChannel:
    """Return the best channel for answers of this distribution, with as many bins as matter.

    Bins are doubled from 128 until the error changes by less than 1 %, up to 2,048.
    """
    bins = _FEWEST_BINS
    channel = optimal_channel(AnswerPrior.of_answers(answers, bins), epsilon, most)
    while bins < _MOST_BINS:
        bins *= 2
        before = channel.rmse
        channel = optimal_channel(AnswerPrior.of_answers(answers, bins), epsilon, most)
        if abs(channel.rmse - before) <= 0.01 * before:
            break
    return channel


def least_rmse(values: Any, masses: Any, epsilon: Any) -> float:
    """Return the root mean squared error of the best interval channel on these values and masses.

    An error that is achieved; up to 256 values no channel is known to be better (see the module).
    """
    return optimal_channel(AnswerPrior.of_atoms(values, masses), epsilon).rmse


def optimal_channel(prior: AnswerPrior, epsilon: Any, most: int = _MOST_CELLS) -> ScalarChannel:
    """Return the interval channel of least mean squared error, with up to ``most`` cells.

    The best partition for each k is exact. The search over k ends when 16 more cells bring no
    improvement. If answers differ at all, a report always reduces the error, so k ≥ 2. 1,000 bins
    take 0.1 to 0.3 s.
    """
    growth = math.expm1(_budget(epsilon))
    cuts = _best_partition(prior, growth, most)
    starts = np.append(0, cuts)
    masses = np.add.reduceat(prior.masses, starts)
    sums = np.add.reduceat(prior.masses * (prior.values - prior.mean), starts)
    decoded = prior.mean + sums / (masses + 1 / growth)
    rmse = math.sqrt(_error(prior, starts, decoded, growth))
    return ScalarChannel(prior.edges[cuts - 1], masses, decoded, rmse, prior.values.size)


def _error(prior: AnswerPrior, starts: NDArray[np.int64], decoded: Vectors, growth: float) -> float:
    """Return the mean squared error of k-ary response over cells, as a sum of squares.

    The variance minus what the cells remove, as in the module, loses all digits at large budgets.
    """
    cells = np.diff(np.append(starts, prior.values.size))
    own = (prior.values - np.repeat(decoded, cells)) ** 2
    others = (prior.mean - decoded) ** 2 + prior.variance - prior.within
    truthful = growth * float(prior.masses @ own)
    return (truthful + float(others.sum())) / (growth + decoded.size) + prior.within


def _best_partition(prior: AnswerPrior, growth: float, most: int) -> NDArray[np.int64]:
    """Return the starts of all cells but the first, of the partition that removes most variance.

    gain[i, j] is the contribution of a cell of the bins j … i − 1, s²/(m + 1/E). The best
    partition of the first i bins into k cells is such a cell after the best one into k − 1.
    """
    mass = np.append(0.0, np.cumsum(prior.masses))
    sums = np.append(0.0, np.cumsum(prior.masses * (prior.values - prior.mean)))
    n = prior.values.size
    later, earlier = np.tril_indices(n + 1, -1)
    gain = np.full((n + 1, n + 1), -np.inf)
    gain[later, earlier] = (sums[later] - sums[earlier]) ** 2 / (
        mass[later] - mass[earlier] + 1 / growth
    )
    reached, trial = gain[:, 0].copy(), np.empty_like(gain)
    last: list[NDArray[np.int64]] = []
    best, best_k = 0.0, 1
    for k in range(2, min(most, n) + 1):
        np.add(gain, reached, out=trial)
        last.append(trial.argmax(axis=1))
        reached = trial[np.arange(n + 1), last[-1]]
        removed = float(reached[-1]) * growth / (growth + k)
        if removed > best or best_k == 1:
            best, best_k = removed, k
        elif k - best_k >= _PATIENCE:
            break
    cuts, end = np.empty(best_k - 1, dtype=np.int64), n
    for k in range(best_k - 1, 0, -1):
        end = cuts[k - 1] = last[k - 1][end]
    return cuts


def certify(values: Any, masses: Any, epsilon: Any) -> float:
    """Return the least root mean squared error over **all** ε-LDP channels, for up to 12 values.

    Every column of a channel is a sum of multiples θ_p p of the vectors p ∈ {1, e^ε}^n, and
    splitting it never increases the error (Kairouz, Oh, Viswanath 2014; docs/proofs.md §15). So the
    least error is the linear program min Σ_p θ_p c(p) subject to Σ_p θ_p p(x) = 1, θ ≥ 0, where
    c(p) = Σπp x² − (Σπp x)²/Σπp. All 2^n columns are included: no form of channel is assumed.
    """
    prior = AnswerPrior.of_atoms(values, masses)
    n = prior.values.size
    if n > _MOST_CERTIFIED:
        raise InvalidInput(f"certify takes up to {_MOST_CERTIFIED} distinct values, got {n}")
    raised = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    # In units of e^ε and of the deviation, so that the solver's tolerances are relative.
    columns = np.where(raised, 1.0, math.exp(-_budget(epsilon)))
    deviation = math.sqrt(prior.variance)
    if not deviation:
        return 0.0
    x = (prior.values - prior.mean) / deviation
    weights = columns * prior.masses
    costs = weights @ x**2 - (weights @ x) ** 2 / weights.sum(axis=1)
    solved = linprog(costs, A_eq=columns.T, b_eq=np.ones(n), method="highs")
    if not solved.success:
        raise InvalidInput(f"the linear program was not solved: {solved.message}")
    return deviation * math.sqrt(max(float(solved.fun), 0.0))


def _budget(epsilon: Any) -> float:
    value = float(exact_epsilon(epsilon))
    if value > LARGEST_EPSILON:
        raise InvalidInput(f"epsilon must be at most {LARGEST_EPSILON:g}, got epsilon={epsilon!r}")
    return value


@dataclass(frozen=True, eq=False)
class ScalarChannel:
    """k-ary response over intervals of the answer, with posterior-mean decoding.

    Attributes
    ----------
    edges : (k − 1,) array
        Between the intervals, ascending; an answer on an edge belongs to the interval below it.
    masses : (k,) array
        Share of the prior in each interval.
    decoded : (k,) array
        Decoded answer of each symbol.
    rmse : float
        Root mean squared error under the prior.
    bins : int
        Number of bins from which the edges were chosen.
    """

    edges: Vectors = field(repr=False)
    masses: Vectors = field(repr=False)
    decoded: Vectors = field(repr=False)
    rmse: float
    bins: int

    @property
    def size(self) -> int:
        """Number k of intervals."""
        return int(self.decoded.size)


@dataclass(frozen=True, eq=False)
class AnswerPrior:
    """A distribution of answers in bins.

    Attributes
    ----------
    values, masses : (n,) arrays
        Mean and share of every bin, in ascending order; the masses are positive and sum to one.
    edges : (n − 1,) array
        Between the bins; an answer on an edge belongs to the bin below it.
    within : float
        Variance inside the bins, which no channel on the bins removes.
    """

    values: Vectors = field(repr=False)
    masses: Vectors = field(repr=False)
    edges: Vectors = field(repr=False)
    within: float = 0.0

    @classmethod
    def of_atoms(cls, values: Any, masses: Any) -> AnswerPrior:
        """Return the distribution of finitely many answers, one bin per distinct answer."""
        x, weights = as_array(values, "values"), as_array(masses, "masses")
        check_finite(x, "values")
        check_finite(weights, "masses")
        if x.ndim != 1 or not x.size or weights.shape != x.shape:
            raise InvalidInput(
                f"values and masses must be vectors of one length, got {x.shape}, {weights.shape}"
            )
        if (weights < 0).any() or not weights.sum() > 0:
            raise InvalidInput("masses must not be negative, nor all zero")
        distinct, place = np.unique(x[weights > 0], return_inverse=True)
        shares = np.bincount(place, weights[weights > 0])
        return cls(distinct, shares / shares.sum(), (distinct[1:] + distinct[:-1]) / 2)

    @classmethod
    def of_answers(cls, answers: Any, bins: int) -> AnswerPrior:
        """Return the distribution of the given answers in at most ``bins`` quantile bins.

        Half of the quantiles are evenly spaced, half geometrically towards both ends: at large
        budgets cells with a share of e^{−ε} pay off, and rare answers are at the ends.
        """
        x = np.sort(as_array(answers, "answers"), axis=None)
        check_finite(x, "answers")
        if x.size < 2 or bins < 2:
            raise InvalidInput(f"a prior needs two answers and two bins, got {x.size} and {bins}")
        even = np.linspace(0, 1, max(bins // 2, 1) + 1)[1:-1]
        tail = np.geomspace(1 / x.size, 0.5, max(bins // 4, 1), endpoint=False)
        cuts = np.rint(np.concatenate([even, tail, 1 - tail, [0.5]]) * x.size).astype(np.int64)
        # A cut moves up to where the answer changes, so that equal answers share a bin.
        changes = np.flatnonzero(np.diff(x) > _NO_GAP * (x[-1] - x[0])) + 1
        cuts = np.unique(np.append(changes, x.size)[np.searchsorted(changes, cuts)])
        cuts = cuts[(cuts > 0) & (cuts < x.size)]
        starts = np.append(0, cuts)
        counts = np.diff(np.append(starts, x.size))
        origin = x.mean()  # sums of deviations keep the digits that a common offset would cancel
        means = np.add.reduceat(x - origin, starts) / counts
        inside = float(np.mean((x - origin - np.repeat(means, counts)) ** 2))
        return cls(origin + means, counts / x.size, (x[cuts - 1] + x[cuts]) / 2, inside)

    @property
    def mean(self) -> float:
        """The mean answer x̄."""
        return float(self.masses @ self.values)

    @property
    def variance(self) -> float:
        """The variance of the answers: the mean squared error of always answering x̄."""
        return float(self.masses @ (self.values - self.mean) ** 2) + self.within
