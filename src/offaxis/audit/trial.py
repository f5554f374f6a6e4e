"""A trial: reports of two vectors, attacked by several statistics at once.

Of every vector's reports the first half is for learning and for choosing events, the second half
for counting them. Reports come in chunks and go; only scores of the first half are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from offaxis.audit.events import Aim, Count, Event, Scores, choose, curve

FIRST: Final = 0
SECOND: Final = 1
SIDES: Final = (FIRST, SECOND)

Draw = Callable[[int, int], list[bytes]]
"""Called with a side and a number; returns that many fresh payloads of that side's vector."""

Advance = Callable[[int, int], None]
"""Called with the reports drawn so far and the reports in all."""

_PILOT_SECONDS: Final = 0.05

LEAST: Final = 16
"""Reports of each vector that a trial always takes, however slow they are."""


class Attack(Protocol):
    """A statistic that may tell reports of two vectors apart."""

    @property
    def learns(self) -> bool:
        """Whether it wants to see reports with their side first."""
        ...

    @property
    def aim(self) -> Aim:
        """What its events are chosen for."""
        ...

    def learn(self, side: int, payloads: list[bytes]) -> None:
        """Take note of reports of a known side; sides may be served from two threads at once."""
        ...

    def settle(self) -> None:
        """Make up its mind: learning is over."""
        ...

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return one number a report, large where it speaks for the first vector."""
        ...


@dataclass(frozen=True)
class Outcome:
    """One attack's events for both vectors, counted on fresh reports."""

    counts: tuple[Count, Count]
    curve: tuple[tuple[float, float], ...]
    reports: int

    def best(self, delta: float, alpha: float) -> tuple[Count, float]:
        """Return the better event and its bound on ε; both together err with probability alpha."""
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
        Reports to draw at a time.
    """

    draw: Draw
    rows: int

    def affordable(self, attacks: Sequence[Attack], wanted: int, seconds: float) -> int:
        """Return how many reports of each vector fit the time, at most ``wanted``."""
        ready = [attack for attack in attacks if not attack.learns]

        def seconds_for(rows: int) -> float:
            started = time.perf_counter()
            payloads = self.draw(FIRST, rows)
            for attack in ready:
                attack.scores(payloads)
            return time.perf_counter() - started

        seconds_for(1)  # tables are made on the first call
        rows, taken = 1, 0.0
        # Slow reports are not drawn often just to find out.
        while taken < _PILOT_SECONDS and (rows < self.rows or not taken):
            rows = min(8 * rows, self.rows)
            taken = seconds_for(rows)
        count = max(min(wanted, int(seconds * rows / (2 * taken))), min(wanted, LEAST))
        # Two digits are enough to say how many there were.
        digits = 10 ** max(0, len(str(count)) - 2)
        return count // digits * digits if count < wanted else count

    def run(
        self,
        attacks: Sequence[Attack],
        count: int,
        *,
        delta: float,
        alpha: float,
        advance: Advance | None = None,
    ) -> list[Outcome]:
        """Draw ``count`` reports of each vector and return what every attack makes of them.

        ``delta`` and ``alpha`` decide which events are chosen, not what may be said about them.
        """
        half, quarter = count // 2, count // 4 if any(a.learns for a in attacks) else 0
        walk = _Walk(self, attacks, advance, total=2 * count)
        walk.through(quarter, walk.learn)
        for attack in attacks:
            attack.settle()
        walk.through(half - quarter, walk.keep)
        scores = [[_joined(walk.kept[i][side]) for side in SIDES] for i in range(len(attacks))]
        walk.events = [
            choose(first, second, attack.aim, delta=delta, alpha=alpha)
            for attack, (first, second) in zip(attacks, scores, strict=True)
        ]
        walk.through(count - half, walk.count)
        return [Outcome(walk.counts(i), curve(*pair), 2 * count) for i, pair in enumerate(scores)]


def _joined(parts: list[Scores]) -> Scores:
    return np.concatenate(parts) if parts else np.empty(0)


class _Walk:
    """The state of one run."""

    def __init__(
        self, trial: Trial, attacks: Sequence[Attack], advance: Advance | None, total: int
    ) -> None:
        self._trial, self._attacks = trial, attacks
        self._advance, self._total, self._done = advance, total, 0
        self.kept: list[tuple[list[Scores], list[Scores]]] = [([], []) for _ in attacks]
        self.events: list[tuple[Event, Event]] = []
        # attack × side × (hits of the event for the first, for the second, reports counted)
        self._tally = np.zeros((len(attacks), 2, 3), dtype=np.int64)

    def through(self, count: int, step: Callable[[int, list[bytes]], None]) -> None:
        """Draw ``count`` reports of each vector, chunk by chunk, both sides at the same time."""
        with ThreadPoolExecutor(2) as pool:
            for start in range(0, count, self._trial.rows):
                rows = min(self._trial.rows, count - start)
                jobs = [pool.submit(self._one, side, rows, step) for side in SIDES]
                for job in jobs:
                    job.result()
                self._done += 2 * rows
                if self._advance is not None:
                    self._advance(self._done, self._total)

    def _one(self, side: int, rows: int, step: Callable[[int, list[bytes]], None]) -> None:
        step(side, self._trial.draw(side, rows))

    def learn(self, side: int, payloads: list[bytes]) -> None:
        for index, attack in enumerate(self._attacks):
            if attack.learns:
                attack.learn(side, payloads)
            else:
                self.kept[index][side].append(attack.scores(payloads))

    def keep(self, side: int, payloads: list[bytes]) -> None:
        for index, attack in enumerate(self._attacks):
            self.kept[index][side].append(attack.scores(payloads))

    def count(self, side: int, payloads: list[bytes]) -> None:
        for index, attack in enumerate(self._attacks):
            scores = attack.scores(payloads)
            above, below = self.events[index]
            counted = int(np.count_nonzero(~np.isnan(scores)))
            self._tally[index, side] += (above.hits(scores), below.hits(scores), counted)

    def counts(self, index: int) -> tuple[Count, Count]:
        above, below = self.events[index]
        (a_above, a_below, a), (b_above, b_below, b) = self._tally[index].tolist()
        return Count(above, a_above, a, b_above, b), Count(below, b_below, b, a_below, a)
