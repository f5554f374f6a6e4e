"""Pairs of vectors that a release must not let anybody tell apart, as inputs of the release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.audit.preimages import preimages
from offaxis.encoding import BoxEncoder
from offaxis.randomizers.domain import FiniteSet
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

    def encoded(self, release: Release) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return both as the randomizer gets them, (1, r) or one symbol each."""
        with np.errstate(all="ignore"):
            both = release.encoder.encode(np.stack([self.first, self.second]))
        return both[:1], both[1:]


def pairs(release: Release) -> tuple[Pair, ...]:
    """Return the pairs every release is tried on; the first is the worst one in theory."""
    w, other = release.randomizer.worst_pair()
    if isinstance(release.randomizer.domain, FiniteSet):
        return _symbol_pairs(release, w, other)
    if isinstance(release.encoder, BoxEncoder):  # its corners lie on the boundary, poles do not
        w, other = release.encoder.limits, -release.encoder.limits
    scales = [w, other, FAR * w, FAR * other, 0 * w, w * (1 - _CLOSE), w * (1 + _CLOSE)]
    poles = preimages(release.encoder, np.stack(scales))
    return (
        Pair("worst", "the worst in theory", poles[0], poles[1]),
        Pair("far", "opposite, far outside", poles[2], poles[3]),
        Pair("zero", "centre and boundary", poles[4], poles[0]),
        Pair("near", "just inside, outside", poles[5], poles[6]),
        _extreme(release),
    )


def _extreme(release: Release) -> Pair:
    tiny = np.full(release.input_dim, 5e-324)
    huge = np.full(release.input_dim, 1e308)
    return Pair("extreme", "5e-324 and 1e308", tiny, huge)


def _symbol_pairs(release: Release, one: NDArray[Any], other: NDArray[Any]) -> tuple[Pair, ...]:
    """Return pairs for a release that first finds a symbol."""
    first, second = preimages(release.encoder, np.stack([one, other]))
    inside, outside = first, second
    while np.abs(outside - inside).max() > _CLOSE * np.abs(second - first).max():
        middle = (inside + outside) / 2
        if release.encoder.encode(middle[None])[0] == one:
            inside = middle
        else:
            outside = middle
    return (
        Pair("worst", "two symbols", first, second),
        Pair("far", "far outside", FAR * first, FAR * second),
        Pair("zero", "zero and a symbol", np.zeros(release.input_dim), first),
        Pair("near", "across a border", inside, outside),
        _extreme(release),
    )


def timed_pairs(tried: tuple[Pair, ...]) -> tuple[Pair, Pair]:
    """Return pairs to time: two vectors that need the same work, and two that may not."""
    by_name = {pair.name: pair for pair in tried}
    inside, outside = by_name["zero"].first, by_name["far"].first
    return by_name["worst"], Pair("outside", "centre and far outside", inside, outside)
