"""Attacks on the outputs of a function of which nothing else is known.

Each is a statistic of one output (:class:`offaxis.auditing.trials.Attack`). What an output is not
comparable with, such as an exception with a vector, gets the score 0 and is counted all the same:
a bound on ε must count every output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.auditing import attacks
from offaxis.auditing.attacks import Classifier, chi2, lowest_set_bit
from offaxis.auditing.domains import Input
from offaxis.auditing.outputs import Keys, Outputs, joined, row_keys, words_of
from offaxis.auditing.trials import SIDES, Aim, Attack, Scores
from offaxis.randomizers import Randomizer
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors

_LEARN: Final = 20_000
_NUMBERS: Final = 1 << 22
"""Largest number of outputs of each input, and of numbers in them, that a statistic learns from."""

_LARGEST: Final = 1e150
"""Numbers beyond this are treated as this, so that their squares are finite."""


def _usable(numbers: Vectors) -> Vectors:
    """Return numbers without NaN and infinity."""
    if numbers.size and not np.isfinite(numbers).all():
        numbers = np.nan_to_num(numbers, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)
    return np.clip(numbers, -_LARGEST, _LARGEST)


def _counted(scores: Scores) -> Scores:
    """Return scores without NaN, which would not be counted."""
    return np.nan_to_num(np.asarray(scores), nan=0.0, posinf=np.inf, neginf=-np.inf)


class _Learning:
    """Keeps some outputs of each input until it settles."""

    learns = True
    aim: Aim = "epsilon"

    def __init__(self) -> None:
        self._kept: tuple[list[Outputs], list[Outputs]] = ([], [])

    def learn(self, side: int, payloads: Outputs) -> None:
        """Keep outputs until there are enough of each side."""
        most = min(_LEARN, max(64, _NUMBERS // max(1, payloads.numbers.shape[1])))
        missing = most - sum(map(len, self._kept[side]))
        if missing > 0:
            self._kept[side].append(payloads[:missing])

    def _learned(self) -> tuple[Outputs, Outputs]:
        first, second = (joined(self._kept[side]) for side in SIDES)
        self._kept = ([], [])
        return first, second


class _Fixed:
    """A statistic that does not learn."""

    learns = False
    aim: Aim = "epsilon"

    def learn(self, side: int, payloads: Outputs) -> None:
        """Do nothing."""

    def settle(self) -> None:
        """Do nothing."""


# ---- Tables: how much more frequent a value, a form or the lowest bit of a number was


class _LogOdds:
    """The log odds of keys, learnt from both sides; 0 for a key that was never seen."""

    def __init__(self, first: Keys, second: Keys) -> None:
        keys, places = np.unique(np.concatenate([first, second]), return_inverse=True)
        counts = np.bincount(places[: len(first)], minlength=len(keys))
        others = np.bincount(places[len(first) :], minlength=len(keys))
        self._keys = keys
        self._odds = np.log(counts + 0.5) - np.log(others + 0.5)
        self.difference = chi2(counts.astype(np.float64), others.astype(np.float64))
        """How much the two sides differ, in excess of chance."""

    def of(self, keys: Keys) -> Scores:
        """Return the log odds of keys."""
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._odds[places], 0.0)


class Equal(_Learning):
    """Exact outputs, or their forms: type, length, NaN, infinity, exceptions."""

    def __init__(self, what: Literal["value", "form"]) -> None:
        super().__init__()
        self._what = what
        self._odds: _LogOdds

    def settle(self) -> None:
        """Count the outputs of both sides."""
        first, second = self._learned()
        self._odds = _LogOdds(self._keys(first), self._keys(second))

    def scores(self, payloads: Outputs) -> Scores:
        """Return the log odds of the first input."""
        return self._odds.of(self._keys(payloads))

    def _keys(self, payloads: Outputs) -> Keys:
        return payloads.keys if self._what == "value" else payloads.forms


_BIT_COLUMNS: Final = 6


class LowBits(_Learning):
    """The lowest set bit of a number, or of its difference from an input, and its size.

    Of all columns and differences, the one that differs most. Noise in floating point is as coarse
    as the larger of its parts (Mironov 2012; see :mod:`offaxis.auditing.attacks`).
    """

    def __init__(self, first: Input, second: Input, width: int, columns: int) -> None:
        super().__init__()
        self._columns = columns
        rows = [x.row for x in (first, second) if x.row is not None and x.row.size == width]
        self._offsets = [np.zeros(width), *rows]
        self._choice: tuple[int, int, bool] = (0, 0, False)
        self._odds: _LogOdds

    def settle(self) -> None:
        """Choose the column, the difference and whether size counts."""
        first, second = self._learned()
        gaps = np.abs(self._offsets[-1] - self._offsets[len(self._offsets) // 2])
        columns = np.argsort(-gaps, kind="stable")[: self._columns].tolist()
        best = -math.inf
        for column in columns:
            for place in range(len(self._offsets)):
                for sized in (False, True):
                    choice = (column, place, sized)
                    odds = _LogOdds(self._cells(first, choice), self._cells(second, choice))
                    if odds.difference > best:
                        best, self._choice, self._odds = odds.difference, choice, odds

    def scores(self, payloads: Outputs) -> Scores:
        """Return the log odds of the first input."""
        return self._odds.of(self._cells(payloads, self._choice))

    def _cells(self, payloads: Outputs, choice: tuple[int, int, bool]) -> Keys:
        column, place, sized = choice
        values = _usable(payloads.numbers[:, column]) - self._offsets[place][column]
        exponent, zeros = lowest_set_bit(values)
        # The place of the lowest bit; zero has none.
        lowest = np.where(values == 0, 1 << 14, exponent + zeros)
        return lowest + (exponent << 16) if sized else lowest


# ---- Numbers: statistics of which large or small values tell the inputs apart

Statistic = Callable[[Vectors], Scores]


@dataclass(frozen=True, eq=False)
class Along(_Fixed):
    """The output along the difference of the inputs."""

    direction: Vectors

    def scores(self, payloads: Outputs) -> Scores:
        """Return inner products."""
        return _counted(_usable(payloads.numbers) @ self.direction)


@dataclass(frozen=True, eq=False)
class Nearer(_Fixed):
    """How much nearer the output is to the first input than to the second.

    For noise with a density that falls with a norm, this is the likelihood ratio.
    """

    first: Vectors
    second: Vectors
    order: Literal[1, 2]

    def scores(self, payloads: Outputs) -> Scores:
        """Return differences of distances."""
        numbers = _usable(payloads.numbers)
        near, far = (
            np.linalg.norm(numbers - row, ord=self.order, axis=1)
            for row in (self.first, self.second)
        )
        return _counted(far - near)


class Direction(_Learning):
    """The output along the direction in which the two means differ, learnt; robust to outliers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._weights = np.zeros(width)

    def settle(self) -> None:
        """Learn the direction."""
        first, second = (_usable(side.numbers) for side in self._learned())
        both = np.concatenate([first, second])
        low, high = np.quantile(both, [0.02, 0.98], axis=0)
        first, second = np.clip(first, low, high), np.clip(second, low, high)
        spread = first.var(axis=0) + second.var(axis=0)
        gap = first.mean(axis=0) - second.mean(axis=0)
        # Without any spread the means themselves tell the inputs apart.
        self._weights = gap / np.where(spread > 0, spread, 1.0)

    def scores(self, payloads: Outputs) -> Scores:
        """Return inner products."""
        return _counted(_usable(payloads.numbers) @ self._weights)


