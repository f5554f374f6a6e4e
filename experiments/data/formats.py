"""Readers of the data sets' file formats, with NumPy only and for untrusted files."""

from __future__ import annotations

import pickletools
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput

# ---- The idx format of MNIST: a magic number, the sizes, then the bytes

Bytes = NDArray[np.uint8]

_UNSIGNED_BYTES = 0x08


def read_idx(content: bytes) -> Bytes:
    """Return the array in an idx file of unsigned bytes."""
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTES]):
        raise InvalidInput("not an idx file of unsigned bytes")
    axes = content[3]
    start = 4 + 4 * axes
    if len(content) < start:
        raise InvalidInput("the idx file ends in its header")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) - start != int(np.prod(shape, dtype=object)):
        raise InvalidInput(f"the idx file has shape {shape} but {len(content) - start} bytes")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def write_idx(array: Bytes) -> bytes:
    """Return an array of unsigned bytes as an idx file."""
    header = bytes([0, 0, _UNSIGNED_BYTES, array.ndim])
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


# ---- The official Python version of CIFAR-10, without unpickling
#
# Unpickling can run arbitrary code. Here a file is only parsed as a list of instructions, none of
# which is executed: the pixels are its one long string, the labels the numbers that follow the word
# ``labels``. A file with another structure gives wrong content, which its checksum reveals.

_PIXELS = 3 * 32 * 32


def read_batch(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return pixels, (n, 3072), and labels, (n,)."""
    pixels = b""
    labels: list[int] = []
    in_labels = columns_first = False
    fortran_order = False
    try:
        for code, value, _ in pickletools.genops(content):
            if isinstance(value, str | bytes):
                in_labels = value in ("labels", b"labels")
                if len(value) > len(pixels) and len(value) >= _PIXELS:
                    # pickletools decodes strings of Python 2 as Latin-1.
                    pixels = value if isinstance(value, bytes) else value.encode("latin-1")
                    columns_first = fortran_order
            elif code.name in ("NEWTRUE", "NEWFALSE"):
                # NumPy writes whether columns come first just before the values.
                fortran_order = code.name == "NEWTRUE"
            elif in_labels and code.name in ("BININT", "BININT1", "BININT2"):
                labels.append(int(value or 0))
    except (ValueError, UnicodeError) as error:
        raise InvalidInput(f"not a batch of CIFAR-10: {error}") from error
    count = len(pixels) // _PIXELS
    if not count or len(pixels) != count * _PIXELS or len(labels) != count:
        raise InvalidInput(f"not a batch of CIFAR-10: {len(pixels)} bytes, {len(labels)} labels")
    if not all(0 <= label < 256 for label in labels):
        raise InvalidInput("not a batch of CIFAR-10: a label is not a class number")
    flat = np.frombuffer(pixels, np.uint8)
    table = flat.reshape(_PIXELS, count).T if columns_first else flat.reshape(count, _PIXELS)
    return table, np.array(labels, np.uint8)


# ---- The kind of PNG that contains CIFAR-10: 8-bit RGB, not interlaced
#
# After the PNG specification (W3C, third edition, sections 5, 9 and 10), so that no image library
# is needed. Other kinds are rejected.

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)
_CHANNELS = 3


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not content.startswith(_SIGNATURE):
        raise InvalidInput("not a PNG file")
    at = len(_SIGNATURE)
    while at + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        kind = content[at + 4 : at + 8]
        yield kind, content[at + 8 : at + 8 + length]
        at += 12 + length


def read_png(content: bytes) -> Bytes:
    """Return the pixels of an 8-bit RGB image, (height, width, 3)."""
    chunks = list(_chunks(content))
    if not chunks or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13:
        raise InvalidInput("the PNG file has no header")
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[0][1])
    if kind != [8, 2, 0, 0, 0]:
        raise InvalidInput("the PNG file is not 8-bit RGB without interlacing")
    stride = 1 + _CHANNELS * width
    packed = b"".join(body for name, body in chunks if name == b"IDAT")
    try:
        # Bounded: a small file must not unpack to more than its header declares.
        raw = zlib.decompressobj().decompress(packed, height * stride)
    except zlib.error as error:
        raise InvalidInput(f"the PNG file is damaged: {error}") from error
    if len(raw) != height * stride:
        raise InvalidInput("the PNG file ends too early")
    rows = np.frombuffer(raw, np.uint8).reshape(height, stride)
    return _unfiltered(rows[:, 0], rows[:, 1:].reshape(height, width, _CHANNELS))


def _unfiltered(filters: Bytes, rows: Bytes) -> Bytes:
    pixels = np.empty_like(rows)
    above = np.zeros_like(rows[0])
    for i, (kind, row) in enumerate(zip(filters.tolist(), rows, strict=True)):
        if kind == _NONE:
            pixels[i] = row
        elif kind == _SUB:
            # The filter is defined by sums modulo 256.
            np.cumsum(row, axis=0, dtype=np.uint8, out=pixels[i])
        elif kind == _UP:
            pixels[i] = row + above
        elif kind in (_AVERAGE, _PAETH):
            pixels[i] = _pixel_by_pixel(kind, row, above)
        else:
            raise InvalidInput(f"the PNG file has an unknown filter, {kind}")
        above = pixels[i]
    return pixels


def _pixel_by_pixel(kind: int, row: Bytes, above: Bytes) -> Bytes:
    """Undo a filter that depends on the pixel before; rare, so a loop suffices."""
    done = np.empty_like(row)
    for channel in range(_CHANNELS):
        left = corner = 0
        values = row[:, channel].tolist()
        for x, up in enumerate(above[:, channel].tolist()):
            guess = (left + up) // 2 if kind == _AVERAGE else _paeth(left, up, corner)
            left = (values[x] + guess) & 255
            corner = up
            done[x, channel] = left
    return done


def _paeth(left: int, up: int, corner: int) -> int:
    """Return the neighbour nearest to left + up - corner; the first of equally near ones."""
    target = left + up - corner
    return min((left, up, corner), key=lambda value: abs(target - value))
