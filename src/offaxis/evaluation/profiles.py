"""Drift profiles: what reports of a release look like if people are like the public vectors.

A publisher computes a profile from public vectors; a collector compares rounds with it
(:mod:`offaxis.collector.drift`). For symbols the profile is exact, for vectors it is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.collector.drift import Expectation, Profile, Traces, What
from offaxis.errors import InvalidInput
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release
from offaxis.simulation import draw_observations
from offaxis.vectors import Vectors, as_batch

__all__ = ["profile_of"]

_DRAWS: Final = 200_000
"""Approximate number of simulated reports: public vectors times draws of each."""

_MOST_PUBLIC: Final = 50_000
_FEWEST_PUBLIC: Final = 50


def profile_of(release: Release, public: Any, seed: int = 0) -> Profile:
    """Return the profile of a release under public vectors (n, m), at least 50.

    Never pass private vectors: a profile is published, and protects nobody.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation.profiles import profile_of
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    >>> profile = profile_of(release, public)
    >>> profile.public, profile.draws, [part.what for part in profile.expectations]
    (100, 2000, ['mean', 'spread'])
    """
    vectors, _ = as_batch(public, release.input_dim)
    if len(vectors) < _FEWEST_PUBLIC:
        raise InvalidInput(
            f"a profile needs at least {_FEWEST_PUBLIC} public vectors, got {len(vectors)}"
        )
    rng = np.random.default_rng(seed)
    if len(vectors) > _MOST_PUBLIC:
        vectors = vectors[rng.choice(len(vectors), _MOST_PUBLIC, replace=False)]
    encoded = release.encoder.encode(vectors)
    if isinstance(release.randomizer, SymbolForm):
        parts: tuple[Expectation, ...] = (_shares(release.randomizer, encoded),)
        return Profile(release.hash, len(vectors), 0, parts)
    draws = max(4, -(-_DRAWS // len(vectors)))
    return Profile(release.hash, len(vectors), draws, _simulated(release, encoded, draws, rng))


def _shares(randomizer: SymbolForm, symbols: NDArray[Any]) -> Expectation:
    """Return the expected shares of named symbols, to compare as in Pearson's χ² test.

    With one named symbol per report the comparison is Pearson's. Two symbols i, j are named
    together with probability c₁ if the true symbol is one of them, and c₂ otherwise, so the
    covariance of the named symbols is a diagonal matrix plus one of rank two.
    """
    k, a, b = randomizer.size, randomizer.own_chance, randomizer.other_chance
    p = np.bincount(randomizer.symbols(symbols), minlength=k) / len(symbols)
    share = b + (a - b) * p
    c1, c2 = randomizer.together
    basis = np.stack([np.ones(k), p], axis=1)
    # The rank-two part in the basis of 1 and p: named together, minus share shareᵀ.
    inner = np.array(
        [
            [c2 - b * b, c1 - c2 - b * (a - b)],
            [c1 - c2 - b * (a - b), -((a - b) ** 2)],
        ]
    )
    diagonal = share - c2 - 2 * (c1 - c2) * p
    report = _Lowrank(diagonal / share, basis / share[:, None], inner, basis)
    error = _Lowrank(
        (a - b) ** 2 * p / len(symbols) / share,
        p[:, None] / share[:, None],
        np.array([[-((a - b) ** 2) / len(symbols)]]),
        p[:, None],
    )
    return Expectation(
        "shares",
        share,
        share,
        Traces(report.trace, report.product_trace(report)),
        Traces(error.trace, error.product_trace(error)),
        report.product_trace(error),
    )


@dataclass(frozen=True, eq=False)
class _Lowrank:
    """The matrix diag(diagonal) + left inner rightᵀ."""

    diagonal: Vectors
    left: Vectors
    inner: Vectors
    right: Vectors

    @property
    def trace(self) -> float:
        return float(self.diagonal.sum() + np.trace(self.inner @ (self.right.T @ self.left)))

    def product_trace(self, other: _Lowrank) -> float:
        """Return the trace of the product, at least 0."""
        total = float(self.diagonal @ other.diagonal)
        for a, b in ((self, other), (other, self)):
            mixed = b.right.T @ (a.diagonal[:, None] * b.left)
            total += float(np.trace(b.inner @ mixed))
        both = self.inner @ (self.right.T @ other.left) @ other.inner @ (other.right.T @ self.left)
        return max(total + float(np.trace(both)), 0.0)


def _simulated(
    release: Release, encoded: NDArray[Any], draws: int, rng: np.random.Generator
) -> tuple[Expectation, Expectation]:
    """Return the expected mean and spread, from several simulated reports of each public vector."""
    # Squares are taken about a first guess of the mean, against cancellation.
    guess = draw_observations(release.randomizer, encoded, rng).mean(axis=0)
    offsets, squares = _Covariances.empty(encoded), _Covariances.empty(encoded)
    for _ in range(draws):
        rows = draw_observations(release.randomizer, encoded, rng) - guess
        offsets.add(rows)
        squares.add(rows * rows)
    offset = offsets.mean(draws)
    return (
        offsets.expectation("mean", guess + offset, draws),
        squares.expectation("spread", squares.mean(draws) - offset * offset, draws),
    )


@dataclass(eq=False)
class _Covariances:
    """Sums over simulated reports: by public vector (n, r), and of products of coordinates."""

    by_vector: Vectors
    products: Vectors

    @classmethod
    def empty(cls, encoded: NDArray[Any]) -> _Covariances:
        count, dim = encoded.shape
        return cls(np.zeros((count, dim)), np.zeros((dim, dim)))

    def add(self, rows: Vectors) -> None:
        self.by_vector += rows
        self.products += rows.T @ rows

    def mean(self, draws: int) -> Vectors:
        mean: Vectors = self.by_vector.mean(axis=0) / draws
        return mean

    def expectation(self, what: What, expected: Vectors, draws: int) -> Expectation:
        count, mean = len(self.by_vector), self.mean(draws)
        report = self.products / (draws * count) - np.outer(mean, mean)
        averages = self.by_vector / draws - mean
        # The averages of public vectors are independent, so their spread gives the profile's error.
        error = averages.T @ averages / (count * (count - 1))
        scale = np.maximum(np.diag(report), np.finfo(float).tiny)
        units = 1 / np.sqrt(scale)
        report, error = (matrix * units * units[:, None] for matrix in (report, error))
        return Expectation(
            what,
            expected,
            scale,
            Traces(float(np.trace(report)), float(np.sum(report * report))),
            Traces(float(np.trace(error)), float(np.sum(error * error))),
            max(float(np.sum(report * error)), 0.0),
        )
