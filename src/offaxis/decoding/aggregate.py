"""Means of decoded reports and how far off they may be, in one pass and bounded memory.

Contract: for independent reports x_i with weights w_i that were fixed without looking at them, the
estimate Σw_i x_i / Σw_i has the mean Σw_i E[x_i] / Σw_i, and the standard error is the root of

    Σw_i² (x_i − estimate)² / (Σw_i)²,  times  S2 / (S2 − 2 S3/S1 + S2²/S1²),  S_k = Σw_i^k,

a factor that makes its square unbiased for reports of one law (with equal weights: n/(n − 1)). It
counts the noise and the differences between people, whatever the law of either; if people differ,
it is on the large side for the mean of exactly those who reported. It does not count what clipping
takes away.

Sums are kept about running means (Chan, Golub, LeVeque 1983), so that nothing cancels.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, as_array, as_number

_NOTHING: Final = object()


@dataclass(frozen=True, eq=False)
class Aggregate:
    """Means of decoded reports, one or one a group; what the module says holds for each.

    Parameters
    ----------
    estimate, standard_error : array (m,), or (g, m) with groups
        The standard error is infinite where a single report leaves it open.
    count : array () or (g,)
        Reports behind each estimate.
    effective_count : array () or (g,)
        (Σw)² / Σw²: so many equally weighted reports would be as certain.
    groups : tuple, optional
        The labels, in the order in which they were first seen.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> release = offaxis.fit(None, rng.standard_normal((500, 2)), epsilon=4, reshaping="none")
    >>> reports = release.privatize(rng.standard_normal((400, 2)) + [1.0, 0.0])
    >>> found = release.aggregate(reports, groups=["north", "south"] * 200)  # an Aggregate
    >>> found.groups, found.estimate.shape, int(found.of("north").count)
    (('north', 'south'), (2, 2), 200)
    >>> low, high = found.of("south").interval(0.95)
    >>> bool((low < high).all())
    True
    """

    estimate: Vectors
    standard_error: Vectors
    count: NDArray[np.int64]
    effective_count: Vectors
    groups: tuple[Hashable, ...] | None = None

    def interval(self, level: float = 0.95) -> tuple[Vectors, Vectors]:
        """Return the ends of normal confidence intervals, each coordinate on its own.

        They cover with about the stated probability once a few dozen reports are averaged, less
        with fewer, and not all coordinates at the same time.
        """
        level = as_number(level, "level")
        if not 0 < level < 1:
            raise InvalidInput(f"level must lie between 0 and 1, got level={level!r}")
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        return self.estimate - reach, self.estimate + reach

    def of(self, group: Hashable) -> Aggregate:
        """Return the aggregate of one group.

        Raises
        ------
        InvalidInput
            If no report belongs to the group: nothing is known of its mean.
        """
        if self.groups is None:
            raise InvalidInput("these reports were not grouped; give groups to aggregate()")
        if _usable(group) not in self.groups:
            raise InvalidInput(f"no report belongs to group {group!r}, so it has no mean")
        at = self.groups.index(group)
        return Aggregate(
            self.estimate[at], self.standard_error[at], self.count[at], self.effective_count[at]
        )


@dataclass(eq=False)
class Moments:
    """Weighted moments of rows, of which more can be added; see the module for what they give."""

    count: int = 0
    sums: Vectors = field(default_factory=lambda: np.zeros(3))
    mean: Vectors = field(default_factory=lambda: np.zeros(()))
    squared_mean: Vectors = field(default_factory=lambda: np.zeros(()))
    spread: Vectors = field(default_factory=lambda: np.zeros(()))

    @classmethod
    def of(cls, rows: Vectors, weights: Vectors) -> Moments:
        """Return the moments of rows (n, m), n > 0, with positive weights (n,)."""
        squares = weights * weights
        sums = np.array([weights.sum(), squares.sum(), (squares * weights).sum()])
        mean, squared_mean = weights @ rows / sums[0], squares @ rows / sums[1]
        return cls(len(rows), sums, mean, squared_mean, squares @ (rows - squared_mean) ** 2)

    def add(self, rows: Vectors, weights: Vectors) -> None:
        """Add rows (n, m) with positive weights (n,)."""
        self.merge(self.of(rows, weights))

    def merge(self, other: Moments) -> None:
        """Add the rows of other moments, of which there must be some."""
        total = self.sums + other.sums
        gap = other.squared_mean - self.squared_mean
        between = gap**2 * (other.sums[1] * (self.sums[1] / total[1]))
        self.spread = self.spread + other.spread + between
        self.mean = self.mean + (other.mean - self.mean) * (other.sums[0] / total[0])
        self.squared_mean = self.squared_mean + gap * (other.sums[1] / total[1])
        self.sums, self.count = total, self.count + other.count

    @property
    def effective_count(self) -> float:
        """(Σw)² / Σw²."""
        return float(self.sums[0] ** 2 / self.sums[1])

    @property
    def standard_error(self) -> Vectors:
        """The standard error of the mean; infinite for one row."""
        one, two, three = self.sums
        freedom = two - 2 * three / one + (two / one) ** 2
        if self.count < 2 or freedom <= 0:
            return np.full_like(self.mean, np.inf)
        about_mean = self.spread + two * (self.squared_mean - self.mean) ** 2
        error: Vectors = np.sqrt(about_mean * (two / freedom)) / one
        return error


@dataclass(eq=False)
class GroupMoments:
    """Moments of every group of rows, or of all rows; partial ones merge."""

    grouped: bool
    found: dict[Hashable, Moments] = field(default_factory=dict)

    def add(self, rows: Vectors, weights: Vectors, labels: list[Any] | None, seen: int = 0) -> None:
        """Add rows (n, m) with one weight and, if grouped, one label each.

        ``seen`` is the place of the first row in a larger whole, for messages.
        """
        for label, chosen in _split(labels, seen):
            self.found.setdefault(label, Moments()).add(rows[chosen], weights[chosen])

    def merge(self, other: GroupMoments) -> None:
        """Add the rows of other moments; new groups come last."""
        for label, moments in other.found.items():
            self.found.setdefault(label, Moments()).merge(moments)

    def summary(self) -> Aggregate:
        """Return the means and their errors."""
        moments = list(self.found.values())
        if not moments:
            raise InvalidInput("there are no reports to average")
        columns = (
            np.array([one.mean for one in moments]),
            np.array([one.standard_error for one in moments]),
            np.array([one.count for one in moments]),
            np.array([one.effective_count for one in moments]),
        )
        if self.grouped:
            return Aggregate(*columns, groups=tuple(self.found))
        return Aggregate(*(column[0] for column in columns))


def aggregate(
    parts: Iterable[Vectors],
    weights: Iterable[Any] | None = None,
    groups: Iterable[Hashable] | None = None,
) -> Aggregate:
    """Return the means of rows that come in parts (n_i, m), with one weight and label a row.

    Only the moments of each group are kept, so memory grows with the groups, not with the rows.

    Examples
    --------
    >>> from offaxis.decoding import aggregate
    >>> parts = [np.array([[1.0], [3.0]]), np.array([[5.0]])]  # decoded reports, as they come
    >>> found = aggregate(parts, weights=[1, 1, 2])
    >>> found.estimate, float(found.effective_count.round(2))
    (array([3.5]), 2.67)
    """
    row_weights, labels = _iterator(weights, "weights"), _iterator(groups, "groups")
    found = GroupMoments(grouped=groups is not None)
    seen = 0
    for rows in parts:
        part_weights = positive(_take(row_weights, len(rows), seen, "weights"), len(rows), seen)
        found.add(rows, part_weights, _take(labels, len(rows), seen, "groups"), seen)
        seen += len(rows)
    for name, rest in (("weights", row_weights), ("groups", labels)):
        if rest is not None and next(rest, _NOTHING) is not _NOTHING:
            raise InvalidInput(f"{name} must have one entry a report, got more than {seen}")
    return found.summary()


def _iterator(source: Iterable[Any] | None, name: str) -> Iterator[Any] | None:
    if source is None:
        return None
    if isinstance(source, str | bytes) or not isinstance(source, Iterable):
        raise InvalidInput(
            f"{name} must have one entry a report, such as a list, got {type(source).__name__}"
        )
    return iter(source)


def _take(source: Iterator[Any] | None, count: int, seen: int, name: str) -> list[Any] | None:
    if source is None:
        return None
    taken = list(islice(source, count))
    if len(taken) < count:
        raise InvalidInput(f"{name} must have one entry a report, got only {seen + len(taken)}")
    return taken


def positive(taken: Any | None, count: int, seen: int = 0) -> Vectors:
    """Return one positive weight a row, or refuse them; without any, all weigh one."""
    if taken is None:
        return np.ones(count)
    weights = as_array(taken, "weights")
    if weights.shape != (count,):
        raise InvalidInput(f"weights must be one number a report, got shape {weights.shape}")
    wrong = np.flatnonzero(~((weights > 1e-50) & (weights < 1e50)))
    if wrong.size:
        raise InvalidInput(
            f"weights must be positive, between 1e-50 and 1e50, got {weights[wrong[0]]} at index "
            f"{seen + int(wrong[0])}; leave out reports that should not count"
        )
    return weights


def _usable(label: Any, place: int | None = None) -> Hashable:
    """Return a label that can be told from others, or refuse it."""
    try:
        hash(label)
        same = bool(label == label)
    except (TypeError, ValueError):
        same = False
    if not same:
        # NaN differs from itself: every such row would be a group of its own.
        what = "NaN" if isinstance(label, float | np.floating) else type(label).__name__
        where = "" if place is None else f" at index {place}"
        raise InvalidInput(
            f"a group's label must be text, a whole number or the like, got {what}{where}; "
            f"turn it into text, for example with str()"
        )
    usable: Hashable = label
    return usable


def _split(labels: list[Any] | None, seen: int) -> Iterator[tuple[Hashable, Any]]:
    """Yield each label with the places of its rows; without labels all rows at once."""
    if labels is None:
        yield None, slice(None)
        return
    places: dict[Hashable, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(_usable(label, seen + place), []).append(place)
    yield from places.items()
