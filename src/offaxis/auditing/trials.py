"""The statistics of an audit: exact bounds from counts, events, and trials on two vectors.

Contract: every bound and p-value here is exact for independent reports of any law. No normal or χ²
approximation is made, so a stated false-alarm rate holds at every sample size.

If an event happens with probability p on reports of one vector and q on reports of another, a
release that keeps (ε, δ) has p <= e^ε q + δ. With p_lo <= p and q_hi >= q, each wrong with
probability at most α/2 (Clopper and Pearson 1934), ε is at least ln((p_lo − δ)/q_hi) with
probability 1 − α.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv, ndtri
from scipy.stats import hypergeom

Levels = NDArray[np.float64]


# ---- Bounds from counts


def proportion_below(hits: Any, trials: Any, alpha: float) -> Levels:
    """Return p_lo with Pr[p_lo > p] <= alpha for every p (one-sided Clopper–Pearson)."""
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    low: Levels = np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1), n - k + 1, alpha))
    return low


def proportion_above(hits: Any, trials: Any, alpha: float) -> Levels:
    """Return p_hi with Pr[p_hi < p] <= alpha for every p (one-sided Clopper–Pearson)."""
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    high: Levels = np.where(k == n, 1.0, betainccinv(k + 1, np.maximum(n - k, 1), alpha))
    return high


def epsilon_below(
    hits: Any, trials: Any, other_hits: Any, other_trials: Any, *, delta: float, alpha: float
) -> Levels:
    """Return a lower bound on ε that is wrong with probability at most ``alpha``.

    Parameters
    ----------
    hits, trials
        Counts of the event on reports of the vector that it indicates.
    other_hits, other_trials
        Counts of the event on reports of the other vector.
    delta : float
        The promised δ.

    Returns
    -------
    array
        May be negative; −∞ if δ alone explains the event.
    """
    excess = proportion_below(hits, trials, alpha / 2) - delta
    other = proportion_above(other_hits, other_trials, alpha / 2)
    bound: Levels = np.where(
        excess > 0, np.log(np.maximum(excess, 1e-300)) - np.log(other), -math.inf
    )
    return bound


def shift_below(
    hits: Any, trials: Any, other_hits: Any, other_trials: Any, *, alpha: float
) -> Levels:
    """Return a lower bound on the distance between two normal laws, in standard deviations.

    If a statistic follows N(h, 1) on reports of one vector and N(0, 1) on those of the other, then
    any event has Φ⁻¹(p) − Φ⁻¹(q) <= h. Gaussian noise guarantees this for every statistic. The
    bound is wrong with probability at most ``alpha``.
    """
    low = ndtri(proportion_below(hits, trials, alpha / 2))
    high = ndtri(proportion_above(other_hits, other_trials, alpha / 2))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(low - high, nan=-math.inf, neginf=-math.inf))


def difference(hits: Any, trials: Any, other_hits: Any, other_trials: Any) -> Levels:
    """Return how much more frequent the event is than for the other vector, in standard errors.

    Only for choosing events; p-values come from :func:`same_proportion`.
    """
    p, q = np.asarray(hits) / max(1, trials), np.asarray(other_hits) / max(1, other_trials)
    both = (np.asarray(hits) + other_hits) / max(1, trials + other_trials)
    error = np.sqrt(both * (1 - both) * (1 / max(1, trials) + 1 / max(1, other_trials)))
    gap: Levels = (p - q) / np.maximum(error, 1e-300)
    return gap


def resolution(trials: int, *, delta: float, alpha: float) -> float:
    """Return the largest bound that ``trials`` reports per vector can show: all against none."""
    return float(epsilon_below(trials, trials, 0, trials, delta=delta, alpha=alpha))


def trials_needed(epsilon: float, *, delta: float, alpha: float) -> int | None:
    """Return the fewest reports per vector whose resolution exceeds ε; None beyond 2**62."""
    if resolution(1 << 62, delta=delta, alpha=alpha) <= epsilon:
        return None
    low, high = 0, 1
    while resolution(high, delta=delta, alpha=alpha) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if resolution(middle, delta=delta, alpha=alpha) <= epsilon:
            low = middle
        else:
            high = middle
    return high


def same_proportion(hits: int, trials: int, other_hits: int, other_trials: int) -> float:
    """Return the one-sided p-value of "the event is not more frequent than for the other" (Fisher).

    It is exact, given the total of hits.
    """
    return float(hypergeom.sf(hits - 1, trials + other_trials, hits + other_hits, trials))


# ---- Events: sets of reports that indicate one of two vectors
#
# An event is "the statistic is at least c" (which indicates the first vector) or "at most c" (the
# second). It is chosen on reports that are never counted, so the choice costs no confidence.

Scores = NDArray[np.float64]
"""One number per report; NaN if the statistic does not apply, which is not counted at all."""

Aim = Literal["epsilon", "shift", "difference"]
"""The purpose of an event: the largest bound on ε, on the distance of two normal laws, or the
clearest difference of any kind."""

Criterion = Callable[..., Any]
"""Maps hits and trials of both vectors to the value of an event."""

_RANKS: Final = 400
"""Candidate thresholds per vector: order statistics, dense in both tails."""

_CURVE: Final = 120
"""The same for the points of a curve."""


@dataclass(frozen=True)
class Event:
    """A threshold on a statistic, and the vector that reports beyond it indicate."""

    threshold: float
    speaks_for_first: bool

    def hits(self, scores: Scores) -> int:
        """Return how many scores are in the event."""
        beyond = scores >= self.threshold if self.speaks_for_first else scores <= self.threshold
        return int(np.count_nonzero(beyond))


@dataclass(frozen=True)
class Count:
    """An event counted on fresh reports of the vector it indicates, and of the other."""

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
        """Return the largest bound that this many reports can show."""
        trials = min(self.trials, self.other_trials)
        return max(0.0, resolution(trials, delta=delta, alpha=alpha)) if trials else 0.0

    def p_value(self) -> float:
        """Return the p-value of "the event is not more frequent for the vector it indicates"."""
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


def _threshold(first: Scores, second: Scores, criterion: Criterion) -> float:
    """Return the c whose event {score >= c} is best on these reports."""
    thresholds = _candidates(first, second, _RANKS)
    counts = (_tallies(first, thresholds), first.size, _tallies(second, thresholds), second.size)
    return float(thresholds[int(np.argmax(criterion(*counts)))])


def choose(
    first: Scores, second: Scores, aim: Aim, *, delta: float, alpha: float
) -> tuple[Event, Event]:
    """Return the best event for each of the two vectors, given scores of both."""
    criteria: dict[Aim, Criterion] = {
        "epsilon": partial(epsilon_below, delta=delta, alpha=alpha),
        "shift": partial(shift_below, alpha=alpha),
        "difference": difference,
    }
    a, b = (np.sort(scores[~np.isnan(scores)]) for scores in (first, second))
    above = _threshold(a, b, criteria[aim])
    below = -_threshold(-b[::-1], -a[::-1], criteria[aim])
    return Event(above, True), Event(below, False)


def curve(first: Scores, second: Scores) -> tuple[tuple[float, float], ...]:
    """Return points (share of second, share of first) of the events {score >= c}, ascending."""
    a, b = (np.sort(scores[~np.isnan(scores)]) for scores in (first, second))
    thresholds = _candidates(a, b, _CURVE)[::-1]
    shares = _tallies(b, thresholds) / max(1, b.size), _tallies(a, thresholds) / max(1, a.size)
    return tuple((float(x), float(y)) for x, y in zip(*shares, strict=True))


# ---- Trials: reports of two vectors, attacked by several statistics at once
#
# The first half of each vector's reports is for learning and for choosing events, the second half
# for counting them. Reports are drawn in chunks; only scores of the first half are kept.

FIRST: Final = 0
SECOND: Final = 1
SIDES: Final = (FIRST, SECOND)

Draw = Callable[[int, int], Any]
"""Called with a side and a number; returns that many fresh payloads of that side's vector.

