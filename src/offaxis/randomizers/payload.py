"""Noisy lattice points on the wire, three bytes a coordinate (docs/report-format.md)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidReport

BYTES_PER_COORDINATE: Final = 3
LARGEST: Final = (1 << 23) - 1
_OFFSET: Final = 1 << 23


def pack(values: NDArray[np.integer[Any]]) -> list[bytes]:
    """Clamp to 24 bits and write each coordinate as offset binary, three bytes, low byte first."""
    clamped = (np.clip(values, -LARGEST, LARGEST) + _OFFSET).astype("<u4")
    octets = clamped.view(np.uint8).reshape(*values.shape, 4)[..., :BYTES_PER_COORDINATE]
    blob = octets.tobytes()
    size = values.shape[1] * BYTES_PER_COORDINATE
    return [blob[i : i + size] for i in range(0, len(blob), size)]


def unpack(payloads: list[bytes], dim: int) -> NDArray[np.int64]:
    """Undo :func:`pack`; a length or a value that pack never writes is an error."""
    size = dim * BYTES_PER_COORDINATE
    if any(len(payload) != size for payload in payloads):
        raise InvalidReport(f"a payload of {dim} coordinates has {size} bytes")
    octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(
        -1, dim, BYTES_PER_COORDINATE
    )
    padded = np.zeros((*octets.shape[:2], 4), dtype=np.uint8)
    padded[..., :BYTES_PER_COORDINATE] = octets
    values = padded.view("<u4")[..., 0].astype(np.int64) - _OFFSET
    if values.size and values.min() < -LARGEST:
        raise InvalidReport("a payload holds a value that no client writes")
    return values
