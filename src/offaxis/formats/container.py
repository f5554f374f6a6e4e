"""The container of a release file: the subset of safetensors that a release needs, read strictly.

    offset  size  content
    0       8     n, the size of the header, little-endian
    8       n     JSON: the offsets, type and shape of every tensor by name, and "__metadata__"
    8 + n   …     the tensors, one after the other, without gaps

Contract: nothing in the file is trusted before it is checked. Memory grows with the bytes that are
actually read, never with what the header claims.
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

_OTHER_FORMATS: Final = {
    b"\x93NUMPY": "a .npy array",
    b"PK\x03\x04": "a .npz or another zip archive",
    b"PAR1": "a Parquet file",
    b"SQLite f": "a ledger, or the file of a device or collector",
    MAGIC + bytes([VERSION]): "a file of reports",
}
"""Files that are often mistaken for a release, by their first bytes."""

Header = dict[str, Any]
Tensors = dict[str, Vectors]


def read_header(stream: BinaryIO) -> Header:
    """Read the header of an untrusted file: a JSON object with any content.

    Raises
    ------
    InvalidRelease
        If the header is missing, is not a JSON object, or is larger than any release needs.
    """
    start = bytes(_read_exactly(stream, 8))
    (size,) = struct.unpack("<Q", start)
    if size > LARGEST_HEADER:
        formats = _OTHER_FORMATS.items()
        other = next((kind for magic, kind in formats if start.startswith(magic)), None)
        reason = f"it looks like {other}" if other else f"its header would have {size} bytes"
        raise InvalidRelease(f"the file is not a release: {reason}")
    text = _read_exactly(stream, size)
    try:
        header = parse_json(text.decode())
    except ValueError:
        raise InvalidRelease("the file is not a release: its header is not JSON") from None
    # As safetensors requires: the object starts at the first byte; blanks may follow it.
    if not isinstance(header, dict) or not text.startswith(b"{"):
        raise InvalidRelease("the file is not a release: its header is not a JSON object")
    return header


def read_metadata(header: Header, key: str) -> str:
    """Return the only text that the header of a release has in its metadata."""
    metadata = header.get(_METADATA)
    if not isinstance(metadata, dict) or set(metadata) != {key}:
        raise InvalidRelease("this is not an offaxis release: it has no manifest")
    text = metadata[key]
    if not isinstance(text, str):
        raise InvalidRelease("this is not an offaxis release: its manifest is not text")
    return text


def read_tensors(stream: BinaryIO, header: Header) -> Tensors:
    """Read the float64 tensors that follow a header, and check that nothing follows them.

    Raises
    ------
    InvalidRelease
        If the type, size or offsets of a tensor are not those of a release, or the file does not
        end with the last tensor.
    """
    entries = sorted((*_parse_entry(n, e), n) for n, e in header.items() if n != _METADATA)
    end = 0
    for begin, stop, _, name in entries:
        if begin != end:
            raise InvalidRelease(f"tensor {shown(name)} does not follow the one before it")
        end = stop
    if end > LARGEST_FILE:
        raise InvalidRelease(f"the file is larger than a release may be ({LARGEST_FILE} bytes)")
    tensors: Tensors = {}
    for begin, stop, shape, name in entries:
        content = _read_exactly(stream, stop - begin)
        tensors[name] = np.frombuffer(content, dtype="<f8").reshape(shape)
    if stream.read(1):
        raise InvalidRelease("the file continues after its last tensor")
    return tensors


def _parse_entry(name: str, entry: Any) -> tuple[int, int, tuple[int, ...]]:
    """Return the offsets of a tensor's first byte and end, and its shape."""
    # Names are hashed as bytes, and not every JSON text can be encoded.
    if not name.isascii():
        raise InvalidRelease(f"tensor {shown(name)} has a name no release has")
    if not isinstance(entry, dict) or set(entry) != _ENTRY:
        raise InvalidRelease(f"tensor {shown(name)} is not described as in safetensors")
    if entry["dtype"] != "F64":
        raise InvalidRelease(f"tensor {shown(name)} has type {shown(entry['dtype'])}, not F64")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_naturals(shape) or len(shape) > 2 or max(shape, default=0) > LARGEST_DIM:
        raise InvalidRelease(f"tensor {shown(name)} has a shape no release has")
    size = 8 * math.prod(shape)
    if not _are_naturals(offsets) or len(offsets) != 2 or offsets[1] - offsets[0] != size:
        raise InvalidRelease(f"tensor {shown(name)} does not fit its place in the file")
    return offsets[0], offsets[1], tuple(shape)


def _are_naturals(value: Any) -> bool:
    # Compare the type: isinstance() would accept true.
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _read_exactly(stream: BinaryIO, size: int) -> bytearray:
    """Read this many bytes, piece by piece: a claimed size must not allocate memory."""
    content = bytearray()
    while len(content) < size:
        piece = stream.read(min(size - len(content), _PIECE))
        if not piece:
            raise InvalidRelease("the file is truncated or not a release: it ends too early")
        content += piece
    return content