_BINS: Final = 48
_TRIED, _QUICK = 64, 3
"""Number of columns that are tried, and in a quick search."""


class Ranges(_Learning):
    """Ranges of one number that are likelier for one input than for the other, learnt.

    The number is the norm of the output, or the one of its coordinates that differs most.
    """

    def __init__(self, what: Literal["norm", "coordinate"], columns: int = 1) -> None:
        super().__init__()
        self._what, self._columns = what, columns
        self._column = 0
        self._edges = np.zeros(1)
        self._odds: _LogOdds

    def settle(self) -> None:
        """Choose the coordinate and learn the ranges."""
        first, second = self._learned()
        columns = [0]
        if self._what == "coordinate":
            gaps = attacks.gaps(*(np.abs(_usable(side.numbers)) for side in (first, second)))
            gaps += attacks.gaps(*(_usable(side.numbers) for side in (first, second)))
            columns = np.argsort(-np.nan_to_num(gaps), kind="stable")[: self._columns].tolist()
        best = -math.inf
        for column in columns:
            a, b = (self._values(side, column) for side in (first, second))
            edges = _edges(np.concatenate([a, b]))
            odds = _LogOdds(np.searchsorted(edges, a), np.searchsorted(edges, b))
            if odds.difference > best:
                best, self._column, self._edges, self._odds = odds.difference, column, edges, odds

    def scores(self, payloads: Outputs) -> Scores:
        """Return the log odds of the first input."""
        values = self._values(payloads, self._column)
        return self._odds.of(np.searchsorted(self._edges, values))

    def _values(self, payloads: Outputs, column: int) -> Scores:
        if self._what == "norm":
            return np.asarray(np.linalg.norm(_usable(payloads.numbers), axis=1))
        return _usable(payloads.numbers[:, column])


