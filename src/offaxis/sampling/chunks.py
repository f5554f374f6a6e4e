"""Bulk draws in parts that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from offaxis.sampling.entropy import RandomBits

Draw = Callable[[int, RandomBits], NDArray[np.int64]]


def in_chunks(draw: Draw, count: int, chunk: int, bits: RandomBits) -> NDArray[np.int64]:
    """Draw ``count`` variables, at most ``chunk`` at a time, one part after the other."""
    out = np.empty(count, dtype=np.int64)
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        out[start:stop] = draw(stop - start, bits)
    return out