Payloads are a list of bytes, or what :mod:`offaxis.auditing.outputs` makes of a function's outputs.
"""

Advance = Callable[[int, int], None]
"""Called with the number of reports drawn so far, and their total."""

_PILOT_SECONDS: Final = 0.05

_LEAST: Final = 16
"""Smallest number of reports of each vector, however slow they are."""

_MOST_KEPT: Final = 4_000_000
"""Largest number of reports of each vector whose scores are kept to choose events."""


class Attack(Protocol):
    """A statistic that may distinguish the reports of two vectors."""

    @property
    def learns(self) -> bool:
        """Whether it learns from reports of known sides before it scores."""
        ...

    @property
    def aim(self) -> Aim:
        """The purpose of its events."""
        ...

    def learn(self, side: int, payloads: Any) -> None:
        """Learn from reports of a known side; two threads may call this, one for each side."""
        ...

    def settle(self) -> None:
        """End learning."""
        ...

    def scores(self, payloads: Any) -> Scores:
        """Return one number per report, large if it indicates the first vector."""
        ...


@dataclass(frozen=True)
class Outcome:
    """The events of one attack for both vectors, counted on fresh reports."""

    counts: tuple[Count, Count]
    curve: tuple[tuple[float, float], ...]
    reports: int

    def best(self, delta: float, alpha: float) -> tuple[Count, float]:
        """Return the better event and its bound on ε, wrong with probability at most ``alpha``."""
        bounds = [(count.epsilon(delta, alpha / 2), count) for count in self.counts]
        epsilon, count = max(bounds, key=lambda pair: pair[0])
        return count, epsilon


@dataclass(frozen=True)
class Trial:
    """Two vectors to draw reports of.

    Attributes
    ----------
    draw : callable
    rows : int
        Number of reports to draw at a time.
    both : callable, optional
        Returns that many fresh payloads of each vector, drawn in an order of its own. Without it
        two threads draw at the same time, one for each vector.
    """

    draw: Draw
    rows: int
    both: Callable[[int], tuple[Any, Any]] | None = None

    def affordable(self, attacks: Sequence[Attack], most: int, seconds: float) -> int:
        """Return how many reports of each vector fit into the time, at most ``most``."""
        ready = [attack for attack in attacks if not attack.learns]

        def seconds_for(rows: int) -> float:
            started = time.perf_counter()
            payloads = self.draw(FIRST, rows)
            for attack in ready:
                attack.scores(payloads)
            return time.perf_counter() - started

        seconds_for(1)  # tables are made on the first call
        rows, taken = 1, 0.0
        # Do not draw many slow reports only to measure their time.
        while taken < _PILOT_SECONDS and (rows < self.rows or not taken):
            rows = min(8 * rows, self.rows)
            taken = seconds_for(rows)
        count = max(min(most, int(seconds * rows / (2 * taken))), min(most, _LEAST))
        # Round down to two digits, for readable counts.
        digits = 10 ** max(0, len(str(count)) - 2)
        return count // digits * digits if count < most else count

    def run(
        self,
        attacks: Sequence[Attack],
        count: int,
        *,
        delta: float,
        alpha: float,
        advance: Advance | None = None,
    ) -> list[Outcome]:
        """Draw ``count`` reports of each vector and return the outcome of every attack.

        ``delta`` and ``alpha`` affect which events are chosen, not the bounds on them.
        """
        half = min(count // 2, _MOST_KEPT)
        quarter = half // 2 if any(a.learns for a in attacks) else 0
        state = _RunState(self, attacks, advance, total=2 * count)
        state.process(quarter, state.learn)
        for attack in attacks:
            attack.settle()
        state.process(half - quarter, state.keep)
        scores = [[_joined(state.kept[i][side]) for side in SIDES] for i in range(len(attacks))]
        state.events = [
            choose(first, second, attack.aim, delta=delta, alpha=alpha)
            for attack, (first, second) in zip(attacks, scores, strict=True)
        ]
        state.process(count - half, state.count)
        return [Outcome(state.counts(i), curve(*pair), 2 * count) for i, pair in enumerate(scores)]


def _joined(parts: list[Scores]) -> Scores:
    return np.concatenate(parts) if parts else np.empty(0)


class _RunState:
    """The state of one run of a trial."""

    def __init__(
        self, trial: Trial, attacks: Sequence[Attack], advance: Advance | None, total: int
    ) -> None:
        self._trial, self._attacks = trial, attacks
        self._advance, self._total, self._done = advance, total, 0
        self.kept: list[tuple[list[Scores], list[Scores]]] = [([], []) for _ in attacks]
        self.events: list[tuple[Event, Event]] = []
        # attack × side × (hits of the first event, hits of the second, reports counted)
        self._tally = np.zeros((len(attacks), 2, 3), dtype=np.int64)

    def process(self, count: int, step: Callable[[int, Any], None]) -> None:
        """Draw ``count`` reports of each vector, chunk by chunk, both sides at the same time."""
        with ThreadPoolExecutor(2) as pool:
            for start in range(0, count, self._trial.rows):
                rows = min(self._trial.rows, count - start)
                if self._trial.both is not None:
                    for side, payloads in zip(SIDES, self._trial.both(rows), strict=True):
                        step(side, payloads)
                else:
                    jobs = [pool.submit(self._process_chunk, side, rows, step) for side in SIDES]
                    for job in jobs:
                        job.result()
                self._done += 2 * rows
                if self._advance is not None:
                    self._advance(self._done, self._total)

    def _process_chunk(self, side: int, rows: int, step: Callable[[int, Any], None]) -> None:
        step(side, self._trial.draw(side, rows))

    def learn(self, side: int, payloads: Any) -> None:
        for index, attack in enumerate(self._attacks):
            if attack.learns:
                attack.learn(side, payloads)
            else:
                self.kept[index][side].append(attack.scores(payloads))

    def keep(self, side: int, payloads: Any) -> None:
        for index, attack in enumerate(self._attacks):
            self.kept[index][side].append(attack.scores(payloads))

    def count(self, side: int, payloads: Any) -> None:
        for index, attack in enumerate(self._attacks):
            scores = attack.scores(payloads)
            above, below = self.events[index]
            counted = int(np.count_nonzero(~np.isnan(scores)))
            self._tally[index, side] += (above.hits(scores), below.hits(scores), counted)

    def counts(self, index: int) -> tuple[Count, Count]:
        above, below = self.events[index]
        (a_above, a_below, a), (b_above, b_below, b) = self._tally[index].tolist()
        return Count(above, a_above, a, b_above, b), Count(below, b_below, b, a_below, a)
