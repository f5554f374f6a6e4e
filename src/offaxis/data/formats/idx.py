"""The idx format of MNIST: a magic number, the sizes, then the bytes themselves."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput

Bytes = NDArray[np.uint8]

_UNSIGNED_BYTES = 0x08


def read_idx(content: bytes) -> Bytes:
    """Return the array in an idx file of unsigned bytes."""
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTES]):
        raise InvalidInput("not an idx file of unsigned bytes")
    axes = content[3]
    start = 4 + 4 * axes
    if len(content) < start:
        raise InvalidInput("an idx file that ends in its header")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) - start != int(np.prod(shape, dtype=object)):
        raise InvalidInput(f"an idx file of shape {shape} with {len(content) - start} bytes")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def write_idx(array: Bytes) -> bytes:
    """Return an array of unsigned bytes as an idx file."""
    header = bytes([0, 0, _UNSIGNED_BYTES, array.ndim])
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