def _edges(values: Scores) -> Scores:
    """Return quantiles, dense in both tails."""
    return np.unique(np.quantile(values, _shares(len(values))))


@cache
def _shares(count: int) -> Scores:
    tail = np.geomspace(min(0.25, 4 / count), 0.25, _BINS // 3)
    return np.concatenate([tail, np.linspace(0.25, 0.75, _BINS // 3), 1 - tail])


class Trees(Classifier):
    """Boosted trees on the numbers of an output, its lowest bits and its distances."""

    def __init__(self, first: Input, second: Input, width: int, seed: int) -> None:
        super().__init__(self._viewed, width, seed)
        self._pair = [x.row for x in (first, second) if x.row is not None and x.row.size == width]

    def _viewed(self, payloads: Outputs) -> tuple[Vectors, NDArray[np.uint8]]:
        usual = ~np.isnan(payloads.numbers[:, :1])
        numbers = _usable(payloads.numbers)
        parts = [usual.astype(np.float64), numbers, np.abs(numbers)]
        parts.append(np.linalg.norm(numbers, axis=1, keepdims=True))
        parts += [np.linalg.norm(numbers - x, axis=1, keepdims=True) for x in self._pair]
        parts.append(lowest_set_bit(numbers[:, :_BIT_COLUMNS])[1].astype(np.float64))
        return np.concatenate(parts, axis=1), np.zeros((len(payloads), 0), dtype=np.uint8)


# ---- Which statistics apply to which outputs


def statistics(
    first: Input, second: Input, width: int, *, measures: bool = True, quick: bool = False
) -> dict[str, Attack]:
    """Return every statistic that applies, by name.

    ``width`` is the number of numbers in an output; unless it ``measures`` anything, these are the
    letters of a text. The quick forms look at few columns.
    """
    tried, bits = (_QUICK, 1) if quick else (_TRIED, _BIT_COLUMNS)
    found: dict[str, Attack] = {"form": Equal("form"), "value": Equal("value")}
    if not width:
        return found
    x, other = first.row, second.row
    if measures and x is not None and other is not None and x.size == other.size == width:
        x, other = _usable(x), _usable(other)
        difference = x - other
        largest = np.abs(difference).max()
        found["along"] = Along(difference / largest if largest > 0 else difference)
        found["nearer-l1"] = Nearer(x, other, 1)
        if width > 1:
            found["nearer-l2"] = Nearer(x, other, 2)
    found |= {"direction": Direction(width), "coordinate": Ranges("coordinate", tried)}
    if width > 1 and measures:
        found["norm"] = Ranges("norm")
    if measures:
        found["low-bits"] = LowBits(first, second, width, bits)
    return found


class _OnPayloads:
    """A statistic of the observations that payloads hold, and of their exact bytes."""

    def __init__(self, randomizer: Randomizer, statistic: Attack) -> None:
        self._view, self._statistic = attacks.payload_view(randomizer), statistic

    @property
    def learns(self) -> bool:
        """Whether the statistic learns."""
        return self._statistic.learns

    @property
    def aim(self) -> Aim:
        """The purpose of its events."""
        return self._statistic.aim

    def learn(self, side: int, payloads: list[bytes]) -> None:
        """Learn from payloads of a known side."""
        self._statistic.learn(side, self._outputs(payloads))

    def settle(self) -> None:
        """End learning."""
        self._statistic.settle()

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the scores of the observations."""
        return self._statistic.scores(self._outputs(payloads))

    def _outputs(self, payloads: list[bytes]) -> Outputs:
        observed, octets = self._view(payloads)
        keys = row_keys(words_of(octets))
        return Outputs(keys, np.zeros(len(payloads), dtype=np.int64), observed)


def of_payloads(randomizer: Randomizer, first: Vectors, second: Vectors) -> dict[str, Attack]:
    """Return every statistic that applies to the payloads of two encoded vectors, by name."""
    (payload,) = randomizer.report(first[None], Entropy())
    width = int(np.size(randomizer.read([payload])))
    found = statistics(Input(first, first), Input(second, second), width)
    del found["form"]  # payloads have one form, or cannot be read
    return {name: _OnPayloads(randomizer, statistic) for name, statistic in found.items()}


WORDS: Final = {
    "form": "type, length, NaN, exception",
    "value": "exact outputs",
    "along": "output along x − x′",
    "nearer-l1": "ℓ1 distances to x and x′",
    "nearer-l2": "ℓ2 distances to x and x′",
    "direction": "output along a learnt direction",
    "coordinate": "ranges of one number",
    "norm": "ranges of the norm",
    "low-bits": "lowest bit of one number",
    "classifier": "boosted trees",
}
"""What each statistic looks at."""


# ---- How far apart two samples of scores are


def power(first: Scores, second: Scores, delta: float) -> tuple[float, float]:
    """Return a bound on ε that these scores suggest, and how far apart their means are.

    Only for choosing: the limits of the proportions are approximate.
    """
    a, b = np.sort(first), np.sort(second)
    bound = max(_rough_bound(a, b, delta), _rough_bound(-b[::-1], -a[::-1], delta), 0.0)
    tail = min(len(a), len(b)) // 100
    low, high = min(a[tail], b[tail]), max(a[-tail - 1], b[-tail - 1])
    a, b = np.clip(a, low, high), np.clip(b, low, high)
    apart = abs(a.mean() - b.mean()) / (a.std() + b.std() + 1e-9 * (high - low) + 1e-300)
    return float(bound), float(min(apart, 20.0))


def _rough_bound(a: Scores, b: Scores, delta: float) -> float:
    """Return about the largest bound on ε of the events "at least c", of two sorted samples."""
    thresholds = a[-_ranks(len(a))]
    hits = len(a) - np.searchsorted(a, thresholds, side="left")
    others = len(b) - np.searchsorted(b, thresholds, side="left")
    spread = _Z * np.sqrt(hits + _Z**2 / 4)
    share = np.maximum((hits + _Z**2 / 2 - spread) / len(a) - delta, 1e-300)
    other = (others + _Z**2 / 2 + _Z * np.sqrt(others + _Z**2 / 4)) / len(b)
    return float(np.log(share / other).max())


@cache
def _ranks(count: int) -> NDArray[np.int64]:
    return np.unique(np.geomspace(1, count, _EVENTS).astype(np.int64))


_Z: Final = 1.7
_EVENTS: Final = 64
