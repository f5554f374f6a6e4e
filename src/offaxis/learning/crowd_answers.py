"""What would the people answer, how far off may that be, and how did it change?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import fdtrc, ndtri

from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.learning import figures
from offaxis.learning.population_fit import Scores
from offaxis.vectors import Vectors, as_number

if TYPE_CHECKING:
    from offaxis.learning.population import Population

_RANK: Final = 1e-9
"""Directions in which scores vary less than this, relative to the largest, are rounding."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What the people would answer.

    Attributes
    ----------
    question : str
    names : tuple of str
        What each number is about.
    estimate : float, or array
        Shrunk towards the public answer, which makes it more accurate on average.
    standard_error : float, or array
        Of the estimate that is not shrunk, with what coarse cells may hide.
    warning : str
        What speaks against the answer; empty if nothing does.
    limits : function
        From a normal quantile and two bounds to the ends of intervals.
    bounds : (float, float)
        The smallest and the largest possible answer.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((600, 2))
    >>> release = offaxis.fit(None, public, epsilon=4, mechanism="privunit2", reshaping="centre")
    >>> reports = release.privatize(rng.standard_normal((1000, 2)))
    >>> answer = offaxis.population(release, reports, support=public).mean(lambda Z: Z[:, 0] > 0)
    >>> low, high = answer.interval(1 - 1e-6)
    >>> bool(low < 0.5 < high)
    True
    >>> list(answer.to_frame().columns[:3])
    ['name', 'estimate', 'standard_error']
    """

    question: str
    names: tuple[str, ...]
    estimate: Any
    standard_error: Any
    warning: str
    limits: Any
    bounds: tuple[float, float] = (-math.inf, math.inf)

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Return the ends of confidence intervals, each of which holds at this level.

        They belong to the estimate that is not shrunk: shrinking never moves an interval.
        """
        level = float(as_number(level, "level"))
        if not 0 < level < 1:
            raise InvalidInput(f"level must be between 0 and 1, got level={level!r}")
        low, high = self.limits(float(ndtri((1 + level) / 2)), *self.bounds)
        return low, high

    def __repr__(self) -> str:
        """Return the numbers with their 95 % intervals, one per line, and the warning."""
        low, high = self.interval()
        rows = zip(
            self.names, *(np.ravel(part) for part in (self.estimate, low, high)), strict=False
        )
        lines = [f"{name}: {own:.4g} ({a:.4g} to {b:.4g})" for name, own, a, b in rows]
        shown = lines if len(lines) <= 20 else [*lines[:20], f"and {len(lines) - 20} more"]
        warning = [f"Warning: {self.warning}"] if self.warning else []
        return "\n".join([self.question, *shown, *warning])

    def figure(self, path: Any = None) -> Any:
        """Draw the estimates with their 95 % intervals; return the matplotlib figure.

        Up to 40 numbers are rows with their names, more are a line in a band, and a matrix is a
        map. The warning, if there is one, is above the picture. An estimate may lie outside its
        interval, because only estimates are shrunk.

        Parameters
        ----------
        path : path, optional
            Where to save it, such as "shares.png".
        """
        low, high = self.interval()
        if np.ndim(self.estimate) == 2:
            picture, axes = figures.matrix(self.estimate, low, high)
            axes.set_title(self.question, loc="right", size=8, color="0.3")
            return figures.saved(picture, path, self.warning)
        estimate, low, high = map(np.atleast_1d, (self.estimate, low, high))
        if len(self.names) > figures.MOST_LABELS:
            picture, axes = figures.banded(estimate, low, high, self.question)
            zero = axes.axhline
        else:
            picture, axes = figures.named(self.names, estimate, low, high, self.question)
            zero = axes.axvline
        if self.question.startswith("difference"):
            zero(0, color="0.4", linestyle=":", linewidth=1)
        return figures.saved(picture, path, self.warning)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row per number: name, estimate, errors, 95 % limits."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra(f"to_frame() needs pandas: {installing('pandas')}") from error
        low, high = self.interval()
        columns = {
            "estimate": self.estimate,
            "standard_error": self.standard_error,
            "low": low,
            "high": high,
        }
        frame = pandas.DataFrame({name: np.ravel(part) for name, part in columns.items()})
        frame.insert(0, "name", list(self.names))
        frame["question"], frame["warning"] = self.question, self.warning
        return frame

    def to_arrow(self) -> Any:
        """Return :meth:`to_frame` as a pyarrow table."""
        try:
            import pyarrow
        except ImportError as error:
            raise MissingExtra(f"to_arrow() needs pyarrow: {installing('arrow')}") from error
        return pyarrow.Table.from_pandas(self.to_frame(), preserve_index=False)


def normal_limits(centre: Vectors, error: Vectors) -> Any:
    """Return the function from a normal quantile and bounds to limits.

    An estimate beyond a bound counts as the bound on that side, so that limits are never the same
    number, as if it were known: they hold at least as often.
    """

    def limits(z: float, lowest: float, highest: float) -> tuple[Any, Any]:
        low = np.clip(np.minimum(centre, highest) - z * error, lowest, highest)
        high = np.clip(np.maximum(centre, lowest) + z * error, lowest, highest)
        return (low, high) if np.ndim(low) else (float(low), float(high))

    return limits


