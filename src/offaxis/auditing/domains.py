"""The inputs of a function that is audited: what is promised between which, and which to try.

A domain is the set between any two elements of which the promise holds. Inputs outside it are out
of scope: the auditor never tries them. :class:`AnyVector` states that no finite vector is outside.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee, decimal
from offaxis.randomizers.base import Ball, Box, FiniteSet, Sphere, check_dim
from offaxis.vectors import Order, Vectors, row_norms

# ---- Domains that only an audit needs


@dataclass(frozen=True)
class AnyVector:
    """Every finite vector of ``dim`` numbers: the promise names no bound on its inputs.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.auditing import AnyVector
    >>> rng = np.random.default_rng()
    >>> def noisy(x):  # keeps ε = 1 for numbers in [0, 1], but nothing clips them
    ...     return x + rng.laplace(scale=1, size=x.shape)
    >>> offaxis.audit(noisy, epsilon=1, domain=AnyVector(1), reports=4000).violated
    True
    """

    dim: int

    def __post_init__(self) -> None:
        """Check the dimension."""
        object.__setattr__(self, "dim", check_dim(self.dim))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of neighbouring inputs, such as two data sets that differ in one person.

    The promise holds within each pair, and an audit tries no others.

    Parameters
    ----------
    pairs : sequence of (input, input)
        Inputs of any kind. Arrays and lists are copied before each call, so that a function may
        change them.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.auditing import Pairs
    >>> rng = np.random.default_rng()
    >>> def noisy_mean(ages):  # one person of 100 changes the mean by up to 1.2, not by 0.12
    ...     return np.mean(ages) + rng.laplace(scale=0.12)
    >>> young = np.full(100, 20.0)
    >>> one_is_old = np.r_[young[:-1], 120.0]
    >>> neighbours = Pairs([(young, one_is_old)])
    >>> offaxis.audit(noisy_mean, epsilon=1, domain=neighbours, reports=4000).violated
    True
    """

    pairs: Sequence[tuple[Any, Any]]

    def __post_init__(self) -> None:
        """Check that these are pairs."""
        pairs = list(self.pairs)
        if not pairs:
            raise InvalidInput("Pairs needs at least one pair of inputs, got none")
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InvalidInput(f"Pairs takes pairs (x, x'), got {shown(pair)}")
        object.__setattr__(self, "pairs", tuple((first, second) for first, second in pairs))


InputDomain = Ball | Sphere | Box | FiniteSet | AnyVector | Pairs | Sequence[Any]
"""A domain of an audited function. A tuple of two numbers is an interval, a list one of values."""

Distance = Callable[[Any, Any], float]
"""ε as a function of two inputs, as in metric privacy."""


# ---- The promise


@dataclass(frozen=True)
class Promise:
    """(ε, δ) between two inputs; ε is a number or a function of both."""

    epsilon: Any
    delta: float

    @staticmethod
    def of(epsilon: Any, delta: Any) -> Promise:
        """Check ε and δ as a user gave them; None for δ means 0."""
        if epsilon is None:
            raise InvalidInput("the audit of a function needs the promised epsilon, such as 1.0")
        known = 1 if callable(epsilon) else epsilon
        guarantee = Guarantee(known, 0 if delta is None else delta)
        return Promise(epsilon if callable(epsilon) else guarantee.epsilon, float(guarantee.delta))

    def between(self, first: Any, second: Any) -> float:
        """Return the ε that is promised for two inputs, in both directions."""
        if not callable(self.epsilon):
            return float(self.epsilon)
        largest = 0.0
        for x, other in ((first, second), (second, first)):
            value = self.epsilon(x, other)
            if not isinstance(value, Real | np.ndarray) or not float(value) >= 0:
                raise InvalidInput(
                    f"epsilon(x, x') must be a number from 0 on, got {value!r} for "
                    f"{shown(x)} and {shown(other)}"
                )
            largest = max(largest, float(value))
        return largest

    def __str__(self) -> str:
        """Return the promise in words."""
        delta = f", δ = {self.delta:g}" if self.delta else ""
        return (
            f"ε(x, x′){delta}" if callable(self.epsilon) else f"ε = {decimal(self.epsilon)}{delta}"
        )


# ---- Inputs, and how they are shown


