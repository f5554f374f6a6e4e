"""The radius of the randomizer's ball: a percentile of the norms of encoded public vectors."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding.encoders import Encoder
from offaxis.errors import InvalidInput
from offaxis.geometry.public import Mapped, PublicIdentity, PublicVectors, fold_again
from offaxis.vectors import Order, Vectors, as_number, row_norms

_KEPT = 1 << 20
"""The most numbers for which a quantile is exact."""

_DROPPED_BITS = np.uint64(40)


def public_radius(
    encoder: Encoder,
    public: PublicVectors,
    identity: PublicIdentity,
    *,
    order: Order,
    percentile: float,
) -> float:
    """Return ρ: the given percentile of ‖encode(z)‖_p over the public vectors.

    ``identity`` names the vectors that the encoder was fitted to; others are an error.

    Examples
    --------
    >>> from offaxis.encoding import ShiftEncoder, public_radius
    >>> from offaxis.geometry import PublicVectors
    >>> from offaxis.geometry.public import survey
    >>> public = PublicVectors(np.random.default_rng(0).standard_normal((5000, 3)))
    >>> identity = survey(public).identity
    >>> radius = public_radius(ShiftEncoder(np.zeros(3)), public, identity, order=2, percentile=90)
    >>> round(radius, 1)  # nine of ten public vectors are in this ball
    2.5
    """
    percentile = check_percentile(percentile)
    norms = fold_again(public, identity, partial(_norms, encoder, order)).into
    radius = norms.quantile(percentile / 100)
    if radius <= 0:
        raise InvalidInput(
            f"the {percentile:g}th percentile of the public vectors' norms is zero; "
            f"use a higher percentile or public vectors that differ from each other"
        )
    return radius


def check_percentile(percentile: float) -> float:
    """Return the percentile as a float; one outside 1 to 100 is an error."""
    percentile = as_number(percentile, "percentile")
    if not 1 <= percentile <= 100:
        raise InvalidInput(
            f"percentile must be between 1 and 100 (90 means nine of ten vectors), "
            f"got percentile={percentile!r}"
        )
    return percentile


def _norms(encoder: Encoder, order: Order) -> Mapped[StreamingQuantile]:
    return Mapped(partial(_encoded_norms, encoder, order), StreamingQuantile())


def _encoded_norms(encoder: Encoder, order: Order, batch: Vectors) -> Vectors:
    return row_norms(encoder.encode(batch), order)


class StreamingQuantile:
    """A quantile of a stream of non-negative numbers in bounded memory.

    Exact for the first million numbers. Beyond that they are counted in bins of relative width
    2**-12, so the result is within 0.025 % of a number of the exact rank.
    """

    def __init__(self) -> None:
        self._kept: list[Vectors] = []
        self._count = 0
        self._bins: dict[int, int] | None = None

    def add(self, values: Vectors) -> None:
        """Add numbers."""
        self._count += values.size
        if self._bins is not None:
            self._tally(values)
            return
        self._kept.append(values)
        if self._count > _KEPT:
            self._start_counting()

    def merge(self, other: StreamingQuantile) -> None:
        """Add the numbers of another stream."""
        if other._bins is None:
            for part in other._kept:
                self.add(part)
            return
        bins = self._start_counting()
        for head, count in other._bins.items():
            bins[head] = bins.get(head, 0) + count
        self._count += other._count

    def _start_counting(self) -> dict[int, int]:
        if self._bins is None:
            self._bins = {}
            for part in self._kept:
                self._tally(part)
            self._kept.clear()
        return self._bins

    def _tally(self, values: Vectors) -> None:
        # The bit pattern of a non-negative float64 increases with its value, so its leading bits
        # are a logarithmic bin.
        assert self._bins is not None
        heads, counts = np.unique(values.view(np.uint64) >> _DROPPED_BITS, return_counts=True)
        for head, count in zip(heads.tolist(), counts.tolist(), strict=True):
            self._bins[head] = self._bins.get(head, 0) + count

    def quantile(self, fraction: float) -> float:
        """Return the quantile; while it is exact, interpolated like ``numpy.quantile``."""
        if self._bins is None:
            return float(np.quantile(np.concatenate(self._kept), fraction))
        heads: NDArray[np.uint64] = np.array(sorted(self._bins), dtype=np.uint64)
        counts = np.cumsum([self._bins[int(head)] for head in heads])
        index = int(np.searchsorted(counts, fraction * (self._count - 1), side="right"))
        head = heads[min(index, heads.size - 1)]
        middle = (head << _DROPPED_BITS) | np.uint64(1 << 39)
        return float(np.array([middle]).view(np.float64)[0])
