"""Attacks: statistics that may distinguish the reports of two vectors.

Four kinds, by what they use: the code (the likelihood of the bytes), the reports alone (a
classifier), the last digits of observations and bytes, and a person's reports of a whole year. All
follow :class:`offaxis.auditing.trials.Attack`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from offaxis.auditing.inputs import claims_gaussian, hostile, is_lattice, is_ranked, power_sum
from offaxis.auditing.trials import SIDES, Aim, Count, Draw, Scores, choose
from offaxis.client.sequences import Sequence, next_reports
from offaxis.errors import InvalidReport, installing
from offaxis.formats.reports import HEADER_SIZE
from offaxis.randomizers import Randomizer
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors

# ---- White box: the likelihood of the bytes under each of two vectors
#
# By Neyman and Pearson, no other statistic of one report distinguishes two vectors better.

_CANDIDATES: Final = 3000
_FARTHEST: Final = 200
_PILOT: Final = 10_000
_TRIED: Final = 8
"""Largest number of pairs per form that are tried on reports."""


@dataclass(frozen=True, eq=False)
class LikelihoodRatio:
    """log Pr[payload | first] − log Pr[payload | second], for two encodings, (1, r) or (1,)."""

    randomizer: Randomizer
    first: Vectors
    second: Vectors
    aim: Aim = "epsilon"

    learns = False

    def learn(self, side: int, payloads: list[bytes]) -> None:
        """Do nothing: the code is known."""

    def settle(self) -> None:
        """Do nothing."""

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the log-likelihood ratio of every payload."""
        shape = (len(payloads), *self.first.shape[1:])
        with np.errstate(all="ignore"):
            first, second = (
                self.randomizer.log_likelihood(payloads, np.broadcast_to(w, shape))
                for w in (self.first, self.second)
            )
            ratio = first - second
        # A payload that is impossible under both indicates neither.
        return np.nan_to_num(ratio, nan=0.0, posinf=np.inf, neginf=-np.inf)


def from_randomizer(randomizer: Randomizer, first: Vectors, second: Vectors) -> Draw:
    """Return a source of payloads of two encodings, from the randomizer alone."""
    encodings = (first, second)

    def draw(side: int, count: int) -> list[bytes]:
        return randomizer.report(np.repeat(encodings[side], count, axis=0), Entropy())

    return draw


@dataclass(frozen=True, eq=False)
class Spread:
    """Two encoded vectors (1, r) of a form, and the distance of their integers before the noise.

    ``distance`` and ``allowed`` are in the norm of the guarantee, in lattice steps.
    """

    form: Randomizer
    first: Vectors
    second: Vectors
    distance: float
    allowed: int


def widest_spread(
    forms: list[Randomizer], rng: np.random.Generator, *, delta: float, alpha: float
) -> Spread:
    """Return the hostile vectors, of all forms, whose reports are easiest to distinguish.

    Distance in the norm of the guarantee is not the only criterion: a distance spread over many
    coordinates is harder to detect. So the pairs that are Pareto-optimal in distance and largest
    difference are tried on a few reports each, and the best one is returned.
    """
    shortlist = [spread for form in forms for spread in _farthest(form, rng)]
    bounds = [_pilot(spread, delta, alpha) for spread in shortlist]
    return shortlist[int(np.argmax(bounds))]


def _farthest(form: Any, rng: np.random.Generator) -> list[Spread]:
    W, order = hostile(form.domain, form.bound, _CANDIDATES, rng), form.domain.order
    with np.errstate(all="ignore"):
        points, places = np.unique(form.integers(W), axis=0, return_index=True)
    return [
        Spread(
            form,
            W[places[[i]]],
            W[places[[j]]],
            float(power_sum((points[i] - points[j]).tolist(), order) ** (1 / order)),
            2 * form.bound,
        )
        for i, j in _pareto_front(points, order)[:_TRIED]
    ]


