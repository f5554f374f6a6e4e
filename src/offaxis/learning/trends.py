"""Trends from sequences of reports: shares and means over time, with intervals.

The reports of a release of sequences (:func:`offaxis.memoise`) are not linked to each other. Each
tells its age: how many rounds ago its permanent answer was drawn. All reports of answers drawn in
round s, whenever they arrive, are one cohort. They estimate the shares or means of the people at
round s, and repeat the noise of the permanent answers in every round, so a cohort is as good as its
number of people, not of its reports.

The variance of a report has a part that repeats, V_p, and one that is drawn anew, V_i. Both follow
from the randomizers of the release and from what is estimated (:class:`_Symbols`,
:class:`_Directions`). If a person reports r_i times in a cohort that has R reports in m rounds, the
variance of its mean is V_p Σ r_i²/R² + V_i/R. Since r_i <= m, this is at most V_p/n̄ + V_i/R with
n̄ = R/m: whoever reports in whichever rounds, as long as noise does not decide it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from offaxis.decoding.decoders import LinearDecoder, ShiftDecoder
from offaxis.errors import InvalidInput
from offaxis.formats.reports import HEADER_SIZE
from offaxis.randomizers.memoised import (
    MOST_ROUNDS,
    OLDEST,
    Memoised,
    MemoisedPrivUnit2,
    MemoisedResponse,
    mean_squares,
)
from offaxis.randomizers.symbols import KaryResponse
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array, as_integer, as_number, check_finite

_ROWS: Final = 4096
FEW: Final = 30
"""Fewer draws are too few for a normal interval."""

_ENOUGH: Final = 1_000
"""More draws are not worth looking for in other rounds."""

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
        round with few of them, such as after the last draw, has those of the nearest window with
        enough (``drawn``).
    standard_error : (t, q) array
    draws : (t,) array
        Permanent answers behind each estimate: reports per round, so a fraction where some people
        miss rounds. Intervals from fewer than 30 are too short.
    drawn : (t, 2) array
        The first and the last round in which these answers were drawn. An estimate is about people
        at that time, however many rounds later they reported.
    names : tuple of str
        What the q columns are.
    window : int
        The width of the windows, in rounds.

    Examples
    --------
    >>> from offaxis.learning import Trend
    >>> shares, errors = np.array([[0.25, 0.75], [0.5, 0.5]]), np.full((2, 2), 0.0625)
    >>> rounds, draws, drawn = np.array([0, 9]), np.array([40.0, 40.0]), np.array([[0, 3], [6, 12]])
    >>> weeks = Trend(rounds, shares, errors, draws, drawn, ("a", "b"), 7)
    >>> weeks.change(0, 9).estimate
    array([ 0.25, -0.25])
    """

    rounds: NDArray[np.int64]
    estimate: Vectors
    standard_error: Vectors
    draws: Vectors
    drawn: NDArray[np.int64]
    names: tuple[str, ...]
    window: int

    def __repr__(self) -> str:
        """Show the size, not the arrays."""
        return (
            f"Trend(rounds {self.rounds[0]} to {self.rounds[-1]}, {len(self.names)} estimates of "
            f"each, window of {self.window}, {self.draws.min():.3g} to {self.draws.max():.3g} "
            f"draws)"
        )

    def interval(self, level: float = 0.95) -> tuple[Vectors, Vectors]:
        """Return the ends of confidence intervals of every single number, (t, q) each.

        They cover the average over the window, not its difference from the round itself. Where
        people report in a part of the rounds only, they are wider than necessary: by up to 1/√part.
        """
        return _interval(self.estimate, self.standard_error, level)

    def change(self, first: int, second: int) -> Change:
        """Return by how much the estimate of the second round exceeds that of the first.

        The error is that of independent people; it is too large for people whose vectors at both
        rounds are alike, and too small if they tend to be opposite.

        Raises
        ------
        InvalidInput
            If both estimates may be about the same draws.
        """
        places = {int(number): at for at, number in enumerate(self.rounds)}
        if first not in places or second not in places:
            raise InvalidInput(f"there are no estimates for rounds {first} and {second}")
        at = [places[first], places[second]]
        (start, end), (other_start, other_end) = self.drawn[at].tolist()
        if start <= other_end and other_start <= end:
            raise InvalidInput(
                f"the estimates of rounds {first} and {second} share draws: they are about rounds "
                f"{start} to {end} and {other_start} to {other_end}"
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
    new_only: bool = False,
) -> Trend:
    """Estimate shares or means over time from the reports of a release of sequences.

    Whether a person goes on reporting must not depend on their answer: people who report more often
    weigh more. If it may, take ``new_only``.

    Parameters
    ----------
    release : Release
        Made by :func:`offaxis.memoise`.
    rounds : mapping from a round's number to its reports, or iterable of such pairs
        Each person reports at most once per round, under the round's number
        (:meth:`offaxis.client.Reporter.report`; devices do). Reports are read once, in memory that
        grows with rounds and ages only. Answers older than 65,534 rounds are left out, and so are
        reports of an impossible age.
    window : int, optional
        Rounds whose draws are averaged, around each round; odd, and at most half of the release's
        period, so that nobody draws twice in it. By default the largest one.
    values : (k, q) array, optional
        For releases of symbols: numbers to average, by symbol, instead of shares. For example the
        public mean of each class.
    reference : mapping from a round's number to (q,) numbers, optional
        Public numbers that move as the estimates are expected to, such as the daily means of public
        households. Only the difference from it is averaged over a window. Answers drawn in a round
        that it does not have are left out.
    new_only : bool
        Use only the reports of rounds in which the person drew. Everybody who draws reports, so
        that the estimate does not depend on who goes on reporting. It is less precise.

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
    >>> sequences = offaxis.memoise(classes, draws=2, period=14)
    >>> people = [Reporter(sequences, Ledger(f"{i}.ledger", Limit(8))) for i in range(20)]
    >>> days = {
    ...     day: [p.report(rng.standard_normal(3), number=day) for p in people] for day in range(10)
    ... }
    >>> weeks = trend(sequences, days)
    >>> weeks.estimate.shape, weeks.names
    ((10, 3), ('0', '1', '2'))
    """
    randomizer, form = _form(release, values)
    width = _window(window, randomizer.first_wait)
    cohorts = _Cohorts(form.width)
    for number, reports in _numbered(rounds):
        cohorts.add_round(number)
        source = iter(reports)
        while batch := list(islice(source, _ROWS)):
            numbers = form.read(batch)
            ages = randomizer.ages([report[HEADER_SIZE:] for report in batch])
            # The largest age stands for older answers, too.
            known = (ages == 0) if new_only else (ages < OLDEST) & (ages <= number)
            if reference is not None:
                known &= np.isin(number - ages, list(reference))
            cohorts.add(number, ages[known], numbers[known])
    if not cohorts.reports:
        raise InvalidInput("there are no reports to estimate a trend from")
    return cohorts.estimate(width, form, reference)


