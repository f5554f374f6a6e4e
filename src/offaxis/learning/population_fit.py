"""Which shares of public cells explain the reports, how well, and what do coarse cells hide?

With f_c(v) the likelihood of a report in cell c, the likelihood of the shares m is Σ_i log Σ_c m_c
f_c(v_i). It is maximised without the condition that shares are positive, so the estimate is
unbiased up to its curvature, with the covariance (Σ_i f f ᵀ/(m·f)²)⁻¹ on differences of shares; for
a point estimate it is shrunk towards the public shares
(:func:`~offaxis.learning.evidence.shrunken_shares`).

People may be distributed inside a cell in another way than public vectors. The shares of the parts
of a cell are taken as random around the public ones, with the covariance τ·m_c(diag q − qqᵀ) for
public shares q in the cell. τ is estimated by the likelihood of the parts' scores. It is at least
2/J for a sample of J public vectors, and m_c/J_c in a cell of J_c; it widens every interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy.optimize import nnls
from scipy.special import softmax
from scipy.stats import chi2

from offaxis.learning.evidence import contrasts, shrunken_shares
from offaxis.learning.likelihoods import (
    LEAST_DENSITY,
    Block,
    ReportLikelihoods,
    Support,
)
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release
from offaxis.vectors import Vectors

LARGEST_SPREAD: Final = 0.3
"""The largest τ: a cell's people are in about three of its vectors."""

TOLERATED: Final = 0.005
"""The largest τ that tests of fit let pass."""

FEWEST_TESTED: Final = 25
"""Reports per cell that a test of fit needs: with fewer it rejects too often."""

_ROUNDING: Final = 1e-9
_SUM_TO_ONE: Final = 1e3
_STEPS: Final = 8
_WEAK: Final = 0.1
"""Precision of what no report shows, relative to shares that may be all in one cell."""

_CONVERGED: Final = 1e-5
_SPREADS: Final = 41
_CURVATURE: Final = 0.05
"""The bias of a test of fit by few public vectors, as measured for PrivUnit2 at ε = 6 and 8."""

_SEEN: Final = 1e-6
"""The least information on a direction of parts, per unit of τ, that is not rounding."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Moments of the scores of a release's reports: f_c − 1, for f_c relative to the public law.

    They are the gradient of the log-likelihood at the public shares, which is the same point for
    all populations with one support, so these are compared by them
    (:class:`~offaxis.learning.crowd_answers.Difference`).

    Attributes
    ----------
    release : str
        The hash of the release.
    count : int
        Number of reports.
    mean : (K,) array
    covariance : (K, K) array
        Of the scores of one report.
    """

    release: str
    count: int
    mean: Vectors
    covariance: Vectors

    @property
    def products(self) -> Vectors:
        """The sum of ssᵀ over reports."""
        products: Vectors = (self.count - 1) * self.covariance + self.count * np.outer(
            self.mean, self.mean
        )
        return products


@dataclass(frozen=True, eq=False)
class Fit:
    """Shares of public cells that explain reports.

    Attributes
    ----------
    support : Support
    count : int
        Number of reports.
    shares, unshrunk : (K,) arrays
        Estimated shares of the cells; the first are shrunk towards the public ones and at least
        zero.
    covariance : (K, K) array
        Of the unshrunk shares, for the public vectors of every cell as they are.
    within : (P, P) array
        The covariance of the shares of parts, other than through those of the cells.
    carried : (P, K) array
        How deviations of the shares of parts move the estimated shares of cells.
    spread, least_spread : float
        τ, and what it is at least with a probability of 95 %.
    p_value : float
        Of the hypothesis that people are among the public vectors, in any shares of parts that are
        not negative; NaN if the reports cannot show it, or are too few for the test.
    scores : tuple of Scores
        One for each release.
    """

    support: Support
    count: int
    shares: Vectors
    unshrunk: Vectors
    covariance: Vectors
    within: Vectors
    carried: Vectors
    spread: float
    least_spread: float
    p_value: float
    scores: tuple[Scores, ...]

    def with_reports(self, count: int) -> Fit:
        """Return what the fit would be expected to be with so many reports."""
        basis = contrasts(len(self.shares))
        weak = _WEAK * _precision(self.support.shares)
        values, axes = np.linalg.eigh(np.linalg.inv(basis.T @ self.covariance @ basis) - weak)
        values[values < _ROUNDING * values[-1]] = 0.0
        seen = axes * values @ axes.T
        inverse = np.linalg.inv(seen * (count / self.count) + weak)
        return replace(self, count=count, covariance=basis @ inverse @ basis.T)

    def variance(self, means: Vectors, squares: Vectors) -> Vectors:
        """Return the variances of Σ_j w_j f(z_j), (p,), for f with these means in parts.

        ``squares`` are the variances of f in parts, (P, p).
        """
        inner = self.support.spread.T @ means
        noise = np.einsum("cp,cd,dp->p", inner, self.covariance, inner)
        seen = means - self.carried @ inner
        hidden = np.einsum("ap,ab,bp->p", seen, self.within, seen)
        weights = _spreads(self.support, self.shares, self.spread) * self.shares
        leaf = (self.support.spread @ weights) @ squares
        variance: Vectors = np.maximum(noise, 0) + np.maximum(hidden, 0) + leaf
        return variance