def _pareto_front(points: NDArray[np.int64], order: int) -> list[tuple[int, int]]:
    """Return the pairs that no other pair beats in both distance and largest difference."""
    norms = np.linalg.norm(points, ord=order, axis=1)
    # Large entries first among equals: those pairs are easiest to detect.
    far = np.lexsort((-np.abs(points).max(axis=1), -norms))[:_FARTHEST]
    gaps = points[far][:, None, :] - points[far][None, :, :]
    distance = np.linalg.norm(gaps, ord=order, axis=2)
    peak = np.abs(gaps).max(axis=2)
    pairs: list[tuple[int, int]] = []
    tallest = -1
    for flat in np.lexsort((-peak.ravel(), -distance.ravel())):
        i, j = divmod(int(flat), len(far))
        if peak[i, j] > tallest:
            tallest = peak[i, j]
            pairs.append((int(far[i]), int(far[j])))
    return pairs


def _pilot(spread: Spread, delta: float, alpha: float) -> float:
    """Return the bound that a few reports of two vectors suggest, on ε or on Gaussian noise."""
    form, vectors = spread.form, (spread.first, spread.second)
    attack = LikelihoodRatio(form, *vectors, aim="shift" if claims_gaussian(form) else "epsilon")
    draw = from_randomizer(form, *vectors)
    try:
        first, second = (attack.scores(draw(side, _PILOT)) for side in SIDES)
    except InvalidReport:
        return -math.inf
    event, _ = choose(first, second, attack.aim, delta=delta, alpha=alpha)
    count = Count(event, event.hits(first), _PILOT, event.hits(second), _PILOT)
    return count.shift(alpha) if attack.aim == "shift" else count.epsilon(delta, alpha)


# ---- Black box: a classifier on bytes, bits and observations
#
# It uses what a collector has: the bytes, and the observations read from them; not the code that
# made them. It needs scikit-learn, the extra ``sklearn``.

MISSING: Final = f"needs scikit-learn, which is not installed; run: {installing('sklearn')}"

_LEARN: Final = 10_000
"""Largest number of reports of each vector to learn from."""

_OCTETS: Final = 1 << 26
_FEATURES: Final = 24
"""Number of columns of each kind that are features: those whose means differ most."""

_BLOCK: Final = 128
"""Number of bytes that are unpacked into bits at a time."""

_threadpools = cache(ThreadpoolController)

Octets = NDArray[np.uint8]


