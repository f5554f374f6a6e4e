"""Tasks: what does a plan simulate? Answers of public vectors, reports about them, and models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from offaxis.decoding import CellsDecoder, MomentsDecoder
from offaxis.decoding.shares import Shares
from offaxis.encoding.pairs import MomentsEncoder, Number, simplex
from offaxis.learning.moments import Moments, posterior_mean, variance_of_code
from offaxis.learning.sums import pair_encoder_of
from offaxis.learning.tables import Table
from offaxis.randomizers import PrivUnit2
from offaxis.randomizers.symbols import SetForm, SymbolForm
from offaxis.release import Release
from offaxis.vectors import Vectors

if TYPE_CHECKING:
    from offaxis.learning.plan import Plan


class Task:
    """Answers of public vectors, from which a model is learnt in simulation."""

    guess: float
    best: float

    def learnt(self, release: Release, people: int, rng: np.random.Generator) -> float:
        """Return the accuracy of a model from simulated people."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ClassTask(Task):
    """Answers that are classes, with the chances (N, k) of public vectors with features (N, d)."""

    plan: Plan
    x: Vectors
    chances: Vectors

    @property
    def guess(self) -> float:  # type: ignore[override]
        """The accuracy of the most common answer."""
        return float(self.chances.mean(axis=0).max())

    @cached_property
    def best(self) -> float:  # type: ignore[override]
        """The accuracy, or R², of a model without privacy."""
        if self.plan.features.kind == "cells":
            return self._right(self._table.argmax(axis=1)[self.x.argmax(axis=1)])
        scores = self._scores(self.plan.release, self._cross(self.chances), 0.0)
        return self._right(scores.argmax(axis=1))

    def _cross(self, chances: Vectors) -> Vectors:
        moments: Vectors = self._corners.T @ (chances.T @ self.x) / len(self.x)
        return moments

    @cached_property
    def _corners(self) -> Vectors:
        return simplex(self.chances.shape[1])

    @cached_property
    def _table(self) -> Vectors:
        """The shares of cells by classes."""
        member = np.eye(self.plan.features.size)[self.x.argmax(axis=1)]
        table: Vectors = member.T @ self.chances / len(self.x)
        return table

    def _right(self, answers: NDArray[np.int64]) -> float:
        return float(self.chances[np.arange(len(self.x)), answers].mean())

    def learnt(self, release: Release, people: int, rng: np.random.Generator) -> float:
        """Return the accuracy of a model from simulated people."""
        if self.plan.features.kind == "cells":
            named = self._learnt_table(release, people, rng).argmax(axis=1)
            return self._right(named[self.x.argmax(axis=1)])
        shares, cross = self.chances.mean(axis=0), self._cross(self.chances)
        if not self.plan.private_labels:  # these people have other shares of the classes
            drawn_shares = rng.multinomial(people, shares / shares.sum()) / people
            cross = self._cross(self.chances * (drawn_shares / np.maximum(shares, 1e-300)))
            shares = drawn_shares
        noise = _noise(release, cross, self.plan.private_labels) / people
        drawn = cross + math.sqrt(noise) * rng.standard_normal(cross.shape)
        return self._right(self._scores(release, drawn, noise, shares, people).argmax(axis=1))

    def _scores(
        self,
        release: Release,
        cross: Vectors,
        noise: float,
        shares: Vectors | None = None,
        people: float = math.inf,
    ) -> Vectors:
        """Return the outputs of the model; its shares of classes are those of so many people."""
        decoder = release.decoder
        assert isinstance(decoder, MomentsDecoder)
        level, variance = Moments.unknown_level(decoder, self._corners.shape[1]), 0.0
        if not self.plan.private_labels:
            shares = self.chances.mean(axis=0) if shares is None else shares
            level = shares @ self._corners
            variance = variance_of_code(len(shares)) / people
        second, mean = decoder.second, decoder.mean
        found = posterior_mean(cross, second, mean, max(noise, 1e-12), level, variance)
        scores: Vectors = (self.x @ found.slopes.T + found.offset) @ self._corners.T
        return scores

    def _learnt_table(self, release: Release, people: int, rng: np.random.Generator) -> Vectors:
        """Draw the reports of people, by the normal law, and return the estimated table."""
        randomizer, decoder = release.randomizer, release.decoder
        assert isinstance(randomizer, SymbolForm)
        assert isinstance(decoder, CellsDecoder)
        names = tuple(map(str, range(randomizer.size)))
        cells, k = self._table.shape
        if self.plan.private_labels:
            shape = (cells, *getattr(pair_encoder_of(release), "values", (k,)))
            others = np.full(shape[2:], 1 / math.prod(shape[2:]))
            full = np.zeros(shape[:2])
            full[:, :k] = self._table
            shares = np.multiply.outer(full, others).ravel()
            digits = np.unravel_index(np.arange(len(shares)), shape)
            entries = np.where(digits[1] < k, digits[0] * k + digits[1], -1)
            parts: list[tuple[int | None, float, Shares]]
            parts = [(None, 1.0, _draw_shares(shares, people, randomizer, names, rng))]
            table = Table([parts], np.array([people]), decoder.shares, k, entries)
        else:
            by_label = self._table.sum(axis=0)
            counts = rng.multinomial(people, by_label / by_label.sum())
            drawn: list[tuple[int | None, float, Shares]] = []
            for label in np.flatnonzero(counts):
                own = self._table[:, label] / by_label[label]
                part = _draw_shares(own, counts[label], randomizer, names, rng)
                drawn.append((int(label), counts[label] / people, part))
            table = Table([drawn], np.array([people]), decoder.shares, k, np.arange(cells))
        return table.probabilities()


