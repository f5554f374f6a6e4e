"""Trends from sequences of reports: shares and means over time, with intervals.

The reports of a release of sequences (:func:`offaxis.memoise`) are not linked to each other. Each
tells its age: how many rounds ago its permanent answer was drawn. All reports of answers drawn in
round s, whenever they arrive, are one cohort. They estimate the shares or means of the people at
round s, and repeat the noise of the permanent answers in every round, so a cohort is as good as its
number of people, not of its reports.

The variance of a report has a part that repeats, V_p, and one that is drawn anew, V_i. The sum is
estimated from the reports of each window, the second from the differences between the rounds of
each cohort. A cohort with n̄ reports in each of m rounds has the variance V_p/n̄ + V_i/(n̄m). This
also holds if only a random part of the people reports in each round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from offaxis.errors import InvalidInput
from offaxis.formats.reports import HEADER_SIZE
from offaxis.randomizers.memoised import OLDEST, Memoised, MemoisedResponse
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array, as_integer, as_number

_ROWS: Final = 4096
_FEWEST_ROUNDS: Final = 5
"""Fewest rounds of a cohort that tell how much of a report's noise is drawn anew."""

Rounds = Mapping[int, Iterable[bytes]] | Iterable[tuple[int, Iterable[bytes]]]
"""Reports by the number of their round."""


@dataclass(frozen=True, eq=False)
class Change:
    """By how much an estimate differs between two rounds.

    Attributes
    ----------
    estimate, standard_error : (q,) arrays

    Examples
    --------
    >>> from offaxis.learning import Change
    >>> change = Change(np.array([0.25, -0.25]), np.array([0.125, 0.125]))
    >>> low, high = change.interval(0.95)
    >>> bool(low[0] > 0)  # an increase
    True
    """

    estimate: Vectors
    standard_error: Vectors

    def interval(self, level: float = 0.95) -> tuple[Vectors, Vectors]:
        """Return the ends of normal confidence intervals, (q,) each."""
        return _interval(self.estimate, self.standard_error, level)


@dataclass(frozen=True, eq=False)
class Trend:
    """Estimates per round; made by :func:`trend`.

    Attributes
    ----------
    rounds : (t,) array
        The numbers of the rounds.
    estimate : (t, q) array
        Shares of symbols, or means. The estimate of a round averages over the draws within its
        window: over people, each with the vector of the round in which the answer was drawn. A
        round without any, at the start or after the last renewal, has the nearest ones.
    standard_error : (t, q) array
    draws : (t,) array
        Permanent answers behind each estimate.
    names : tuple of str
        What the q columns are.
    window : int
        The width of the windows, in rounds.

    Examples
    --------
    >>> from offaxis.learning import Trend
    >>> shares, errors = np.array([[0.25, 0.75], [0.5, 0.5]]), np.full((2, 2), 0.0625)
    >>> weeks = Trend(np.array([0, 9]), shares, errors, np.array([40.0, 40.0]), ("a", "b"), 7)
    >>> weeks.change(0, 9).estimate
    array([ 0.25, -0.25])
    """

    rounds: NDArray[np.int64]
    estimate: Vectors
    standard_error: Vectors
    draws: Vectors
    names: tuple[str, ...]
    window: int

    def interval(self, level: float = 0.95) -> tuple[Vectors, Vectors]:
        """Return the ends of confidence intervals of every single number, (t, q) each.

        They cover the average over the window, not its difference from the round itself.
        """
        return _interval(self.estimate, self.standard_error, level)

    def change(self, first: int, second: int) -> Change:
        """Return by how much the estimate of the second round exceeds that of the first.

        The error is that of independent people; it is too large for people whose vectors at both
        rounds are alike, and too small if they tend to be opposite.

        Raises
        ------
        InvalidInput
            If the windows of the two rounds overlap.
        """
        places = {int(number): at for at, number in enumerate(self.rounds)}
        if first not in places or second not in places:
            raise InvalidInput(f"there are no estimates for rounds {first} and {second}")
        at = [places[first], places[second]]
        if abs(second - first) < self.window:
            raise InvalidInput(
                f"rounds {first} and {second} share draws: a window has {self.window} rounds"
            )
        errors = self.standard_error[at]
        return Change(self.estimate[at[1]] - self.estimate[at[0]], np.hypot(*errors))


