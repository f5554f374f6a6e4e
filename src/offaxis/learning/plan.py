"""How many people would it take? A plan, before anybody is asked, from public vectors alone.

How the answers depend on the vectors is unknown, so a plan assumes a signal: the accuracy that a
model could reach without privacy, and its form. For cells, one answer in each cell is right for
that share of its people. For linear features, the log odds of the answers are linear functions of
the features in random directions, whose best guesses are right that often; a number is a random
linear function and noise, of a stated deviation. Everybody is assumed to have an answer. With
``related`` public labels of a similar task, these are the signal.

Accuracies are simulated over random tasks and the noise of the reports, so an interval covers a new
task and new people at its rate, *if the assumption holds*. A bootstrap from reports would be
optimistic instead: estimated coefficients explain themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
from scipy.special import softmax

from offaxis.encoding.pairs import Asked, Classes, Number, as_asked, simplex
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.learning.features import FeatureMap, choose, principal
from offaxis.learning.pairs import check_with_vector, fit_pairs
from offaxis.learning.sums import none_missing
from offaxis.learning.tasks import ClassTask, NumberTask, Task, random_directions, strength
from offaxis.privacy.guarantee import Unit, exact_epsilon
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array, as_integer, as_number

SIGNAL: Final = 0.8
"""The accuracy without privacy that a plan assumes, unless stated."""

TASKS: Final = 40
"""Simulated tasks. A new one lies between the smallest and the largest with 39/41 = 95 %."""

_ALL_ANSWER: Final = (
    "; everybody has an answer: if only a share r of the people has one, it takes about 1/r² times "
    "as many"
)

_VARIES: Final = 1e-9
"""Related numbers vary by more than this share of their range."""

_POINTS, _MOST_PEOPLE, _MOST_EPSILON = 2_000, 100_000_000, 16
_PEOPLE: Final = (1_000, 4_000, 10_000, 40_000, 100_000)
_EPSILONS: Final = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))


@dataclass(frozen=True)
class Prediction:
    """The accuracy to expect of a model; for numbers, R².

    Attributes
    ----------
    people : int
    epsilon : Fraction
    accuracy : float
        The mean over tasks.
    low, high : float
        A new task lies between them 95 times of 100, if the assumption of the plan holds.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from offaxis.learning import Prediction
    >>> Prediction(4000, Fraction(1), 0.81, 0.72, 0.88)
    0.81 (0.72 to 0.88) from 4,000 people at ε = 1
    """

    people: int
    epsilon: Fraction
    accuracy: float
    low: float
    high: float

    def __repr__(self) -> str:
        """Return for example ``0.81 (0.72 to 0.88) from 4,000 people at ε = 1``."""
        return (
            f"{self.accuracy:.2f} ({self.low:.2f} to {self.high:.2f}) from {self.people:,} people "
            f"at ε = {float(self.epsilon):g}"
        )


def plan_learning(
    public: Any,
    *,
    answers: Any,
    epsilon: Any,
    people: int | None = None,
    features: FeatureMap | None = None,
    signal: float | None = None,
    deviation: float | None = None,
    related: Any = None,
    target: float | None = None,
    labels: str = "private",
    unit: Unit = "item",
    statement: str = "",
) -> Plan:
    """Plan a model from reports: the release to use, and what to expect at which n and ε.

    Parameters
    ----------
    public : array (n, m), or callable returning an iterator of batches
        Public vectors like those of the people.
    answers : Classes, Number, int, list of str, or a list of Classes and Number
        What is asked. Of several answers, the plan is for the first one.
    epsilon : number
        Budget of one report.
    people : int, optional
        How many people will report. The plan refuses too few.
    features : FeatureMap, optional
        By default cells if the public vectors cluster, otherwise principal directions.
    signal : float, optional
        The assumed accuracy without privacy (for numbers R²); 0.8 by default.
    deviation : float, optional
        The assumed standard deviation of numbers; by default a quarter of their range.
    related : sequence, optional
        Public labels of a similar task, one per public vector, as the signal.
    target : float, optional
        The accuracy that ``people`` must reach; by default half of what is possible beyond
        guessing.
    labels : {"private", "public"}
        Whether people report their answers, or the collector knows them.
    unit, statement
        As in :func:`offaxis.fit`.

    Raises
    ------
    InvalidInput
        If ``people`` are too few, with the number that it would take.

    Examples
    --------
    >>> import offaxis
    >>> public = np.random.default_rng(0).standard_normal((1000, 6))
    >>> plan = offaxis.plan_learning(public, answers=["no", "yes"], epsilon=1)
    >>> plan.release
    Release(privunit2, ε = 1, pure, per item, dimension 7, ...)
    >>> plan.expected(people=10_000)
    0.7... (0... to 0...) from 10,000 people at ε = 1
    >>> 500 < plan.smallest_people(0.7) < 50_000
    True
    """
    asked = as_asked(answers)
    if not asked:
        raise InvalidInput("say what is asked: answers=Classes(...), Number(low, high) or a list")
    check_with_vector(asked)
    if labels not in ("private", "public"):
        raise InvalidInput(f"labels must be 'private' or 'public', got {labels!r}")
    hidden = labels == "private"
    if features is None:
        numbers = any(isinstance(part, Number) for part in asked)
        if isinstance(asked[0], Number) or (numbers and hidden):
            features = principal(public)
        else:
            features = choose(public, max(part.classes for part in asked))
    release = fit_pairs(
        features, list(asked) if hidden else None, epsilon=epsilon, unit=unit, statement=statement
    )
    if related is not None and signal is not None:
        raise InvalidInput("related labels are the signal: leave out signal")
    if related is not None and deviation is not None:
        raise InvalidInput("related labels have a deviation of their own: leave out deviation")
    signal, spread = _signal(asked[0], signal), _deviation(asked[0], deviation)
    plan = Plan(release, features, asked[0], signal, hidden, spread)
    if related is not None:
        codes = _related(asked[0], related, features)
        plan = Plan(release, features, asked[0], math.nan, hidden, math.nan, codes)
    if target is not None and people is None:
        raise InvalidInput(
            "a target is for a number of people: pass people, or use smallest_people()"
        )
    if people is not None:
        plan.require(people, target)
    return plan


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What to expect of models learnt from reports; create one with :func:`plan_learning`.

    Attributes
    ----------
    release : Release
        The release to publish.
    features : FeatureMap
    asked : Classes or Number
        The answer that the plan is about.
    signal : float
        The assumed accuracy without privacy; NaN with related labels.
    private_labels : bool
    deviation : float
        The assumed standard deviation of numbers; NaN for classes and with related labels.
    related : (N,) array or None
        Related public labels of evenly spaced public vectors.

    Examples
    --------
    >>> from offaxis.learning import Plan, plan_learning
    >>> public = np.random.default_rng(0).standard_normal((1000, 3))
    >>> plan: Plan = plan_learning(public, answers=2, epsilon=2)
    >>> plan.guess < plan.expected(3000).accuracy < plan.best
    True
    """

    release: Release
    features: FeatureMap
    asked: Asked
    signal: float
    private_labels: bool
    deviation: float = math.nan
    related: Vectors | None = None
    _releases: dict[Fraction, Release] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        """Return for example ``Plan(cells, ε = 1, answer: one of 10 classes)``."""
        return f"Plan({self.features.kind}, {self.release.guarantee}, {self.asked!r})"

    @property
    def assumption(self) -> str:
        """What the plan assumes about the answers."""
        like = "people's vectors are like the public ones"
        if self.related is not None:
            assumed = f"{like}, and their answers depend on them as the related public labels do"
            return assumed + (_ALL_ANSWER if self.asked.optional else "")
        if isinstance(self.asked, Number):
            form = (
                "a linear function of the features and noise, with R² = {:g} without privacy and "
                f"a standard deviation of {self.deviation:g}"
            )
        elif self.features.kind == "cells":
            form = "the same for {:.0%} of the people of a cell, and evenly spread over the others"
        else:
            form = "logistic in the features, and the likeliest is right for {:.0%} of the people"
        assumed = f"{like}, and their answers are {form.format(self.signal)}"
        return assumed + (_ALL_ANSWER if self.asked.optional else "")

    @property
    def guess(self) -> float:
        """The accuracy of the same answer for everybody; R² of a constant."""
        return float(np.mean([task.guess for task in self._tasks]))

    @property
    def best(self) -> float:
        """The accuracy of such a model without privacy and from everybody, under the assumption."""
        return float(np.mean([task.best for task in self._tasks]))

    def expected(self, people: Any, epsilon: Any = None) -> Prediction:
        """Return the accuracy to expect from a number of people at a budget."""
        n = as_integer(people, "people", 10, _MOST_PEOPLE)
        release = self._at(epsilon)
        rng = np.random.default_rng(1)
        found = [task.learnt(release, n, rng) for task in self._tasks]
        return Prediction(
            n, release.guarantee.epsilon, float(np.mean(found)), min(found), max(found)
        )

    def table(self, people: Any = _PEOPLE, epsilons: Any = None) -> list[list[Prediction]]:
        """Return predictions, one row per budget and one column per number of people."""
        if epsilons is None:
            epsilons = sorted({*_EPSILONS, self.release.guarantee.epsilon})
        return [[self.expected(n, epsilon) for n in people] for epsilon in epsilons]

    def __str__(self) -> str:
        """Return the table as text, with the assumption."""
        rows = self.table()
        measure = "R²" if isinstance(self.asked, Number) else "accuracy"
        lines = [
            f"{self!r}: expected {measure}, with the range of 95 % of tasks",
            "ε \\ people" + "".join(f"{cell.people:>20,}" for cell in rows[0]),
        ]
        for row in rows:
            cells = (f"{cell.accuracy:.2f} ({cell.low:.2f}–{cell.high:.2f})" for cell in row)
            lines.append(f"{float(row[0].epsilon):<10g}" + "".join(f"{cell:>20}" for cell in cells))
        lines.append(f"nobody asked: {self.guess:.2f}; everybody, without privacy: {self.best:.2f}")
        return "\n".join([*lines, f"Assumed: {self.assumption}."])

    def smallest_people(self, target: float, epsilon: Any = None) -> int | None:
        """Return the least number of people, to two digits, that reach an accuracy; None if none.

        Monotone only on average: the number is where the expected accuracy first reaches it.
        """
        target = _share(target, "target")
        if self.expected(_MOST_PEOPLE, epsilon).accuracy < target:
            return None
        tens = [round(m * 10.0**e) for e in range(1, 8) for m in np.arange(1.0, 10.0, 0.1)]
        return int(
            _first(tens, lambda n: self.expected(n, epsilon).accuracy >= target) or _MOST_PEOPLE
        )

    def smallest_epsilon(self, target: float, people: Any) -> float | None:
        """Return the least budget, in steps of a tenth, at which people reach an accuracy."""
        target = _share(target, "target")
        steps = [Fraction(i, 10) for i in range(1, 10 * _MOST_EPSILON + 1)]
        found = _first(steps, lambda epsilon: self.expected(people, epsilon).accuracy >= target)
        return None if found is None else float(found)

    def require(self, people: Any, target: float | None = None) -> None:
        """Raise InvalidInput if people are too few, with the number that it would take."""
        wanted = (self.guess + self.best) / 2 if target is None else _share(target, "target")
        found = self.expected(people)
        if found.accuracy >= wanted:
            return
        needed = self.smallest_people(wanted)
        budget = self.smallest_epsilon(wanted, people)
        instead = "no number of people would reach it with these features"
        if needed is not None:
            instead = f"it would take about {needed:,} people"
        if budget is not None:
            instead += f", or ε = {budget:g} with {found.people:,}"
        reason = "half of what is possible beyond guessing" if target is None else "the target"
        raise InvalidInput(
            f"{found.people:,} people at ε = {float(found.epsilon):g} are too few: expected "
            f"{found.accuracy:.2f}, and {reason} is {wanted:.2f}; {instead}; assumed: "
            f"{self.assumption}"
        )

    def figure(self, path: Any = None) -> Any:
        """Draw expected accuracy by people, one line per budget; return the matplotlib figure.

        Parameters
        ----------
        path : path, optional
            Where to save it, such as "plan.png".
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise MissingExtra(f"figures need matplotlib: {installing('html')}") from None
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for row in self.table():
            n = [cell.people for cell in row]
            (line,) = axes.plot(
                n,
                [cell.accuracy for cell in row],
                marker="o",
                label=f"ε = {float(row[0].epsilon):g}",
            )
            low, high = [cell.low for cell in row], [cell.high for cell in row]
            axes.fill_between(n, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        axes.axhline(self.best, color="0.4", linestyle="--", linewidth=1)
        axes.axhline(self.guess, color="0.4", linestyle=":", linewidth=1)
        axes.text(n[0], self.best, "everybody, without privacy", va="bottom", color="0.3", size=8)
        axes.text(n[0], self.guess, "nobody asked", va="bottom", color="0.3", size=8)
        axes.set_xscale("log")
        axes.set_xlabel("people who report")
        axes.set_ylabel("R²" if isinstance(self.asked, Number) else "accuracy")
        axes.set_ylim(min(0.0, self.guess), 1.02)
        axes.legend(frameon=False, loc="lower right")
        axes.spines[["top", "right"]].set_visible(False)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _at(self, epsilon: Any) -> Release:
        """Return the release at another budget."""
        exact = self.release.guarantee.epsilon if epsilon is None else exact_epsilon(epsilon)
        if exact == self.release.guarantee.epsilon:
            return self.release
        if exact not in self._releases:
            asked = list(self.release.asked) or None
            self._releases[exact] = fit_pairs(self.features, asked, epsilon=exact)
        return self._releases[exact]

    @property
    def step(self) -> int:
        """One of how many sampled public vectors, and of their labels, tasks are drawn for."""
        return max(1, len(self.features.sample) // _POINTS)

    @cached_property
    def _tasks(self) -> list[Task]:
        x = self.features.of(self.features.sample[:: self.step])
        rng = np.random.default_rng(0)
        return [self._task(x, rng) for _ in range(TASKS)]

    def _task(self, x: Vectors, rng: np.random.Generator) -> Task:
        """Draw a task: the chances of the answers of public vectors, or their means."""
        if isinstance(self.asked, Number):
            return NumberTask.draw(self, x, rng)
        k = self.asked.classes
        if self.related is not None:
            chances = np.eye(k)[self.related[:: self.step].astype(np.int64)]
        elif self.features.kind == "cells":
            named = rng.permutation(np.resize(np.arange(k), max(k, self.features.size)))
            rest = (1 - self.signal) / (k - 1)
            chances = np.where(np.eye(k)[named[x.argmax(axis=1)]] > 0, self.signal, rest)
        else:
            slopes = simplex(k) @ random_directions(k - 1, x.shape[1], rng)
            logits = (x - x.mean(axis=0)) @ slopes.T
            chances = softmax(strength(logits, self.signal) * logits, axis=1)
        return ClassTask(self, x, chances)


def _signal(asked: Asked, signal: Any) -> float:
    if signal is None:
        return SIGNAL
    found = _share(signal, "signal")
    if isinstance(asked, Classes) and found <= 1 / len(asked.names):
        raise InvalidInput(
            f"signal={found:g} is no better than guessing one of {len(asked.names)} classes"
        )
    return found


def _deviation(asked: Asked, deviation: Any) -> float:
    if not isinstance(asked, Number):
        if deviation is not None:
            raise InvalidInput("a deviation is that of numbers: leave it out for classes")
        return math.nan
    half = (asked.high - asked.low) / 2
    found = half / 2 if deviation is None else as_number(deviation, "deviation")
    if not 0 < found <= half:
        raise InvalidInput(
            f"numbers from {asked.low:g} to {asked.high:g} have a standard deviation above 0 and "
            f"at most {half:g}, got deviation={found:g}"
        )
    return float(found)


def _share(value: Any, name: str) -> float:
    value = as_number(value, name)
    if not 0 < value <= 1:
        raise InvalidInput(f"{name} is between 0 and 1, got {name}={value:g}")
    return float(value)


def _related(asked: Asked, related: Any, features: FeatureMap) -> Vectors:
    """Return the codes of the related labels of the sampled public vectors."""
    codes = asked.codes_of(none_missing(related, "related labels"))
    if len(codes) != features.public.count:
        raise InvalidInput(
            f"there are {len(codes)} related labels and {features.public.count} public vectors"
        )
    places = np.linspace(0, len(codes) - 1, len(features.sample)).astype(np.int64)
    codes = as_array(codes[places], "related")
    if isinstance(asked, Number) and np.ptp(codes) <= _VARIES * (asked.high - asked.low):
        raise InvalidInput(
            f"all related numbers count as {codes[0]:g}, so there is nothing to learn: pass "
            f"numbers that vary between {asked.low:g} and {asked.high:g}"
        )
    return codes


def _first(values: list[Any], reached: Callable[[Any], bool]) -> Any:
    """Return the first of increasing values that reaches, by bisection, or None."""
    if not reached(values[-1]):
        return None
    low, high = -1, len(values) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(values[middle]) else (middle, high)
    return values[high]
