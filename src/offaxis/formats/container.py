"""The container of a release file: safetensors, as much of it as a release needs, read strictly.

    offset  size  content
    0       8     n, the size of the header, little-endian
    8       n     JSON: the place, type and shape of every tensor by name, and "__metadata__"
    8 + n   …     the tensors, one after the other, without gaps

Nothing in the file is believed before it is checked, and memory grows with what is really there,
never with what the header claims.
"""

from __future__ import annotations

import math
import struct
from typing import Any, BinaryIO, Final

import numpy as np

from offaxis.errors import InvalidRelease
from offaxis.formats.reports import MAGIC, VERSION
from offaxis.formats.strict_json import parse_json, shown
from offaxis.randomizers.base import LARGEST_DIM
from offaxis.vectors import Vectors

LARGEST_FILE: Final = 1 << 30
LARGEST_HEADER: Final = 1 << 20
_METADATA: Final = "__metadata__"
_ENTRY: Final = {"dtype", "shape", "data_offsets"}
_PIECE: Final = 1 << 20

_OTHERS: Final = {
    b"\x93NUMPY": "a .npy array",
    b"PK\x03\x04": "a .npz or another zip archive",
    b"PAR1": "a Parquet file",
    MAGIC + bytes([VERSION]): "a file of reports",
}
"""What people take for a release, by the bytes it begins with."""

Header = dict[str, Any]
Tensors = dict[str, Vectors]


def read_header(stream: BinaryIO) -> Header:
    """Read the header of an untrusted file: an object, of whatever content.

    Raises
    ------
    InvalidRelease
        If there is none, or one larger than any release needs.
    """
    start = bytes(_exactly(stream, 8))
    (size,) = struct.unpack("<Q", start)
    if size > LARGEST_HEADER:
        other = next((kind for magic, kind in _OTHERS.items() if start.startswith(magic)), None)
        found = f"it looks like {other}" if other else f"its header would have {size} bytes"
        raise InvalidRelease(f"the file is not a release: {found}")
    text = _exactly(stream, size)
    try:
        header = parse_json(text.decode())
    except ValueError:
        raise InvalidRelease("the file is not a release: its header is not JSON") from None
    # As safetensors asks: the object begins at once, though blanks may follow it.
    if not isinstance(header, dict) or not text.startswith(b"{"):
        raise InvalidRelease("the file is not a release: its header is no JSON object")
    return header


def read_metadata(header: Header, key: str) -> str:
    """Return the one text a header carries beside its tensors."""
    metadata = header.get(_METADATA)
    if not isinstance(metadata, dict) or set(metadata) != {key}:
        raise InvalidRelease("this is not an offaxis release: it has no manifest")
    text = metadata[key]
    if not isinstance(text, str):
        raise InvalidRelease("this is not an offaxis release: its manifest is no text")
    return text


def read_tensors(stream: BinaryIO, header: Header) -> Tensors:
    """Read the float64 tensors that follow a header, and check that nothing follows them.

    Raises
    ------
    InvalidRelease
        If a tensor is of another type, size or place than a release has, or the file does not end
        where they do.
    """
    places = sorted((*_place(n, e), n) for n, e in header.items() if n != _METADATA)
    end = 0
    for begin, stop, _, name in places:
        if begin != end:
            raise InvalidRelease(f"tensor {shown(name)} does not follow the one before it")
        end = stop
    if end > LARGEST_FILE:
        raise InvalidRelease(f"the file is larger than a release may be ({LARGEST_FILE} bytes)")
    tensors: Tensors = {}
    for begin, stop, shape, name in places:
        content = _exactly(stream, stop - begin)
        tensors[name] = np.frombuffer(content, dtype="<f8").reshape(shape)
    if stream.read(1):
        raise InvalidRelease("the file goes on after its last tensor")
    return tensors


def _place(name: str, entry: Any) -> tuple[int, int, tuple[int, ...]]:
    """Return where a tensor begins and ends, and its shape."""
    # Names are hashed as bytes, and not every JSON text has bytes.
    if not name.isascii():
        raise InvalidRelease(f"tensor {shown(name)} has a name no release has")
    if not isinstance(entry, dict) or set(entry) != _ENTRY:
        raise InvalidRelease(f"tensor {shown(name)} is not described as safetensors does")
    if entry["dtype"] != "F64":
        raise InvalidRelease(f"tensor {shown(name)} has type {shown(entry['dtype'])}, not F64")
    shape, place = entry["shape"], entry["data_offsets"]
    if not _naturals(shape) or len(shape) > 2 or max(shape, default=0) > LARGEST_DIM:
        raise InvalidRelease(f"tensor {shown(name)} has a shape no release has")
    if not _naturals(place) or len(place) != 2 or place[1] - place[0] != 8 * math.prod(shape):
        raise InvalidRelease(f"tensor {shown(name)} does not fit its place in the file")
    return place[0], place[1], tuple(shape)


def _naturals(value: Any) -> bool:
    # The type itself: true is no number of a release.
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _exactly(stream: BinaryIO, size: int) -> bytearray:
    """Read so many bytes, piece by piece: a size is only a claim until they are there."""
    content = bytearray()
    while len(content) < size:
        piece = stream.read(min(size - len(content), _PIECE))
        if not piece:
            raise InvalidRelease("the file is truncated or not a release: it ends too early")
        content += piece
    return content
