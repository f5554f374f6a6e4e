"""Some coordinates of a box, reported one by one: what piecewise and hybrid reports share.

Of m coordinates k are chosen uniformly, without looking at the input, and each is reported with ε/k
(Wang et al. 2019). A payload is k entries of six bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidReport
from offaxis.randomizers.base import CHOOSE
from offaxis.randomizers.box_form import BoxForm
from offaxis.vectors import as_integer

ENTRY: Final = np.dtype([("coordinate", "<u4"), ("point", "<u2")])
"""A reported coordinate on the wire."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class SampledForm(BoxForm):
    """A box randomizer that reports ``sampled`` of its coordinates.

    Parameters
    ----------
    dim, radius, epsilon
        As in :class:`BoxForm`.
    sampled : int, optional
        k; max(1, min(m, ⌊ε/2.5⌋)) when not given.
    """

    sampled: int = CHOOSE

    def __post_init__(self) -> None:
        """Read the parameters exactly and fix the number of coordinates."""
        super().__post_init__()
        if self.sampled == CHOOSE:
            best = max(1, min(self.dim, math.floor(self.epsilon / Fraction(5, 2))))
            object.__setattr__(self, "sampled", best)
        object.__setattr__(self, "sampled", as_integer(self.sampled, "sampled", 1, self.dim))

    @property
    def share(self) -> Fraction:
        """ε/k: what each reported coordinate costs."""
        return self.epsilon / self.sampled

    @property
    def payload_size(self) -> int:
        """Six bytes a reported coordinate."""
        return ENTRY.itemsize * self.sampled

    def entries(self, payloads: list[bytes]) -> tuple[Integers, Integers]:
        """Split payloads into coordinates, as written, and points."""
        size = self.payload_size
        if any(len(payload) != size for payload in payloads):
            raise InvalidReport(f"a {self.kind} payload has {size} bytes")
        found = np.frombuffer(b"".join(payloads), dtype=ENTRY).reshape(-1, self.sampled)
        return found["coordinate"].astype(np.int64), found["point"].astype(np.int64)

    def check_coordinates(self, order: Integers) -> None:
        """Refuse coordinates that do not exist or that stand twice in a payload."""
        ascending = np.sort(order, axis=1)
        if order.size and (ascending[:, -1].max() >= self.dim or not np.diff(ascending).all()):
            raise InvalidReport(f"a {self.kind} payload names coordinates that no client names")
