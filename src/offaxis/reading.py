"""What is made of reports: read strictly, decoded a part at a time, averaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding import Decoder
from offaxis.errors import InvalidReport
from offaxis.formats import reports as wire
from offaxis.randomizers import Randomizer
from offaxis.vectors import Vectors

_ROWS: Final = 4096
_NUMBERS: Final = 1 << 20


def observe(
    reports: Iterable[bytes], randomizer: Randomizer, release_hash: str, *, first: int = 0
) -> NDArray[Any]:
    """Return what the randomizer let through; ``first`` is the place of the first, for messages."""
    size = randomizer.payload_size
    payloads = wire.unframe(reports, randomizer.wire_id, release_hash, size, first=first)
    return randomizer.read(payloads)


def decoded_in_parts(
    reports: Any, randomizer: Randomizer, release_hash: str, decoder: Decoder
) -> Iterator[Vectors]:
    """Decode reports a part at a time, in memory that does not grow with their number."""
    source = iter(iterable(reports))
    widest = max(decoder.input_dim, decoder.output_dim)
    rows = min(_ROWS, max(1, _NUMBERS // widest))
    seen = 0
    while (part := list(islice(source, rows))) or not seen:
        yield decoder.decode(observe(part, randomizer, release_hash, first=seen))
        seen += len(part)


def mean_of(parts: Iterable[Vectors], dim: int) -> Vectors:
    """Return the mean of the rows of all parts."""
    mean, seen = np.zeros(dim), 0
    for part in parts:
        seen += len(part)
        mean += (part.mean(axis=0) - mean) * (len(part) / seen)
    return mean


def iterable(reports: Any) -> Iterable[bytes]:
    """Return reports to go through, one as well as many; refuse what cannot be reports."""
    if isinstance(reports, bytes):
        return [reports]
    is_array = isinstance(reports, np.ndarray | bytearray | memoryview | str)
    if is_array or not isinstance(reports, Iterable):
        raise InvalidReport(
            f"reports must be bytes or a list of bytes, got {type(reports).__name__}; simulated "
            f"arrays are not reports, only privatize() makes them"
        )
    return reports