def expected_error(release: Release, people: int, *, window: int | None = None) -> float:
    """Return the standard error to expect of an estimate of :func:`trend`, before anybody is asked.

    In the middle of a study in which ``people`` report in every round, and of which all reports are
    used: that of a share of 1/k, k the number of symbols, or the root mean square over the
    coordinates of a mean. It falls with 1/√people.

    Parameters
    ----------
    release : Release
        Made by :func:`offaxis.memoise`.
    people : int
    window : int, optional
        As in :func:`trend`.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.learning import expected_error
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> classes = offaxis.fit(np.eye(3), public, epsilon=2, mechanism="class-response")
    >>> sequences = offaxis.memoise(classes, draws=4, period=91)
    >>> round(expected_error(sequences, people=1000), 3)
    0.031
    """
    as_integer(people, "people", 1)
    randomizer, form = _form(release, None)
    width = _window(window, randomizer.first_wait)
    repeated, anew = form.variances(*form.even())
    draws = people * width / randomizer.period
    return float(np.sqrt((repeated + anew / randomizer.period).mean() / draws))


def _form(release: Release, values: Any) -> tuple[Memoised, _Symbols | _Directions]:
    """Return the randomizer of a release of sequences, and how to read its reports."""
    randomizer = release.randomizer
    if isinstance(randomizer, MemoisedResponse):
        return randomizer, _Symbols(release, randomizer, values)
    if isinstance(randomizer, MemoisedPrivUnit2):
        return randomizer, _Directions(release, randomizer, values)
    raise InvalidInput("trends need a release of sequences: make one with offaxis.memoise")


def _numbered(rounds: Rounds) -> Iterator[tuple[int, Iterable[bytes]]]:
    """Yield the rounds with their numbers, checked."""
    for item in rounds.items() if isinstance(rounds, Mapping) else rounds:
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise InvalidInput(
                "rounds must be a mapping from numbers to reports, or pairs of these: "
                "{0: reports of round 0, 1: …}"
            )
        yield as_integer(item[0], "number", 0, MOST_ROUNDS), item[1]


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


