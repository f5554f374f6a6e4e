"""A proved lower bound on the error of a scalar answer under ε-LDP.

Contract: :func:`least_scalar_error` is at most the root mean squared error of every ε-LDP report of
a scalar answer, of any form and size, with any reader, if answers follow the law of the given ones.
It holds at every ε; nothing in it assumes a form of channel, or that an optimiser converged.

*Duality* (docs/theory.md, "Scalar answers"). Let X be the answer, g any function and
d_t(x) = (x − t)². If

    (e^ε − 1) E[max(0, g(X) − d_t(X))] + E[g(X) − d_t(X)] ≤ 0     for every t,           (*)

then the mean squared error of every ε-LDP report is at least E[g(X)]. *Proof.* Let a report y have
the probability q(y|x) and be read as t_y, and let a_y be the least q(y|x) over x, so that
q(y|x) − a_y is between 0 and (e^ε − 1) a_y. Then E[q(y|X)(g(X) − d(X))], d = d_{t_y}, is at most
a_y times the left side of (*), hence at most 0. Sum over y: E[g(X)] ≤ E[Σ_y q(y|X)(X − t_y)²]. ∎

*Verification.* Answers are rounded to integers 0 … 2^B; by the triangle inequality this costs at
most the root mean square of the rounding. Where g is positive it is the square of an integer r(x),
so that the set {g > d_t} changes at the integers x ± r(x) only. Between two of them the left side
of (*) is a concave quadratic in t with integer coefficients, computed exactly; its maximum is in
closed form. A t outside the range of the answers is worse than its end. So (*) is checked for all
t in O(n log n), and **any** g that passes gives a bound.

*The choice of g* decides only how close the bound is: a linear program with cutting planes over
piecewise linear multiples of a first guess, then the largest multiple that passes (*). Up to ε = 10
the bound is within about 1 % of the error of the best interval channel
(:mod:`offaxis.mechanisms.scalar_channel`), which is therefore optimal up to that
(``python -m benchmarks.scalar_limit``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from offaxis.errors import InvalidInput
from offaxis.mechanisms.scalar_channel import AnswerPrior, optimal_channel
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.vectors import Vectors, as_array, check_finite

Integers = NDArray[np.int64]

_FEWEST_ATOMS: Final = 1024
_MOST_ATOMS: Final = 8192
"""The choice of g sees at most this many answers; the verification sees all of them."""

_KNOTS: Final = 48
_ROUNDS: Final = 20
_CLOSE: Final = 0.004
"""The search for g ends when another round would not raise the error by more than this share."""

_TRUST: Final = 1.5
"""In one round of the linear program g changes by at most this factor."""

_FLOOR: Final = 0.01
_LOOSE: Final = 0.3
"""Constraints with more slack are dropped; those that matter come back."""

_BLOCKS: Final = 48
"""Cuts per round: the worst t in each of so many parts of the range."""

_COARSE: Final = 128
_COARSE_EPSILON: Final = 5.0
"""Up to this ε the first guess from a channel helps: the best channels have few intervals."""

_SLACK: Final = 1e-12
"""Covers the rounding of a dozen operations in double precision, relative to their terms."""

_ENOUGH: Final = 60.0
"""From here on no g ≥ 1 on the lattice passes, and e^ε need not be computed."""


def least_scalar_error(answers: Any, epsilon: Any) -> float:
    """Return a root mean squared error that no ε-LDP report of such answers goes below.

    The larger of two proved bounds: that of the module, and σ/cosh(ε/2) (docs/proofs.md §16).

    Parameters
    ----------
    answers : (n,) array
        Public answers; the bound holds for their empirical law.

    Examples
    --------
    >>> from offaxis.theory.scalar_limit import least_scalar_error
    >>> [round(least_scalar_error([-1.0, 1.0], epsilon), 3) for epsilon in (1, 2)]  # 1/cosh(ε/2)
    [0.887, 0.648]
    """
    budget = float(exact_epsilon(epsilon))
    values, span = to_unit_interval(answers)
    if not span:
        return 0.0
    closed = float(values.std()) / math.cosh(min(budget, 600.0) / 2)
    if budget >= _ENOUGH:
        return (1 - _SLACK) * closed * span
    law, growth = Law.of_answers(values), math.expm1(budget)
    # The best channels have about e^{ε/3} intervals.
    small = law.thinned(int(np.clip(128 * math.exp(budget / 3), _FEWEST_ATOMS, _MOST_ATOMS)))
    function = _best_function(small, growth)
    if small is not law:
        spread = np.interp(law.positions, small.positions, function)
        function = _largest_multiple(law, spread, growth)
    mean = verified_mean(law, function, growth)
    return (1 - _SLACK) * max(closed, law.unit * math.sqrt(mean) - law.rounding) * span


def to_unit_interval(answers: Any) -> tuple[Vectors, float]:
    """Return answers moved and scaled to [0, 1], and their range; all 0 if the range is 0.

    Sums of squares then neither overflow nor lose a small deviation beside a large mean.

    Raises
    ------
    InvalidInput
        If there are no answers, they are not finite, or their range is too large for a float.
    """
    values = as_array(answers, "answers").ravel()
    check_finite(values, "answers")
    if not values.size:
        raise InvalidInput("answers must not be empty")
    with np.errstate(over="ignore"):
        span = float(np.ptp(values))
    if not math.isfinite(span):
        raise InvalidInput("the range of the answers is too large for a float: scale them")
    return (values - values.min()) / (span or 1.0), span


def verified_mean(law: Law, function: Vectors, growth: float) -> float:
    """Return E[g] for g on the lattice, not above ``function``, if (*) holds for it, else 0."""
    g = _squares(function, law.top)
    if violations(law, g, growth).excess.max() > 0:
        return 0.0
    return max(float(law.counts @ g) / law.total, 0.0)


# ---- Answers on a lattice


@dataclass(frozen=True, eq=False)
class Law:
    """A distribution of answers on the integers 0 … top.

    Attributes
    ----------
    positions, counts : (n,) integer arrays
        Ascending and distinct, and how many answers each has.
    top : int
        A power of two; sums of counts times squares stay below 2**62.
    unit, rounding : float
        Length of a step, and root mean square of the rounding, in units of the answers.
    """

    positions: Integers
    counts: Integers
    top: int
    unit: float
    rounding: float

    @classmethod
    def of_answers(cls, values: Vectors) -> Law:
        """Round answers that are not all equal to the lattice."""
        low, span = values.min(), float(np.ptp(values))
        top = 1 << min((61 - math.ceil(math.log2(values.size))) // 2, 26)
        unit = span / top
        steps = np.rint((values - low) / unit)
        # The second term covers the rounding of the answers themselves.
        rounding = float(np.sqrt(np.mean((values - low - steps * unit) ** 2))) + 2.0**-50 * span
        positions, counts = np.unique(steps.astype(np.int64), return_counts=True)
        return cls(positions, counts.astype(np.int64), top, unit, rounding)

    @property
    def total(self) -> int:
        """Number of answers."""
        return int(self.counts.sum())

    def thinned(self, most: int) -> Law:
        """Return a similar law of at most ``most`` positions, for the choice of g only."""
        if self.positions.size <= most:
            return self
        # Half of the cells have equal counts, half equal lengths: rare answers far out matter, too.
        by_count = (np.cumsum(self.counts) - self.counts) * (most // 2) // self.total
        by_length = self.positions * (most // 2) // (self.top + 1)
        new = np.diff(by_count, prepend=-1) + np.diff(by_length, prepend=-1)
        starts = np.flatnonzero(new)
        counts = np.add.reduceat(self.counts, starts)
        sums = np.add.reduceat(self.counts * self.positions, starts)
        positions, inverse = np.unique(np.rint(sums / counts).astype(np.int64), return_inverse=True)
        merged = np.zeros(positions.size, dtype=np.int64)
        np.add.at(merged, inverse, counts)
        return Law(positions, merged, self.top, self.unit, self.rounding)


def _squares(function: Vectors, top: int) -> Integers:
    """Return integers not above the function: squares of integers where it is positive."""
    roots = np.floor(np.sqrt(np.clip(function, 0, float(top) ** 2))).astype(np.int64)
    below = np.floor(np.clip(function, -(float(top) ** 2), 0)).astype(np.int64)
    squares: Integers = roots * roots + below
    return squares


# ---- Verification


@dataclass(frozen=True, eq=False)
class Violations:
    """The left side of (*), times n, at its maximum in every part of the range of t.

    Attributes
    ----------
    readings : (s,) array
        t of the maxima, ascending.
    excess : (s,) array
        The left side, plus the rounding error of its computation. (*) holds if none is positive.
    gain : (s,) array
        Its part that is proportional to the positive part of g.
    """

    readings: Vectors
    excess: Vectors
    gain: Vectors


def violations(law: Law, g: Integers, growth: float) -> Violations:
    """Return the left side of (*) for all t.

    Integer arithmetic wraps around at 2**64; the results are below 2**63, so they are exact.
    """
    x, counts = law.positions, law.counts
    roots = np.rint(np.sqrt(g.clip(0))).astype(np.int64)
    inside = np.flatnonzero(roots)
    # From x − r on a position is in the set {g > d_t}, from x + r on it is not.
    ends = np.concatenate([x[inside] - roots[inside], x[inside] + roots[inside], [0]])
    signs = np.concatenate([counts[inside], -counts[inside], [0]])
    which = np.concatenate([inside, inside, [0]])
    order = np.argsort(ends.clip(0, law.top), kind="stable")
    which, signs, starts = which[order], signs[order], ends.clip(0, law.top)[order]
    # The sums after the last change at each t; the piece before ``top`` includes ``top`` itself.
    last = np.append(starts[1:] != starts[:-1], True) & (starts < law.top)
    t = starts[last]
    mass = np.cumsum(signs)[last]
    first = np.cumsum(signs * x[which])[last] - t * mass
    squares = np.cumsum(signs * g[which])[last]
    second = np.cumsum(signs * x[which] ** 2)[last] - t * (2 * first + t * mass)
    total, mean = law.total, int(counts @ x)
    all_first = mean - t * total
    all_squares = int(counts @ g)
    all_second = int(counts @ (x * x)) - t * (2 * all_first + t * total)
    # growth (a + 2 b τ − c τ²) + (a' + 2 b' τ − c' τ²) for t + τ up to the next change.
    a, b, c = (squares - second).astype(float), first.astype(float), mass.astype(float)
    a_all, b_all = (all_squares - all_second).astype(float), all_first.astype(float)
    room = np.append(t[1:], law.top) - t
    step = np.clip((growth * b + b_all) / (growth * c + total), 0, room)
    terms = [growth * a, 2 * growth * b * step, -growth * c * step**2]
    terms += [a_all, 2 * b_all * step, -total * step**2]
    value = np.sum(terms, axis=0)
    slack = _SLACK * np.sum(np.abs(terms), axis=0)
    gain = growth * squares.astype(float) + float(counts @ g.clip(0))
    return Violations(t + step, value + slack, gain)


def _largest_multiple(law: Law, function: Vectors, growth: float) -> Vectors:
    """Scale the positive part of a function until (*) holds (Dinkelbach's iteration)."""
    scaled = function
    for _ in range(60):
        found = violations(law, _squares(scaled, law.top), growth)
        if found.excess.max() <= 0:
            return scaled
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = float(np.nanmin((found.gain - found.excess) / found.gain))
        # Slightly less, so that the iteration ends in spite of rounding.
        scaled = np.where(scaled > 0, scaled * max(ratio * (1 - 1e-7), 0.0), scaled)
    return np.zeros_like(function)


# ---- The choice of g


def _best_function(law: Law, growth: float) -> Vectors:
    """Return a function for which (*) holds, with a large mean."""
    guesses = [_local_guess(law, growth)]
    if growth < math.expm1(_COARSE_EPSILON):
        guesses.append(_channel_guess(law, growth))
    improved = [_cutting_planes(law, guess, growth) for guess in guesses]
    return max(improved, key=lambda function: float(law.counts @ function))


def _local_guess(law: Law, growth: float) -> Vectors:
    """Return g(x) = c with equality in (*) at t = x for the constant g = c near x.

    E[g] in (*) is the mean of the previous guess; the first one takes it as 0.
    """
    x, counts = law.positions, law.counts
    mass = np.append(0, np.cumsum(counts))
    first, second = np.append(0, np.cumsum(counts * x)), np.append(0, np.cumsum(counts * x * x))
    spread = (second[-1] - 2 * x * first[-1] + x * x * mass[-1]).astype(float)
    mean, guess = 0.0, np.zeros(x.size)
    for _ in range(6):
        low, high = np.zeros(x.size, dtype=np.int64), np.full(x.size, law.top)
        while (high - low).max() > 1:
            middle = (low + high) // 2
            start = np.searchsorted(x, x - middle, "right")
            end = np.searchsorted(x, x + middle, "left")
            c = mass[end] - mass[start]
            near = second[end] - second[start] - x * (2 * (first[end] - first[start]) - x * c)
            within = growth * (middle**2 * c - near).astype(float) <= spread - law.total * mean
            low, high = np.where(within, middle, low), np.where(within, high, middle)
        guess = low.astype(float) ** 2
        mean = (mean + float(counts @ guess) / law.total) / 2
    return guess


def _channel_guess(law: Law, growth: float) -> Vectors:
    """Return the error of each answer under the best interval channel with few intervals."""
    coarse = law.thinned(_COARSE)
    prior = AnswerPrior.of_atoms(coarse.positions.astype(float), coarse.counts.astype(float))
    channel = optimal_channel(prior, math.log1p(growth), most=16)
    x, decoded = law.positions.astype(float), channel.decoded
    own = (x - decoded[np.searchsorted(channel.edges, x)]) ** 2
    every = ((x[:, None] - decoded) ** 2).sum(axis=1)
    error: Vectors = (growth * own + every) / (growth + channel.size)
    return error


def _cutting_planes(law: Law, guess: Vectors, growth: float) -> Vectors:
    """Return the best g = base · h with h linear between knots, found by a linear program.

    Every t gives a linear constraint on h, with the set {g > d_t} of the current g. They are taken
    at the worst t of a point halfway between the best g so far and the program's solution.
    """
    interpolate, project = _hats(law)
    # Not 0 anywhere, so that multiples reach every function.
    floor = _FLOOR * float(law.counts @ guess) / law.total
    base = _largest_multiple(law, guess.clip(max(floor, 1.0)), growth)
    unit = float(law.counts @ base) / law.total
    if not unit:  # no positive g passes on this lattice
        return base
    objective = project(law.counts * base) / (law.total * unit)
    rows = np.empty((0, objective.size))
    solution = best_h = np.ones(objective.size)
    best, best_mean = base, unit
    for _ in range(_ROUNDS):
        h = (solution + best_h) / 2
        function = base * interpolate(h)
        g = _squares(function, law.top)
        found = violations(law, g, growth)
        distance = (law.positions - found.readings[_worst(found, law.top), None]) ** 2
        columns = law.counts * np.where(g > distance, growth + 1, 1.0)
        cuts = [project(column) for column in columns * base]
        rows = np.vstack([rows, cuts / np.sum(columns * distance, axis=1)[:, None]])
        near = np.stack([best_h / _TRUST, best_h * _TRUST], axis=1)
        solved = linprog(
            -objective, A_ub=rows, b_ub=np.ones(len(rows)), bounds=near, method="highs"
        )
        if not solved.success:
            break
        solution, rows = solved.x, rows[solved.slack < _LOOSE]
        multiple = _largest_multiple(law, function, growth)
        mean = float(law.counts @ multiple) / law.total
        if mean > best_mean:
            best, best_mean = multiple, mean
            best_h = h * float(multiple.sum() / function.sum())
        if -solved.fun * unit <= best_mean * (1 + 2 * _CLOSE):
            break
    return best


def _worst(found: Violations, top: int) -> Integers:
    """Return the indices of the worst t in parts of equal length and of equally many pieces."""
    size = found.readings.size
    by_count = np.linspace(0, size, _BLOCKS + 1).astype(np.int64)
    by_length = np.searchsorted(found.readings, np.linspace(0, top, _BLOCKS + 1))
    starts = np.unique(np.concatenate([by_count, by_length]))
    starts = starts[starts < size]
    ends = np.append(starts[1:], size)
    pairs = zip(starts, ends, strict=True)
    worst = [start + found.excess[start:end].argmax() for start, end in pairs]
    return np.array(worst, dtype=np.int64)


def _hats(law: Law) -> tuple[Callable[[Vectors], Vectors], Callable[[Vectors], Vectors]]:
    """Return interpolation from the knots to the positions, and its transpose.

    Half of the knots are at quantiles, half evenly spaced.
    """
    x = law.positions.astype(float)
    if x.size <= _KNOTS:
        knots = x
    else:
        quantiles = np.interp(np.linspace(0, 1, _KNOTS // 2), np.cumsum(law.counts) / law.total, x)
        knots = np.unique(np.append(quantiles, np.linspace(x[0], x[-1], _KNOTS // 2)))
    left = np.clip(np.searchsorted(knots, x, "right") - 1, 0, knots.size - 2)
    share = (x - knots[left]) / (knots[left + 1] - knots[left])

    def interpolate(h: Vectors) -> Vectors:
        between: Vectors = h[left] * (1 - share) + h[left + 1] * share
        return between

    def project(column: Vectors) -> Vectors:
        low = np.bincount(left, column * (1 - share), minlength=knots.size)
        high = np.bincount(left + 1, column * share, minlength=knots.size)
        return np.asarray(low + high, dtype=np.float64)

    return interpolate, project