@dataclass(frozen=True, eq=False)
class Input:
    """An input to try, and its numbers as one row if it consists of numbers."""

    value: Any
    row: NDArray[np.float64] | None

    def __str__(self) -> str:
        """Return the input in short."""
        return shown(self.value)

    def fresh(self) -> Any:
        """Return the input for one call, which may change it."""
        if isinstance(self.value, np.ndarray):
            return self.value.copy()
        if isinstance(self.value, _UNCHANGEABLE):
            return self.value
        return copy.deepcopy(self.value)

    def batch(self, count: int) -> Any:
        """Return a batch of ``count`` copies: an array of rows or numbers, or a list."""
        if isinstance(self.value, np.ndarray | int | float | np.number):
            return np.repeat(np.asarray(self.value)[None], count, axis=0)
        return [self.fresh() for _ in range(count)]


_UNCHANGEABLE: Final = (str, bytes, int, float, complex, bool, type(None), frozenset, np.generic)
_SHOWN: Final = 4
_LETTERS: Final = 40


def shown(value: Any) -> str:
    """Return an input in a few characters, for messages."""
    if isinstance(value, np.ndarray | list | tuple):
        text = _shown_sequence(value)
    elif isinstance(value, float | np.floating):
        text = f"{float(value):.6g}"
    else:
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"


def _shown_sequence(value: Any) -> str:
    parts = list(np.ravel(value) if isinstance(value, np.ndarray) else value)
    if len(parts) > 1 and len({repr(part) for part in parts}) == 1:
        return f"{len(parts)} × {shown(parts[0])}"
    few = [shown(part) for part in parts[:_SHOWN]] + ["…"] * (len(parts) > _SHOWN)
    return f"({', '.join(few)})" if isinstance(value, tuple) else f"[{', '.join(few)}]"


def shown_apart(first: Input, second: Input) -> str:
    """Return two inputs in short; of those that begin alike, where they differ first."""
    x, other = first.row, second.row
    if x is not None and other is not None and x.shape == other.shape and str(first) == str(second):
        places = np.flatnonzero(x != other)
        if places.size:
            at = int(places[0])
            more = f", and {places.size - 1} more" if places.size > 1 else ""
            return f"x[{at}] = {float(x[at])!r}, x′[{at}] = {float(other[at])!r}{more}"
    return f"x = {first}, x′ = {second}"


def as_input(value: Any) -> Input:
    """Return any value as an input."""
    try:
        row = np.atleast_1d(np.asarray(value, dtype=np.float64)).ravel()
    except (TypeError, ValueError):
        return Input(value, None)
    numbers = not isinstance(value, str | bytes) and np.isfinite(row).all()
    return Input(value, row if numbers else None)


# ---- Spaces: which inputs to try first, and which ones near those that were told apart best

_TINY: Final = (1e-12, 5e-324, 1e-300, 1e-6, 1e-160)
"""Below the floors that code divides by, and where squares underflow."""

_INSIDE: Final = 1 - 1e-12
"""Rounding must not take a vector out of its domain."""

_CLOSE: Final = 2.0**-20
_MOST: Final = 64
"""Largest number of labels or pairs that are tried at first."""


@dataclass(frozen=True, eq=False)
class Space:
    """The inputs of a domain: those to try first, the most telling first, and others like some.

    ``partners`` lists, for explicit pairs, the places of the two inputs of each; else it is None,
    and any two inputs are a pair. ``mutate`` returns another input, similar to a given one.
    """

    words: str
    inputs: tuple[Input, ...]
    partners: tuple[tuple[int, int], ...] | None
    mutate: Callable[[Input, np.random.Generator], Input] | None
    ranked: bool = True
    """Whether the first inputs are the most telling ones."""


