"""Which population explains reports: the public vectors as they are, moved, or reweighted?

A report v has the density ℓ(v|u) given the direction u of a lifted vector (w, √r/2), w the whitened
coordinates of :func:`~offaxis.learning.shift.fit_shift`. Three populations are fitted by the
likelihood of the reports, Σ_i log f(v_i):

* *unchanged*: f(v) is the mean of ℓ(v|w_j) over public vectors w_j;
* *moved*: the mean of ℓ(v|s·w_j + δ), with a shift δ and a scale s;
* *other mix*: Σ_c m_c f_c(v), f_c the mean over the public vectors of cell c.

ℓ is the average over all nonces: which directions are near under a report's own nonce adds at most
1.6 % to the information.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from offaxis.geometry.partition import nearest, partition
from offaxis.learning.tables import projected
from offaxis.randomizers import PrivUnit2
from offaxis.vectors import Vectors, row_norms

HEIGHT: Final = 0.5
"""The last coordinate of a lifted vector, per √r: public vectors have E‖w‖² = r."""

_SCALE_PRIOR: Final = 0.5
"""Standard deviation of log s before the reports."""

_SUPPORT: Final = 600
"""Public vectors that stand for all of them in likelihoods."""

_FEWEST_CELLS: Final = 10
_MOST_CELLS: Final = 40
_LEAST_PER_CELL: Final = 20
_GRID: Final = 1 << 16
_NUMBERS: Final = 1 << 20
_STEPS: Final = 1000
_PROBES: Final = 100


# ---- Public vectors


@dataclass(frozen=True, eq=False)
class PublicCells:
    """Coordinates of public vectors in cells, with the shares of cells and answers.

    Attributes
    ----------
    coordinates, weights, cells : (J, r), (J,) and (J,) arrays
        Some vectors of every cell, with its mean. Their weights sum to its share of all vectors.
    shares : (K,) array
    table : (K, k) array
        The shares of the answers in every cell.
    """

    coordinates: Vectors
    weights: Vectors
    cells: NDArray[np.int64]
    shares: Vectors
    table: Vectors

    @property
    def answers(self) -> Vectors:
        """The shares of the answers among public vectors, (k,)."""
        answers: Vectors = self.shares @ self.table
        return answers


def public_cells(
    coordinates: Vectors, answers: NDArray[np.int64], classes: int, seed: int
) -> PublicCells:
    """Return 10 to 40 cells of public vectors: parts of one answer each, unless answers are many.

    Examples
    --------
    >>> from offaxis.learning.evidence import public_cells
    >>> w = np.random.default_rng(0).standard_normal((1000, 3))
    >>> public = public_cells(w, (w[:, 0] > 0).astype(int), 2, seed=0)
    >>> public.shares.size  # five parts of each answer
    10
    """
    used = np.unique(answers)
    cells = np.zeros(len(answers), dtype=np.int64)
    if used.size > _MOST_CELLS:
        cells = nearest(coordinates, partition(coordinates, math.inf, _MOST_CELLS, seed))
    else:
        first = 0
        for answer in used:
            own = answers == answer
            size = min(-(-_FEWEST_CELLS // used.size), max(1, int(own.sum()) // _LEAST_PER_CELL))
            points = partition(coordinates[own], math.inf, size, seed)
            cells[own] = first + nearest(coordinates[own], points)
            first += len(points)
    _, cells, counts = np.unique(cells, return_inverse=True, return_counts=True)
    table = np.zeros((counts.size, classes))
    np.add.at(table, (cells, answers), 1 / counts[cells])
    each = max(_SUPPORT // counts.size, 2)
    places = [np.linspace(0, n - 1, min(n, each)).astype(np.int64) for n in counts]
    kept = np.concatenate([np.flatnonzero(cells == c)[at] for c, at in enumerate(places)])
    shares = counts / len(answers)
    weights = shares[cells[kept]] / np.bincount(cells[kept])[cells[kept]]
    # Few vectors stand for all of their cell, so they are moved to its mean.
    means = [coordinates[cells == c].mean(axis=0) for c in range(counts.size)]
    kept_means = [coordinates[kept][cells[kept] == c].mean(axis=0) for c in range(counts.size)]
    moved = coordinates[kept] + np.subtract(means, kept_means)[cells[kept]]
    return PublicCells(moved, weights, cells[kept], shares, table)


# ---- Likelihoods


@dataclass(frozen=True, eq=False)
class Population:
    """An explanation of the reports.

    Attributes
    ----------
    directions, weights : (J, q) and (J,) arrays
        Its vectors.
    density : (n,) array
        f(v_i), up to one constant.
    scores : (n, p) array
        Derivatives of log f(v_i) by what was fitted.
    parameters : int
        Number of fitted parameters.
    fitted : array
        (δ, log s), or the shares of cells.
    """

    directions: Vectors
    weights: Vectors
    density: Vectors
    scores: Vectors
    parameters: int
    fitted: Vectors

    @property
    def log_likelihood(self) -> float:
        """Σ_i log f(v_i)."""
        return float(np.log(self.density).sum())


@lru_cache(maxsize=8)
def _tables(randomizer: PrivUnit2) -> tuple[Vectors, Vectors]:
    """Return ℓ and its slope, up to one constant, by the cosine of report and direction."""
    at = np.zeros((_GRID + 1, randomizer.dim))
    at[:, 0] = cosine = np.linspace(-1, 1, _GRID + 1)
    at[:, 1] = np.sqrt(1 - cosine * cosine)
    pole = np.broadcast_to(np.eye(randomizer.dim)[0], at.shape)
    ratio = np.exp(randomizer.log_density(at, pole))
    return ratio, np.gradient(ratio, cosine)


class Evidence:
    """What reports tell about three populations.

    Parameters
    ----------
    randomizer : PrivUnit2
    observations : (n, r + 1) array
        As the randomizer reads reports; only their directions count.
    public : PublicCells

    Examples
    --------
    >>> from offaxis.learning.evidence import Evidence, public_cells
    >>> from offaxis.randomizers import PrivUnit2
    >>> from offaxis.simulation import draw_observations
    >>> rng = np.random.default_rng(0)
    >>> w, randomizer = rng.standard_normal((1000, 1)), PrivUnit2(2, 1.0, epsilon=4)
    >>> lifted = np.column_stack([w + 1.5, np.full(1000, 0.5)])  # people have moved by 1.5
    >>> reports = draw_observations(randomizer, lifted, rng)
    >>> cells = public_cells(w, np.zeros(1000, dtype=int), 1, seed=0)
    >>> round(float(Evidence(randomizer, reports, cells).moved.fitted[0]), 1)
    1.5
    """

    def __init__(self, randomizer: PrivUnit2, observations: Vectors, public: PublicCells) -> None:
        self.reports = observations / row_norms(observations, 2)[:, None]
        self.public = public
        self._rank = randomizer.dim - 1
        self._height = math.sqrt(self._rank) * HEIGHT
        self._ratio, self._slope = _tables(randomizer)

    def _blocks(self, width: int) -> Iterator[slice]:
        step = max(1, _NUMBERS // width)
        for start in range(0, len(self.reports), step):
            yield slice(start, start + step)

    @staticmethod
    def _places(cosines: Vectors) -> NDArray[np.int32]:
        """Return the nearest places in tables; a search would take ten times as long."""
        places = (cosines + (1 + 1 / _GRID)) * (_GRID / 2)
        return places.clip(0, _GRID).astype(np.int32)

    def _ratios(self, block: slice, directions: Vectors) -> Vectors:
        """Return ℓ(v_i|u_j), (n, J)."""
        ratios: Vectors = self._ratio.take(self._places(self.reports[block] @ directions.T))
        return ratios

    def _lifted(self, w: Vectors) -> tuple[Vectors, Vectors]:
        """Return the directions of lifted vectors, and their lengths."""
        lifted = np.column_stack([w, np.full(len(w), self._height)])
        lengths = row_norms(lifted, 2)
        return lifted / lengths[:, None], lengths

    # ---- Unchanged, or of another mix

    @cached_property
    def _cells(self) -> Vectors:
        """f_c(v_i), (n, K)."""
        public = self.public
        directions, _ = self._lifted(public.coordinates)
        member = np.eye(public.shares.size)[public.cells] * public.weights[:, None] / public.shares
        blocks = self._blocks(len(directions))
        return np.concatenate([self._ratios(block, directions) @ member for block in blocks])

    def _mixture(self, shares: Vectors, parameters: int) -> Population:
        public = self.public
        directions, _ = self._lifted(public.coordinates)
        density = self._cells @ shares
        weights = public.weights * (shares / public.shares)[public.cells]
        scores = self._cells / density[:, None] - 1
        return Population(directions, weights, density, scores, parameters, shares)

    @cached_property
    def unchanged(self) -> Population:
        """The public vectors."""
        population = self._mixture(self.public.shares, 0)
        return replace(population, scores=population.scores[:, :0])

    @cached_property
    def mixed(self) -> Population:
        """The shares of public cells of largest likelihood, by expectation–maximisation."""
        shares = self.public.shares
        for _ in range(_STEPS):
            before = shares
            shares = shares * (self._cells / (self._cells @ shares)[:, None]).mean(axis=0)
            if np.abs(shares - before).max() < 1e-5:
                break
        return self._mixture(shares / shares.sum(), shares.size - 1)

    @cached_property
    def cell_shares(self) -> Vectors:
        """The shares of cells, shrunk towards the public ones, (K,).

        The estimate of largest likelihood, not restricted to positive shares, has the covariance
        I⁻¹, I the information of the reports.
        """
        cells, public = self._cells, self.public.shares
        if public.size == 1:
            return public
        basis, shares = contrasts(public.size), public
        for _ in range(8):
            scores = cells @ basis / (cells @ shares)[:, None]
            step = basis @ (np.linalg.pinv(scores.T @ scores) @ scores.sum(axis=0))
            while (cells @ (shares + step)).min() <= 0.02:
                step /= 2
            shares = shares + step
            if np.abs(step).max() < 1e-6:
                break
        scores = cells @ basis / (cells @ shares)[:, None]
        return shrunken_shares(basis.T @ (shares - public), scores.T @ scores, public)

    # ---- Moved

    def _moved_by(self, fitted: Vectors) -> Population:
        """Return the public vectors s·w + δ; fitted is (δ, log s).

        With u = y/‖y‖ and y the lifted vector, the derivative of ⟨v, u⟩ in a direction d of y is
        (⟨v, d⟩ − ⟨v, u⟩⟨u, d⟩)/‖y‖.
        """
        public, r = self.public, self._rank
        scaled = math.exp(fitted[r]) * public.coordinates
        directions, lengths = self._lifted(scaled + fitted[:r])
        density, scores = np.empty(len(self.reports)), np.empty((len(self.reports), r + 1))
        along = (directions[:, :r] * scaled).sum(axis=1)
        for block in self._blocks(2 * len(directions)):
            v = self.reports[block, :r]
            cosines = self.reports[block] @ directions.T
            places = self._places(cosines)
            density[block] = self._ratio.take(places) @ public.weights
            slopes = self._slope.take(places) * (public.weights / lengths)
            cosines *= slopes
            scores[block, :r] = v * slopes.sum(axis=1)[:, None] - cosines @ directions[:, :r]
            scores[block, r] = (v * (slopes @ scaled)).sum(axis=1) - cosines @ along
        scores /= density[:, None]
        return Population(directions, public.weights, density, scores, r + 1, fitted)

    @cached_property
    def moved(self) -> Population:
        """The shift and the scale of largest likelihood, with a weak prior on log s.

        Steps are those of Newton with the sum of squared scores in place of the Hessian (Berndt,
        Hall, Hall, Hausman 1974).
        """

        def value(population: Population) -> float:
            fitted = population.fitted
            return population.log_likelihood - float(fitted @ self._prior @ fitted) / 2

        at = self._moved_by(np.zeros(self._rank + 1))
        for _ in range(50):
            gradient = at.scores.sum(axis=0) - self._prior @ at.fitted
            step = np.linalg.lstsq(at.scores.T @ at.scores + self._prior, gradient, rcond=None)[0]
            step *= min(1.0, 1.0 / max(float(np.linalg.norm(step)), 1e-300))
            new = self._moved_by(at.fitted + step)
            while value(new) < value(at) and np.abs(step).max() > 1e-4:
                step /= 2
                new = self._moved_by(at.fitted + step)
            gain = value(new) - value(at)
            if gain > 0:
                at = new
            if gain < 0.01:
                break
        return at

    @cached_property
    def _prior(self) -> Vectors:
        return np.diag(np.append(np.zeros(self._rank), _SCALE_PRIOR**-2))

    @property
    def shift_error(self) -> float:
        """The expected squared error of δ, for public vectors without an error."""
        scores = self.moved.scores
        covariance = np.linalg.pinv(scores.T @ scores + self._prior)
        return float(np.trace(covariance[: self._rank, : self._rank]))

    # ---- Goodness of fit

    def fit(self, population: Population) -> float:
        """Return the p-value of a score test that a population explains the reports.

        The alternatives add vectors of any direction u, of which 100 random ones are tried: their
        scores are s_i(u) = ℓ(v_i|u)/f(v_i) − 1, made orthogonal to the scores of what was fitted.
        The statistic is the squared length of their sum. If the population is the right one, it is
        a sum of squares of normal variables with the covariance of the scores, here a shifted
        multiple of a χ² variable with the same mean, variance and skewness. The covariance
        includes that the public vectors are a sample, too.
        """
        probes = np.random.default_rng(0).standard_normal((_PROBES, self._rank + 1))
        probes /= row_norms(probes, 2)[:, None]
        size = _PROBES + population.scores.shape[1]
        sums, products = np.zeros(size), np.zeros((size, size))
        influence = np.zeros((len(population.directions), size))
        for block in self._blocks(len(population.directions) + _PROBES):
            density = population.density[block, None]
            tried = self._ratios(block, probes) / density - 1
            scores = np.hstack([tried, population.scores[block]])
            sums += scores.sum(axis=0)
            products += scores.T @ scores
            influence += (self._ratios(block, population.directions) / density).T @ scores
        known, cross = products[_PROBES:, _PROBES:], products[_PROBES:, :_PROBES]
        project = np.vstack([np.eye(_PROBES), -np.linalg.pinv(known, hermitian=True) @ cross])
        total = sums @ project
        spread = (influence @ project - total) * population.weights[:, None]
        covariance: Any = project.T @ products @ project + spread.T @ spread
        square = covariance @ covariance
        mean, second, third = (
            float(np.trace(c)) for c in (covariance, square, square @ covariance)
        )
        if not third > 0:
            return 1.0
        freedom = second**3 / third**2
        excess = (float(total @ total) - mean) * math.sqrt(freedom / second)
        return float(chi2.sf(excess + freedom, freedom))


# ---- Shares


def contrasts(size: int) -> Vectors:
    """Return an orthonormal basis (k, k − 1) of differences of shares."""
    basis: Vectors = np.linalg.svd(np.ones((1, size)))[2][1:].T
    return basis


def shrunken_shares(apart: Vectors, information: Vectors, public: Vectors) -> Vectors:
    """Return the posterior mean of shares under the prior N(π₀, τ(diag π₀ − π₀π₀ᵀ)), projected.

    ``apart`` is the unbiased estimate of the difference from π₀ in the basis of
    :func:`contrasts`, with the inverse of ``information`` as its covariance. τ has the largest
    marginal likelihood.

    Examples
    --------
    >>> from offaxis.learning.evidence import contrasts, shrunken_shares
    >>> public, seen = np.array([0.5, 0.5]), np.array([0.7, 0.3])
    >>> apart = contrasts(2).T @ (seen - public)
    >>> shrunken_shares(apart, np.array([[1e6]]), public).round(3)
    array([0.7, 0.3])
    >>> shrunken_shares(apart, np.array([[1.0]]), public)  # noise explains it
    array([0.5, 0.5])
    """
    basis = contrasts(public.size)
    values, vectors = np.linalg.eigh(information)
    # In coordinates in which the noise is I and the prior diagonal.
    root = vectors / np.sqrt(np.maximum(values, max(values[-1], 1e-300) * 1e-12))
    whiten = np.linalg.inv(root)
    prior = basis.T @ (np.diag(public) - np.outer(public, public)) @ basis
    spread, turn = np.linalg.eigh(whiten @ prior @ whiten.T)
    spread = np.maximum(spread, 0.0)
    coordinates = turn.T @ whiten @ apart
    grid = np.append(0.0, np.geomspace(1e-5, 1e2, 141))[:, None]
    variance = 1 + grid * spread
    fit = -(np.log(variance) + coordinates**2 / variance).sum(axis=1)
    tau = float(grid[fit.argmax(), 0])
    mean = root @ turn @ (coordinates * tau * spread / (1 + tau * spread))
    shares: Vectors = projected((public + basis @ mean)[None])[0]
    return shares
