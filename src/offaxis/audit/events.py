"""Events: sets of reports that speak for one of two vectors, chosen on some, counted on others.

An event is "the statistic is at least this" (which speaks for the first vector) or "at most this"
(for the second). It is chosen on reports that are never counted, so choosing costs no confidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.audit.bounds import (
    difference,
    epsilon_below,
    resolution,
    same_proportion,
    shift_below,
)

Scores = NDArray[np.float64]
"""One number a report; NaN where the statistic does not apply, which is not counted at all."""

Aim = Literal["epsilon", "shift", "difference"]
"""What an event is chosen for: the largest bound on ε, on the distance of two normal laws, or the
clearest difference of any kind."""

Worth = Callable[..., Any]
"""From hits and trials of both vectors to the worth of an event."""

_RANKS: Final = 400
"""Candidate thresholds a vector: order statistics, dense in both tails."""

_CURVE: Final = 120


@dataclass(frozen=True)
class Event:
    """A threshold on a statistic, and the vector that reports beyond it speak for."""

    threshold: float
    speaks_for_first: bool

    def hits(self, scores: Scores) -> int:
        """Return how many scores lie in the event."""
        beyond = scores >= self.threshold if self.speaks_for_first else scores <= self.threshold
        return int(np.count_nonzero(beyond))


@dataclass(frozen=True)
class Count:
    """An event counted on fresh reports: of the vector it speaks for, and of the other."""

    event: Event
    hits: int
    trials: int
    other_hits: int
    other_trials: int

    def epsilon(self, delta: float, alpha: float) -> float:
        """Return a lower bound on ε, wrong with probability at most ``alpha``; at least 0."""
        if not self.trials or not self.other_trials:
            return 0.0
        counts = (self.hits, self.trials, self.other_hits, self.other_trials)
        return max(0.0, float(epsilon_below(*counts, delta=delta, alpha=alpha)))

    def shift(self, alpha: float) -> float:
        """Return a lower bound on the distance of two normal laws, at least 0."""
        if not self.trials or not self.other_trials:
            return 0.0
        counts = (self.hits, self.trials, self.other_hits, self.other_trials)
        return max(0.0, float(shift_below(*counts, alpha=alpha)))

    def resolution(self, delta: float, alpha: float) -> float:
        """Return the largest bound that so many reports can show."""
        trials = min(self.trials, self.other_trials)
        return max(0.0, resolution(trials, delta=delta, alpha=alpha)) if trials else 0.0

    def p_value(self) -> float:
        """Return the p-value of "the event is no more frequent for its vector"."""
        if not self.trials or not self.other_trials:
            return 1.0
        return same_proportion(self.hits, self.trials, self.other_hits, self.other_trials)


def _tallies(values: Scores, thresholds: Scores) -> NDArray[np.int64]:
    """Return how many of the sorted values are at least each threshold."""
    return len(values) - np.searchsorted(values, thresholds, side="left")


def _candidates(first: Scores, second: Scores, ranks: int) -> Scores:
    """Return thresholds at order statistics of both sorted samples, dense in both tails."""
    picked = []
    for values in (first, second):
        if values.size:
            places = np.unique(np.geomspace(1, values.size, ranks).astype(np.int64))
            picked += [values[places - 1], values[-places]]
    return np.unique(np.concatenate(picked)) if picked else np.zeros(1)


def _threshold(first: Scores, second: Scores, worth: Worth) -> float:
    """Return the c whose event {score >= c} is worth most on these very reports."""
    tried = _candidates(first, second, _RANKS)
    counts = (_tallies(first, tried), first.size, _tallies(second, tried), second.size)
    return float(tried[int(np.argmax(worth(*counts)))])


def choose(
    first: Scores, second: Scores, aim: Aim, *, delta: float, alpha: float
) -> tuple[Event, Event]:
    """Return the most telling event for each of the two vectors, given scores of both."""
    worths: dict[Aim, Worth] = {
        "epsilon": partial(epsilon_below, delta=delta, alpha=alpha),
        "shift": partial(shift_below, alpha=alpha),
        "difference": difference,
    }
    a, b = (np.sort(scores[~np.isnan(scores)]) for scores in (first, second))
    above = _threshold(a, b, worths[aim])
    below = -_threshold(-b[::-1], -a[::-1], worths[aim])
    return Event(above, True), Event(below, False)


def curve(first: Scores, second: Scores) -> tuple[tuple[float, float], ...]:
    """Return points (share of second, share of first) of the events {score >= c}, ascending."""
    a, b = (np.sort(scores[~np.isnan(scores)]) for scores in (first, second))
    thresholds = _candidates(a, b, _CURVE)[::-1]
    shares = _tallies(b, thresholds) / max(1, b.size), _tallies(a, thresholds) / max(1, a.size)
    return tuple((float(x), float(y)) for x, y in zip(*shares, strict=True))
