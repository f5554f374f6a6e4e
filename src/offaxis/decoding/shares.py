"""Shares of symbols among people, with intervals that cover all shares at once.

Contract: a report of randomized response, subset selection or local hashing names the person's
symbol with probability a, and each other symbol with probability b < a. If n people report
independently and a share f_j of them has symbol j, the number c_j of reports that name j has the
mean nπ_j with

    π_j = b + (a − b) f_j,   so   f̂_j = (c_j / n − b) / (a − b)

is unbiased, whoever the people are. For randomized response a = e^ε / (e^ε + k − 1) and
b = 1 / (e^ε + k − 1). The standard error is the root of π̂ (1 − π̂) / ((n − 1)(a − b)²), with
π̂ = c_j / n: it includes the noise and the sampling of people.

Intervals are those of Clopper and Pearson (1934) for π_j, mapped to f_j. They hold for every
number of reports, every budget and every population, also for exactly the people who reported, and
by Bonferroni's inequality for all shares at once (docs/proofs.md §19).

Counting decoded answers is something else: the decoded answer of a report is often not the
person's, so the counts tend to the shares π_j, which are closer to each other than the f_j.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv

from offaxis.decoding.aggregate import labelled
from offaxis.errors import InvalidInput
from offaxis.randomizers.symbols import SetForm, SymbolForm
from offaxis.vectors import Vectors, as_array, as_integer, as_number

Counts = NDArray[np.int64]


class HeavyHitter(NamedTuple):
    """A frequent symbol: its name and number, its share, and the ends of its interval.

    Examples
    --------
    >>> from offaxis.decoding import HeavyHitter
    >>> HeavyHitter("cat", 0, 0.31, 0.28, 0.34).name
    'cat'
    """

    name: str
    symbol: int
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Shares:
    """The shares of symbols among the people who reported, or one set of shares per group.

    Parameters
    ----------
    counts : integer array (k,), or (g, k) with groups
        How many reports name each symbol. A report of subset selection names several.
    randomizer : SymbolForm
        The randomizer of the reports.
    names : sequence of str, optional
        One name per symbol; by default "0", "1", ….
    groups : tuple, optional
        The labels, in order of first appearance.
    reports : int, or integer array (g,) with groups; optional
        How many reports there are. Needed for local hashing, whose reports name any number of
        symbols; otherwise the counts determine it.

    Examples
    --------
    >>> from offaxis.decoding import Shares
    >>> from offaxis.randomizers import KaryResponse
    >>> counts = np.array([350, 250, 200])
    >>> shares = Shares(counts, KaryResponse(3, epsilon=1), names=["cat", "dog", "owl"])
    >>> shares.estimate.round(3)  # unbiased, so a small share may be below 0
    array([0.619, 0.276, 0.105])
    >>> low, high = shares.interval(0.95)  # covers all three at once
    >>> low.round(2), high.round(2)
    (array([0.5 , 0.17, 0.01]), array([0.74, 0.39, 0.21]))
    """

    counts: Counts
    randomizer: SymbolForm
    names: Sequence[str] = ()
    groups: tuple[Hashable, ...] | None = None
    reports: Any = None

    def __post_init__(self) -> None:
        """Check the counts and the names."""
        k = self.randomizer.size
        shape = (k,) if self.groups is None else (len(self.groups), k)
        counts = np.array(self.counts)
        if counts.dtype.kind not in "iu" or counts.shape != shape:
            raise InvalidInput(
                f"counts must be integers of shape {shape}, one per symbol, got shape "
                f"{counts.shape} of dtype {counts.dtype}"
            )
        counts = counts.astype(np.int64)
        reports = self._reports_of(counts)
        # A report names different symbols, so no symbol is named by more than all reports.
        if (counts < 0).any() or (counts > reports[..., None]).any() or (reports <= 0).any():
            raise InvalidInput(f"counts must be those of at least one report{self._each}")
        object.__setattr__(self, "reports", reports)
        names = tuple(self.names) or _numbered(k)
        if len(names) != k or not all(isinstance(name, str) for name in names):
            raise InvalidInput(f"names must be {k} texts, one per symbol, got {len(names)}")
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "names", names)

    def _reports_of(self, counts: Counts) -> Counts:
        """Return the number of reports, checked against the counts."""
        total = np.asarray(counts.sum(axis=-1))
        if not isinstance(self.randomizer, SetForm):
            reports = np.asarray(self.reports)
            if reports.dtype.kind not in "iu" or reports.shape != total.shape:
                raise InvalidInput(
                    f"shares of {self.randomizer.kind} reports need their number: pass reports=…"
                )
            return reports.astype(np.int64)
        reports = total // self.randomizer.named
        given = reports if self.reports is None else np.asarray(self.reports)
        if (total % self.randomizer.named).any() or not np.array_equal(given, reports):
            raise InvalidInput(f"counts must be those of at least one report{self._each}")
        return reports

    @property
    def _each(self) -> str:
        """What is said of a report in errors."""
        if not isinstance(self.randomizer, SetForm):
            return ", which names a symbol once"
        return f", with {self.randomizer.named} different symbols each"

    @classmethod
    def from_mean(
        cls,
        mean: Any,
        count: Any,
        randomizer: SymbolForm,
        names: Sequence[str] = (),
        groups: tuple[Hashable, ...] | None = None,
    ) -> Shares:
        """Return the shares of reports whose observations have this mean: it holds the counts.

        Examples
        --------
        >>> from offaxis.decoding import Shares
        >>> from offaxis.randomizers import KaryResponse
        >>> shares = Shares(np.array([350, 250, 200]), KaryResponse(3, epsilon=1))
        >>> Shares.from_mean(shares.estimate, 800, shares.randomizer).counts
        array([350, 250, 200])
        """
        low, high = randomizer.levels
        named = (np.asarray(mean) - low) / (high - low) * np.asarray(count)[..., None]
        reports = None if isinstance(randomizer, SetForm) else count
        return cls(np.rint(named).astype(np.int64), randomizer, names, groups, reports)

    @property
    def count(self) -> Counts:
        """Number of reports, () or (g,)."""
        count: Counts = self.reports
        return count

    @property
    def named(self) -> Vectors:
        """Share of the reports that name each symbol, (k,) or (g, k): π̂, not f̂."""
        named: Vectors = self.counts / self.count[..., None]
        return named

    @property
    def estimate(self) -> Vectors:
        """The unbiased shares, (k,) or (g, k); a small one may be below 0.

        They sum to one; those of local hashing do so on average.
        """
        return self._from_named(self.named)

    @property
    def standard_error(self) -> Vectors:
        """Standard errors of the shares, (k,) or (g, k); infinite for a single report.

        The error of a symbol that no report names is 0: use intervals, which hold for every count.
        """
        named, scale = self.named, self._scale
        rest = self.count[..., None] - 1
        error: Vectors = scale * np.sqrt(named * (1 - named) / np.maximum(rest, 1))
        return np.where(rest > 0, error, np.inf)

    def covariance(self) -> Vectors:
        """Return unbiased estimates of the covariances of the shares, (k, k) or (g, k, k).

        They are infinite for a single report. Where shares sum to one, every row sums to zero.
        """
        c1, c2 = self.randomizer.together
        share, named, k = self.estimate, self.named, self.randomizer.size
        together = c2 + (c1 - c2) * (share[..., :, None] + share[..., None, :])
        diagonal = np.arange(k)
        together[..., diagonal, diagonal] = named
        rest = self.count[..., None, None] - 1
        spread = (together - named[..., :, None] * named[..., None, :]) * self._scale**2
        covariance: Vectors = np.where(rest > 0, spread / np.maximum(rest, 1), np.inf)
        return covariance

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = True
    ) -> tuple[Vectors, Vectors]:
        """Return the ends of confidence intervals within [0, 1], (k,) or (g, k) each.

        All shares, of all groups, are in their intervals with at least this probability; with
        ``simultaneous=False`` each single one is. Both hold for every population and every number
        of reports, for levels of at least 0.5. An estimate below 0 or above 1 is outside its
        interval.
        """
        miss = _miss(level)
        if simultaneous:
            miss /= self._statements
        n, counts = self.count[..., None], self.counts
        # A count below (above) the mean count of a share of 0 (1) does not shorten the interval.
        a, b = self.randomizer.own_chance, self.randomizer.other_chance
        low, _ = _limits(np.minimum(counts, np.ceil(n * a).astype(np.int64)), n, miss)
        _, high = _limits(np.maximum(counts, np.floor(n * b).astype(np.int64)), n, miss)
        return self._from_named(low).clip(0, 1), self._from_named(high).clip(0, 1)

    def projected(self) -> Vectors:
        """Return the nearest shares that are non-negative and sum to one, (k,) or (g, k).

        The Euclidean projection of the estimate onto the simplex, which the literature calls
        norm-sub (Wang, Lopuhaä-Zwakenberg, Li, Skoric, Li 2020). It is never farther from the
        true shares than the estimate, but biased if some of them are near 0: small shares come out
        too large on average, and large ones too small. Use the intervals of the estimate.

        Examples
        --------
        >>> from offaxis.decoding import Shares
        >>> from offaxis.randomizers import KaryResponse
        >>> shares = Shares(np.array([60, 30, 10]), KaryResponse(3, epsilon=1))
        >>> shares.estimate.round(3), shares.projected().round(3)
        (array([ 1.066,  0.242, -0.307]), array([0.912, 0.088, 0.   ]))
        """
        share = self.estimate
        # The projection is (share − θ)₊ with the one θ for which it sums to one.
        ordered = np.flip(np.sort(share, axis=-1), axis=-1)
        size = np.arange(1, share.shape[-1] + 1)
        theta = (np.cumsum(ordered, axis=-1) - 1) / size
        last = np.count_nonzero(ordered > theta, axis=-1, keepdims=True) - 1
        positive = np.maximum(share - np.take_along_axis(theta, last, axis=-1), 0)
        projected: Vectors = positive / positive.sum(axis=-1, keepdims=True)
        return projected

    def of(self, group: Hashable) -> Shares:
        """Return the shares of one group."""
        if self.groups is None:
            raise InvalidInput("these reports were not grouped; pass groups to shares()")
        if group not in self.groups:
            raise InvalidInput(f"no report belongs to group {group!r}, so it has no shares")
        index = self.groups.index(group)
        return Shares(self.counts[index], self.randomizer, self.names, reports=self.reports[index])

    def merged(self) -> Shares:
        """Return the shares of the people of all groups together."""
        if self.groups is None:
            return self
        counts, reports = self.counts.sum(axis=0), self.reports.sum()
        return Shares(counts, self.randomizer, self.names, reports=reports)

    def difference(self, first: Hashable, second: Hashable) -> ShareDifference:
        """Return by how much the shares of the first group exceed those of the second.

        Examples
        --------
        >>> from offaxis.decoding import Shares
        >>> from offaxis.randomizers import KaryResponse
        >>> counts = np.array([[450, 350], [300, 500]])
        >>> shares = Shares(counts, KaryResponse(2, epsilon=2), groups=("north", "south"))
        >>> difference = shares.difference("north", "south")
        >>> difference.estimate.round(3)
        array([ 0.246, -0.246])
        >>> low, high = difference.interval(0.95)
        >>> bool(low[0] > 0)  # more of the first answer in the north
        True
        """
        return ShareDifference(self.of(first), self.of(second))

    def variance(self, weights: Any) -> float:
        """Return the estimated variance of Σ w_j f̂_j, not below zero, without the covariances.

        Parameters
        ----------
        weights : array (k,)

        Examples
        --------
        >>> from offaxis.decoding import Shares
        >>> from offaxis.randomizers import KaryResponse
        >>> shares = Shares(np.array([350, 250, 200]), KaryResponse(3, epsilon=1))
        >>> weights = np.array([1.0, 1.0, 0.0])
        >>> bool(np.isclose(shares.variance(weights), weights @ shares.covariance() @ weights))
        True
        """
        w = as_array(weights, "weights")
        if self.groups is not None or w.shape != self.counts.shape:
            raise InvalidInput("weights are one number per symbol, of shares without groups")
        share, named, squares = self.estimate, self.named, w * w
        sums, of_squares = (w @ share, w @ named), (squares @ share, squares @ named)
        return float(self.variance_of_sums(w.sum(), squares.sum(), sums, of_squares))

    def variance_of_sums(
        self,
        total: Any,
        squares: Any,
        sums: tuple[Any, Any],
        of_squares: tuple[Any, Any],
    ) -> Vectors:
        """Return the variances of sums Σ w_j f̂_j, given what they need of the weights.

        Parameters
        ----------
        total, squares : arrays
            Σ w_j and Σ w_j².
        sums, of_squares : pairs of arrays
            Σ w_j f̂_j and Σ w_j π̂_j, and the same with w_j².
        """
        if self.count < 2:
            return np.full(np.shape(total), math.inf)
        c1, c2 = self.randomizer.together
        (share, named), (share2, named2) = sums, of_squares
        apart = c2 * (total**2 - squares) + 2 * (c1 - c2) * (total * share - share2)
        spread = named2 + apart - named**2
        variance: Vectors = np.maximum(spread, 0.0) * self._scale**2 / (self.count - 1)
        return variance

    def heavy_hitters(
        self, *, threshold: float | None = None, top: int | None = None, level: float = 0.95
    ) -> tuple[HeavyHitter, ...]:
        """Return the most frequent symbols with simultaneous intervals, the largest first.

        Parameters
        ----------
        threshold : float, optional
            All symbols whose interval is above it. With probability ``level`` every one of them
            has a larger share than this, and every interval holds.
        top : int, optional
            The symbols with the largest estimates. Being chosen for that biases estimates upwards;
            the intervals, which hold for all symbols at once, hold for chosen ones as well.

        Examples
        --------
        >>> from offaxis.decoding import Shares
        >>> from offaxis.randomizers import KaryResponse
        >>> shares = Shares(np.array([350, 250, 200]), KaryResponse(3, epsilon=1), ["a", "b", "c"])
        >>> [found.name for found in shares.heavy_hitters(threshold=0.3)]
        ['a']
        >>> [found.name for found in shares.heavy_hitters(top=2)]
        ['a', 'b']
        """
        if self.groups is not None:
            raise InvalidInput("heavy hitters are those of one group: use shares.of(group)")
        if (threshold is None) == (top is None):
            raise InvalidInput("pass either threshold=… or top=…")
        estimate, (low, high) = self.estimate, self.interval(level)
        order = np.argsort(-estimate, kind="stable")
        if top is not None:
            order = order[: as_integer(top, "top", 1, self.randomizer.size)]
        else:
            least = as_number(threshold, "threshold")
            if not 0 <= least < 1:
                raise InvalidInput(f"threshold must be at least 0 and below 1, got {threshold!r}")
            order = order[low[order] > least]
        return tuple(
            HeavyHitter(self.names[j], int(j), float(estimate[j]), float(low[j]), float(high[j]))
            for j in order
        )

    @property
    def _scale(self) -> float:
        """1 / (a − b)."""
        low, high = self.randomizer.levels
        return high - low

    @property
    def _statements(self) -> int:
        """Number of different statements that simultaneous intervals make."""
        k = self.randomizer.size
        # Two shares that sum to one: both intervals hold or neither does.
        alone = k == 2 and isinstance(self.randomizer, SetForm)
        return (1 if alone else k) * (1 if self.groups is None else len(self.groups))

    def _from_named(self, named: Vectors) -> Vectors:
        """Return f = (π − b) / (a − b), without cancellation."""
        low, high = self.randomizer.levels
        share: Vectors = low * (1 - named) + high * named
        return share


@dataclass(frozen=True, eq=False)
class ShareDifference:
    """By how much the shares of the first people exceed those of the second, who are others.

    Parameters
    ----------
    first, second : Shares
        Without groups, of the same symbols. Their budgets may differ.

    Examples
    --------
    >>> from offaxis.decoding import ShareDifference, Shares
    >>> from offaxis.randomizers import KaryResponse
    >>> counts = np.array([[450, 350], [300, 500]])
    >>> may, june = (Shares(part, KaryResponse(2, epsilon=1)) for part in counts)
    >>> low, high = ShareDifference(may, june).interval(0.95)
    >>> low.round(2), high.round(2)
    (array([ 0.3 , -0.51]), array([ 0.51, -0.3 ]))
    """

    first: Shares
    second: Shares

    def __post_init__(self) -> None:
        """Check that both have the same symbols."""
        if self.first.groups is not None or self.second.groups is not None:
            raise InvalidInput("shares of groups have no difference; use shares.difference(a, b)")
        if self.first.names != self.second.names:
            raise InvalidInput("both shares must be of the same symbols with the same names")

    @property
    def estimate(self) -> Vectors:
        """The unbiased differences, (k,)."""
        return self.first.estimate - self.second.estimate

    @property
    def standard_error(self) -> Vectors:
        """Standard errors of the differences, (k,)."""
        error: Vectors = np.hypot(self.first.standard_error, self.second.standard_error)
        return error

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = True
    ) -> tuple[Vectors, Vectors]:
        """Return the ends of confidence intervals within [−1, 1], (k,) each.

        The distances of both shares from the ends of their intervals are added as root sums of
        squares (Zou, Donner 2008). Unlike the intervals of shares, these hold approximately: in the
        simulations of docs/means.md they cover at least as often as stated.
        """
        miss = _miss(level)
        if simultaneous:
            miss /= self.first._statements
        (low1, high1), (low2, high2) = (
            tuple(part._from_named(end) for end in _limits(part.counts, part.count, miss))
            for part in (self.first, self.second)
        )
        share1, share2, difference = self.first.estimate, self.second.estimate, self.estimate
        low = difference - np.hypot(share1 - low1, high2 - share2)
        high = difference + np.hypot(high1 - share1, share2 - low2)
        return low.clip(-1, 1), high.clip(-1, 1)


def estimate_shares(
    batches: Iterable[Vectors],
    randomizer: SymbolForm,
    names: Sequence[str] = (),
    groups: Iterable[Hashable] | None = None,
) -> Shares:
    """Return the shares of symbols from observations (n_i, k), with one label per observation.

    Only the counts of each group are kept, so memory grows with the groups, not with the reports.
    :meth:`offaxis.Release.shares` reads reports.

    Examples
    --------
    >>> from offaxis.decoding import estimate_shares
    >>> from offaxis.randomizers import KaryResponse
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = KaryResponse(3, epsilon=20)  # hardly any noise
    >>> reports = randomizer.report(np.array([0, 0, 0, 2]), Entropy())
    >>> estimate_shares([randomizer.read(reports)], randomizer).estimate.round(3) + 0
    array([0.75, 0.  , 0.25])
    """
    if not isinstance(randomizer, SymbolForm):
        raise InvalidInput(
            f"shares need a randomizer of symbols, got {type(randomizer).__name__}; use aggregate()"
        )
    # An entry of an observation is positive exactly if its symbol is named.
    return _counted(
        map(np.asarray, batches),
        lambda rows, indices: np.count_nonzero(rows[indices] > 0, axis=0),
        randomizer,
        names,
        groups,
    )


def count_shares(
    parts: Iterable[list[bytes]],
    randomizer: SymbolForm,
    names: Sequence[str] = (),
    groups: Iterable[Hashable] | None = None,
) -> Shares:
    """Return the shares of symbols from payloads in parts, with one label per payload.

    Only the counts of each group are kept, and a mask of few payloads at a time.

    Examples
    --------
    >>> from offaxis.decoding.shares import count_shares
    >>> from offaxis.randomizers import LocalHashing
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = LocalHashing(1000, epsilon=20)  # hardly any noise
    >>> payloads = randomizer.report(np.array([7, 7, 7, 2]), Entropy())
    >>> count_shares([payloads], randomizer).estimate[[7, 2]].round(2)
    array([0.75, 0.25])
    """
    return _counted(
        parts,
        lambda payloads, indices: randomizer.count_names(
            payloads if isinstance(indices, slice) else [payloads[i] for i in indices]
        ),
        randomizer,
        names,
        groups,
    )


def _counted(
    parts: Iterable[Any],
    count: Callable[[Any, Any], Counts],
    randomizer: SymbolForm,
    names: Sequence[str],
    groups: Iterable[Hashable] | None,
) -> Shares:
    counts: dict[Hashable, Counts] = {}
    reports: dict[Hashable, int] = {}
    for part, label, indices in labelled(parts, groups):
        counts[label] = counts.get(label, 0) + count(part, indices)
        added = len(part) if isinstance(indices, slice) else len(indices)
        reports[label] = reports.get(label, 0) + added
    if not counts:
        raise InvalidInput("there are no reports to count")
    if groups is None:
        return Shares(counts[None], randomizer, names, reports=reports[None])
    stacked, numbers = np.array(list(counts.values())), np.array(list(reports.values()))
    return Shares(stacked, randomizer, names, tuple(counts), numbers)


# ---- Limits of a probability


def _miss(level: Any) -> float:
    level = as_number(level, "level")
    if not 0 < level < 1:
        raise InvalidInput(f"level must be between 0 and 1, got level={level!r}")
    return float(1 - level)


def _limits(counts: Counts, n: Counts, miss: float) -> tuple[Vectors, Vectors]:
    """Return limits of π, each missed with probability miss / 2 at most.

    Those of Clopper and Pearson, but for the lower limit of one success and the upper limit of one
    failure: there Markov's inequality, P(at least one success) ≤ nπ, gives a limit that also holds
    if the probabilities of the n trials differ (docs/proofs.md §19).
    """
    tail = miss / 2
    count, size = (part.astype(np.float64) for part in np.broadcast_arrays(counts, n))
    # Where a limit is 0 or 1 anyway, the arguments are only kept valid.
    low = np.where(count > 0, betaincinv(np.maximum(count, 1), size - count + 1, tail), 0.0)
    rest = np.maximum(size - count, 1)
    high = np.where(count < size, betainccinv(count + 1, rest, tail), 1.0)
    low = np.where(count == 1, tail / size, low)
    high = np.where(count == size - 1, 1 - tail / size, high)
    return low, high


@lru_cache(maxsize=8)
def _numbered(size: int) -> tuple[str, ...]:
    return tuple(map(str, range(size)))
