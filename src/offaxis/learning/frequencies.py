"""How often does each value occur? Frequencies of private categories and numbers, from reports.

:func:`fit_answers` makes a release of answers alone: nobody reports a vector, and nothing is fitted
to data. ``release.shares(reports)`` estimates the share of every value, with intervals that hold
for every population. :func:`histogram` reads a number from them: its distribution, its quantiles
and its mean.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from offaxis.decoding.pairs import AnswersDecoder
from offaxis.decoding.shares import Shares
from offaxis.encoding.pairs import Number, as_asked, table_of
from offaxis.encoding.questions import AnswersEncoder, edges_of
from offaxis.errors import InvalidInput, unknown_name
from offaxis.geometry.public import PublicIdentity
from offaxis.learning import figures
from offaxis.learning.crowd_answers import normal_limits
from offaxis.privacy.guarantee import Unit
from offaxis.provenance import Provenance, check_statement
from offaxis.randomizers import KaryResponse, LocalHashing, SubsetSelection
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release
from offaxis.vectors import Vectors, as_number

_MECHANISMS: Final[dict[str, type[SymbolForm]]] = {
    cls.kind: cls for cls in (KaryResponse, SubsetSelection, LocalHashing)
}

_SMALL: Final = 64
"""Bytes of a payload that are not worth saving."""

_WORTH: Final = 1.02
"""The squared error of local hashing, relative to that of subset selection, up to which a short
payload is worth it."""

FEWEST: Final = 100
"""The fewest reports for the normal law: of fewer, estimated variances are too small."""


# ---- Release


def fit_answers(
    answers: Any,
    *,
    epsilon: Any,
    unit: Unit = "item",
    statement: str = "",
    mechanism: str | None = None,
) -> Release:
    """Fit a release of private answers alone, all under one ε.

    A report names the joint value of all answers through a randomizer of symbols, so ε covers them
    together. Nothing is fitted to data: values, bins and randomizer follow from the arguments.

    Parameters
    ----------
    answers : Classes, Number with ``bins``, int, list of str, or a list of Classes and Number
        What people are asked for. A number counts as one of ``bins`` equal bins of its range.
        There are 2 to 65,536 joint values.
    epsilon : number
        Budget of one report, read exactly.
    unit : {"item", "user"}
    statement : str
        Stored in the release.
    mechanism : {"response", "subset", "hashing"}, optional
        By default that of least known squared error per person, E‖observation − e_x‖², which
        depends on the number of values k and on ε alone:

        * subset selection, k/8 bytes: no unbiased report has a smaller largest error (Park, Nam,
          Lee 2024);
        * k-ary response, 1 or 2 bytes, if the best sets have one value (k up to about 1.4 e^ε +
          1.5): then it is the same law;
        * local hashing, 14 bytes, if a set takes more than 64 (k > 512) and the error is at most
          2 % larger. That is 1 % of a standard error, for 1 % of the bytes at 10,000 values.

    Examples
    --------
    >>> from offaxis.learning import fit_answers
    >>> release = fit_answers(["cat", "dog", "owl"], epsilon=2)
    >>> reports = release.privatize(answers=["cat"] * 600 + ["dog"] * 400)
    >>> shares = release.shares(reports)
    >>> shares.names, shares.estimate.shape
    (('cat', 'dog', 'owl'), (3,))
    >>> low, high = shares.interval(0.95)  # covers all shares at once
    >>> fit_answers(10_000, epsilon=1).randomizer.kind  # 10,000 numbered values
    'hashing'
    """
    asked = as_asked(answers)
    if not asked:
        raise InvalidInput("a release of answers asks for one at least")
    if any(isinstance(part, Number) and not part.bins for part in asked):
        raise InvalidInput("a number is counted in bins: pass Number(low, high, bins=20), say")
    encoder = AnswersEncoder(table_of(asked))
    randomizer = _randomizer(encoder.output_dim, epsilon, mechanism)
    check_statement(statement)
    row = np.ascontiguousarray(encoder.blank_row, dtype="<f8")
    public = PublicIdentity(1, encoder.input_dim, hashlib.sha256(row.tobytes()).hexdigest())
    provenance = Provenance(None, public, {"mechanism": "answers"}, statement)
    decoder = AnswersDecoder(np.array([float(encoder.output_dim)]))
    release = Release(encoder, randomizer, decoder, provenance, unit, asked=asked)
    _ = release.hash  # names that no file can hold are an error now, not on a device
    return release


def _randomizer(size: int, epsilon: Any, mechanism: str | None) -> SymbolForm:
    """Return the randomizer of a mechanism, or the best one (:func:`fit_answers`)."""
    if mechanism is not None:
        if mechanism not in _MECHANISMS:
            raise InvalidInput(unknown_name("mechanism", str(mechanism), tuple(_MECHANISMS)))
        return _MECHANISMS[mechanism](size, epsilon)
    subset = SubsetSelection(size, epsilon)
    if subset.chosen == 1:  # the same law
        return KaryResponse(size, epsilon)
    if subset.payload_size <= _SMALL:
        return subset
    hashing = LocalHashing(size, epsilon)
    worth = hashing.expected_squared_error() <= _WORTH * subset.expected_squared_error()
    return hashing if worth else subset


# ---- Numbers


def check_enough(shares: Shares) -> None:
    """Raise if there are too few reports for an interval of a sum of shares by the normal law."""
    if shares.count < FEWEST:
        count = int(shares.count)
        raise InvalidInput(
            f"{count} report{' is' if count == 1 else 's are'} too few for intervals by the normal "
            f"law: it takes {FEWEST}. Those of the joint values, shares.interval(), hold for any "
            f"number"
        )


class Estimate(NamedTuple):
    """An estimate and the ends of its interval.

    Examples
    --------
    >>> from offaxis.learning import Estimate
    >>> Estimate(34.5, 31.0, 38.0).low
    31.0
    """

    estimate: float
    low: float
    high: float


def histogram(release: Release, reports: Any, name: str | None = None) -> Histogram:
    """Return the distribution of a private number, from reports or from their shares.

    Parameters
    ----------
    release : Release
        From :func:`fit_answers`.
    reports : iterable of bytes, or Shares
    name : str, optional
        Of the number, if the release asks for several.

    Examples
    --------
    >>> from offaxis.encoding import Number
    >>> from offaxis.learning import fit_answers, histogram
    >>> release = fit_answers(Number(0, 100, name="age", bins=20), epsilon=3)
    >>> ages = np.random.default_rng(0).normal(40, 10, 5000)
    >>> found = histogram(release, release.privatize(answers=ages))
    >>> found.edges[:3], found.estimate.shape
    (array([ 0.,  5., 10.]), (20,))
    >>> mean, median = found.mean(0.999), found.quantile(0.5, 0.999)
    >>> bool(mean.low < 40 < mean.high), bool(median.low < 40 < median.high)
    (True, True)
    """
    encoder = release.encoder
    if not isinstance(encoder, AnswersEncoder):
        raise InvalidInput("a histogram is read from a release of answers: see fit_answers()")
    numbers = [part.name for part in release.asked if isinstance(part, Number)]
    if name is None and len(numbers) == 1:
        (name,) = numbers
    if name not in numbers:
        listed = ", ".join(map(repr, numbers)) or "none"
        raise InvalidInput(f"name the number to read; this release asks for {listed}")
    shares = reports if isinstance(reports, Shares) else release.shares(reports)
    if shares.groups is not None:
        raise InvalidInput("a histogram is of one group: pass shares.of(group)")
    place = [part.name for part in release.asked].index(name)
    randomizer: Any = release.randomizer
    if shares.randomizer != randomizer:
        raise InvalidInput("these are shares of another release")
    asked = release.asked[place]
    assert isinstance(asked, Number)
    values = np.unravel_index(np.arange(encoder.output_dim), encoder.values)[place]
    bins = np.where(values < asked.bins, values, -1)
    return Histogram(edges_of(asked), bins.astype(np.int64), shares)


@dataclass(frozen=True, eq=False)
class Histogram:
    """The distribution of a private number in equal bins.

    Quantiles and means are those of the people who have a number.

    Attributes
    ----------
    edges : (bins + 1,) array
    bins : (k,) integer array
        The bin of each symbol; −1 for those without a number.
    shares : Shares
        Of the symbols.

    Examples
    --------
    >>> from offaxis.encoding import Number
    >>> from offaxis.learning import fit_answers, histogram
    >>> release = fit_answers(Number(0, 10, bins=5), epsilon=4)
    >>> found = histogram(release, release.privatize(answers=[1.0] * 300 + [9.0] * 100))
    >>> shares = found.projected()
    >>> bool(shares.min() >= 0), round(float(shares.sum()), 6), int(shares.argmax())
    (True, 1.0, 0)
    """

    edges: Vectors
    bins: NDArray[np.int64]
    shares: Shares

    @property
    def estimate(self) -> Vectors:
        """The unbiased share of each bin among all people, (bins,)."""
        return self._summed(self.shares.estimate)

    @property
    def standard_error(self) -> Vectors:
        """Standard errors of the shares of bins, (bins,)."""
        symbols = self._summed(np.ones(len(self.bins)))
        sums = (self._summed(self.shares.estimate), self._summed(self.shares.named))
        error: Vectors = np.sqrt(self.shares.variance_of_sums(symbols, symbols, sums, sums))
        return error

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = True
    ) -> tuple[Vectors, Vectors]:
        """Return the ends of intervals of the shares of bins within [0, 1], (bins,) each.

        If the release asks for this number alone they hold for every number of reports, as those of
        :meth:`offaxis.decoding.Shares.interval`. Otherwise a bin is a sum of shares, and its
        interval holds by the normal law, which takes :data:`FEWEST` reports. There an estimate
        outside [0, 1] counts as its nearer end, so that no interval is cut to nothing.
        """
        alone = np.bincount(self.bins[self.bins >= 0]).max() == 1
        if alone:
            low, high = self.shares.interval(level, simultaneous=simultaneous)
            return low[self.bins >= 0], high[self.bins >= 0]
        check_enough(self.shares)
        z = _deviations(level, len(self.edges) - 1 if simultaneous else 1)
        low, high = normal_limits(self.estimate, self.standard_error)(z, 0.0, 1.0)
        return low, high

    def figure(self, path: Any = None) -> Any:
        """Draw the shares of bins with intervals that hold at once; return the matplotlib figure.

        The bars are the unbiased estimates, so small ones may be below 0, and the lines are 95 %
        intervals within [0, 1].

        Parameters
        ----------
        path : path, optional
            Where to save it, such as "ages.png".
        """
        low, high = self.interval(0.95)
        picture, axes = figures.binned(self.edges, self.estimate, low, high, "share of all people")
        axes.set_xlabel("number, in bins")
        return figures.saved(picture, path)

    def projected(self) -> Vectors:
        """Return non-negative shares of bins that sum to one, for display, (bins,).

        They are the shares among the people who have a number, from
        :meth:`offaxis.decoding.Shares.projected`.
        """
        summed = self._summed(self.shares.projected())
        total = summed.sum()
        return summed / total if total > 0 else np.full(len(summed), 1 / len(summed))

    def quantile(self, q: float, level: float = 0.95) -> Estimate:
        """Return the q-quantile with an interval.

        The estimate interpolates within a bin. The interval consists of whole bins: it holds
        wherever the numbers are inside them. Bin c is in it unless a test at the level rejects that
        the share below its upper end is q or more, or that the share below its lower end is q or
        less; the tests use the normal law, which takes :data:`FEWEST` reports.

        Examples
        --------
        >>> from offaxis.encoding import Number
        >>> from offaxis.learning import fit_answers, histogram
        >>> release = fit_answers(Number(0, 100, bins=50), epsilon=4)
        >>> numbers = np.random.default_rng(0).uniform(0, 100, 5000)
        >>> found = histogram(release, release.privatize(answers=numbers))
        >>> low, high = found.quantile(0.9, level=0.9999)[1:]
        >>> bool(low <= 90 <= high)
        True
        """
        q = as_number(q, "q")
        if not 0 < q < 1:
            raise InvalidInput(f"q must be between 0 and 1, got q={q!r}")
        check_enough(self.shares)
        below = np.concatenate([[0.0], np.cumsum(self.projected())])
        estimate = float(np.interp(q, below, self.edges))
        excess, error = self._excess(q)
        reach = _deviations(level, 1) * error + 1e-12  # and what is lost by rounding
        fits = (excess + reach >= 0) & (np.append(-1.0, (excess - reach)[:-1]) <= 0)
        kept = np.flatnonzero(fits)
        own = int(np.clip(np.searchsorted(self.edges, estimate) - 1, 0, len(fits) - 1))
        kept = np.append(kept, own)
        return Estimate(estimate, float(self.edges[kept.min()]), float(self.edges[kept.max() + 1]))

    def mean(self, level: float = 0.95) -> Estimate:
        """Return the mean with an interval.

        The estimate takes each number to be in the middle of its bin. The interval is wider by half
        a bin on both sides, so that it holds wherever they are. Numbers beyond the range count as
        its ends. It uses the normal law, which takes :data:`FEWEST` reports. For a mean alone,
        :func:`offaxis.fit` with ``goal="means"`` has a smaller error.

        Examples
        --------
        >>> from offaxis.encoding import Number
        >>> from offaxis.learning import fit_answers, histogram
        >>> release = fit_answers(Number(0, 100, bins=50), epsilon=4)
        >>> numbers = np.random.default_rng(0).uniform(0, 100, 5000)
        >>> found = histogram(release, release.privatize(answers=numbers))
        >>> low, high = found.mean(level=0.9999)[1:]
        >>> bool(low <= 50 <= high)
        True
        """
        check_enough(self.shares)
        middle = (self.edges[:-1] + self.edges[1:]) / 2
        share = self.estimate
        total = max(float(share.sum()), 1 / (2 * float(self.shares.count)))
        mean = float(np.clip(share @ middle / total, self.edges[0], self.edges[-1]))
        # The mean is a ratio; to first order its error is that of Σ (middle − mean) share / total.
        weights = np.append(middle - mean, 0.0)[self.bins] / total
        error = float(np.sqrt(self.shares.variance(weights)))
        reach = _deviations(level, 1) * error + (self.edges[1] - self.edges[0]) / 2
        return Estimate(
            mean, max(float(self.edges[0]), mean - reach), min(float(self.edges[-1]), mean + reach)
        )

    def _summed(self, values: Vectors) -> Vectors:
        """Return the sums over the symbols of each bin."""
        own = self.bins >= 0
        summed = np.bincount(self.bins[own], weights=values[own], minlength=len(self.edges) - 1)
        return summed.astype(np.float64)

    def _excess(self, q: float) -> tuple[Vectors, Vectors]:
        """Return the share up to the end of each bin minus q times that of all bins, and its error.

        The weights of the symbols are 1 − q up to the bin and −q beyond.
        """

        def both(values: Vectors) -> tuple[Vectors, Vectors]:
            summed = self._summed(values)
            until, total = np.cumsum(summed), summed.sum()
            return until - q * total, (1 - 2 * q) * until + q * q * total

        symbols, shares, named = map(
            both, (np.ones(len(self.bins)), self.shares.estimate, self.shares.named)
        )
        variance = self.shares.variance_of_sums(
            symbols[0], symbols[1], (shares[0], named[0]), (shares[1], named[1])
        )
        return shares[0], np.sqrt(variance)


def _deviations(level: float, statements: int) -> float:
    """Return the half width in standard errors of intervals that all hold at the level."""
    level = as_number(level, "level")
    if not 0 < level < 1:
        raise InvalidInput(f"level must be between 0 and 1, got level={level!r}")
    return float(-ndtri((1 - level) / (2 * statements)))