def available() -> bool:
    """Whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def _one_thread() -> Any:
    """Limit the trees to one core each: both sides are scored at the same time."""
    return _threadpools().limit(limits=1, user_api="openmp")


class Classifier:
    """Gradient-boosted trees on the columns of a report that differ most between two vectors.

    Parameters
    ----------
    view : callable
        Returns the numbers and the bytes of payloads, both as rows.
    width : int
        The size of one payload.
    seed : int
        Seed of the trees.
    """

    learns = True
    aim: Aim = "epsilon"

    def __init__(
        self, view: Callable[[Any], tuple[Vectors, Octets]], width: int, seed: int
    ) -> None:
        self._view = view
        self._seed = seed
        self._rows = min(_LEARN, max(64, _OCTETS // width))
        self._learned: tuple[list[Any], list[Any]] = ([], [])
        self._columns: tuple[NDArray[np.intp], ...] = ()
        self._model: Any = None

    def learn(self, side: int, payloads: Any) -> None:
        """Keep reports until there are enough of each side."""
        missing = self._rows - sum(map(len, self._learned[side]))
        if missing > 0:
            self._learned[side].append(payloads[:missing])

    def settle(self) -> None:
        """Choose the columns and fit the trees."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        views = []
        for side in SIDES:
            seen = [self._view(part) for part in self._learned[side]]
            views.append(tuple(np.concatenate(parts) for parts in zip(*seen, strict=True)))
        (observed, octets), (other_observed, other_octets) = views
        self._columns = (
            _largest(gaps(observed, other_observed)),
            _largest(gaps(octets, other_octets)),
            _largest(_bit_gaps(octets, other_octets)),
        )
        features = np.concatenate([self._features(*view) for view in views])
        labels = np.repeat([1, 0], [len(observed) for observed, _ in views])
        trees = HistGradientBoostingClassifier(
            max_iter=40, max_leaf_nodes=16, early_stopping=False, random_state=self._seed
        )
        with _one_thread():
            self._model = trees.fit(features, labels)
        self._learned = ([], [])

    def scores(self, payloads: Any) -> Scores:
        """Return the log odds of the first vector."""
        features = self._features(*self._view(payloads))
        with _one_thread():
            scores: Scores = self._model.decision_function(features)
        return scores

    def _features(self, observed: Vectors, octets: Octets) -> Vectors:
        numbers, whole, bits = self._columns
        single = octets[:, bits // 8] >> (7 - bits % 8).astype(np.uint8) & 1
        return np.concatenate([observed[:, numbers], octets[:, whole], single], axis=1)


def payload_view(randomizer: Randomizer) -> Callable[[list[bytes]], tuple[Vectors, Octets]]:
    """Return a function that returns the observations and the bytes of payloads."""

    def view(payloads: list[bytes]) -> tuple[Vectors, Octets]:
        octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
        observed = np.asarray(randomizer.read(payloads), dtype=np.float64)
        return observed.reshape(len(payloads), -1), octets

    return view


def gaps(first: NDArray[Any], second: NDArray[Any]) -> Vectors:
    """Return |difference of means| in standard errors, column by column."""
    with np.errstate(all="ignore"):
        a, b = first.astype(np.float64), second.astype(np.float64)
        error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
        difference = np.abs(a.mean(axis=0) - b.mean(axis=0))
        apart: Vectors = np.where(difference > 0, difference / error, 0.0)
    return apart


def _bit_gaps(first: Octets, second: Octets) -> Vectors:
    """Return the gaps of all bits, in the order of ``numpy.unpackbits``."""
    parts = [
        gaps(*(np.unpackbits(side[:, start : start + _BLOCK], axis=1) for side in (first, second)))
        for start in range(0, first.shape[1], _BLOCK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _largest(apart: Vectors) -> NDArray[np.intp]:
    return np.argsort(-np.nan_to_num(apart, nan=0.0), kind="stable")[:_FEATURES]


# ---- Bytes: the last digits
#
# The lowest set bit of a float64 sum is as coarse as the larger of its parts, so noise added in
# floating point reveals the size of what it was added to (Mironov 2012; Haney, Desfontaines,
# Hartman, Shrestha, Hay 2022). On a lattice the last bits of a noisy number are uniform to within
# 2**-20 or so for every vector, so there must be no difference.

_MANTISSA: Final = 53
_SIZES: Final = 64
"""Number of powers of two of an observation that are distinguished."""

_ZERO: Final = 2 * _SIZES
"""The class of zero, after the sizes on the lattice and those off it."""

_LOW_BITS: Final = 6
_CLEARANCE: Final = 6
"""Bits between the last bits and the scale of the noise: below, the noise is uniform."""

_INDEX_BYTES: Final = 4


def lowest_set_bit(values: Vectors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the binary exponent of every number, and the trailing zeros of its 53-bit mantissa."""
    fraction, exponent = np.frexp(values)
    mantissa = np.abs(np.ldexp(fraction, _MANTISSA)).astype(np.int64)
    lowest = mantissa & -mantissa
    zeros = np.where(mantissa > 0, np.frexp(lowest.astype(np.float64))[1] - 1, _MANTISSA)
    return exponent.astype(np.int64), zeros.astype(np.int64)


class Precision:
    """The lowest set bit of one coordinate of the observation, together with its size.

    Parameters
    ----------
    randomizer : Randomizer
    coordinate : int
        The coordinate of the observation.
    given_size : bool
        Compare only observations of one power of two, the most informative one from half a noise
        scale on, so that only precision can differ. Such a difference is no bound on ε. (Smaller
        powers of two hold few lattice points, whose probabilities may differ as far as ε allows.)
    """

    learns = True

    def __init__(self, randomizer: Randomizer, coordinate: int, *, given_size: bool) -> None:
        self.aim: Aim = "difference" if given_size else "epsilon"
        self._randomizer = randomizer
        self._coordinate = coordinate
        self._given_size = given_size
        self._counts = np.zeros((2, _ZERO + 1, _MANTISSA + 1))
        self._table = np.zeros((_ZERO + 1, _MANTISSA + 1))

    def _cells(self, payloads: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        observed = np.asarray(self._randomizer.read(payloads), dtype=np.float64)
        values = observed.reshape(len(payloads), -1)[:, self._coordinate]
        size: Any = 0
        if is_lattice(self._randomizer):
            # The last bits of integer · step as a float depend on the integer alone, and reveal its
            # position within a power of two. So a lattice point is represented by its integer.
            # Values off the lattice must not occur; they get sizes of their own.
            whole = np.rint(values / self._randomizer.step)
            off = whole * self._randomizer.step != values
            values, size = np.where(off, values, whole), np.where(off, _SIZES, 0)
        exponent, zeros = lowest_set_bit(values)
        # Zero has no size: it is a separate class.
        return np.where(values == 0, _ZERO, size + exponent % _SIZES), zeros

    def learn(self, side: int, payloads: list[bytes]) -> None:
        """Count sizes and precisions."""
        np.add.at(self._counts[side], self._cells(payloads), 1)

    def settle(self) -> None:
        """Convert the counts to log odds."""
        first, second = self._counts
        self._table = np.log(first + 0.5) - np.log(second + 0.5)
        if self._given_size:
            gaps = np.array([chi2(first[i], second[i]) for i in range(_ZERO)])
            size = int(np.argmax(np.where(self._comparable(), gaps, -math.inf)))
            self._table[np.arange(_ZERO + 1) != size] = math.nan

    def _comparable(self) -> NDArray[np.bool_]:
        """Whether a size is at least that of the noise: then it holds very many lattice points."""
        if not is_lattice(self._randomizer):
            return np.ones(_ZERO, dtype=bool)
        return np.arange(_ZERO) >= self._randomizer.log2_scale

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the log odds of the first vector; NaN for sizes that are not compared."""
        scores: Scores = self._table[self._cells(payloads)]
        return scores


def wire_numbers(randomizer: Any, payloads: list[bytes]) -> NDArray[np.int64] | None:
    """Return the integers on the wire whose last bits must be uniform, (n, columns); else None.

    Lattice points of a lattice randomizer; the bytes of the nonce and the index of a ranked one.
    """
    if is_lattice(randomizer):
        return np.rint(randomizer.read(payloads) / randomizer.step).astype(np.int64)
    if is_ranked(randomizer):
        octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
        index = octets[:, -_INDEX_BYTES:].copy().view("<u4").astype(np.int64)
        return np.concatenate([octets[:, :-_INDEX_BYTES].astype(np.int64), index], axis=1)
    return None


def wire_bits(randomizer: Any) -> int:
    """Return how many last bits must be uniform; 0 if none need to be."""
    if is_lattice(randomizer):
        return max(0, min(_LOW_BITS, randomizer.log2_scale - _CLEARANCE))
    return _LOW_BITS if is_ranked(randomizer) else 0


class WireBits:
    """The last bits of one integer on the wire, the most informative one."""

    learns = True
    aim: Aim = "difference"

    def __init__(self, randomizer: Randomizer) -> None:
        self._randomizer = randomizer
        self._values = 1 << wire_bits(randomizer)
        self._counts: dict[int, NDArray[np.float64]] = {}
        self._column = 0
        self._table = np.zeros(self._values)

    def _residues(self, payloads: list[bytes]) -> NDArray[np.int64]:
        numbers = wire_numbers(self._randomizer, payloads)
        assert numbers is not None
        return numbers & (self._values - 1)

    def learn(self, side: int, payloads: list[bytes]) -> None:
        """Count the last bits of every integer."""
        residues = self._residues(payloads)
        columns = residues.shape[1]
        flat = residues + self._values * np.arange(columns)
        counts = np.bincount(flat.ravel(), minlength=columns * self._values)
        before = self._counts.get(side, 0.0)
        self._counts[side] = before + counts.reshape(columns, self._values).astype(np.float64)

    def settle(self) -> None:
        """Choose the integer whose last bits differ most."""
        if len(self._counts) < 2:
            return
        first, second = self._counts[0], self._counts[1]
        gaps = [chi2(a, b) for a, b in zip(first, second, strict=True)]
        self._column = int(np.argmax(gaps))
        a, b = first[self._column], second[self._column]
        self._table = np.log(a + 0.5) - np.log(b + 0.5)

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the log odds of the first vector."""
        scores: Scores = self._table[self._residues(payloads)[:, self._column]]
        return scores


def chi2(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return how much two rows of counts differ, only for choosing."""
    both, total = first + second, first.sum() + second.sum()
    if not first.sum() or not second.sum():
        return -math.inf
    expected = np.stack([both * first.sum(), both * second.sum()]) / total
    gaps = (np.stack([first, second]) - expected) ** 2 / np.maximum(expected, 1e-300)
    return float(gaps.sum() - np.count_nonzero(both))


# ---- Sequences: all reports of a person over a year

YEAR: Final = 365
"""Rounds of a sequence that an auditor watches."""

History = tuple[Vectors, Vectors]
"""The vector of a person's first round, and that of all others."""


def years(release: Release, history: History, count: int, rounds: int) -> list[list[bytes]]:
    """Return whole sequences of payloads, one list per person, by the code of a device."""
    people: list[Sequence | None] = [None] * count
    days = []
    for number in range(rounds):
        vectors = dict.fromkeys(range(count), np.ravel(history[number > 0]))
        reports, states = next_reports(release, people, number, vectors)
        people = list(states)
        days.append([report[HEADER_SIZE:] for report in reports])
    return [list(year) for year in zip(*days, strict=True)]


def sequences_of_reports(release: Release, histories: tuple[History, History], rounds: int) -> Draw:
    """Return a source of whole sequences: all payloads of a person, joined, per item."""
    return lambda side, count: [
        b"".join(year) for year in years(release, histories[side], count, rounds)
    ]


def later_reports(
    release: Release,
    histories: tuple[History, History],
    rounds: int,
    rng: np.random.Generator,
) -> Draw:
    """Return a source of single reports, each from a random round after the first."""

    def draw(side: int, count: int) -> list[bytes]:
        chosen = rng.integers(1, rounds, count).tolist()
        every = years(release, histories[side], count, rounds)
        return [year[at] for year, at in zip(every, chosen, strict=True)]

    return draw


class Averaging(LikelihoodRatio):
    """Add up the log-likelihood ratios of all reports of a person, as if they were independent.

    Repeated noise does not average out, so this stays within the promise of a sound sequence. One
    that draws more permanent answers than it promises, or draws them anew, gives itself away.
    """

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the sum over the reports of every sequence."""
        days = single_reports(self.randomizer, payloads)
        summed: Scores = super().scores(days).reshape(len(payloads), -1).sum(axis=1)
        return summed


class Wait:
    """How long a person waits for the second draw: it must not depend on any vector.

    All other ages follow from it (:func:`offaxis.auditing.checks.schedule`). The score is the log
    of how much more frequent a wait was for the first side, where this was learnt.
    """

    learns = True
    aim: Aim = "difference"

    def __init__(self, randomizer: Any) -> None:
        self._randomizer = randomizer
        self._waits: dict[int, list[int]] = {side: [] for side in SIDES}
        self._ratio: dict[int, float] = {}

    def learn(self, side: int, payloads: list[bytes]) -> None:
        """Count the waits of a side."""
        self._waits[side] += self._found(payloads)

    def settle(self) -> None:
        """Compare the frequencies of each wait, one added to each count."""
        first, second = (Counter(self._waits[side]) for side in SIDES)
        self._ratio = {
            wait: math.log((first[wait] + 1) / (second[wait] + 1)) for wait in first | second
        }

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the learnt score of the wait of every sequence."""
        return np.array([self._ratio.get(wait, 0.0) for wait in self._found(payloads)])

    def _found(self, payloads: list[bytes]) -> list[int]:
        ages = self._randomizer.ages(single_reports(self._randomizer, payloads))
        new = ages.reshape(len(payloads), -1)[:, 1:] == 0
        # A sequence without a second draw gets the number of its rounds.
        waits: list[int] = np.where(new.any(axis=1), new.argmax(axis=1), new.shape[1]).tolist()
        return waits


def single_reports(randomizer: Any, payloads: list[bytes]) -> list[bytes]:
    """Return the single reports of all sequences."""
    size = randomizer.payload_size
    return [whole[i : i + size] for whole in payloads for i in range(0, len(whole), size)]