class _Symbols:
    """Shares of symbols, or means of numbers that belong to them."""

    def __init__(self, release: Release, randomizer: MemoisedResponse, values: Any) -> None:
        size = randomizer.size
        self._release, self._randomizer = release, randomizer
        self.width, self.names = size, release.symbol_names or tuple(map(str, range(size)))
        self._table: Vectors | None = None  # the identity
        if values is not None:
            table = as_array(values, "values")
            table = table[:, None] if table.ndim == 1 else table
            if table.shape[0] != size or table.ndim != 2:
                raise InvalidInput(
                    f"values must have one row for each of {size} symbols, got shape {table.shape}"
                )
            check_finite(table, "values")
            self._table, self.names = table, tuple(map(str, range(table.shape[1])))

    def read(self, reports: list[bytes]) -> Vectors:
        return self._release.observe(reports)

    def estimate(self, means: Vectors) -> Vectors:
        return means if self._table is None else means @ self._table

    def even(self) -> tuple[Vectors, Vectors]:
        """Return means and mean squares of reports if all symbols have the same share."""
        means = np.full((1, self.width), 1 / self.width)
        return means, means

    def variances(self, means: Vectors, _: Vectors) -> tuple[Vectors, Vectors]:
        """Return V_p and V_i of one report, given estimated shares of symbols.

        An observation is linear in the symbol that is reported, and given the permanent answer its
        mean is linear in that: both have the variance of what response names.
        """
        shares = np.clip(means, 0.0, 1.0)
        shares /= shares.sum(axis=1, keepdims=True)
        permanent = self._randomizer.layers[0]
        repeated = self._variance(permanent, shares)
        return repeated, np.maximum(self._variance(self._randomizer, shares) - repeated, 0.0)

    def _variance(self, randomizer: KaryResponse, shares: Vectors) -> Vectors:
        """Return the variance of an unbiased estimate from what a randomizer names."""
        own = randomizer.own_chance
        other = (1 - own) / (randomizer.size - 1)
        chances = other + (own - other) * shares
        if self._table is None:
            variance = chances * (1 - chances)
        else:
            variance = chances @ self._table**2 - (chances @ self._table) ** 2
        scaled: Vectors = np.maximum(variance, 0.0) / (own - other) ** 2
        return scaled


class _Directions:
    """Means of vectors."""

    def __init__(self, release: Release, randomizer: MemoisedPrivUnit2, values: Any) -> None:
        if values is not None:
            raise InvalidInput("values are for releases of symbols; this one reports vectors")
        self._release, self._randomizer = release, randomizer
        self._decoder = release.unbiased_decoder  # raises for a biased mechanism
        self.width = self._decoder.output_dim
        self.names = tuple(map(str, range(self.width)))
        if isinstance(self._decoder, ShiftDecoder):
            self._squares = np.ones(self.width)
        else:
            assert isinstance(self._decoder, LinearDecoder), "unbiased decoders are affine"
            self._squares = np.square(self._decoder.matrix).sum(axis=1)
        self._offset = self._decoder.offset

    def read(self, reports: list[bytes]) -> Vectors:
        # Without the offset, so that squares are those of directions.
        return self._decoder.decode(self._release.observe(reports)) - self._offset

    def estimate(self, means: Vectors) -> Vectors:
        return means + self._offset

    def even(self) -> tuple[Vectors, Vectors]:
        """Return means and mean squares of reports if all directions are equally frequent."""
        length = self._randomizer.radius / self._randomizer.mean
        return np.zeros((1, self.width)), length**2 * self._squares[None] / self._randomizer.dim

    def variances(self, means: Vectors, seconds: Vectors) -> tuple[Vectors, Vectors]:
        """Return V_p and V_i of one report, given means and mean squares.

        With D the decoder, v the permanent direction and g the reported one, E[(Dg)² | v] =
        a₁|D|² + (b₁ − a₁)(Dv)², where b₁ is the mean square of g along v, and a₁ across it. That
        gives E[(Dv)²] from the mean square of reports. By the same law of v given the input it is
        between a|D|² and b|D|².
        """
        (a, b), (a1, b1) = map(mean_squares, self._randomizer.layers)
        first, second = (layer.mean for layer in self._randomizer.layers)
        length = self._randomizer.radius / first
        reported = seconds * (second / length) ** 2
        if b1 - a1 > 0:
            held = (reported - a1 * self._squares) / (b1 - a1)
        else:
            held = np.full_like(reported, np.inf)
        held = np.clip(held, a * self._squares, b * self._squares)
        repeated = np.maximum(length**2 * held - means**2, 0.0)
        anew = (length / second) ** 2 * (a1 * self._squares + (b1 - a1) * held) - length**2 * held
        return repeated, np.maximum(anew, 0.0)


