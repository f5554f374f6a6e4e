"""Kashin coefficients: a vector of the unit ball as many small numbers of one public bound.

The frame. With D ≥ m and N = 4D powers of two, a nonce gives a rotation R of R^D (signs, then
Hadamard), D of N places, and N signs. Uᵀ = H_N S P R pads w to D coordinates, rotates it, puts it
at the places, flips signs and transforms. U Uᵀ = I: the frame is tight, its N vectors have the
squared length D/N, and w = Σ_j a_j u_j for every a with U a = w.

Kashin coefficients are an a with all |a_j| ≤ K/√N, K a constant (Lyubarskii, Vershynin 2010). It is
found here by projecting in turn on the cube and on the affine set {a : U a = w}, a fixed number of
times. The level K = 1.45 + 2.9/√D leaves room: what the last point of the cube lacks of w is below
1e-6 for all but about one vector in 5,000 (tests/experiments). For a vector at random no tight
frame has a K much below √(π/2) = 1.25: 1 = ‖w‖² = ⟨a, Uᵀw⟩ ≤ K ‖Uᵀw‖₁/√N, and the mean of ‖Uᵀw‖₁
is at most √(Nm) times that of a coordinate of w, which is √(2/πm) for many dimensions.

No guarantee rests on the coefficients: how a device computes them may depend on w in any way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from experiments.rivals.public import power_above, public_places, public_signs, transform
from offaxis.randomizers.directions import Nonces
from offaxis.vectors import Vectors, row_norms

_ROTATION: Final = b"rivals rotation."
_SIGNS: Final = b"rivals signs v1."
_SPREAD: Final = b"rivals spread 1."
_SAMPLE: Final = b"rivals sample 1."

_REDUNDANCY: Final = 4
_STEPS: Final = 60
_RELAXATION: Final = 1.8
_NUMBERS: Final = 1 << 16
"""Coefficients in memory at a time, so that they stay in the cache."""


def default_level(dim: int) -> float:
    """Return K, rounded so that every machine finds the same."""
    return round(1.45 + 2.9 / math.sqrt(power_above(dim)), 3)


@dataclass(frozen=True)
class Frame:
    """Public frames of R^dim, one per nonce, and the bound K/√N of their coefficients."""

    dim: int
    level: float

    @property
    def padded(self) -> int:
        """D."""
        return power_above(self.dim)

    @property
    def size(self) -> int:
        """N."""
        return _REDUNDANCY * self.padded

    @property
    def bound(self) -> float:
        """K/√N."""
        return self.level / math.sqrt(self.size)

    @property
    def rows_at_once(self) -> int:
        """The number of vectors whose coefficients are computed at a time."""
        return max(1, _NUMBERS // self.size)

    def sample(self, nonces: Nonces, count: int) -> NDArray[np.int64]:
        """Return ``count`` distinct public coefficients per nonce, (n, count)."""
        return public_places(nonces, self.size, count, _SAMPLE)

    def coefficients(self, W: Vectors, nonces: Nonces) -> Vectors:
        """Return coefficients of rows of the unit ball, as shares of the bound: (n, N)."""
        out = np.empty((len(W), self.size))
        for start in range(0, len(W), self.rows_at_once):
            part = slice(start, start + self.rows_at_once)
            out[part] = self._coefficients(W[part], _Expanded(self, nonces[part]))
        return out

    def _coefficients(self, W: Vectors, frame: _Expanded) -> Vectors:
        target = frame.rotated(W)
        a = frame.analysed(target)
        # A fixed number of steps: the time says nothing about the vector.
        for _ in range(_STEPS):
            inside = np.clip(a, -self.bound, self.bound)
            a = inside + _RELAXATION * frame.analysed(target - frame.synthesised(inside))
        shares: Vectors = np.clip(a / self.bound, -1.0, 1.0)
        return shares

    def lacking(self, W: Vectors, nonces: Nonces) -> Vectors:
        """Return ‖w − U a‖ of every row: what the coefficients lack."""
        missing: Vectors = row_norms(W - self.combined(self.coefficients(W, nonces), nonces), 2)
        return missing

    def combined(self, shares: Vectors, nonces: Nonces) -> Vectors:
        """Return Σ_j (K/√N) share_j u_j of every row, (n, dim)."""
        out = np.empty((len(shares), self.dim))
        for start in range(0, len(shares), self.rows_at_once):
            part = slice(start, start + self.rows_at_once)
            frame = _Expanded(self, nonces[part])
            out[part] = frame.unrotated(frame.synthesised(self.bound * shares[part]))
        return out

    def spread(self, values: Vectors, places: NDArray[np.int64], nonces: Nonces) -> Vectors:
        """Return (N/k) Σ (K/√N) value_i u_{place_i}: unbiased if the values are, (n, dim)."""
        out = np.empty((len(values), self.dim))
        for start in range(0, len(values), self.rows_at_once):
            part = slice(start, start + self.rows_at_once)
            shares = np.zeros((len(values[part]), self.size))
            np.put_along_axis(shares, places[part], values[part], axis=1)
            out[part] = self.combined(shares, nonces[part])
        out *= self.size / places.shape[1]
        return out


class _Expanded:
    """The frames of some nonces."""

    def __init__(self, frame: Frame, nonces: Nonces) -> None:
        self._frame = frame
        self._first = public_signs(nonces, frame.padded, _ROTATION)
        self._places = public_places(nonces, frame.size, frame.padded, _SPREAD)
        self._signs = public_signs(nonces, frame.size, _SIGNS)

    def rotated(self, W: Vectors) -> Vectors:
        """Return Rw, (n, D)."""
        padded = np.zeros((len(W), self._frame.padded))
        padded[:, : self._frame.dim] = W
        return transform(padded * self._first)

    def unrotated(self, X: Vectors) -> Vectors:
        """Return Rᵀx without the padding, (n, dim)."""
        vectors: Vectors = (transform(X) * self._first)[:, : self._frame.dim]
        return vectors

    def analysed(self, X: Vectors) -> Vectors:
        """Return H_N S P x, (n, N)."""
        placed = np.zeros((len(X), self._frame.size))
        np.put_along_axis(placed, self._places, X, axis=1)
        return transform(placed * self._signs)

    def synthesised(self, a: Vectors) -> Vectors:
        """Return the transpose of :meth:`analysed`, applied to coefficients: (n, D)."""
        vectors: Vectors = np.take_along_axis(transform(a) * self._signs, self._places, axis=1)
        return vectors
