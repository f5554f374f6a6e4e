"""Encoders: public maps from R^m to what a randomizer takes, R^r or a symbol.

An encoder carries no privacy: whatever it does, the randomizer behind it keeps its promise. It must
only be total: any finite vector, tiny or huge, gets an encoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors

LARGEST_ENTRY = 1e100
"""No public map has larger entries, so that encoding a finite vector cannot overflow."""

_LARGEST_INPUT = 2.0**500


class Encoder(Protocol):
    """A public map applied on the device before the randomizer."""

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

    def tensors(self) -> dict[str, Vectors]:
        """Return the arrays that define the map, by name."""
        ...


def tame(Z: Vectors) -> Vectors:
    """Shrink rows with entries above 2**500 to that size.

    Such a row lies outside every ball a release can have, so only its direction matters, and that
    is kept. Everything below stays untouched, bit by bit.
    """
    if max(Z.max(), -Z.min()) <= _LARGEST_INPUT:
        return Z
    peak = np.abs(Z).max(axis=1, keepdims=True)
    return np.where(peak > _LARGEST_INPUT, Z / peak.clip(min=1.0) * _LARGEST_INPUT, Z)


def frozen(array: Any, name: str) -> Vectors:
    """Return a read-only float64 copy, refusing entries that are not finite or could overflow."""
    copy = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(copy).all() or np.abs(copy).max(initial=0.0) > LARGEST_ENTRY:
        raise InvalidInput(f"the {name} must be finite with entries up to {LARGEST_ENTRY:g}")
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True, eq=False)
class AffineEncoder:
    """w = A (z − c), with A of shape (r, m)."""

    kind: ClassVar[str] = "affine"

    matrix: Vectors
    centre: Vectors

    def __post_init__(self) -> None:
        """Check shapes and sizes, and freeze the arrays."""
        matrix, centre = frozen(self.matrix, "map"), frozen(self.centre, "centre")
        if matrix.ndim != 2 or centre.shape != (matrix.shape[1],) or 0 in matrix.shape:
            raise InvalidInput(f"got a map {matrix.shape} with a centre {centre.shape}")
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

    def tensors(self) -> dict[str, Vectors]:
        """Return the map and its centre."""
        return {"matrix": self.matrix, "centre": self.centre}


@dataclass(frozen=True)
class IdentityEncoder:
    """w = z: the plain use of a randomizer, without any reshaping."""

    kind: ClassVar[str] = "identity"

    dim: int

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        return self.dim

    @property
    def output_dim(self) -> int:
        """Dimension of an encoding, the same."""
        return self.dim

    def encode(self, Z: Vectors) -> Vectors:
        """Return the vectors themselves."""
        return tame(Z)

    def tensors(self) -> dict[str, Vectors]:
        """There is nothing to store but the dimension."""
        return {}
