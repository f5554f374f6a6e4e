"""Partitions of vectors into cells, for randomized response and for populations.

Cells lose least under k-ary response (:func:`partition`); k-means is the case without noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from offaxis.vectors import Vectors, row_dots

SIZES: Final = (2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of cells to try."""

_LEAST_PER_CELL: Final = 20
"""The average number of public vectors per cell is at least this."""

_PATIENCE: Final = 3
"""The search over sizes ends after this many in a row without improvement."""

_SEEDED_FROM: Final = 4_000

_NUMBERS: Final = 1 << 21
"""The most numbers of encoded public vectors that are used, for at most 20,000 vectors."""

_VECTORS: Final = 20_000

_CACHED: Final = 1 << 16
"""Distances computed at a time, few enough to stay in the processor's cache."""

_FIRST_ROUNDS: Final = 10

_ROUNDS: Final = 60

_SETTLED: Final = 1e-5
"""The relative gain below which the rounds end."""


def partition(X: Vectors, epsilon: float, size: int | None, seed: int) -> Vectors:
    """Return the points of the cells of vectors (n, r), at most ``size`` of them.

    Contract: a vector's symbol is the nearest point. For given points, reporting another symbol
    lowers no vector's expected squared error; for given cells, no decoder of a symbol is better
    than its point. So each half of a round can only lower the risk. The result is a local optimum,
    the best of several starts, which depend on the seed. Without a size, the number of cells is the
    one of :data:`SIZES` with the least risk on held-out vectors.

    Write q = e^{−ε}, m_j for the mass of cell j and s_j for the sum over it of π(x)(x − E x).
    Symbol j is reported with probability (q + (1 − q) m_j) / (1 + (k − 1) q), and given that, the
    mean of the vectors is a_j = (1 − q) s_j / (q + (1 − q) m_j) from the centre: nearer to it than
    the mean of the cell, the more so the smaller the cell. Of the variance of the vectors,

        Σ_j ‖(1 − q) s_j‖² / (q + (1 − q) m_j) / (1 + (k − 1) q)

    is kept. For a vector x the expected squared error under fixed points is
    (q Σ_j ‖x − a_j‖² + (1 − q) ‖x − a_c‖²) / (1 + (k − 1) q), smallest where a_c is nearest.
    k-means is the case q = 0.
    """
    # Many small products: threads would wait for each other longer than they work.
    with threadpool_limits(1, user_api="blas"):
        return _partition(X, epsilon, size, np.random.default_rng(seed))


def _partition(X: Vectors, epsilon: float, size: int | None, rng: np.random.Generator) -> Vectors:
    most = max(2, min(_VECTORS, _NUMBERS // X.shape[1]))
    X = X[rng.permutation(len(X))[:most]]
    centre = X.mean(axis=0)
    X = X - centre
    if size is None:
        size = _choose_size(X, epsilon, rng)
    points, _ = improve(X, _best_start(X, size, epsilon, rng), epsilon, _ROUNDS)
    shifted: Vectors = points + centre
    return shifted


def _choose_size(X: Vectors, epsilon: float, rng: np.random.Generator) -> int:
    """Return the size of least risk on held-out vectors."""
    half = -(-len(X) // 2)
    training, held_out = X[:half], X[half:]
    largest = max(SIZES[0], len(X) // _LEAST_PER_CELL)
    best, least, worse = SIZES[0], math.inf, 0
    for size in SIZES:
        if size > largest or worse >= _PATIENCE:
            break
        held_out_risk = risk(held_out, _best_start(training, size, epsilon, rng), epsilon)
        worse = 0 if held_out_risk < least else worse + 1
        if held_out_risk < least:
            best, least = size, held_out_risk
    return best


def _best_start(X: Vectors, size: int, epsilon: float, rng: np.random.Generator) -> Vectors:
    """Return the points that keep most after a few rounds; fewer cells get more starts."""
    starts = (
        improve(X, spread_out(X, size, rng), epsilon, _FIRST_ROUNDS)
        for _ in range(min(16, 1 + 128 // size))
    )
    return max(starts, key=lambda start: start[1])[0]


def improve(X: Vectors, points: Vectors, epsilon: float, rounds: int) -> tuple[Vectors, float]:
    """Alternate assigning and decoding; return the points and the variance kept."""
    kept = -math.inf
    for _ in range(rounds):
        cells = cells_of(X, nearest(X, points))
        points, before, kept = cells.decoded(epsilon), kept, cells.kept(epsilon)
        if kept <= before * (1 + _SETTLED):
            break
    return points, kept


def spread_out(X: Vectors, count: int, rng: np.random.Generator) -> Vectors:
    """Draw rows with probabilities proportional to squared distances from earlier ones (k-means++).

    Fewer than ``count`` are returned if all rows coincide with drawn ones.
    """
    if len(X) > _SEEDED_FROM:
        X = X[rng.choice(len(X), _SEEDED_FROM, replace=False)]
    drawn = [int(rng.integers(len(X)))]
    distance = np.full(len(X), math.inf)
    while len(drawn) < count:
        difference = X - X[drawn[-1]]
        distance = np.minimum(distance, row_dots(difference, difference))
        total = np.cumsum(distance)
        if total[-1] <= 0:
            break
        drawn.append(int(np.searchsorted(total, rng.random() * total[-1], side="right")))
    return X[np.minimum(drawn, len(X) - 1)]


def risk(X: Vectors, points: Vectors, epsilon: float) -> float:
    """Return the mean squared error of points for centred vectors, fitted to them or not."""
    q, scores = math.exp(-epsilon), _scores(X, points)
    errors = q * scores.sum(axis=1) + (1 - q) * scores.min(axis=1)
    return float(row_dots(X, X).mean() + errors.mean() / (1 + (len(points) - 1) * q))


def cells_of(X: Vectors, symbols: NDArray[Any]) -> Cells:
    """Return the cells of centred vectors, without empty ones."""
    n, counts = len(X), np.bincount(symbols)
    used = counts > 0
    # One entry per vector, in columns: their sums need no sorting.
    member = csr_array((np.ones(n), symbols, np.arange(n + 1)), shape=(n, counts.size))
    return Cells(counts[used] / n, np.asarray(member.T @ X)[used] / n)


@dataclass(frozen=True, eq=False)
class Cells:
    """Masses (k,) and centred sums (k, r) of the cells of a partition."""

    masses: Vectors
    sums: Vectors

    def decoded(self, epsilon: float) -> Vectors:
        """Return a_j, the posterior mean of each symbol, from the centre."""
        q = math.exp(-epsilon)
        shares: Vectors = (1 - q) / (q + (1 - q) * self.masses)
        return shares[:, None] * self.sums

    def kept(self, epsilon: float) -> float:
        """Return the variance that a report keeps."""
        q = math.exp(-epsilon)
        weights = (1 - q) ** 2 / (q + (1 - q) * self.masses) / (1 + (len(self.masses) - 1) * q)
        return float(weights @ row_dots(self.sums, self.sums))


def nearest(X: Vectors, points: Vectors) -> NDArray[Any]:
    """Return the index of the nearest point of every row, the first one of a tie."""
    step = max(1, _CACHED // len(points))
    parts = [np.argmin(_scores(X[i : i + step], points), axis=1) for i in range(0, len(X), step)]
    return np.concatenate(parts)


def _scores(X: Vectors, points: Vectors) -> Vectors:
    """Return ‖x − a_j‖² − ‖x‖², (n, k)."""
    scores = X @ (-2 * points.T)
    scores += row_dots(points, points)
    return scores
