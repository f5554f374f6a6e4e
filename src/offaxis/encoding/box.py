"""Each coordinate clipped on its own, before the randomizer clips them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from offaxis.arrays import namespace
from offaxis.encoding.encoder import AffineEncoder, frozen_shift
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors


@dataclass(frozen=True, eq=False, repr=False)
class BoxEncoder(AffineEncoder):
    """w_i = clip((A (z − c))_i, ±h_i).

    The clipping serves utility: a coordinate that is far out does not use up the ball for the
    others. The guarantee does not rest on it.

    Examples
    --------
    >>> from offaxis.encoding import BoxEncoder
    >>> box = BoxEncoder(np.eye(2), np.zeros(2), limits=np.array([1.0, 0.5]))
    >>> box.encode(np.array([[3.0, -3.0]]))
    array([[ 1. , -0.5]])
    """

    kind: ClassVar[str] = "box"

    limits: Vectors

    def __post_init__(self) -> None:
        """Check shapes and signs, and freeze the arrays."""
        super().__post_init__()
        limits = frozen_shift(self.limits)
        if limits.shape != (self.output_dim,) or not (limits > 0).all():
            raise InvalidInput(
                f"a box needs {self.output_dim} positive half widths, got shape {limits.shape}"
            )
        object.__setattr__(self, "limits", limits)

    def encode(self, Z: Vectors) -> Vectors:
        """Map (n, m) to (n, r)."""
        encoded = super().encode(Z)
        clipped: Vectors = namespace(encoded).clip(encoded, -self.limits, self.limits)
        return clipped
