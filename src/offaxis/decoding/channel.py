"""What a decoder is fitted to: a way from vectors to observations, and public vectors."""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding.encoder import Encoder
from offaxis.geometry.public import PublicVectors
from offaxis.randomizers.base import Randomizer
from offaxis.vectors import Vectors

_ROWS: Final = 8192


class Channel(Protocol):
    """An encoder and the randomizer behind it: a release, or the parts of one."""

    @property
    def encoder(self) -> Encoder:
        """The public map before the noise."""
        ...

    @property
    def randomizer(self) -> Randomizer:
        """The noise."""
        ...


def places(count: int, most: int) -> NDArray[np.int64]:
    """Return the places of ``most`` of so many vectors, at even distances, or of all."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


def evenly(public: Any, most: int) -> Vectors:
    """Return the public vectors, or ``most`` of them at even distances, as one array (n, m)."""
    vectors = PublicVectors(public)
    count = sum(len(batch) for batch in vectors.batches(_ROWS))
    wanted = places(count, most)
    kept, seen = [], 0
    for batch in vectors.batches(_ROWS):
        here = wanted[(wanted >= seen) & (wanted < seen + len(batch))]
        kept.append(batch[here - seen])
        seen += len(batch)
    return np.concatenate(kept)
