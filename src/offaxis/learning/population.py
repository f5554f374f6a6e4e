"""Which weighted public sample stands for the people who reported, and what would they answer?

:func:`population` weights public vectors so that they explain the reports. Questions may be asked
afterwards: any model, any function of a vector. Everything here is a function of reports and public
vectors, so it costs no privacy beyond that of the reports.

What is identified is the law of what the encoder passes on, up to the public vectors: inside a cell
of public vectors, the answers of people are taken to be those of public vectors. Intervals are
widened by what the reports show about deviations inside cells (:mod:`.population_fit`), and a test
tells when no weights of the public vectors explain the reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
from scipy.special import softmax

from offaxis.errors import InvalidInput
from offaxis.geometry import answer_names, as_task_model
from offaxis.geometry.models import layers_for_answers
from offaxis.geometry.public import evenly
from offaxis.learning.crowd_answers import Answer, Difference, normal_limits, with_unknown
from offaxis.learning.likelihoods import (
    CELLS,
    Likelihoods,
    ReportLikelihoods,
    Support,
    check_release,
    support_of,
)
from offaxis.learning.population_fit import FEWEST_TESTED, Fit, fit_shares
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array, as_integer, as_number

FIT_LEVEL: Final = 0.05
"""Up to this p-value, no weights of the public vectors explain the reports."""

UNUSUAL: Final = 0.03
"""From this τ on, people are distributed inside the cells quite unlike the public vectors."""

LARGEST_MEASURED: Final = 4.0
"""The largest ε at which intervals were measured to hold."""

_PER_CELL: Final = 10
_USEFUL: Final = 0.5
_MARGIN: Final = 0.8
_DOUBLINGS: Final = 30
_THRESHOLDS: Final = 400
_MOST_COLUMNS: Final = 1 << 13
_MOST_BINS: Final = 1_000
_CONSTANT: Final = 1e-12
_FEW: Final = 20
_FEW_VECTORS: Final = (
    " If the release was fitted to these vectors, try others: to few vectors of many dimensions a "
    "release fits closer than to other people."
)
_HIDDEN: Final = 0.5
"""From this share of a question's public variance on, cells hide too much of it."""


def population(release: Any, reports: Any, support: Any, *, cells: int = CELLS) -> Population:
    """Weight public vectors so that they stand for the people who reported.

    The weights maximise the likelihood of the reports over the shares of cells of public vectors,
    shrunk towards the public ones.

    Parameters
    ----------
    release : Release, or a sequence of them
        Of vectors or of symbols; fitted to a question or to none.
    reports : iterable of bytes, or a sequence of such iterables
        One report per person; for several releases, one collection each. Several rounds of one
        release are several entries. A person may be in several of them: that costs the person the
        sum of their ε, and intervals then are approximate.
    support : array (n, m), or callable returning an iterator of batches
        Public vectors. At most 5,000 of them are used, evenly spaced.
    cells : int
        At most so many cells; there are at least 30 public vectors in each, on average.

    Raises
    ------
    InvalidInput
        If there are too few reports, or the reports cannot tell the vectors apart.
    InvalidReport
        If a report is damaged or of another release.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> centres = 4 * np.eye(3)
    >>> public = centres[rng.integers(3, size=900)] + rng.standard_normal((900, 3))
    >>> release = offaxis.fit(None, public, epsilon=4, goal="vectors")  # fitted to no question
    >>> people = centres[rng.choice(3, 3000, p=[0.6, 0.3, 0.1])] + rng.standard_normal((3000, 3))
    >>> crowd = offaxis.population(release, release.privatize(people), support=public)
    >>> shares = crowd.share(np.eye(3))  # a question that nobody thought of before
    >>> bool(abs(shares.estimate[0] - 0.6) < 0.1)
    True
    """
    return estimate(sources_of(release, reports), support, cells)


