"""The optimised tables of MVU: integer weights whose privacy is checked in integers.

A table has a row per point x_i of an even grid on [−1, 1] and a column per output. Row i draws
column j with probability n_ij/2³², n_ij integers with the row sum 2³². A number between two grid
points is first rounded to one of them at random, with mean itself. Table and outputs minimise the
average second moment Σ_i Σ_j p_ij a_j² over the grid, subject to

    Σ_j p_ij = 1,   Σ_j p_ij a_j = x_i,   p_ij ≤ e^ε p_i'j for all i, i', j.

For given outputs this is a linear program; outputs ±a_1, ±a_2, … are found by a search over it.

Contract: whatever the optimiser does, a :class:`Table` exists only if in every column the largest
weight is at most e^ε times the smallest, compared exactly with certified digits of e^{−ε}. A
mixture of rows, such as random rounding, is in the same range: pure ε for every input.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize

from offaxis.errors import InvalidInput
from offaxis.sampling.choices import below
from offaxis.sampling.entropy import RandomBits
from offaxis.sampling.probability import exp_minus
from offaxis.vectors import Vectors

TOTAL: Final = 1 << 32
STEP: Final = 1 << 20
"""Outputs are multiples of 1/STEP, and positions between grid points as well."""

_DIGITS: Final = 128
_SLACKS: Final = (1e-6, 1e-5, 1e-4, 1e-3)
_RARE: Final = 1e-7
"""An output less likely than this under some input is dropped: its weight could not be rounded."""


def within(weights: list[list[int]], epsilon: Fraction) -> bool:
    """Return whether in every column max ≤ e^ε min, decided exactly; never true by rounding.

    An unused output, of weight zero in every row, is allowed.
    """
    _, high = exp_minus(epsilon, _DIGITS)
    columns = list(zip(*weights, strict=True))
    return all(max(column) * high <= min(column) << _DIGITS for column in columns)


@dataclass(frozen=True)
class Table:
    """Weights and outputs of one scalar mechanism on [−1, 1].

    ``text`` holds both: rows of weights separated by "/", then "=" and the outputs in steps of
    1/STEP, all as decimal integers. A release file keeps it, since an optimiser may find another
    table on another machine.
    """

    text: str
    epsilon: Fraction

    def __post_init__(self) -> None:
        """Reject weights that do not sum to 2³² or do not keep ε."""
        if any(min(row) < 0 or sum(row) != TOTAL for row in self.weights):
            raise InvalidInput("the weights of a row of an MVU table must add up to 2**32")
        if not within(self.weights, self.epsilon):
            raise InvalidInput("the weights of an MVU table exceed its epsilon")
        if len({len(row) for row in self.weights} | {self.outputs.size}) != 1:
            raise InvalidInput("an MVU table has as many weights per row as outputs")
        if len(self.weights) < 2:
            raise InvalidInput("an MVU table has at least two rows")
        if table_text(self.weights, self.integers) != self.text:
            raise InvalidInput("an MVU table is not in canonical form")

    @cached_property
    def _parts(self) -> tuple[list[list[int]], list[int]]:
        try:
            rows, outputs = self.text.split("=")
            weights = [[int(n) for n in row.split(",")] for row in rows.split("/")]
            return weights, [int(a) for a in outputs.split(",")]
        except ValueError as error:
            raise InvalidInput("an MVU table is malformed") from error

    @property
    def weights(self) -> list[list[int]]:
        """n_ij, a row per grid point."""
        return self._parts[0]

    @property
    def integers(self) -> list[int]:
        """The outputs in steps."""
        return self._parts[1]

    @cached_property
    def outputs(self) -> Vectors:
        """a_j."""
        return np.array(self.integers, dtype=np.float64) / STEP

    @cached_property
    def _cumulated(self) -> NDArray[np.int64]:
        return np.cumsum(np.array(self.weights, dtype=np.int64), axis=1)

    def second_moment(self, x: Vectors) -> Vectors:
        """Return E[output² | x]: linear between grid points, as x is rounded to one of the two."""
        grid = np.linspace(-1, 1, len(self.weights))
        squares = np.array(self.weights) @ self.outputs**2 / TOTAL
        moment: Vectors = np.interp(x, grid, squares)
        return moment

    def means(self) -> Vectors:
        """Return E[output | x_i] of every grid point."""
        mean: Vectors = np.array(self.weights) @ self.outputs / TOTAL
        return mean

    def cells(self, x: Vectors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lower row of every number of [−1, 1], and its steps above it, 0 … STEP."""
        cells = len(self.weights) - 1
        place = np.rint((np.clip(x, -1, 1) + 1) / 2 * cells * STEP).astype(np.int64)
        lower = np.minimum(place // STEP, cells - 1)
        return lower, place - lower * STEP

    def rows(self, x: Vectors, coins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of every number of [−1, 1]; coins are uniform integers below STEP."""
        lower, above = self.cells(x)
        row: NDArray[np.int64] = lower + (coins < above)
        return row

    def columns(self, rows: NDArray[np.int64], draws: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the column of every row that a uniform integer below 2³² selects."""
        column: NDArray[np.int64] = (self._cumulated[rows] <= draws[..., None]).sum(axis=-1)
        return column

    def draw(self, count: int, bits: RandomBits) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw the coins and the uniform integers of ``count`` numbers."""
        return below(STEP, count, bits), below(TOTAL, count, bits)


def table_text(weights: list[list[int]], outputs: list[int]) -> str:
    """Return the canonical text of a table."""
    rows = "/".join(",".join(map(str, row)) for row in weights)
    return rows + "=" + ",".join(map(str, outputs))


# ---- Optimisation


def _program(outputs: Vectors, points: int, ratio: float) -> tuple[float, Vectors]:
    """Return the least average second moment of a table with these outputs, and the table.

    Variables are p_ij and the smallest weight m_j of every column: m_j ≤ p_ij ≤ ratio m_j.
    """
    count = outputs.size
    size = points * count
    grid = np.linspace(-1, 1, points)
    rows = np.kron(np.eye(points), np.ones(count))
    means = np.kron(np.eye(points), outputs)
    equal = np.hstack([np.vstack([rows, means]), np.zeros((2 * points, count))])
    column = np.tile(np.eye(count), (points, 1))
    limits = np.vstack(
        [np.hstack([-np.eye(size), column]), np.hstack([np.eye(size), -ratio * column])]
    )
    cost = np.concatenate([np.tile(outputs**2, points) / points, np.zeros(count)])
    found = linprog(
        cost, limits, np.zeros(2 * size), equal, np.concatenate([np.ones(points), grid])
    )
    if found.status != 0:
        return np.inf, np.zeros((points, count))
    return float(found.fun), found.x[:size].reshape(points, count)


def _symmetric(logs: Vectors) -> Vectors:
    """Return the outputs ±a_1, ±a_2, …, ascending."""
    positive = np.sort(np.exp(logs))
    return np.concatenate([-positive[::-1], positive])


def _starts(count: int, ratio: float) -> list[Vectors]:
    """Return logarithms of positive outputs to begin with.

    Two outputs ±(e^ε + 1)/(e^ε − 1) always suffice, and are all there is with one bit. More outputs
    begin evenly between them, which suits large ε, or close together and further out.
    """
    outermost = np.log((ratio + 1) / (ratio - 1))
    if count == 2:
        return [np.array([outermost])]
    even = np.log(np.arange(1, count // 2 + 1) / (count // 2))
    return [outermost + even + np.log(1.05), outermost + 0.4 * even + np.log(1.2)]


def _searched(start: Vectors, ratio: float) -> Vectors:
    """Return the outputs that a search from one start finds."""
    if start.size == 1:
        return _symmetric(start)
    found = minimize(
        lambda logs: min(_program(_symmetric(logs), 2 * start.size, ratio)[0], 1e9),
        start,
        method="Nelder-Mead",
        options={"xatol": 1e-3, "fatol": 1e-6, "maxfev": 250},
    )
    return _symmetric(found.x)


@lru_cache(maxsize=256)
def best_table(epsilon: Fraction, bits: int) -> Table:
    """Return the table with 2^bits outputs and as many grid points, but at least two."""
    count = 1 << bits
    for slack in _SLACKS:
        ratio = float(np.exp(float(epsilon))) * (1 - slack)
        found = [_searched(start, ratio) for start in _starts(count, ratio)]
        outputs = found[int(np.argmin([_program(each, count, ratio)[0] for each in found]))]
        _, chances = _program(outputs, count, ratio)
        weights = _rounded(chances)
        if within(weights, epsilon):
            return Table(table_text(weights, _unbiased(weights, outputs)), epsilon)
    raise AssertionError(f"no table was found for epsilon {epsilon} and {bits} bits")


def _rounded(chances: Vectors) -> list[list[int]]:
    """Return integer weights with the row sum 2³², next to these probabilities."""
    used = np.where(chances.min(axis=0) < _RARE, 0.0, chances)
    used /= used.sum(axis=1, keepdims=True)
    weights = [[int(n) for n in row] for row in np.rint(used * TOTAL)]
    for row in weights:
        row[row.index(max(row))] += TOTAL - sum(row)
    return weights


def _unbiased(weights: list[list[int]], outputs: Vectors) -> list[int]:
    """Return the outputs, moved as little as possible so that every grid point is its mean."""
    chances = np.array(weights) / TOTAL
    gap = np.linspace(-1, 1, len(weights)) - chances @ outputs
    moved = outputs + np.linalg.lstsq(chances, gap, rcond=1e-9)[0]
    return [int(a) for a in np.rint(moved * STEP)]