class _Cohorts:
    """Sums over the reports of each round of drawing, and the rounds in which they arrived."""

    def __init__(self, width: int) -> None:
        self.reports = 0
        self._width = width
        self._rounds: set[int] = set()
        self._cohorts: dict[int, _Cohort] = {}

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
            cohort = self._cohorts.setdefault(s, _Cohort(self._width))
            cohort.rounds.add(number)
            cohort.count += int(counts[at])
            cohort.sums += sums[at]
            cohort.squares += squares[at]

    def estimate(
        self, window: int, form: _Symbols | _Directions, reference: Mapping[int, Any] | None
    ) -> Trend:
        drawn = np.array(sorted(self._cohorts))
        cohorts = [self._cohorts[int(s)] for s in drawn]
        means = np.array([cohort.sums / cohort.count for cohort in cohorts])
        seconds = np.array([cohort.squares / cohort.count for cohort in cohorts])
        times = np.array([len(cohort.rounds) for cohort in cohorts], dtype=np.float64)
        people = np.array([cohort.count for cohort in cohorts]) / times
        rounds = np.array(sorted(self._rounds))
        near = _near(rounds, drawn, people, window // 2)
        draws = near @ people
        weight = near * people / draws[:, None]
        repeated, anew = form.variances(weight @ means, weight @ seconds)
        error = np.sqrt((repeated + anew * (weight @ (1 / times))[:, None]) / draws[:, None])
        cohort_estimates = form.estimate(means)
        if reference is None:
            estimate = weight @ cohort_estimates
        else:
            public = _Reference(reference, drawn, rounds, len(form.names))
            estimate = weight @ (cohort_estimates - public.drawn) + public.rounds
        first = np.where(near, drawn, drawn[-1]).min(axis=1)
        last = np.where(near, drawn, drawn[0]).max(axis=1)
        span = np.column_stack([first, last])
        return Trend(rounds, estimate, error, draws, span, tuple(form.names), window)


def _near(
    rounds: NDArray[np.int64], drawn: NDArray[np.int64], people: Vectors, reach: int
) -> NDArray[np.bool_]:
    """Return which cohorts are in the window of each round, (rounds, cohorts).

    A window with less than half of the draws of an average one is replaced by the nearest one with
    more. 1,000 draws are always enough, fewer than 30 only if no window has twice as many.
    """
    # Every set of cohorts within a window is that of one of these centres.
    centres = np.unique(np.concatenate([rounds, drawn - reach, drawn + reach]))
    near = np.abs(centres[:, None] - drawn) <= reach
    draws = near @ people
    span = drawn[-1] - drawn[0] + 1
    average = people.sum() * min(2 * reach + 1, span) / span
    least = min(np.clip(average / 2, FEW, _ENOUGH), draws.max() / 2)
    enough = np.flatnonzero(draws >= least)
    own = np.searchsorted(centres, rounds)
    at = np.searchsorted(centres[enough], rounds).clip(0, enough.size - 1)
    before = enough[np.maximum(at - 1, 0)]
    after = enough[at]
    nearest = np.where(
        np.abs(centres[before] - rounds) <= np.abs(centres[after] - rounds), before, after
    )
    chosen = np.where(np.isin(own, enough), own, nearest)
    return np.asarray(near[chosen])


class _Cohort:
    """All reports of the answers that were drawn in one round."""

    def __init__(self, width: int) -> None:
        self.count, self.rounds = 0, set[int]()
        self.sums, self.squares = np.zeros((2, width))


class _Reference:
    """Public numbers at the rounds of drawing and at the rounds to estimate."""

    def __init__(
        self,
        reference: Mapping[int, Any],
        drawn: NDArray[np.int64],
        rounds: NDArray[np.int64],
        width: int,
    ) -> None:
        missing = [int(n) for n in rounds if int(n) not in reference]
        if missing:
            raise InvalidInput(f"the reference has no numbers for round {missing[0]}")
        self.drawn, self.rounds = (
            np.array(
                [np.broadcast_to(as_array(reference[int(n)], "reference"), width) for n in part]
            )
            for part in (drawn, rounds)
        )
        check_finite(self.rounds, "reference")
        check_finite(self.drawn, "reference")
