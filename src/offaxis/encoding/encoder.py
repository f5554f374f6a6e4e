"""Encoders: public maps from R^m to what a randomizer takes, R^r or a symbol.

An encoder carries no privacy: whatever it does, the randomizer behind it keeps its promise. It must
only be total: any finite vector, tiny or huge, gets an encoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import A, has_device, namespace
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors

LARGEST_ENTRY = 1e100
"""No public map has larger entries, so that encoding a finite vector cannot overflow."""

LARGEST_INPUT = 2.0**500
"""Rows with larger entries are shrunk to it."""


class Encoder(Protocol):
    """A public map applied on the device before the randomizer, to each vector on its own.

    No row of a batch may influence another: they may belong to different people, and the guarantee
    covers a person's own report only.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.encoding import Encoder
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> encoder: Encoder = offaxis.fit(np.ones((1, 3)), public, epsilon=2).encoder
    >>> encoder.kind, encoder.input_dim, encoder.output_dim, encoder.encode(public).shape
    ('affine', 3, 3, (500, 3))
    """

    kind: ClassVar[str]

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        ...

    @property
    def output_dim(self) -> int:
        """Dimension r of an encoding, or the number of symbols."""
        ...

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map finite vectors (n, m) to (n, r) numbers or (n,) symbols."""
        ...


def tame(Z: A) -> A:
    """Shrink rows with entries above 2**500 to that size.

    Such a row lies outside every ball a release can have, so only its direction matters, and that
    is kept. Everything below stays untouched, bit by bit.
    """
    xp = namespace(Z)
    if _is_tame(Z):
        return Z
    peak = xp.max(xp.abs(Z), axis=1, keepdims=True)
    shrunk: A = Z / xp.clip(peak, min=1.0) * LARGEST_INPUT
    tamed: A = xp.where(peak > LARGEST_INPUT, shrunk, Z)
    return tamed


def _is_tame(Z: Any) -> bool:
    if not has_device(Z):
        return bool(max(Z.max(), -Z.min()) <= LARGEST_INPUT)
    # Nothing in single precision is as large; on a device one pass costs less than two.
    return Z.dtype.itemsize < 8 or float(namespace(Z).linalg.vector_norm(Z)) <= LARGEST_INPUT


def _frozen(array: Any) -> Vectors:
    copy = np.array(array, dtype=np.float64, order="C")
    # Without a second copy of a large map; NaN is neither smaller nor larger than anything.
    low, high = copy.min(initial=0.0), copy.max(initial=0.0)
    if not -LARGEST_ENTRY <= low <= high <= LARGEST_ENTRY:
        raise InvalidInput(f"a map must be finite with entries up to {LARGEST_ENTRY:g}")
    copy.setflags(write=False)
    return copy


def frozen_shift(shift: Any) -> Vectors:
    """Return a read-only float64 copy of a vector, refusing what could overflow."""
    copy = _frozen(shift)
    if copy.ndim != 1 or copy.size == 0:
        raise InvalidInput(f"a shift must be a vector (m,), got shape {copy.shape}")
    return copy


def frozen_map(matrix: Any, shift: Any, *, axis: Literal[0, 1]) -> tuple[Vectors, Vectors]:
    """Return read-only float64 copies of a matrix and of the shift along one of its axes.

    Raises
    ------
    InvalidInput
        If the shapes do not fit, or an entry is not finite or so large that it could overflow.
    """
    frozen, along = _frozen(matrix), frozen_shift(shift)
    if frozen.ndim != 2 or 0 in frozen.shape or along.shape != (frozen.shape[axis],):
        raise InvalidInput(f"a map {frozen.shape} and a shift {along.shape} do not fit")
    return frozen, along


@dataclass(frozen=True, eq=False, repr=False)
class AffineEncoder:
    """w = A (z − c), with A of shape (r, m).

    Examples
    --------
    >>> from offaxis.encoding import AffineEncoder
    >>> sums = AffineEncoder(np.array([[1.0, 1.0, 0.0]]), centre=np.array([1.0, 0.0, 0.0]))
    >>> sums.encode(np.array([[3.0, 4.0, 5.0]]))
    array([[6.]])
    """

    kind: ClassVar[str] = "affine"

    matrix: Vectors
    centre: Vectors

    def __post_init__(self) -> None:
        """Check shapes and sizes, and freeze the arrays."""
        matrix, centre = frozen_map(self.matrix, self.centre, axis=1)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "centre", centre)

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        return int(self.matrix.shape[1])

    @property
    def output_dim(self) -> int:
        """Dimension r of an encoding."""
        return int(self.matrix.shape[0])

    def encode(self, Z: Vectors) -> Vectors:
        """Map (n, m) to (n, r)."""
        return (tame(Z) - self.centre) @ self.matrix.T


@dataclass(frozen=True, eq=False, repr=False)
class ShiftEncoder:
    """w = z − c: no reshaping; with c = 0 the plain use of a randomizer.

    Examples
    --------
    >>> from offaxis.encoding import ShiftEncoder
    >>> ShiftEncoder(np.array([1.0, 2.0])).encode(np.array([[3.0, 4.0]]))
    array([[2., 2.]])
    """

    kind: ClassVar[str] = "shift"

    centre: Vectors

    def __post_init__(self) -> None:
        """Check the size and freeze the array."""
        object.__setattr__(self, "centre", frozen_shift(self.centre))

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        return int(self.centre.size)

    @property
    def output_dim(self) -> int:
        """Dimension of an encoding, the same."""
        return int(self.centre.size)

    def encode(self, Z: Vectors) -> Vectors:
        """Return the shifted vectors."""
        return tame(Z) - self.centre