def with_unknown(found: Answer, members: Vectors) -> Answer:
    """Return shares of which those that no public vector (J, p) belongs to are unknown."""
    absent = np.asarray(~members.any(axis=0))
    if not absent.any():
        return found

    def limits(z: float, lowest: float, highest: float) -> tuple[Any, Any]:
        low, high = found.limits(z, lowest, highest)
        return np.where(absent, 0.0, low), np.where(absent, 1.0, high)

    listed = list(compress(found.names, absent))
    told = ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
    warning = f"No public vector gives {told}: how many people do is unknown."
    return replace(
        found,
        standard_error=np.where(absent, 0.5, found.standard_error),
        warning=f"{warning} {found.warning}".strip(),
        limits=limits,
    )


# ---- Changes


def p_value_of(first: Sequence[Scores], second: Sequence[Scores]) -> float:
    """Return the probability that scores of the same people differ at least as much.

    With n₁ and n₂ reports of a release let d be the difference of the mean scores times w =
    n₁n₂/(n₁ + n₂). For the same people it has the mean zero, whatever the numbers of reports, and
    the covariance w·A for the pooled covariance A of one report's scores. The sum of d over the
    releases is compared with the law of Hotelling's T².
    """
    others = {part.release: part for part in second}
    size = len(first[0].mean)
    apart, covariance, freedom = np.zeros(size), np.zeros((size, size)), 0
    for own in first:
        other = others[own.release]
        weight = own.count * other.count / (own.count + other.count)
        left = own.count + other.count - 2
        pooled = (own.count - 1) * own.covariance + (other.count - 1) * other.covariance
        apart += weight * (own.mean - other.mean)
        covariance += weight * pooled / max(left, 1)
        freedom += left
    values, axes = np.linalg.eigh(covariance)
    # The public shares are one direction without a score.
    free = values > _RANK * values[-1]
    rank = int(np.count_nonzero(free))
    if not 0 < rank <= freedom:
        return 1.0
    statistic = float(np.sum(np.square(axes.T @ apart)[free] / values[free]))
    rest = freedom - rank + 1
    return float(fdtrc(rank, rest, statistic * rest / (rank * freedom)))


class Difference:
    """How two populations differ: the first one minus the second one.

    Parameters
    ----------
    first, second : Population
        Of different people, or of the same ones at different times, with the same releases and the
        same support.

    Attributes
    ----------
    p_value : float
        Of the hypothesis that both are of the same people: a test of the mean scores
        (:func:`p_value_of`). It holds whether or not the public vectors are like the people.

    Raises
    ------
    InvalidInput
        If the populations are of other releases or public vectors.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((600, 2))
    >>> release = offaxis.fit(None, public, epsilon=4, goal="vectors")
    >>> may, june = (release.privatize(rng.standard_normal((2000, 2)) + [d, 0]) for d in (0, 0.8))
    >>> crowds = [offaxis.population(release, month, support=public) for month in (may, june)]
    >>> change = crowds[1].compare(crowds[0])
    >>> bool(change.p_value < 0.01)
    True
    >>> low, high = change.mean(lambda Z: Z[:, 0]).interval()
    >>> bool(low > 0)
    True
    """

    def __init__(self, first: Population, second: Population) -> None:
        for name in ("vectors", "parts", "cells"):
            mine, yours = (getattr(part.support, name) for part in (first, second))
            if not np.array_equal(mine, yours):
                raise InvalidInput(
                    "populations are compared on the same support: estimate both with the same "
                    "releases, public vectors and number of cells"
                )
        if len({frozenset(s.release for s in part.fit.scores) for part in (first, second)}) > 1:
            raise InvalidInput(
                "populations are compared from reports of the same releases: reports of another "
                "release or budget show the same people differently. Estimate both with the same "
                "releases"
            )
        self.first, self.second = first, second
        self.p_value = p_value_of(first.fit.scores, second.fit.scores)

    def __repr__(self) -> str:
        """Return for example ``Difference(p = 0.0031)``."""
        return f"Difference(p = {self.p_value:.2g})"

    @property
    def warning(self) -> str:
        """The warnings of both populations."""
        return " ".join(dict.fromkeys(filter(None, (self.first.warning, self.second.warning))))

    def share(self, model: Any) -> Answer:
        """Return by how much the shares of a model's answers differ."""
        return self._of(self.first.share(model), self.second.share(model))

    def mean(self, function: Any = None) -> Answer:
        """Return by how much a mean differs."""
        return self._of(self.first.mean(function), self.second.mean(function))

    def histogram(self, function: Any, bins: Any = 10) -> Answer:
        """Return by how much the shares of bins differ."""
        return self._of(self.first.histogram(function, bins), self.second.histogram(function, bins))

    def cells(self) -> Answer:
        """Return by how much the shares of the cells of public vectors differ."""
        size = len(self.first.fit.shares)
        member = np.eye(size)[self.first.support.cells[self.first.support.parts]]
        names = tuple(f"cell {cell}" for cell in range(size))
        both = (self.first, self.second)
        return self._of(*(p.answer("cells", names, member, bounds=(0.0, 1.0)) for p in both))

    def where(self) -> Vectors:
        """Return the mean public vector of each cell, (K, m): what the cells stand for."""
        support = self.first.support
        means: Vectors = support.spread.T @ support.means(support.vectors)
        return means

    def _of(self, first: Answer, second: Answer) -> Answer:
        error = np.hypot(first.standard_error, second.standard_error)
        plain = [part.limits(0.0, -math.inf, math.inf)[0] for part in (first, second)]
        limits = normal_limits(np.subtract(*plain), error)
        change = np.subtract(first.estimate, second.estimate)
        if not np.ndim(change):
            change, error = float(change), float(error)
        return Answer(
            f"difference of {first.question}".strip(),
            first.names,
            change,
            error,
            " ".join(dict.fromkeys(filter(None, (first.warning, second.warning)))),
            limits,
        )