def trend(
    release: Release,
    rounds: Rounds,
    *,
    window: int | None = None,
    values: Any = None,
    reference: Mapping[int, Any] | None = None,
) -> Trend:
    """Estimate shares or means over time from the reports of a release of sequences.

    Parameters
    ----------
    release : Release
        Made by :func:`offaxis.memoise`.
    rounds : mapping from a round's number to its reports, or iterable of such pairs
        Each person reports at most once per round, under the round's number
        (:meth:`offaxis.client.Reporter.report`; devices do). Reports are read once, in memory that
        grows with rounds and ages only. Answers older than 65,534 rounds are left out.
    window : int, optional
        Rounds whose draws are averaged, around each round; odd, and at most half of the release's
        period, so that nobody draws twice in it. By default the largest one.
    values : (k, q) array, optional
        For releases of symbols: numbers to average, by symbol, instead of shares. For example the
        public mean of each class.
    reference : mapping from a round's number to (q,) numbers, optional
        Public numbers that move as the estimates are expected to, such as the daily means of public
        households. Only the difference from it is averaged over a window.

    Raises
    ------
    InvalidInput
        If the release is not one of sequences, its reports have no unbiased mean, or there are no
        reports.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.client import Reporter
    >>> from offaxis.learning import trend
    >>> from offaxis.privacy import Ledger, Limit
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((500, 3))
    >>> classes = offaxis.fit(np.eye(3), public, epsilon=4, mechanism="class-response")
    >>> sequences = offaxis.memoise(classes, renewals=2, period=14)
    >>> people = [Reporter(sequences, Ledger(f"{i}.ledger", Limit(8))) for i in range(20)]
    >>> days = {
    ...     day: [p.report(rng.standard_normal(3), number=day) for p in people] for day in range(10)
    ... }
    >>> weeks = trend(sequences, days)
    >>> weeks.estimate.shape, weeks.names
    ((10, 3), ('0', '1', '2'))
    """
    randomizer = release.randomizer
    if not isinstance(randomizer, Memoised):
        raise InvalidInput("trends need a release of sequences: make one with offaxis.memoise")
    width = _window(window, randomizer.first_wait)
    reader = _Reader(release, values)
    cohorts = _Cohorts(len(reader.names))
    for number, reports in rounds.items() if isinstance(rounds, Mapping) else rounds:
        cohorts.add_round(as_integer(number, "number", 0))
        source = iter(reports)
        while batch := list(islice(source, _ROWS)):
            numbers = reader.read(batch)
            ages = randomizer.ages([report[HEADER_SIZE:] for report in batch])
            known = ages < OLDEST  # the largest age stands for older answers, too
            cohorts.add(number, ages[known], numbers[known])
    if not cohorts.reports:
        raise InvalidInput("there are no reports to estimate a trend from")
    return cohorts.estimate(width, reader, reference)


def _interval(estimate: Vectors, error: Vectors, level: float) -> tuple[Vectors, Vectors]:
    level = as_number(level, "level")
    if not 0 < level < 1:
        raise InvalidInput(f"level must be between 0 and 1, got level={level!r}")
    half = float(ndtri((1 + level) / 2)) * error
    return estimate - half, estimate + half


def _window(window: int | None, longest: int) -> int:
    """Return the width of windows in which nobody draws twice."""
    if window is None:
        return (longest - 1) // 2 * 2 + 1
    width = as_integer(window, "window", 1, longest, meaning="at most half of the period")
    if width % 2 == 0:
        raise InvalidInput(f"a window is centred on its round, so it is odd, got window={window}")
    return width


class _Reader:
    """Turns reports into the numbers that are averaged."""

    def __init__(self, release: Release, values: Any) -> None:
        self._release = release
        randomizer = release.randomizer
        self._table: Vectors | None = None
        self.least_variance: Vectors | float = 0.0
        if isinstance(randomizer, MemoisedResponse):
            size = release.encoder.output_dim
            self.names = release.symbol_names or tuple(map(str, range(size)))
            self.least_variance = _least_variance(randomizer)
            if values is not None:
                table = as_array(values, "values")
                table = table[:, None] if table.ndim == 1 else table
                if table.shape[0] != size or table.ndim != 2:
                    raise InvalidInput(
                        f"values must have one row for each of {size} symbols, got shape "
                        f"{table.shape}"
                    )
                self._table, self.least_variance = table, 0.0
                self.names = tuple(map(str, range(table.shape[1])))
        else:
            if values is not None:
                raise InvalidInput("values are for releases of symbols; this one reports vectors")
            self._decoder = release.unbiased_decoder  # raises for a biased mechanism
            self.names = tuple(map(str, range(release.input_dim)))

    def read(self, reports: list[bytes]) -> Vectors:
        observed = self._release.observe(reports)
        if isinstance(self._release.randomizer, MemoisedResponse):
            return observed if self._table is None else observed @ self._table
        return self._decoder.decode(observed)