def sources_of(release: Any, reports: Any) -> list[tuple[Release, Any]]:
    """Return pairs of a release and its reports, which may be one of each."""
    if isinstance(release, Release):
        return [(release, reports)]
    releases = list(release) if isinstance(release, Iterable) else []
    if not releases or not all(isinstance(part, Release) for part in releases):
        raise InvalidInput("pass a release, or a list of releases with one list of reports each")
    listed = list(reports)
    if len(releases) != len(listed):
        raise InvalidInput(f"there are {len(releases)} releases and {len(listed)} lists of reports")
    return list(zip(releases, listed, strict=True))


def estimate(sources: Sequence[tuple[Release, Any]], support: Any, cells: int) -> Population:
    """Return the population of pairs of a release and its reports."""
    likelihoods = Likelihoods(prepare([release for release, _ in sources], support, cells))
    for release, reports in sources:
        likelihoods.add(release, reports)
    return of_likelihoods(likelihoods)


def prepare(releases: Sequence[Release], public: Any, cells: int) -> Support:
    """Return public vectors in cells; raise if a release says nothing about vectors."""
    unique: list[Release] = []
    for release in releases:
        check_release(release)
        if release not in unique:
            unique.append(release)
    return support_of(public, unique, as_integer(cells, "cells", 2, 400))


def of_likelihoods(likelihoods: ReportLikelihoods) -> Population:
    """Return the population of likelihoods that may have been computed elsewhere, as on Spark."""
    fewest = _PER_CELL * len(likelihoods.support.shares)
    if likelihoods.count < fewest:
        raise InvalidInput(
            f"{likelihoods.count} reports are too few for a population of "
            f"{len(likelihoods.support.shares)} cells: at least {fewest} are needed"
        )
    epsilons = [float(part.release.guarantee.epsilon) for part in likelihoods.samples]
    return Population(fit_shares(likelihoods), tuple(epsilons))


