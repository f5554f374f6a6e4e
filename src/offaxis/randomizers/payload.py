"""Noisy lattice points on the wire, three or four bytes a coordinate (docs/report-format.md)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidReport

Width = Literal[3, 4]
"""Bytes a coordinate."""


def largest_magnitude(width: Width) -> int:
    """Return the largest magnitude that a width carries."""
    return (1 << (8 * width - 1)) - 1


def pack(values: NDArray[np.integer[Any]], width: Width = 3) -> list[bytes]:
    """Clamp and write each coordinate as offset binary, low byte first."""
    largest = largest_magnitude(width)
    offset = np.clip(values, -largest, largest).astype(np.int64) + (largest + 1)
    # In rows: what follows reads the bytes in memory order.
    octets = np.ascontiguousarray(offset, dtype="<u4").view(np.uint8)
    blob = octets.reshape(*values.shape, 4)[..., :width].tobytes()
    size = values.shape[1] * width
    return [blob[i : i + size] for i in range(0, len(blob), size)]


def unpack(payloads: list[bytes], dim: int, width: Width = 3) -> NDArray[np.int64]:
    """Undo :func:`pack`; a length or a value that pack never writes is an error."""
    size = dim * width
    if any(len(payload) != size for payload in payloads):
        raise InvalidReport(f"a payload of {dim} coordinates has {size} bytes")
    octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(-1, dim, width)
    padded = np.zeros((*octets.shape[:2], 4), dtype=np.uint8)
    padded[..., :width] = octets
    largest = largest_magnitude(width)
    values = padded.view("<u4")[..., 0].astype(np.int64) - (largest + 1)
    if values.size and values.min() < -largest:
        raise InvalidReport("a payload holds a value that no client writes")
    return values
