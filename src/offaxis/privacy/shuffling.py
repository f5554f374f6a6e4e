"""Shuffling: what an honest shuffler adds to the local guarantee of one report per person.

Contract: if n people send one report each, and an observer sees nothing but all n reports in random
order, then replacing one person's data is (ε_c, δ) indistinguishable. ε_c is a *central* guarantee.
It holds next to the local ε, never instead of it: whoever sees a report with its sender is bound by
the local ε alone.

All bounds are computed, not closed forms, and rounded against the claim. Truncated tails, rounding
errors and merged cells are added to δ, so that ε_c is never too small (docs/proofs.md, §22).

*Blanket* (Balle, Bell, Gascón, Nissim 2019): a report with two levels of probability is, with a
probability γ that does not depend on the data, a draw from a public law. The report in question
hides among the others' public draws; everything else is revealed to the observer.

*Clones* (Feldman, McMillan, Talwar 2021, 2023): every pure ε-LDP randomizer is at least as hard to
distinguish as one with γ = 2/(e^ε + 1) and two disjoint near sets. This is the same computation.

*Count*: payloads of a single bit are a count. Its law is computed for all data of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.privacy.composition import float_above, float_below
from offaxis.privacy.guarantee import Guarantee, exact_delta, exact_epsilon
from offaxis.vectors import as_integer

Floats = NDArray[np.float64]
Bound = Literal["blanket", "clones", "count", "local"]

MOST_EPSILON: Final = 25
"""Above it 2e^{−ε} is so small that not even all people on earth would hide a report."""

MOST_REPORTS: Final = 10**8
"""More reports count as this many, which overstates ε_c: a revealed report hides nobody."""

MOST_COUNTED: Final = 4 * 10**6
"""The same for the law of a count at δ = 1e-6, whose cost grows with n log(1/δ)."""

_UNIT: Final = 2.0**-53
_ROUNDED: Final = 128 * _UNIT
"""More than the relative error of a short formula in e^ε, ε <= 25, and e^c."""

_UNDERFLOW: Final = 1e-120
"""More than all that is too small for a float; far below every δ, which is at least 1e-90."""

_SLACK: Final = 1e-9
"""More than the relative error of sums of positive numbers and of short formulas."""

_TOLERANCE: Final = 1e-4
_BINS: Final = 256
_CELLS: Final = 64


@dataclass(frozen=True)
class Blanket:
    """The two levels of a report's law, which determine how well it hides among others.

    Given input x, a report y has the probability μ(y) γ e^ε if y is near x, and μ(y) γ otherwise:
    μ is public, the near sets have the same share μ(N_x) = ``near`` for every input, and
    γ = 1/(1 + near (e^ε − 1)).

    Attributes
    ----------
    epsilon : Fraction
    near : Fraction
        The share of near reports under the public law.
    overlap : Fraction
        At most μ(N_x ∩ N_x') for every two inputs; 0 is always valid.
    one_bit : bool
        Whether there are only two payloads, so that the reports are a count.

    Examples
    --------
    >>> from offaxis.randomizers import KaryResponse
    >>> blanket = KaryResponse(size=10, epsilon=1).blanket
    >>> blanket.near, blanket.overlap, round(blanket.share, 3)  # γ: the share of public draws
    (Fraction(1, 10), Fraction(0, 1), 0.853)
    """

    epsilon: Fraction
    near: Fraction
    overlap: Fraction = Fraction(0)
    one_bit: bool = False

    def __post_init__(self) -> None:
        """Read the numbers exactly and check that such sets exist."""
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        near, overlap = Fraction(self.near), Fraction(self.overlap)
        object.__setattr__(self, "near", near)
        object.__setattr__(self, "overlap", overlap)
        if not (0 < near < 1 and max(Fraction(0), 2 * near - 1) <= overlap <= near):
            raise InvalidInput(
                f"two sets of share near={near} cannot have overlap={overlap}: near must be "
                f"between 0 and 1, and overlap between 2·near − 1 and near"
            )

    @property
    def share(self) -> float:
        """γ: the probability that a report is a draw from the public law."""
        return 1 / (1 + float(self.near) * math.expm1(float(self.epsilon)))


@dataclass(frozen=True)
class Shuffled:
    """The central ε of shuffled reports, and the bound that proves it.

    Attributes
    ----------
    epsilon : float or None
        ε_c, rounded up, at most the local ε; None if no bound is known.
    bound : {"blanket", "clones", "count", "local"}
        "blanket" and "count" use the randomizer's own law, "clones" only its ε. "local" means that
        shuffling adds nothing that could be computed: ε_c is the local ε.
    reason : str or None
        Why there is no ε_c.

    Examples
    --------
    >>> from offaxis.privacy import shuffled_epsilon
    >>> shuffled_epsilon(5, reports=100, delta=1e-6)
    Shuffled(epsilon=5.0, bound='local', reason=None)
    """

    epsilon: float | None
    bound: Bound
    reason: str | None = None


def shuffled_epsilon(source: Any, reports: int, delta: Any) -> Shuffled:
    """Return a *central* ε of n reports mixed by an honest shuffler, one per person.

    Certified: the shuffled reports are (ε_c, δ) indistinguishable under replacement of one person's
    data, whatever the others' data, if the observer sees nothing but the reports in random order.
    An observer who sees a report together with its sender faces the local ε.

    Parameters
    ----------
    source : number, randomizer or release
        A number is the ε of any pure randomizer (bound "clones"). A randomizer or release is
        bounded by its own law if it has a ``blanket``, and otherwise by its ε.
    reports : int
        n, the number of people whose reports are shuffled together.
    delta : number

    Examples
    --------
    >>> from offaxis.privacy import shuffled_epsilon
    >>> from offaxis.randomizers import KaryResponse
    >>> general = shuffled_epsilon(1, reports=10_000, delta=1e-6)
    >>> round(general.epsilon, 3), general.bound
    (0.043, 'clones')
    >>> own = shuffled_epsilon(KaryResponse(size=10, epsilon=1), reports=10_000, delta=1e-6)
    >>> round(own.epsilon, 3), own.bound
    (0.023, 'blanket')
    """
    allowed = exact_delta(delta)
    people = as_integer(reports, "reports", 1, None)
    randomizer = getattr(source, "randomizer", source)
    guarantee = getattr(randomizer, "guarantee", None)
    if not isinstance(guarantee, Guarantee):
        guarantee = Guarantee(exact_epsilon(source))
    if not guarantee.pure:
        return Shuffled(None, "local", "it is known for pure ε only")
    if hasattr(randomizer, "hold"):  # permanent answers: people differ in what they send, and when
        return Shuffled(None, "local", "memoised reports carry their age, which shuffling keeps")
    blanket = getattr(randomizer, "blanket", None)
    local, target = float_above(guarantee.epsilon), float_below(allowed)
    found = Shuffled(local, "local")
    if guarantee.epsilon > MOST_EPSILON:
        return found
    general = Blanket(guarantee.epsilon, Fraction(1, 2))
    bounds: list[tuple[Bound, Callable[[], Profile]]] = [
        ("clones", lambda: _hidden(general, min(people, MOST_REPORTS), target))
    ]
    if isinstance(blanket, Blanket) and blanket.epsilon == guarantee.epsilon:
        own = blanket
        bounds = [("blanket", lambda: _hidden(own, min(people, MOST_REPORTS), target))]
        if own.one_bit:
            counted = min(people, int(MOST_COUNTED * math.log(1e-12) / math.log(target * 1e-6)))
            bounds.append(("count", lambda: _counted(own.epsilon, counted, target)))
    for name, profile in bounds:
        with np.errstate(under="ignore"):  # what underflows is counted by _UNDERFLOW
            epsilon = _smallest(profile(), target, float(found.epsilon or 0.0))
        if epsilon is not None:
            found = Shuffled(epsilon, name)
    return found


Profile = Callable[[float], float]
"""An upper bound of δ as a function of ε_c."""


def _smallest(profile: Profile, delta: float, most: float) -> float | None:
    """Return the smallest ε_c < most found with profile(ε_c) <= delta, to a relative 1e-4."""
    low, high = 0.0, most
    if profile(0.0) <= delta:
        return 0.0
    certified = None
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2
        if profile(middle) <= delta:
            certified = high = middle
        else:
            low = middle
    return certified


# ---- Binomial laws, rounded up


@dataclass(frozen=True)
class _Binomial:
    """Binomial probabilities on a window, rounded up, and bounds of the mass on either side."""

    start: int
    chances: Floats
    below: float
    above: float
    error: float
    """The relative error: each true chance is at least ``chances * (1 - error)``."""


def _binomial(count: int, odds: float, tail: float) -> _Binomial:
    """Return the law of ``count`` coins of these odds; ``odds`` may be wrong by 50 roundings.

    Ratios of neighbours are multiplied from the mode outwards. Dividing by the sum over the window
    overstates every chance. Beyond the window ratios fall, so that a geometric series bounds the
    mass there.
    """
    if count == 0 or odds == 0.0:
        return _Binomial(0, np.ones(1), 0.0, 0.0, 0.0)
    chance = odds / (1 + odds)
    mode = min(count, int((count + 1) * chance))
    depth = -math.log(tail)
    half = int(math.sqrt(2 * depth * count * chance / (1 + odds)) + depth) + 2
    first, last = max(0, mode - half), min(count, mode + half)
    up = np.arange(mode, last, dtype=np.float64)
    down = np.arange(mode, first, -1, dtype=np.float64)
    rising = np.cumprod((count - up) / (up + 1) * odds)
    falling = np.cumprod(down / (count - down + 1) / odds)
    weights = np.concatenate([falling[::-1], [1.0], rising])
    chances = weights / weights.sum()
    error = 256 * _UNIT * (len(weights) + 32)
    above = below = 0.0
    if last < count:
        above = _geometric(chances[-1], (count - last) / (last + 1) * odds)
    if first > 0:
        below = _geometric(chances[0], first / (count - first + 1) / odds)
    # Divided by too small a sum: at most 1/(1 − tails) too large, which is part of the error.
    error += 2 * (above + below)
    return _Binomial(first, chances * (1 + error), below, above, 2 * error)


def _geometric(chance: float, ratio: float) -> float:
    """Return an upper bound of the mass beyond a window that ends with this chance and ratio."""
    ratio *= 1 + _SLACK
    return 1.0 if ratio >= 1 else min(1.0, chance * ratio / (1 - ratio) * (1 + _SLACK))


# ---- One report among public draws


def _hidden(blanket: Blanket, people: int, delta: float) -> Profile:
    """Return δ(ε_c) of a two-level report hidden among the others' public draws.

    n δ <= E(A (E − e^c) − B (E e^c − 1) − (e^c − 1) S)₊, E = e^ε, over n independent people, each
    near x only (A) or near x' only (B) with probability γ (near − overlap), in neither or both with
    weights 1 and E (S), and revealed otherwise.

    Given D = A + B, A is a sum of D fair coins. The values of D are merged into bins: the mean of D
    exchangeable terms is a reverse martingale, so D coins may be replaced by fewer. In S the
    expectation is convex, so S may be spread to the knots around it.
    """
    gain = math.expm1(float(blanket.epsilon))
    apart = float(2 * (blanket.near - blanket.overlap))
    rest = float(1 - 2 * (blanket.near - blanket.overlap))
    revealed = float(blanket.near) * gain
    if apart == 0.0:
        return lambda _: 0.0
    tail = max(1e-200, delta * 1e-6 / (1 + gain))
    law = _binomial(people, apart / (revealed + rest), tail)
    width = max(1, len(law.chances) // _BINS)
    starts = np.arange(0, len(law.chances), width)
    # D = 0 adds nothing: all reports outside A and B have the same law for x and x'.
    chances = np.where(law.start + np.arange(len(law.chances)) > 0, law.chances, 0.0)
    weights = np.add.reduceat(chances, starts) * (1 + _SLACK)
    fewest = (law.start + starts).clip(1)
    most = (np.minimum(law.start + starts + width, law.start + len(law.chances)) - 1).clip(1)
    tables = _Tails([int(d) for d in fewest], tail)
    spread = _Spread(blanket, gain, rest / revealed, tail)
    cells = [spread.of(people - int(d)) for d in most]
    knots = max(len(values) for values, _ in cells)
    sums, shares = np.zeros((len(cells), knots)), np.zeros((len(cells), knots))
    for row, (values, share) in enumerate(cells):
        sums[row, : len(values)], shares[row, : len(share)] = values, share
    outside = (law.below + law.above) * (1 + gain)
    ratio, local = fewest / most, float_above(blanket.epsilon)

    def profile(central: float) -> float:
        # With B of the D coins near x', the sum is step (κ − B), where step is what one more A in
        # place of a B adds. E − e^c is written as a product, which does not cancel.
        excess = math.expm1(central)
        step = gain * (2 + excess)
        gap = math.exp(central) * math.expm1(local - central) * (1 + _ROUNDED)
        hidden = excess * sums * ratio[:, None] * (1 - _ROUNDED)
        most_b = (gap * fewest[:, None] - hidden) / step * (1 + _ROUNDED)
        positive = (tables.missing(most_b) * shares).sum(axis=1) * step * (1 + _ROUNDED)
        total = float((positive / ratio * weights).sum())
        return (total / people + outside) * (1 + _SLACK) + _UNDERFLOW

    return profile


def _variance(law: _Binomial) -> float:
    values = np.arange(len(law.chances))
    mean = float((law.chances * values).sum())
    return float((law.chances * (values - mean) ** 2).sum())


class _Tails:
    """E(κ − B)₊ of fair coins for κ of at most half their number, one row per number of coins."""

    def __init__(self, counts: list[int], tail: float) -> None:
        rows = [self._row(count, tail) for count in counts]
        length = max(len(below) for below, _, _ in rows)
        self._first = np.array([first for _, _, first in rows])[:, None]
        self._below, self._summed = np.zeros((2, len(counts), length))
        for row, (below, summed, _) in enumerate(rows):
            self._below[row, : len(below)], self._summed[row, : len(summed)] = below, summed

    @staticmethod
    def _row(count: int, tail: float) -> tuple[Floats, Floats, int]:
        """Return Pr[B <= b] and E(b − B)₊, rounded up, for b from the third result to half."""
        half = count // 2
        first = max(0, half - int(math.sqrt(-math.log(tail) * count / 2)) - 2)
        # Outwards from the mode: Pr[B = b − 1] / Pr[B = b] = b / (count − b + 1).
        steps = np.arange(half, first, -1, dtype=np.float64)
        weights = np.concatenate([[1.0], np.cumprod(steps / (count - steps + 1))])
        chances = weights / (2 * weights.sum() - (weights[0] if count % 2 == 0 else 0.0))
        ratio = first / (count - first + 1) * (1 + _SLACK)  # below 1: at most half of the coins
        rest = chances[-1] * ratio / (1 - ratio)
        below = np.cumsum(np.append(rest, chances[::-1]))[1:]
        summed = np.cumsum(np.append(rest / (1 - ratio), below[:-1]))
        slack = 1 + 64 * _UNIT * (len(chances) + 32) + 2 * rest
        return below * slack, summed * slack, first

    def missing(self, most: Floats) -> Floats:
        """Return E(κ − B)₊, rounded up, for one row of κ per number of coins."""
        whole = np.floor(most)
        # Below the window it is no more than at the start of the window.
        index = np.clip(whole - self._first, 0, self._below.shape[1] - 1).astype(np.int64)
        below = np.take_along_axis(self._below, index, axis=1)
        summed = np.take_along_axis(self._summed, index, axis=1)
        inside = summed + np.maximum(most - whole, 0.0) * below
        result: Floats = np.where(most > 0, inside, 0.0)
        return result


class _Spread:
    """The law of S, the weight of public draws outside A and B, spread to a few knots."""

    def __init__(self, blanket: Blanket, gain: float, odds: float, tail: float) -> None:
        self._gain, self._odds, self._tail = gain, odds, tail
        neither = 1 - 2 * blanket.near + blanket.overlap
        self._both_alone = neither == 0 and blanket.overlap > 0
        self._both = 0.0 if self._both_alone else float(blanket.overlap / (neither or 1))
        self._known: dict[int, tuple[Floats, Floats]] = {}

    def of(self, others: int) -> tuple[Floats, Floats]:
        """Return knots of S and their shares, given the number of people outside A and B."""
        knots, shares = _to_knots(_binomial(others, self._odds, self._tail))
        if self._both_alone:
            return knots * (1 + self._gain) * (1 - _ROUNDED), shares
        if self._both == 0.0:
            return knots, shares
        values, chances = [], []
        for knot, share in zip(knots, shares, strict=True):
            inner, weight = self._given(int(knot))
            values.append(knot + self._gain * inner * (1 - _ROUNDED))
            chances.append(share * weight)
        return np.concatenate(values), np.concatenate(chances)

    def _given(self, draws: int) -> tuple[Floats, Floats]:
        if draws not in self._known:
            self._known[draws] = _to_knots(_binomial(draws, self._both, self._tail))
        return self._known[draws]


def _to_knots(law: _Binomial) -> tuple[Floats, Floats]:
    """Spread a law to multiples of about a deviation, keeping its mean; tails count as the least.

    The mass outside the window moves to 0.
    """
    size = len(law.chances)
    deviation = math.sqrt(_variance(law))
    width = 1 << max(0, math.ceil(math.log2(max(deviation, 1.0) * 0.75)))
    values = law.start + np.arange(size)
    first = law.start // width
    cell, offset = np.divmod(values - first * width, width)
    right = offset / width
    count = int(cell[-1]) + 2
    left = np.bincount(cell, law.chances * (1 - right), count)
    spread = (left + np.bincount(cell + 1, law.chances * right, count)) * (1 + _SLACK)
    knots = (first + np.arange(count)) * float(width)
    used = spread > 0
    return np.append(0.0, knots[used]), np.append(law.below + law.above, spread[used])


# ---- Reports of one bit


def _counted(epsilon: Fraction, people: int, delta: float) -> Profile:
    """Return δ(ε_c) of a count of one-bit reports, the largest over all data of the others.

    With V the others' count, δ = Σ_h ((E − e^c) f(h − 1) − (E e^c − 1) f(h))₊ / (E + 1), f the law
    of V: j coins of odds E and n − 1 − j of odds 1/E. Fewer coins of either kind only raise δ, so
    one law with the fewest bounds a whole range of j.
    """
    local = float_above(epsilon)
    factor = math.exp(local)
    laws = list(_count_laws(factor, people, max(1e-200, delta * 1e-6)))

    def profile(central: float) -> float:
        up = math.exp(central) * math.expm1(local - central) / (factor + 1) * (1 + _ROUNDED)
        down = math.expm1(local + central) / (factor + 1) * (1 - _ROUNDED)
        worst = 0.0
        for chances, error, tails in laws:
            shifted = np.append(0.0, chances) * up
            shifted[:-1] -= chances * (down * (1 - error))
            worst = max(worst, float(np.maximum(shifted, 0.0).sum()) + tails)
        return worst * (1 + _SLACK) + _UNDERFLOW

    return profile


def _count_laws(factor: float, people: int, tail: float) -> Iterator[tuple[Floats, float, float]]:
    """Yield the others' count for ranges of their data: chances, relative error and tails."""
    others = people - 1
    width = -(-people // _CELLS)
    for ones in range(0, people, width):
        zeros = max(0, others - (ones + width - 1))
        first = _binomial(ones, factor, tail)
        second = _binomial(zeros, 1 / factor, tail)
        chances = np.convolve(first.chances, second.chances)
        terms = 2 * _UNIT * min(len(first.chances), len(second.chances))
        tails = first.below + first.above + second.below + second.above
        error = 2 * (first.error + second.error + terms)
        yield chances * (1 + terms), error, tails