def widened(public: Any, *, size: int = 5_000, spread: float = 0.5, seed: int = 0) -> Vectors:
    """Return public vectors together with perturbed, mixed and shifted copies of them.

    A wider support for people who differ from every public vector. Half are the public vectors; the
    others are mixtures of two, vectors moved in random directions by ``spread`` public standard
    deviations, and such vectors moved nearer to the centre or away from it.

    Parameters
    ----------
    public : array (n, m), or callable returning an iterator of batches
    size : int
    spread : float
        Positive.
    seed : int
        For the public copies; nothing private depends on it.

    Examples
    --------
    >>> from offaxis.learning import widened
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> widened(public, size=400).shape
    (400, 3)
    """
    size = as_integer(size, "size", 8, 1 << 20)
    spread = float(as_number(spread, "spread"))
    if not 0 < spread < math.inf:
        raise InvalidInput(f"spread must be positive, got spread={spread!r}")
    vectors = evenly(public, size // 2)
    rng = np.random.default_rng(seed)
    centre = vectors.mean(axis=0)
    values, axes = np.linalg.eigh(np.atleast_2d(np.cov(vectors.T)))
    root = axes * np.sqrt(np.maximum(values, 0.0))
    rest = size - len(vectors)
    base = vectors[rng.integers(len(vectors), size=rest)]
    third = rest // 3
    other = vectors[rng.integers(len(vectors), size=third)]
    share = rng.random((third, 1))
    base[:third] = share * base[:third] + (1 - share) * other
    moved = spread * rng.standard_normal((rest - third, vectors.shape[1])) @ root.T
    base[third:] += moved
    scale = rng.uniform(1 - spread, 1 + spread, (rest - 2 * third, 1))
    base[2 * third :] = centre + scale * (base[2 * third :] - centre)
    return np.concatenate([vectors, base])


# ---- Populations


@dataclass(frozen=True, eq=False)
class Population:
    """Weighted public vectors that stand for the people who reported; from :func:`population`.

    Attributes
    ----------
    fit : Fit
        The shares of cells, their errors, and the test of fit.
    epsilons : tuple of float
        The budgets of the releases.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((600, 2))
    >>> release = offaxis.fit(None, public, epsilon=4, mechanism="privunit2", reshaping="centre")
    >>> reports = release.privatize(rng.standard_normal((1000, 2)) + [0.5, 0])
    >>> crowd = offaxis.population(release, reports, support=public)
    >>> low, high = crowd.quantile(lambda Z: Z[:, 0], 0.5).interval(1 - 1e-6)
    >>> bool(low < 0.5 < high)
    True
    >>> crowd.histogram(lambda Z: Z[:, 0], bins=[-4, 0, 4]).estimate.shape
    (2,)
    """

    fit: Fit
    epsilons: tuple[float, ...]

    def __repr__(self) -> str:
        """Return for example ``Population(10,000 reports, 20 cells, fit p = 0.41)``."""
        return (
            f"Population({self.fit.count:,} reports, {len(self.fit.shares)} cells, "
            f"fit p = {self.fit.p_value:.2g})"
        )

    @property
    def support(self) -> Support:
        """The public vectors in cells."""
        return self.fit.support

    @property
    def vectors(self) -> Vectors:
        """The public vectors, (J, m)."""
        return self.support.vectors

    @cached_property
    def weights(self) -> Vectors:
        """The weight of each public vector, (J,): at least zero, with sum one."""
        return self._weights(self.fit.shares)

    def _weights(self, shares: Vectors) -> Vectors:
        support = self.support
        parts = support.spread @ shares / np.bincount(support.parts)
        weights: Vectors = parts[support.parts]
        return weights

    @property
    def explained(self) -> bool:
        """False if no weights of the public vectors explain the reports (5 % level)."""
        return not self.fit.p_value <= FIT_LEVEL

    @property
    def warning(self) -> str:
        """What speaks against answers of this population; empty if nothing does."""
        fit = self.fit
        if not self.explained:
            return (
                f"No weights of the public vectors explain the reports (p = {fit.p_value:.2g}): "
                f"people differ from all of them, and answers may be wrong beyond their intervals. "
                f"Use public vectors that are more like them, or offaxis.learning.widened."
                + (_FEW_VECTORS if self.vectors.size > len(self.vectors) ** 2 / _FEW else "")
            )
        found = []
        if fit.least_spread > UNUSUAL and max(self.epsilons) > 1:
            found.append(
                "Inside the cells, people are distributed quite unlike the public vectors. "
                "Intervals are widened for it."
            )
        if max(self.epsilons) > LARGEST_MEASURED:
            found.append(
                f"Intervals were measured up to ε = {LARGEST_MEASURED:g}. At larger ε they are too "
                f"short where few public vectors are near a report."
            )
        return " ".join(found)

    @property
    def summary(self) -> str:
        """How well the public vectors explain the reports."""
        fit, budget = self.fit, ", ".join(f"{epsilon:g}" for epsilon in self.epsilons)
        text = f"{fit.count:,} reports at ε = {budget}. "
        if self.warning:
            return text + self.warning
        fewest = FEWEST_TESTED * len(fit.shares)
        if math.isnan(fit.p_value) and fit.count < fewest:
            return text + f"A test whether the public vectors explain them takes {fewest:,}."
        if math.isnan(fit.p_value):
            return text + "Reports of symbols cannot show whether the public vectors explain them."
        text += (
            f"A test does not reject that the public vectors explain them (p = {fit.p_value:.2g})."
        )
        if max(self.epsilons) <= 1:
            text += " At ε ≤ 1 that is no comfort: the test misses most people who differ."
        return text

    # ---- Questions

    def share(self, model: Any) -> Answer:
        """Return the shares of the answers of a public model.

        Parameters
        ----------
        model : public classifier
            As in :func:`offaxis.fit`: a network, a scikit-learn estimator, a function (n, m) → (n,
            k) with one output per answer.
        """
        outputs, names = self._outputs(model)
        chosen = np.eye(outputs.shape[1])[outputs.argmax(axis=1)]
        return with_unknown(self.answer("shares", names, chosen, bounds=(0.0, 1.0)), chosen)

    def accuracy(self, model: Any, labels: Any = None) -> Answer:
        """Return how often a public classifier is right for the people.

        Parameters
        ----------
        model : public classifier
        labels : (J,) integers, optional
            The classes of the public vectors in :attr:`vectors`, in its order. By default the
            model's own probabilities are believed.
        """
        outputs, _ = self._outputs(model)
        chosen = outputs.argmax(axis=1)
        if labels is None:
            positive = (outputs >= 0).all() and np.allclose(outputs.sum(axis=1), 1)
            right = (outputs if positive else softmax(outputs, axis=1)).max(axis=1)
            question = "accuracy, if the model's probabilities are right"
        else:
            known = np.asarray(labels)
            if known.shape != (len(outputs),) or known.dtype.kind not in "iu":
                raise InvalidInput("labels are integers, one per vector of population.vectors")
            if not ((known >= 0) & (known < outputs.shape[1])).all():
                raise InvalidInput(f"labels are between 0 and {outputs.shape[1] - 1}")
            right, question = (chosen == known).astype(np.float64), "accuracy"
        return self.answer(question, ("accuracy",), right, bounds=(0.0, 1.0), single=True)

    def mean(self, function: Any = None) -> Answer:
        """Return the mean of a function of a vector; without one, of the vectors.

        ``function`` takes vectors (J, m) and returns (J,) or (J, p) numbers.
        """
        values = self.vectors if function is None else self.values(function)
        single = values.ndim == 1
        names = ("mean",) if single else tuple(map(str, range(values.shape[1])))
        bounds = float(values.min()), float(values.max())
        return self.answer("mean", names, values, bounds=bounds, single=single)

    def histogram(self, function: Any, bins: Any = 10) -> Answer:
        """Return the shares of people whose f(z) is in each bin.

        ``bins`` are their number, or their edges; the first and the last one are open to their
        sides.
        """
        values = self._one(function)
        edges = _edges(values, bins)
        places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        names = tuple(f"{a:.4g} to {b:.4g}" for a, b in pairwise(edges))
        member = np.eye(len(names))[places]
        return with_unknown(self.answer("histogram", names, member, bounds=(0.0, 1.0)), member)

    def quantile(self, function: Any, q: Any = 0.5) -> Answer:
        """Return quantiles of f(z), with the intervals of Woodruff (1952).

        An interval holds the values t at which q is in the interval of Pr[f(z) <= t], and those
        between them.
        """
        values = self._one(function)
        asked = np.atleast_1d(as_array(q, "q"))
        if asked.ndim != 1 or not asked.size or not ((asked > 0) & (asked < 1)).all():
            raise InvalidInput("q is one or several numbers between 0 and 1")
        order = np.argsort(values, kind="stable")
        below = np.cumsum(self.weights[order])
        places = np.minimum(np.searchsorted(below, asked - 1e-12), len(values) - 1)
        found = values[order][places]
        marks = np.unique(np.quantile(values, np.linspace(0, 1, _THRESHOLDS), method="lower"))
        chances = (values[:, None] <= marks).astype(np.float64)
        centre, error = self._linear(chances)[1:]
        names = tuple(f"quantile {level:g}" for level in asked)
        single, every = np.ndim(q) == 0, np.unique(values)

        def limits(z: float, lowest: float, highest: float) -> tuple[Any, Any]:
            low, high = [], []
            for level in asked:
                # Estimated chances need not rise with t: a mark is too low only if all before it
                # are, and too high only if all after it are.
                first = int(np.argmax(centre + z * error >= level))
                kept = np.flatnonzero(centre - z * error <= level)
                after = min(int(kept[-1]) + 1, len(marks) - 1) if kept.size else 0
                above = np.searchsorted(every, marks[first - 1], side="right") if first else 0
                low.append(float(every[above]))
                high.append(float(marks[after]))
            ends = np.clip([low, high], lowest, highest)
            return (float(ends[0][0]), float(ends[1][0])) if single else (ends[0], ends[1])

        low, high = limits(1.0, float(values.min()), float(values.max()))
        half = (np.asarray(high) - np.asarray(low)) / 2
        bounds = float(values.min()), float(values.max())
        estimate, wide = (float(found[0]), float(half)) if single else (found, half)
        warning = self._warning(values[:, None], ("these values",))
        return Answer("quantiles", names, estimate, wide, warning, limits, bounds)

    def covariance(self) -> Answer:
        """Return the covariance of the people's vectors, (m, m)."""
        m = self.vectors.shape[1]
        if m * (m + 1) // 2 > _MOST_COLUMNS:
            raise InvalidInput(
                f"a covariance of {m} dimensions has too many numbers: ask for mean() of the "
                f"products that you need"
            )
        i, j = np.triu_indices(m)
        centred = self.vectors - self.weights @ self.vectors
        products = centred[:, i] * centred[:, j]
        found, centre, error = self._linear(products)
        full = np.empty((m, m), dtype=np.int64)
        full[i, j] = full[j, i] = np.arange(i.size)
        names = tuple(f"{a}, {b}" for a in range(m) for b in range(m))
        limits = normal_limits(centre[full], error[full])
        warning = self._warning(products, tuple(f"{a}, {b}" for a, b in zip(i, j, strict=True)))
        return Answer("covariance", names, found[full], error[full], warning, limits)

    def compare(self, other: Population) -> Difference:
        """Return how this population differs from another one, such as that of an earlier round.

        Both are of the same releases, public vectors and number of cells.
        """
        if not isinstance(other, Population):
            raise InvalidInput(f"compare with another population, not a {type(other).__name__}")
        return Difference(self, other)

    # ---- How questions are answered

    def values(self, function: Any) -> Vectors:
        """Return a function of the public vectors, checked: (J,) or (J, p)."""
        if not callable(function):
            raise InvalidInput("a question is a function of vectors (n, m), such as a model")
        # A copy: what a function does to its argument must not change the population.
        try:
            values = np.asarray(function(self.vectors.copy()))
        except ValueError as error:
            raise InvalidInput(f"the question fails on the public vectors: {error}") from error
        if values.dtype.kind not in "biuf" or values.shape[:1] != (len(self.vectors),):
            raise InvalidInput(
                f"the question must return one number (or row of numbers) per vector, it returned "
                f"{values.dtype} of shape {values.shape} for {len(self.vectors)} vectors"
            )
        values = values.astype(np.float64)
        unknown = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if unknown.any():
            raise InvalidInput(
                f"the question has no finite answer for {int(unknown.sum())} of {len(values)} "
                f"public vectors: return a number for every vector"
            )
        if values.ndim > 2 or values.size == 0:
            raise InvalidInput("the question must return (n,) or (n, p) numbers")
        return values

    def _one(self, function: Any) -> Vectors:
        values = self.values(function)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise InvalidInput("this question needs one number per vector")
        return values

    def _outputs(self, model: Any) -> tuple[Vectors, tuple[str, ...]]:
        layers = getattr(model, "layers_", None)
        task = as_task_model(model if layers is None else layers)
        task = layers_for_answers(task) or task
        try:
            outputs = task.outputs(self.vectors.copy())
        except ValueError as error:
            told = f"the model fails on public vectors of {self.vectors.shape[1]} numbers: {error}"
            raise InvalidInput(told) from error
        unknown = ~np.isfinite(outputs).all(axis=1)
        if unknown.any():
            raise InvalidInput(
                f"the model has no finite output for {int(unknown.sum())} of {len(outputs)} public "
                f"vectors"
            )
        if outputs.shape[1] < 2:
            raise InvalidInput("a model with one output has no answers: ask for mean or histogram")
        return outputs, answer_names(task) or tuple(map(str, range(outputs.shape[1])))

    def _linear(self, values: Vectors, fit: Fit | None = None) -> tuple[Vectors, Vectors, Vectors]:
        """Return the shrunk and the plain estimate of means of values (J, p), and the errors."""
        support, fit = self.support, fit or self.fit
        found, plain, error = [], [], []
        for start in range(0, values.shape[1], _MOST_COLUMNS // 8):
            part = values[:, start : start + _MOST_COLUMNS // 8]
            # In units of the largest value, so that squares are finite, and about the public mean,
            # so that large values with small differences lose no digits.
            unit = _units(part)
            part = part / unit
            middle = part.mean(axis=0)
            part -= middle
            means = support.means(part)
            squares = np.maximum(support.means(part * part) - means**2, 0.0)
            inner = support.spread.T @ means
            found.append((fit.shares @ inner + middle) * unit)
            plain.append((fit.unshrunk @ inner + middle) * unit)
            error.append(np.sqrt(fit.variance(means, squares)) * unit)
        return np.concatenate(found), np.concatenate(plain), np.concatenate(error)

    def answer(
        self,
        question: str,
        names: tuple[str, ...],
        values: Vectors,
        *,
        bounds: tuple[float, float],
        single: bool = False,
    ) -> Answer:
        """Return the answer of a question whose public answers are these values, (J,) or (J, p)."""
        table = values.reshape(len(values), -1)
        found, centre, error = self._linear(table)
        self._check_enough(table, error)
        numbers: list[Any] = [float(p[0]) if single else p for p in (found, centre, error)]
        limits = normal_limits(*numbers[1:])
        warning = self._warning(table, names)
        return Answer(question, names, numbers[0], numbers[2], warning, limits, bounds)

    def _check_enough(self, values: Vectors, error: Vectors) -> None:
        """Raise if no error is smaller than half a deviation: the public answer is as good."""
        unit = _units(values)
        deviation, error = (values / unit).std(axis=0), error / unit
        varies = deviation > _CONSTANT
        if not varies.any() or (error[varies] <= _USEFUL * deviation[varies]).any():
            return
        scaled, deviation = (values / unit)[:, varies], deviation[varies]
        told = f"{self.fit.count:,} reports are too few for this question"
        for doubled in range(1, _DOUBLINGS):
            # In steps of √2, with some margin.
            people = math.ceil(self.fit.count * math.sqrt(2) ** doubled / 100) * 100
            expected = self._linear(scaled, self.fit.with_reports(people))[2]
            if (expected <= _MARGIN * _USEFUL * deviation).any():
                raise InvalidInput(f"{told}: about {people:,} people would do")
        ratio = float((error[varies] / deviation).min())
        raise InvalidInput(
            f"{told}: its error is {ratio:.1f} standard deviations of the public answers, and more "
            f"people would hardly help. "
            + (self.warning or "Ask for less, or use a release that shows more")
        )

    def _warning(self, values: Vectors, names: tuple[str, ...]) -> str:
        """Return what speaks against answers about values (J, p): about the fit, or about them."""
        if not self.explained:
            return self.warning
        # How people are distributed inside a cell is taken from the public vectors.
        cells = self.support.cells[self.support.parts]
        scaled = values / _units(values)
        means = self.support.spread.T @ self.support.means(scaled)
        variance = scaled.var(axis=0)
        hidden = np.square(scaled - means[cells]).mean(axis=0) / np.maximum(variance, _CONSTANT)
        most = int(hidden.argmax())
        # Where cells have one part each, as of symbols, reports show nothing inside them.
        seen = len(self.support.cells) > len(self.support.shares)
        if hidden[most] <= (_HIDDEN if seen else _HIDDEN / 2):
            return self.warning
        told = (
            f"{hidden[most]:.0%} of the public variance of {names[most]!r} is inside the cells, "
            f"where people are taken to be like the public vectors: where they are not, it may be "
            f"outside its interval."
        )
        return f"{self.warning} {told}".strip()


def _units(values: Vectors) -> Vectors:
    """Return the largest absolute value of every column, or one."""
    largest = np.abs(values).max(axis=0)
    units: Vectors = np.where(largest > 0, largest, 1.0)
    return units


def _edges(values: Vectors, bins: Any) -> Vectors:
    """Return the edges of bins, given their number or them."""
    if np.ndim(bins) == 0:
        count = as_integer(bins, "bins", 1, _MOST_BINS)
        try:
            with np.errstate(all="ignore"):
                return np.histogram_bin_edges(values, count)
        except ValueError:
            raise InvalidInput(
                f"{count} bins do not fit between {values.min():g} and {values.max():g}: pass edges"
            ) from None
    edges = as_array(bins, "bins")
    if edges.ndim != 1 or not 2 <= edges.size <= _MOST_BINS + 1 or not (np.diff(edges) > 0).all():
        raise InvalidInput(
            f"bins are a number of them, or increasing edges; there are at most {_MOST_BINS}"
        )
    return edges
