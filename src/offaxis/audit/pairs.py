"""Pairs of vectors that a release must not let anybody tell apart, as inputs of the release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.release import Release
from offaxis.vectors import Vectors

FAR: Final = 1e6
"""How many times farther out than the boundary "far outside" is."""

_CLOSE: Final = 2.0**-20


@dataclass(frozen=True, eq=False)
class Pair:
    """Two inputs of a release, and what is special about them."""

    name: str
    words: str
    first: Vectors
    second: Vectors

    def encoded(self, release: Release) -> tuple[Vectors, Vectors]:
        """Return both as the randomizer gets them, (1, r) each."""
        with np.errstate(all="ignore"):
            both = release.encoder.encode(np.stack([self.first, self.second]))
        return both[:1], both[1:]


def preimages(release: Release, W: Vectors) -> Vectors:
    """Return inputs whose encodings are as close to the rows of W as the encoder allows.

    Raises
    ------
    InvalidInput
        If the encoder is not an affine map.
    """
    tensors = release.encoder.tensors()
    if not set(tensors) <= {"matrix", "centre"}:
        raise InvalidInput(f"an encoder of kind {release.encoder.kind!r} cannot be audited yet")
    if "matrix" in tensors:
        W = _solve(tensors["matrix"], W.T).T
    return W + tensors["centre"]


def _solve(matrix: Vectors, rows: Vectors) -> Any:
    if matrix.shape[0] == matrix.shape[1]:
        try:
            return np.linalg.solve(matrix, rows)
        except np.linalg.LinAlgError:
            pass
    return np.linalg.lstsq(matrix, rows)[0]


def pairs(release: Release) -> tuple[Pair, ...]:
    """Return the pairs every release is tried on; the first is the worst one in theory."""
    w, other = release.randomizer.worst_pair()
    scales = [w, other, FAR * w, FAR * other, 0 * w, w * (1 - _CLOSE), w * (1 + _CLOSE)]
    poles = preimages(release, np.stack(scales))
    tiny = np.full(release.input_dim, 5e-324)
    huge = np.full(release.input_dim, 1e308)
    return (
        Pair("worst", "the worst in theory", poles[0], poles[1]),
        Pair("far", "opposite, far outside", poles[2], poles[3]),
        Pair("zero", "centre and boundary", poles[4], poles[0]),
        Pair("near", "just inside, outside", poles[5], poles[6]),
        Pair("extreme", "5e-324 and 1e308", tiny, huge),
    )


def timed_pairs(tried: tuple[Pair, ...]) -> tuple[Pair, Pair]:
    """Return pairs to time: two vectors that need the same work, and two that may not."""
    by_name = {pair.name: pair for pair in tried}
    inside, outside = by_name["zero"].first, by_name["far"].first
    return by_name["worst"], Pair("outside", "centre and far outside", inside, outside)
