"""Attacks on the last digits: what floating-point noise gives away and lattices do not.

The lowest set bit of a float64 sum is as coarse as the larger of its parts, so noise added in
floating point shows the size of what it was added to (Mironov 2012; Haney, Desfontaines, Hartman,
Shrestha, Hay 2022). On a lattice the last bits of a noisy number are even to within 2**-20 or so,
whatever the vector: no difference may be seen.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.audit.events import Aim, Scores
from offaxis.audit.forms import is_lattice, is_ranked
from offaxis.randomizers import Randomizer
from offaxis.vectors import Vectors

_MANTISSA: Final = 53
_SIZES: Final = 64
"""Powers of two of the observation's size that are told apart."""

_ZERO: Final = 2 * _SIZES
"""The class of zero, after the sizes on the lattice and those beside it."""

_LOW_BITS: Final = 6
_CLEARANCE: Final = 6
"""Bits between the last bits looked at and the noise: below, the law of the noise is even."""

_INDEX_BYTES: Final = 4


def lowest_set_bit(values: Vectors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the binary exponent of every number and how many zeros end its 53-bit mantissa."""
    fraction, exponent = np.frexp(values)
    mantissa = np.abs(np.ldexp(fraction, _MANTISSA)).astype(np.int64)
    lowest = mantissa & -mantissa
    zeros = np.where(mantissa > 0, np.frexp(lowest.astype(np.float64))[1] - 1, _MANTISSA)
    return exponent.astype(np.int64), zeros.astype(np.int64)


class Precision:
    """How fine one coordinate of the observation is, together with its size.

    Parameters
    ----------
    randomizer : Randomizer
    coordinate : int
        The coordinate of the observation to look at.
    given_size : bool
        Compare only reports whose observation has the same power of two, the one that tells most
        among those from half a noise scale on: what differs then is precision alone. Such a
        difference is no bound on ε. (Smaller powers of two hold few lattice points, and which of
        few points it is may differ, as far as ε allows.)
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
            # Which last bits integer · step has as a float depends on the integer alone, and tells
            # where in a power of two it lies: a lattice point is looked at as its integer. What
            # lies beside the lattice has no excuse, and sizes of its own.
            whole = np.rint(values / self._randomizer.step)
            beside = whole * self._randomizer.step != values
            values, size = np.where(beside, values, whole), np.where(beside, _SIZES, 0)
        exponent, zeros = lowest_set_bit(values)
        # Zero has no size: it is a class of its own.
        return np.where(values == 0, _ZERO, size + exponent % _SIZES), zeros

    def learn(self, side: int, payloads: list[bytes]) -> None:
        """Count sizes and precisions."""
        np.add.at(self._counts[side], self._cells(payloads), 1)

    def settle(self) -> None:
        """Turn counts into log odds."""
        first, second = self._counts
        self._table = np.log(first + 0.5) - np.log(second + 0.5)
        if self._given_size:
            gaps = np.array([_chi2(first[i], second[i]) for i in range(_ZERO)])
            size = int(np.argmax(np.where(self._comparable(), gaps, -math.inf)))
            self._table[np.arange(_ZERO + 1) != size] = math.nan

    def _comparable(self) -> NDArray[np.bool_]:
        """Whether a size is as large as the noise: then it holds very many lattice points."""
        if not is_lattice(self._randomizer):
            return np.ones(_ZERO, dtype=bool)
        return np.arange(_ZERO) >= self._randomizer.log2_scale

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the log odds of the first vector; NaN for sizes that are not compared."""
        scores: Scores = self._table[self._cells(payloads)]
        return scores


def wire_numbers(randomizer: Any, payloads: list[bytes]) -> NDArray[np.int64] | None:
    """Return the integers on the wire whose last bits must be even, (n, columns); None if unknown.

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
    """Return how many last bits must be even, 0 if none need be."""
    if is_lattice(randomizer):
        return max(0, min(_LOW_BITS, randomizer.log2_scale - _CLEARANCE))
    return _LOW_BITS if is_ranked(randomizer) else 0


class WireBits:
    """The last bits of one integer on the wire, the one that tells most."""

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
        """Take the integer whose last bits differ most."""
        if len(self._counts) < 2:
            return
        first, second = self._counts[0], self._counts[1]
        gaps = [_chi2(a, b) for a, b in zip(first, second, strict=True)]
        self._column = int(np.argmax(gaps))
        a, b = first[self._column], second[self._column]
        self._table = np.log(a + 0.5) - np.log(b + 0.5)

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the log odds of the first vector."""
        scores: Scores = self._table[self._residues(payloads)[:, self._column]]
        return scores


def _chi2(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return how much two rows of counts differ, for choosing only."""
    both, total = first + second, first.sum() + second.sum()
    if not first.sum() or not second.sum():
        return -math.inf
    expected = np.stack([both * first.sum(), both * second.sum()]) / total
    gaps = (np.stack([first, second]) - expected) ** 2 / np.maximum(expected, 1e-300)
    return float(gaps.sum() - np.count_nonzero(both))