def _draw_shares(
    shares: Vectors,
    people: int,
    randomizer: SymbolForm,
    names: tuple[str, ...],
    rng: np.random.Generator,
) -> Shares:
    low, high = randomizer.levels
    chance = (shares - low) / (high - low)
    width = np.sqrt(np.maximum(people * chance * (1 - chance), 0))
    drawn = people * chance + width * rng.standard_normal(len(shares))
    assert isinstance(randomizer, SetForm)
    # The counts of all symbols add up to those that the reports name.
    total = people * randomizer.named
    drawn = np.clip(drawn + (total - drawn.sum()) / len(drawn), 0, people)
    counts = np.floor(drawn * min(1.0, total / drawn.sum())).astype(np.int64)
    while (missing := total - int(counts.sum())) > 0:
        room = np.flatnonzero(counts < people)
        counts[rng.permutation(room)[:missing]] += 1
    return Shares(counts, randomizer, names)


@dataclass(frozen=True, eq=False)
class NumberTask(Task):
    """Answers that are numbers, −1 to 1, with their means (N,) and the deviation about them."""

    plan: Plan
    x: Vectors
    means: Vectors
    spread: float

    guess = 0.0

    @classmethod
    def draw(cls, plan: Plan, x: Vectors, rng: np.random.Generator) -> NumberTask:
        """Draw a linear function whose answers have the deviation that the plan assumes."""
        assert isinstance(plan.asked, Number)
        if plan.related is not None:
            return cls(plan, x, plan.asked.scaled(plan.related[:: plan.step]), 0.0)
        line = (x - x.mean(axis=0)) @ rng.standard_normal(x.shape[1])
        total = (2 * plan.deviation / (plan.asked.high - plan.asked.low)) ** 2
        explained = plan.signal * total
        line *= math.sqrt(explained / max(float(line.var()), 1e-300))
        return cls(plan, x, line, math.sqrt(total - explained))

    @property
    def best(self) -> float:  # type: ignore[override]
        """The accuracy, or R², of a model without privacy."""
        return self._explained(self.x.T @ self.means / len(self.x), 1e-12, self.plan.release)

    def learnt(self, release: Release, people: int, rng: np.random.Generator) -> float:
        """Return R² of a model from simulated people."""
        cross = self.x.T @ self.means / len(self.x)
        noise = _noise(release, cross[None], self.plan.private_labels) / people
        drawn = cross + math.sqrt(noise) * rng.standard_normal(len(cross))
        return self._explained(drawn, noise, release)

    def _explained(self, cross: Vectors, noise: float, release: Release) -> float:
        decoder = release.decoder
        assert isinstance(decoder, MomentsDecoder)
        level = Moments.unknown_level(decoder, 1)
        found = posterior_mean(cross[None], decoder.second, decoder.mean, noise, level)
        predicted = self.x @ found.slopes[0] + found.offset[0]
        total = float(self.means.var()) + self.spread**2
        missed = float(((predicted - self.means) ** 2).mean()) + self.spread**2
        return 1 - missed / max(total, 1e-300)


def _noise(release: Release, cross: Vectors, private_labels: bool) -> float:
    """Return s² of a report, per coordinate of the moments of one answer."""
    randomizer, encoder = release.randomizer, pair_encoder_of(release)
    assert isinstance(randomizer, PrivUnit2)
    assert isinstance(encoder, MomentsEncoder)
    length = (randomizer.radius / randomizer.mean) ** 2
    if private_labels:
        noise = length * max(1, len(encoder.widths)) / randomizer.dim
    else:
        noise = length / randomizer.dim / len(cross)
    return max(noise - float((cross * cross).mean()), 1e-12)


def random_directions(count: int, dim: int, rng: np.random.Generator) -> Vectors:
    """Return random rows, orthonormal if there are no more than dimensions."""
    drawn = rng.standard_normal((max(count, dim), min(count, dim)))
    rows = np.linalg.qr(drawn)[0]
    return rows if count > dim else rows.T


def strength(logits: Vectors, signal: float) -> float:
    """Return the factor with which the best guesses are right as often as assumed."""
    low, high = 0.0, 1.0
    while softmax(high * logits, axis=1).max(axis=1).mean() < signal and high < 1e6:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        right = softmax(middle * logits, axis=1).max(axis=1).mean()
        low, high = (middle, high) if right < signal else (low, middle)
    return high