def fit_shares(likelihoods: ReportLikelihoods) -> Fit:
    """Return the shares of cells of largest likelihood.

    They are searched for with a wide prior, that of shares which may be all in one cell. A single
    step of Newton's method with a tenth of it follows: directions that reports do not show cannot
    hold up the others, and get an error larger than what is possible.
    """
    support, basis = likelihoods.support, contrasts(len(likelihoods.support.shares))
    public = shares = support.shares
    prior = _precision(public)
    at_public = scores_of(likelihoods)
    scores = _added(part.count * part.mean for part in at_public)
    products = _added(part.products for part in at_public)

    def step_of(prior: Vectors) -> Vectors:
        gradient = basis.T @ scores - prior @ (basis.T @ (shares - public))
        step: Vectors = basis @ np.linalg.solve(basis.T @ products @ basis + prior, gradient)
        return step

    for _ in range(_STEPS):
        step = step_of(prior)
        kept = scores, products
        for _ in range(6):
            positive, scores, products = _cell_sums(likelihoods, shares + step)
            if positive:
                break
            step = step / 2
        else:
            scores, products = kept  # no density further on
            break
        shares = shares + step
        if np.abs(step).max() < _CONVERGED:
            break
    weak = _WEAK * prior
    unshrunk = shares + step_of(weak)
    information = basis.T @ products @ basis + weak
    shrunk = shrunken_shares(basis.T @ (unshrunk - public), information, public)
    covariance = basis @ np.linalg.inv(information) @ basis.T
    return _with_parts(likelihoods, unshrunk, shrunk, covariance, at_public)


def scores_of(likelihoods: ReportLikelihoods) -> tuple[Scores, ...]:
    """Return the moments of the scores of reports, for each release."""
    found = []
    for sample in likelihoods.samples:
        _, total, products = _cell_sums(likelihoods, likelihoods.support.shares, sample.release)
        mean = total / sample.count
        # Of a single report nothing is known but its score.
        covariance = (products - np.outer(total, mean)) / max(sample.count - 1, 1)
        found.append(Scores(sample.release.hash, sample.count, mean, covariance))
    return tuple(found)


def _added(parts: Iterable[Vectors]) -> Vectors:
    total: Vectors = np.sum(list(parts), axis=0, dtype=np.float64)
    return total


def _precision(public: Vectors) -> Vectors:
    """Return the inverse of diag π − ππᵀ on differences of shares, (K − 1, K − 1)."""
    basis = contrasts(len(public))
    precision: Vectors = basis.T @ (basis / public[:, None])
    return precision


def _cell_sums(
    likelihoods: ReportLikelihoods, shares: Vectors, release: Release | None = None
) -> tuple[bool, Vectors, Vectors]:
    """Return whether every density is large enough, and Σ s and Σ ssᵀ, s = f/(m·f) − 1.

    Over all reports, or over those of a release.
    """
    turn, weights = likelihoods.support.spread.astype(np.float32), shares.astype(np.float32)

    def terms(block: Block) -> tuple[Any, ...]:
        cells = block[:, : len(turn)] @ turn
        density = cells @ weights
        cells /= np.maximum(density, LEAST_DENSITY)[:, None]
        cells -= 1  # differences of shares lose no digits where all likelihoods are alike
        small = np.count_nonzero(density <= LEAST_DENSITY)
        exact = cells.astype(np.float64)  # what no report shows must not look known by rounding
        return small, exact.sum(axis=0), exact.T @ exact

    small, scores, products = likelihoods.sums(terms, release)
    return not small, scores, products