def _least_variance(randomizer: MemoisedResponse) -> float:
    """Return the least variance of an entry of one report: that of a share of 0 or of 1."""
    own = randomizer.own_chance
    other = (1 - own) / (randomizer.size - 1)
    return min(own * (1 - own), other * (1 - other)) / (own - other) ** 2


class _Cohorts:
    """Sums over the reports of each round and each round of drawing."""

    def __init__(self, width: int) -> None:
        self.reports = 0
        self._width = width
        self._rounds: set[int] = set()
        self._cells: dict[tuple[int, int], list[Any]] = {}

    def add_round(self, number: int) -> None:
        self._rounds.add(number)

    def add(self, number: int, ages: NDArray[np.int64], numbers: Vectors) -> None:
        self.reports += len(numbers)
        drawn, place = np.unique(number - ages, return_inverse=True)
        counts = np.bincount(place, minlength=drawn.size)
        sums, squares = np.zeros((2, drawn.size, self._width))
        np.add.at(sums, place, numbers)
        np.add.at(squares, place, numbers * numbers)
        for at, s in enumerate(drawn.tolist()):
            zeros = np.zeros(self._width)
            cell = self._cells.setdefault((s, number), [0, zeros, zeros])
            self._cells[s, number] = [
                cell[0] + int(counts[at]),
                cell[1] + sums[at],
                cell[2] + squares[at],
            ]

    def estimate(self, window: int, reader: _Reader, reference: Mapping[int, Any] | None) -> Trend:
        drawn = np.array(sorted({s for s, _ in self._cells}))
        place = {int(s): i for i, s in enumerate(drawn)}
        total, times = np.zeros((2, drawn.size))
        sums, squares, between = np.zeros((3, drawn.size, self._width))
        for (s, _), (count, cell, square) in self._cells.items():
            total[place[s]] += count
            times[place[s]] += 1
            sums[place[s]] += cell
            squares[place[s]] += square
        means, seconds = sums / total[:, None], squares / total[:, None]
        for (s, _), (count, cell, _) in self._cells.items():
            between[place[s]] += count * (cell / count - means[place[s]]) ** 2
        rounds = np.array(sorted(self._rounds))
        # A round without a draw in its window gets the window of the nearest draw.
        distance = np.abs(rounds[:, None] - drawn)
        nearest = drawn[distance.argmin(axis=1)]
        centre = np.where(distance.min(axis=1) <= window // 2, rounds, nearest)
        near = np.abs(centre[:, None] - drawn) <= window // 2
        people = total / times
        draws = near @ people
        weight = near * people / draws[:, None]
        variance = np.maximum(weight @ seconds - (weight @ means) ** 2, reader.least_variance)
        # What is drawn anew is told from few rounds too poorly to count on it.
        known = (times >= _FEWEST_ROUNDS)[:, None]
        fresh = np.where(known, between / np.maximum(times - 1, 1)[:, None], 0.0)
        averaged = weight @ (fresh * (1 - 1 / times)[:, None])
        # At best, all of a window's reports are independent.
        least = variance / (weight @ times)[:, None]
        error = np.sqrt(np.maximum(variance - averaged, least) / draws[:, None])
        if reference is None:
            estimate = weight @ means
        else:
            public = _Reference(reference, drawn, rounds, self._width)
            estimate = weight @ (means - public.drawn) + public.rounds
        return Trend(rounds, estimate, error, draws, tuple(reader.names), window)


class _Reference:
    """Public numbers at the rounds of drawing and at the rounds to estimate."""

    def __init__(
        self,
        reference: Mapping[int, Any],
        drawn: NDArray[np.int64],
        rounds: NDArray[np.int64],
        width: int,
    ) -> None:
        missing = [int(n) for n in np.union1d(drawn, rounds) if int(n) not in reference]
        if missing:
            raise InvalidInput(f"the reference has no numbers for round {missing[0]}")
        self.drawn, self.rounds = (
            np.array(
                [np.broadcast_to(as_array(reference[int(n)], "reference"), width) for n in part]
            )
            for part in (drawn, rounds)
        )
