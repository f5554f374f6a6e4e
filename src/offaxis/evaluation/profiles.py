"""Drift profiles: what reports of a release would look like if people were like the public vectors.

A publisher makes them of public vectors; a collector compares rounds with them
(collector/drift.py). Symbols follow the exact law, vectors a simulation.
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
"""Simulated reports, about: public vectors times draws of each."""


_MOST_PUBLIC: Final = 50_000


_FEWEST_PUBLIC: Final = 50


def profile_of(release: Release, public: Any, seed: int = 0) -> Profile:
    """Return the profile of a release under public vectors (n, m), at least 50.

    Nothing private may be given: a profile is published, and protects nobody.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation.profiles import profile_of
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none")
    >>> profile = profile_of(release, public)
    >>> profile.public, profile.draws, [one.what for one in profile.expectations]
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
    """Compare shares of named symbols, Pearson's way; for one named symbol that is Pearson's χ².

    Two symbols i, j are named together with probability c₁ if the own symbol is one of them, and c₂
    otherwise, so the covariance of what is named is a diagonal and a matrix of rank two.
    """
    k, d, a = randomizer.size, randomizer.named, randomizer.own_chance
    b = (d - a) / (k - 1)
    p = np.bincount(randomizer.symbols(symbols), minlength=k) / len(symbols)
    share = b + (a - b) * p
    one = a * (d - 1) / (k - 1)
    two = (a * (d - 1) * (d - 2) + (1 - a) * d * (d - 1)) / max((k - 1) * (k - 2), 1)
    basis = np.stack([np.ones(k), p], axis=1)
    # share shareᵀ in the basis of 1 and p, taken off what is named together.
    inner = np.array(
        [
            [two - b * b, one - two - b * (a - b)],
            [one - two - b * (a - b), -((a - b) ** 2)],
        ]
    )
    apart = share - two - 2 * (one - two) * p
    report = _Lowrank(apart / share, basis / share[:, None], inner, basis)
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
        Traces(report.trace, report.crossed(report)),
        Traces(error.trace, error.crossed(error)),
        report.crossed(error),
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

    def crossed(self, other: _Lowrank) -> float:
        """Return the trace of the product."""
        apart = float(self.diagonal @ other.diagonal)
        for one, two in ((self, other), (other, self)):
            mixed = two.right.T @ (one.diagonal[:, None] * two.left)
            apart += float(np.trace(two.inner @ mixed))
        both = self.inner @ (self.right.T @ other.left) @ other.inner @ (other.right.T @ self.left)
        return max(apart + float(np.trace(both)), 0.0)


def _simulated(
    release: Release, encoded: NDArray[Any], draws: int, rng: np.random.Generator
) -> tuple[Expectation, Expectation]:
    """Simulate several reports of each public vector, and compare mean and spread."""
    # Squares are taken about a first guess of the mean, so that nothing cancels.
    guess = draw_observations(release.randomizer, encoded, rng).mean(axis=0)
    away, squares = _Covariances.empty(encoded), _Covariances.empty(encoded)
    for _ in range(draws):
        rows = draw_observations(release.randomizer, encoded, rng) - guess
        away.add(rows)
        squares.add(rows * rows)
    off = away.mean(draws)
    return (
        away.expectation("mean", guess + off, draws),
        squares.expectation("spread", squares.mean(draws) - off * off, draws),
    )


@dataclass(eq=False)
class _Covariances:
    """Sums of simulated rows: of each public vector, and of all products of coordinates."""

    own: Vectors
    products: Vectors

    @classmethod
    def empty(cls, encoded: NDArray[Any]) -> _Covariances:
        count, dim = encoded.shape
        return cls(np.zeros((count, dim)), np.zeros((dim, dim)))

    def add(self, rows: Vectors) -> None:
        self.own += rows
        self.products += rows.T @ rows

    def mean(self, draws: int) -> Vectors:
        mean: Vectors = self.own.mean(axis=0) / draws
        return mean

    def expectation(self, what: What, expected: Vectors, draws: int) -> Expectation:
        count, mean = len(self.own), self.mean(draws)
        report = self.products / (draws * count) - np.outer(mean, mean)
        averages = self.own / draws - mean
        # Averages of public vectors are independent, so their spread is the profile's error.
        error = averages.T @ averages / (count * (count - 1))
        scale = np.maximum(np.diag(report), np.finfo(float).tiny)
        units = 1 / np.sqrt(scale)
        one, other = (matrix * units * units[:, None] for matrix in (report, error))
        return Expectation(
            what,
            expected,
            scale,
            Traces(float(np.trace(one)), float(np.sum(one * one))),
            Traces(float(np.trace(other)), float(np.sum(other * other))),
            max(float(np.sum(one * other)), 0.0),
        )
