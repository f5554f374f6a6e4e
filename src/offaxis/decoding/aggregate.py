"""Means of decoded reports with standard errors, in one pass and bounded memory.

Contract: for independent reports x_i with weights w_i that were fixed without looking at them, the
estimate Σw_i x_i / Σw_i has the mean Σw_i E[x_i] / Σw_i, and the standard error is the root of

    Σw_i² (x_i − estimate)² / (Σw_i)²,  times  S2 / (S2 − 2 S3/S1 + S2²/S1²),  S_k = Σw_i^k,

a factor that makes its square unbiased for reports of one distribution (with equal weights:
n/(n − 1)). It includes the noise and the differences between people, whatever their distributions.
If people differ, it is too large for the mean of exactly those who reported. It does not include
the bias from clipping, for which :meth:`Aggregate.interval` needs a bound (:class:`KnownError`).

Sums are kept about running means (Chan, Golub, LeVeque 1983), so that no digits cancel.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from offaxis.decoding.decoders import Decoder
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.randomizers.base import Ball, Box, Randomizer, VectorParameters
from offaxis.vectors import Vectors, as_array, as_number

_END: Final = object()

_Rows = TypeVar("_Rows", bound=Sized)

_MANY: Final = 30
"""From this many expected rare reports on, the standard error includes them."""


@dataclass(frozen=True, eq=False)
class KnownError:
    """What is known in advance about the error of a mean of a release's reports.

    Let D be the matrix of the decoder and ρ the radius of the randomizer. A vector whose encoding
    has at most L times the radius moves by at most (L − 1) ρ in the norm of the ball when it is
    clipped, and by less than one lattice step per coordinate when it is rounded. So coordinate j of
    the mean moves by at most (L − 1) ρ ‖D_j‖* + step · ‖D_j‖₁, in the dual norm ‖·‖*.

    Attributes
    ----------
    radius : (m,) array
        ρ ‖D_j‖*: the largest bias of each coordinate by clipping, per radius.
    rounding : (m,) array
        step · ‖D_j‖₁: the largest bias by rounding.
    reported_share : float
        The share of reports that carry a given coordinate.
    rare : float
        The order of the probability of rare far reports, such as e^{−ε}; 1 if there are none. If
        none is among n reports, a share of ln(2/α)/n of all may be such, with confidence 1 − α.
    reach : (m,) array
        How far a rare report moves each coordinate, at most.

    Examples
    --------
    >>> import offaxis
    >>> public = np.random.default_rng(0).standard_normal((500, 2))
    >>> known = offaxis.fit(None, public, epsilon=4, goal="means").known_error
    >>> known.radius.round(1)  # if vectors are twice as long as the radius
    array([3.8, 3.8])
    """

    radius: Vectors
    rounding: Vectors
    reported_share: float
    rare: float
    reach: Vectors


def known_error_of(decoder: Decoder, randomizer: Randomizer) -> KnownError:
    """Return what is known about means of a release whose decoder inverts the encoder."""
    domain = randomizer.domain
    assert isinstance(randomizer, VectorParameters), "symbols have no means"
    assert isinstance(domain, Ball | Box), "only these support means"
    rows = np.abs(getattr(decoder, "matrix", np.eye(decoder.output_dim)))
    sums, lengths = rows.sum(axis=1), np.sqrt((rows * rows).sum(axis=1))
    dual = sums
    if isinstance(domain, Ball):
        dual = rows.max(axis=1) if domain.order == 1 else lengths
    rare, length = randomizer.rare or (1.0, 0.0)
    return KnownError(
        domain.radius * dual,
        randomizer.resolution * sums,
        randomizer.reported_share,
        rare,
        2 * length * (sums if isinstance(domain, Box) else lengths),
    )


@dataclass(frozen=True, eq=False)
class Aggregate:
    """The mean of decoded reports, or one mean per group.

    Parameters
    ----------
    estimate, standard_error : array (m,), or (g, m) with groups
        The standard error is infinite for a single report.
    count : array () or (g,)
        Number of reports in each mean.
    effective_count : array () or (g,)
        (Σw)² / Σw²: the number of equally weighted reports with the same standard error.
    groups : tuple, optional
        The labels, in order of first appearance.
    known_error : KnownError, optional
        What is known about the error in advance, if the rows are decoded reports of a release.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> release = offaxis.fit(None, rng.standard_normal((500, 2)), epsilon=4, goal="means")
    >>> reports = release.privatize(rng.standard_normal((400, 2)) + [1.0, 0.0])
    >>> means = release.aggregate(reports, groups=["north", "south"] * 200)  # an Aggregate
    >>> means.groups, means.estimate.shape
    (('north', 'south'), (2, 2))
    >>> low, high = means.of("south").interval(0.95, largest=1)  # if no vector is clipped
    >>> bool((low < high).all())
    True
    """

    estimate: Vectors
    standard_error: Vectors
    count: NDArray[np.int64]
    effective_count: Vectors
    groups: tuple[Hashable, ...] | None = None
    known_error: KnownError | None = None

    def interval(
        self, level: float = 0.95, *, largest: float | None = None
    ) -> tuple[Vectors, Vectors]:
        """Return the ends of confidence intervals for the mean, one per coordinate.

        A device clips vectors that are longer than the release's radius, and reports do not show by
        how much. So the interval needs a public bound on the vectors, and includes the bias that
        clipping and rounding can cause under it (:class:`KnownError`).

        Each interval covers with at least about the stated probability, for any people within the
        bound, once a few dozen reports carry each coordinate (Student's t; "piecewise" and "hybrid"
        report few coordinates each). Where n reports may miss rare values, they are wider by their
        effect (:class:`KnownError`). They do not cover all coordinates simultaneously.

        Parameters
        ----------
        level : float
        largest : float
            The length of the longest encoded vector, as a multiple of the radius. 1 states that no
            vector is clipped; whatever the vectors are, it gives the interval of the mean of the
            *clipped* vectors. A mean of rows that are not reports takes none.

        Raises
        ------
        BiasedDecoder
            If ``largest`` is missing.
        """
        level = as_number(level, "level")
        if not 0 < level < 1:
            raise InvalidInput(f"level must be between 0 and 1, got level={level!r}")
        bias, known = self._bias(largest), self.known_error
        count, error = np.asarray(self.effective_count), self.standard_error
        if known is not None:
            carrying = count * known.reported_share
            unseen = np.where(
                carrying * known.rare < _MANY, -math.log((1 - level) / 2) / count, 0.0
            )
            bias = bias + unseen[..., None] * known.reach
            count = carrying
        quantile = np.asarray(stdtrit(np.maximum(count - 1, 1e-3), (1 + level) / 2))
        reach = np.where((count > 1)[..., None], quantile[..., None] * error, np.inf) + bias
        return self.estimate - reach, self.estimate + reach

    def _bias(self, largest: float | None) -> Vectors | float:
        """Return the largest bias of each coordinate under the bound on the vectors."""
        if self.known_error is None:
            if largest is not None:
                raise InvalidInput("these rows were not clipped: leave out largest")
            return 0.0
        if largest is None:
            raise BiasedDecoder(
                "longer vectors than the release's radius are clipped, which biases the mean by an "
                "amount that reports do not show: state how long people's encoded vectors can be, "
                "as a multiple of the radius, such as interval(0.95, largest=1.5); largest=1 means "
                "that none is clipped, and is always right for the mean of the clipped vectors"
            )
        bound = as_number(largest, "largest")
        if not bound >= 1:
            raise InvalidInput(f"largest must be 1 or more, got largest={largest!r}")
        return (bound - 1) * self.known_error.radius + self.known_error.rounding

    def of(self, group: Hashable) -> Aggregate:
        """Return the aggregate of one group.

        Raises
        ------
        InvalidInput
            If no report belongs to the group, so that its mean is unknown.
        """
        if self.groups is None:
            raise InvalidInput("these reports were not grouped; pass groups to aggregate()")
        if _check_label(group) not in self.groups:
            raise InvalidInput(f"no report belongs to group {group!r}, so it has no mean")
        index = self.groups.index(group)
        return Aggregate(
            self.estimate[index],
            self.standard_error[index],
            self.count[index],
            self.effective_count[index],
            known_error=self.known_error,
        )


def aggregate(
    parts: Iterable[Vectors],
    weights: Iterable[Any] | None = None,
    groups: Iterable[Hashable] | None = None,
) -> Aggregate:
    """Return the means of rows given in parts (n_i, m), with one weight and one label per row.

    Only the moments of each group are kept, so memory grows with the groups, not with the rows.

    Examples
    --------
    >>> from offaxis.decoding import aggregate
    >>> parts = [np.array([[1.0], [3.0]]), np.array([[5.0]])]  # decoded reports, as they arrive
    >>> aggregate(parts, weights=[1, 1, 2]).estimate
    array([3.5])
    """
    row_weights, labels = _iterator(weights, "weights"), _iterator(groups, "groups")
    moments = GroupMoments(grouped=groups is not None)
    seen = 0
    for rows in parts:
        part_weights = positive(_take(row_weights, len(rows), seen, "weights"), len(rows), seen)
        moments.add(rows, part_weights, _take(labels, len(rows), seen, "groups"), seen)
        seen += len(rows)
    for name, rest in (("weights", row_weights), ("groups", labels)):
        if rest is not None and next(rest, _END) is not _END:
            raise InvalidInput(f"{name} must have one entry per report, got more than {seen}")
    return moments.summary()


@dataclass(eq=False)
class GroupMoments:
    """Moments of every group of rows, or of all rows; partial moments can be merged."""

    grouped: bool
    by_label: dict[Hashable, Moments] = field(default_factory=dict)

    def add(self, rows: Vectors, weights: Vectors, labels: list[Any] | None, seen: int = 0) -> None:
        """Add rows (n, m) with one weight and, if grouped, one label each.

        ``seen`` is the index of the first row in a larger whole, for messages.
        """
        for label, indices in _split(labels, seen):
            self.by_label.setdefault(label, Moments()).add(rows[indices], weights[indices])

    def merge(self, other: GroupMoments) -> None:
        """Add the rows of other moments; new groups are appended."""
        for label, moments in other.by_label.items():
            self.by_label.setdefault(label, Moments()).merge(moments)

    def summary(self) -> Aggregate:
        """Return the means and their standard errors."""
        groups = list(self.by_label.values())
        if not groups:
            raise InvalidInput("there are no reports to average")
        columns = (
            np.array([moments.mean for moments in groups]),
            np.array([moments.standard_error for moments in groups]),
            np.array([moments.count for moments in groups]),
            np.array([moments.effective_count for moments in groups]),
        )
        if self.grouped:
            return Aggregate(*columns, groups=tuple(self.by_label))
        return Aggregate(*(column[0] for column in columns))


@dataclass(eq=False)
class Moments:
    """Weighted moments of rows, which can be extended and merged; formulas in the module."""

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
        """Add the rows of other moments, which must not be empty."""
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


def positive(values: Any | None, count: int, seen: int = 0) -> Vectors:
    """Return one checked positive weight per row; all are 1 if none are given."""
    if values is None:
        return np.ones(count)
    weights = as_array(values, "weights")
    if weights.shape != (count,):
        raise InvalidInput(f"weights must be one number per report, got shape {weights.shape}")
    invalid = np.flatnonzero(~((weights > 1e-50) & (weights < 1e50)))
    if invalid.size:
        raise InvalidInput(
            f"weights must be positive, between 1e-50 and 1e50, got {weights[invalid[0]]} at index "
            f"{seen + int(invalid[0])}; leave out reports that should not count"
        )
    return weights


def labelled(
    parts: Iterable[_Rows], groups: Iterable[Hashable] | None
) -> Iterator[tuple[_Rows, Hashable, Any]]:
    """Yield every part, a label, and the indices of its rows, for each label in the part.

    Without ``groups`` the label is None, and the indices are a slice of all rows.

    Raises
    ------
    InvalidInput
        If there is not exactly one valid label per row.
    """
    labels, seen = _iterator(groups, "groups"), 0
    for rows in parts:
        for label, indices in _split(_take(labels, len(rows), seen, "groups"), seen):
            yield rows, label, indices
        seen += len(rows)
    if labels is not None and next(labels, _END) is not _END:
        raise InvalidInput(f"groups must have one entry per report, got more than {seen}")


def _iterator(source: Iterable[Any] | None, name: str) -> Iterator[Any] | None:
    if source is None:
        return None
    if isinstance(source, str | bytes) or not isinstance(source, Iterable):
        raise InvalidInput(
            f"{name} must have one entry per report, such as a list, got {type(source).__name__}"
        )
    return iter(source)


def _take(source: Iterator[Any] | None, count: int, seen: int, name: str) -> list[Any] | None:
    if source is None:
        return None
    taken = list(islice(source, count))
    if len(taken) < count:
        raise InvalidInput(f"{name} must have one entry per report, got only {seen + len(taken)}")
    return taken


def _split(labels: list[Any] | None, seen: int) -> Iterator[tuple[Hashable, Any]]:
    """Yield each label with the indices of its rows; without labels, all rows at once."""
    if labels is None:
        yield None, slice(None)
        return
    indices: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        indices.setdefault(_check_label(label, seen + index), []).append(index)
    yield from indices.items()


def _check_label(label: Any, index: int | None = None) -> Hashable:
    """Return a hashable label that equals itself; any other is an error."""
    try:
        hash(label)
        equals_itself = bool(label == label)
    except (TypeError, ValueError):
        equals_itself = False
    if not equals_itself:
        # NaN differs from itself: every such row would become a separate group.
        what = "NaN" if isinstance(label, float | np.floating) else type(label).__name__
        where = "" if index is None else f" at index {index}"
        raise InvalidInput(
            f"a group's label must be text, a whole number or the like, got {what}{where}; "
            f"turn it into text, for example with str()"
        )
    checked: Hashable = label
    return checked