def _with_parts(
    likelihoods: ReportLikelihoods,
    unshrunk: Vectors,
    shrunk: Vectors,
    covariance: Vectors,
    at_public: tuple[Scores, ...],
) -> Fit:
    support, n = likelihoods.support, likelihoods.count
    size = len(support.cells)
    weights = (support.spread @ unshrunk).astype(np.float32)

    def terms(block: Block) -> tuple[Any, ...]:
        ratio = block / np.maximum(block[:, :size] @ weights, LEAST_DENSITY)[:, None]
        ratio -= 1
        return ratio.sum(axis=0, dtype=np.float64), ratio.T @ ratio

    scores, products = likelihoods.sums(terms)
    parts, spread = products[:size, :size], support.spread
    cross = parts @ spread
    carried = cross @ covariance
    left = scores[:size] - carried @ (spread.T @ scores[:size])
    information = parts - carried @ cross.T
    within = _within(support, shrunk)
    apart = _apart(support.shares, unshrunk, covariance)
    tau, least = _spread(left, information, within, len(support.vectors), apart)
    tolerated = _spreads(support, shrunk, min(tau, TOLERATED))[support.cells] * within
    missing = _p_value(likelihoods, unshrunk, tolerated, scores, products)
    negative = _negative(unshrunk, covariance + carried.T @ tolerated @ carried)
    largest = _spreads(support, shrunk, TOLERATED)[support.cells] * within
    unlike = _unlike(left, information, largest)
    # Three times the smallest one is the p-value of all tests together.
    smallest = 3 * min(missing, negative, unlike)
    tested = missing == missing and n >= FEWEST_TESTED * len(shrunk)
    p_value = min(1.0, smallest) if tested else math.nan
    within *= _spreads(support, shrunk, tau)[support.cells]
    shares = (shrunk, unshrunk)
    return Fit(support, n, *shares, covariance, within, carried, tau, least, p_value, at_public)


def _spreads(support: Support, shares: Vectors, spread: float) -> Vectors:
    """Return τ for every cell, (K,): at least what the sampling of its public vectors adds.

    The J_c public vectors of a cell have the covariance (diag q − qqᵀ)/J_c around their law. With
    the weight m_c of the cell, that is τ = m_c/J_c, which is more than 1/J for a cell that is more
    frequent among people than in public.
    """
    found: Vectors = np.maximum(spread, shares / (support.shares * len(support.vectors)))
    return found


def _negative(shares: Vectors, covariance: Vectors) -> float:
    """Return a p-value, at least the right one, of the hypothesis that no share is negative.

    Reports of people unlike all public vectors may look like those of public vectors with positive
    and negative weights. The statistic is the squared distance from the estimate to shares that are
    not negative. Its law is a mixture of χ² laws with less than K degrees of freedom.
    """
    basis = contrasts(len(shares))
    root = np.linalg.cholesky(np.linalg.inv(basis.T @ covariance @ basis)).T @ basis.T
    heavy = _SUM_TO_ONE * float(np.abs(root).max())
    rows = np.vstack([root, np.full(len(shares), heavy)])
    nearest, _ = nnls(rows, np.append(root @ shares, heavy))
    distance = root @ (nearest - shares)
    return float(chi2.sf(distance @ distance, len(shares) - 1))


def _within(support: Support, shares: Vectors) -> Vectors:
    """Return the block-diagonal matrix of m_c(diag q − qqᵀ), (P, P)."""
    q, same = support.spread.sum(axis=1), support.cells[:, None] == support.cells
    own = shares[support.cells]
    within: Vectors = np.diag(own * q) - same * own * np.outer(q, q)
    return within


def _apart(public: Vectors, shares: Vectors, covariance: Vectors) -> float:
    """Return by how much shares of cells differ from the public ones, in the units of τ.

    The moment estimate of t for shares with the covariance t(diag π − ππᵀ) around the public π.
    """
    squares = (np.square(shares - public) - np.diag(covariance)) / public
    return float(squares.sum()) / (len(public) - 1)