def space_of(domain: Any, promise: Promise, rng: np.random.Generator) -> Space:
    """Return the inputs to try of a domain as a user gave it."""
    if domain is None:
        raise InvalidInput(
            "the audit of a function needs the domain of its inputs, such as Ball(3, 1, 2), "
            "AnyVector(3), (0.0, 1.0), a list of values, or Pairs([(x, x')])"
        )
    if isinstance(domain, Ball | Sphere | Box | AnyVector):
        return _vector_space(domain, rng)
    if isinstance(domain, Pairs):
        return _pair_space(domain, rng)
    if isinstance(domain, FiniteSet):
        return _label_space(range(domain.size), promise, rng)
    if isinstance(domain, tuple) and len(domain) == 2 and all(map(_is_number, domain)):
        return _interval_space(float(domain[0]), float(domain[1]), rng)
    if isinstance(domain, Sequence | np.ndarray | set | frozenset) and not isinstance(domain, str):
        return _label_space(list(domain), promise, rng)
    raise InvalidInput(
        f"the domain must be a Ball, Sphere, Box, FiniteSet, AnyVector, Pairs, an interval "
        f"(low, high) or a list of values, got {shown(domain)}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _vector_space(domain: Any, rng: np.random.Generator) -> Space:
    """Return poles, corners, zero, tiny and random vectors; beyond any bound only if it has none.

    All of them are float64 arrays of shape (dim,).
    """
    dim, radius = check_dim(domain.dim), float(getattr(domain, "radius", 1.0))
    if not 0 < radius < math.inf:
        raise InvalidInput(
            f"the radius of a domain must be positive and finite, got radius={radius!r}; for every "
            f"finite vector state AnyVector({dim})"
        )
    order: Order = "inf" if isinstance(domain, Box) else getattr(domain, "order", 2)

    def bounded(rows: Vectors) -> Vectors:
        """Shrink rows onto the boundary, or scale them to it if it is all there is."""
        lengths = row_norms(rows, order)
        if isinstance(domain, Sphere):
            return np.asarray(rows * (radius / lengths)[:, None])
        share = np.minimum(1.0, radius / np.maximum(lengths, 1e-300))
        # Only poles have an exact norm.
        exact = np.count_nonzero(rows, axis=1) == 1
        return np.asarray(rows * np.where(exact | (share == 1), share, share * _INSIDE)[:, None])

    kinds = [bounded(1e3 * radius * _rays(dim, rng))]
    if not isinstance(domain, Sphere):
        kinds.append(_within(dim, radius, bounded, rng))
    if isinstance(domain, AnyVector):
        kinds.insert(1, _outside(dim))
    rows = np.concatenate(kinds)
    _, first = np.unique(rows.view(np.int64), axis=0, return_index=True)
    rows = rows[np.sort(first)]

    def mutate(x: Input, generator: np.random.Generator) -> Input:
        assert x.row is not None
        row, size = x.row, max(radius, float(np.abs(x.row).max()))
        kind = generator.integers(4)
        with np.errstate(over="ignore"):
            if kind == 0:
                step = size * 10.0 ** generator.uniform(-3, 0)
                row = row + step * generator.standard_normal(dim)
            elif kind == 1:
                row = row * generator.choice([-1.0, 1.0], dim) + 0.0
            elif kind == 2:
                row = row * (generator.random(dim) < 0.5) + 0.0
            else:
                row = row * 10.0 ** generator.uniform(-3, 0.5)
        if not np.isfinite(row).all() or (isinstance(domain, Sphere) and not row.any()):
            return x
        if not isinstance(domain, AnyVector):
            row = bounded(row[None])[0]
        return Input(row, row)

    words = f"any finite vector of {dim}" if isinstance(domain, AnyVector) else f"{domain}"
    return Space(words, tuple(Input(row, row) for row in rows), None, mutate)


def _rays(dim: int, rng: np.random.Generator) -> Vectors:
    """Return opposite poles, corners and random directions."""
    pole, last = np.eye(1, dim)[0], np.eye(1, dim, dim - 1)[0]
    ones, signs = np.ones(dim), np.resize([1.0, -1.0], dim)
    half = (np.arange(dim) < (dim + 1) // 2).astype(np.float64)
    dense = rng.standard_normal((3, dim))
    rows = [pole, -pole, ones, -ones, last, half, signs, -signs, dense[0], -dense[0], *dense[1:]]
    return np.stack(rows) + 0.0  # no negative zeros


def _within(
    dim: int, radius: float, bounded: Callable[[Vectors], Vectors], rng: np.random.Generator
) -> Vectors:
    """Return zero, tiny vectors, and vectors inside and just inside the boundary."""
    pole, ones = np.eye(1, dim)[0], np.ones(dim)
    corner = bounded(1e3 * radius * ones[None])[0]
    rows = [0 * pole, *(min(radius, size) * pole for size in _TINY[:2])]
    rows += [radius / 2 * pole, radius * (1 - _CLOSE) * pole]
    rows += [size * radius * corner for size in _TINY if size * radius * corner.max() > 0]
    rows += [-_TINY[0] * min(radius, 1.0) * pole, corner / 2]
    inside = bounded(1e3 * radius * rng.standard_normal((4, dim)))
    # Adding 0 removes negative zeros; one of them is wanted.
    return np.concatenate([np.array(rows) + 0.0, [-0.0 * ones], inside * rng.random((4, 1))])


def _outside(dim: int) -> Vectors:
    """Return vectors that are far from all others."""
    pole, ones = np.eye(1, dim)[0], np.ones(dim)
    sizes = (1e3, -1e3, 1e6, -1e6, 1e12, 1e308, -1e308)
    return np.stack([size * ray for size in sizes for ray in (pole, ones)])


def _interval_space(low: float, high: float, rng: np.random.Generator) -> Space:
    """Return ends, middle, zero, tiny numbers and random ones; all of them are floats."""
    if not -math.inf < low < high < math.inf:
        raise InvalidInput(
            f"an interval (low, high) needs finite numbers with low < high, got ({low}, {high}); "
            f"for two values pass a list, [{low}, {high}]"
        )
    width = high - low
    tried = [low, high, (low + high) / 2, 0.0, _TINY[0], _TINY[1], -_TINY[0]]
    tried += [low + _CLOSE * width, high - _CLOSE * width, low + width / 4, high - width / 4]
    tried += [2.0 ** math.floor(math.log2(max(abs(low), abs(high)))), low + _TINY[0] * width]
    tried += rng.uniform(low, high, 6).tolist()
    values = list(dict.fromkeys(float(x) for x in tried if low <= x <= high))

    def mutate(x: Input, generator: np.random.Generator) -> Input:
        step = width * 10.0 ** generator.uniform(-4, 0) * generator.standard_normal()
        return as_input(float(np.clip(x.value + step, low, high)))

    return Space(f"[{low:g}, {high:g}]", tuple(map(as_input, values)), None, mutate)


def _label_space(labels: Any, promise: Promise, rng: np.random.Generator) -> Space:
    """Return labels: all of them, or some; with a distance, some and their nearest others."""
    if len(labels) < 2:
        raise InvalidInput(f"a list of values needs two or more, got {shown(list(labels))}")
    order = rng.permutation(len(labels)).tolist()
    chosen = order[:_MOST]
    if callable(promise.epsilon) and len(labels) > _MOST:
        chosen = list(dict.fromkeys(_with_neighbours(labels, order, promise)))[:_MOST]
    elif len(labels) <= _MOST:
        chosen = list(range(len(labels)))

    def mutate(_: Input, generator: np.random.Generator) -> Input:
        return as_input(labels[int(generator.integers(len(labels)))])

    inputs = tuple(as_input(labels[i]) for i in chosen)
    others = mutate if len(labels) > _MOST else None
    return Space(f"{len(labels):,} values", inputs, None, others, ranked=False)


_SCANNED: Final = 1000


def _with_neighbours(labels: Any, order: list[int], promise: Promise) -> Iterator[int]:
    """Yield some labels, and after each the one of many that it promises least to."""
    scanned = order[:_SCANNED]
    for place in scanned[: _MOST // 2]:
        others = [other for other in scanned if other != place]
        yield place
        yield min(others, key=lambda other: promise.between(labels[place], labels[other]))


def _pair_space(domain: Pairs, rng: np.random.Generator) -> Space:
    """Return the inputs of explicit pairs, some of them if there are very many."""
    chosen = np.sort(rng.permutation(len(domain.pairs))[:_MOST])
    inputs: list[Input] = []
    places: dict[int, int] = {}
    partners = []
    for number in chosen:
        pair = []
        for value in domain.pairs[number]:
            if id(value) not in places:
                places[id(value)] = len(inputs)
                inputs.append(as_input(value))
            pair.append(places[id(value)])
        partners.append((pair[0], pair[1]))
    return Space(f"{len(domain.pairs):,} pairs", tuple(inputs), tuple(partners), None)