def _spread(
    scores: Vectors, information: Vectors, within: Vectors, vectors: int, apart: float
) -> tuple[float, float]:
    """Return the posterior geometric mean of τ, and its lower 5 % quantile.

    Before the reports, log τ is uniform from 2/J to its largest value.

    The least is what two samples of J vectors of the same law differ by.

    With LLᵀ the covariance of deviations and UΛUᵀ = Lᵀ I L, the scores UᵀLᵀs are independent, with
    the variances λ + τλ². Where reports cannot tell the vectors of a cell apart, as in those of
    symbols, people are taken to differ from the public vectors inside cells by no more than the
    cells' shares do: the prior ends at ``apart``, and its geometric mean is returned.
    """
    values, vecs = np.linalg.eigh(within)
    kept = values > max(values[-1], 0.0) * 1e-9
    least = min(2 / vectors, LARGEST_SPREAD)
    if not kept.any():
        return math.sqrt(least * min(max(apart, least), LARGEST_SPREAD)), least
    root = vecs[:, kept] * np.sqrt(values[kept])
    weights, turn = np.linalg.eigh(root.T @ information @ root)
    turned = turn.T @ (root.T @ scores)
    seen = weights > _SEEN
    weights, turned = weights[seen], turned[seen]
    grid = np.geomspace(least, LARGEST_SPREAD, _SPREADS)
    gain = np.multiply.outer(grid, weights)
    squares = np.square(turned) / weights
    fits = -0.5 * (np.log1p(gain) + squares / (1 + gain)).sum(axis=1)
    chances = softmax(fits)
    low = grid[np.searchsorted(np.cumsum(chances), 0.05)]
    return float(np.exp(chances @ np.log(grid))), float(low)


def _unlike(scores: Vectors, information: Vectors, within: Vectors) -> float:
    """Return the p-value of the hypothesis that people deviate inside cells by this at most.

    With LLᵀ the tolerated covariance and UMUᵀ = Lᵀ I L, the scores UᵀLᵀs are independent, with the
    variances μ + μ². The statistic is locally most powerful against larger multiples of it.
    """
    values, vecs = np.linalg.eigh(within)
    root = vecs * np.sqrt(np.maximum(values, 0.0))
    weights, turn = np.linalg.eigh(root.T @ information @ root)
    seen = weights > _SEEN
    weights, turned = weights[seen], (turn.T @ (root.T @ scores))[seen]
    if not weights.size:
        return 1.0
    weights = weights / (1 + weights)
    return _tail(float(np.square(turned * (1 - weights)).sum()), *_powers(weights))


def _powers(weights: Vectors) -> tuple[float, float, float]:
    """Return the sums of the weights, of their squares and of their cubes."""
    return float(weights.sum()), float((weights**2).sum()), float((weights**3).sum())


def _tail(statistic: float, first: float, second: float, third: float) -> float:
    """Return Pr[Σ a_i Z_i² >= statistic] for Σa, Σa² and Σa³, by a shifted multiple of a χ²."""
    freedom = second**3 / third**2
    excess = (statistic - first) * math.sqrt(freedom / second)
    return float(chi2.sf(excess + freedom, freedom))


def _p_value(
    likelihoods: ReportLikelihoods,
    shares: Vectors,
    within: Vectors,
    scores: Vectors,
    products: Vectors,
) -> float:
    """Return the p-value of a score test for vectors that no cell provides.

    Probes are vectors of any direction. Their scores are made orthogonal to those of the cells, and
    the statistic is the squared length of their sum: a sum of squares of normal variables, here a
    shifted multiple of a χ² variable with the same mean, variance and skewness. The covariance
    includes that the public vectors of a cell are a sample, and that its people may be distributed
    differently, by ``within``. The sample enters beyond first order where few public vectors are
    near a report, at large ε: with a relative variance r of the density, scores have a bias of the
    order of r, whose square is n·r² times the covariance of noise.
    """
    if all(isinstance(part.release.randomizer, SymbolForm) for part in likelihoods.samples):
        return math.nan  # a symbol has no likelihood but those of the vectors that it stands for
    support = likelihoods.support
    size = len(support.cells)
    spread = np.zeros((len(scores), len(support.shares)))
    spread[:size] = support.spread
    cross = products @ spread
    basis = contrasts(len(support.shares))
    weak = _WEAK * _precision(support.shares)
    own = basis @ np.linalg.inv(basis.T @ spread.T @ cross @ basis + weak) @ basis.T
    project = support.spread @ own @ cross[size:].T
    total = scores[size:] - scores[:size] @ project
    covariance = products[size:, size:] - cross[size:] @ own @ cross[size:].T
    if not np.trace(covariance) > 1e-9 * max(np.trace(products), 1e-300):
        return math.nan
    moved = products[size:, :size] - cross[size:] @ own @ cross[:size].T
    influence, rough = likelihoods.influence(shares, project)
    covariance = covariance + influence.T @ influence + moved @ within @ moved.T
    covariance *= 1 + _CURVATURE * likelihoods.count * rough**2
    square = covariance @ covariance
    first, second, third = (float(np.trace(c)) for c in (covariance, square, square @ covariance))
    return _tail(float(total @ total), first, second, third)
