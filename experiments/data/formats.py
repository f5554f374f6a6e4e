"""File formats of the data sets, each read without anything but NumPy and nothing trusted."""

from __future__ import annotations

import pickletools
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput

# ----------------------------------------------------------------------------
# The idx format of MNIST: a magic number, the sizes, then the bytes themselves.

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


# ----------------------------------------------------------------------------
# Reading a batch of the official Python version of CIFAR-10 without unpickling it.
#
# Unpickling runs whatever a file asks for. Here the file is only read as a list of instructions,
# none of which is carried out: the pixels are its one long string, the labels the numbers that
# follow the word ``labels``. A file made otherwise gives wrong content, which its checksum shows.

_PIXELS = 3 * 32 * 32


def read_batch(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return pixels, (n, 3072), and labels, (n,)."""
    pixels = b""
    labels: list[int] = []
    in_labels = columns_first = False
    answer = False
    try:
        for code, value, _ in pickletools.genops(content):
            if isinstance(value, str | bytes):
                in_labels = value in ("labels", b"labels")
                if len(value) > len(pixels) and len(value) >= _PIXELS:
                    # Strings of Python 2 are shown as Latin-1.
                    pixels = value if isinstance(value, bytes) else value.encode("latin-1")
                    columns_first = answer
            elif code.name in ("NEWTRUE", "NEWFALSE"):
                # numpy writes whether columns come first just before the values.
                answer = code.name == "NEWTRUE"
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


# ----------------------------------------------------------------------------
# Reading the one kind of PNG that carries CIFAR-10: 8-bit RGB, not interlaced.
#
# Written after the PNG specification (W3C, third edition, sections 5, 9 and 10), so that no image
# library is needed. Anything else than that kind is refused.


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
        raise InvalidInput("a PNG file without a header")
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[0][1])
    if kind != [8, 2, 0, 0, 0]:
        raise InvalidInput("a PNG file that is not 8-bit RGB without interlacing")
    stride = 1 + _CHANNELS * width
    packed = b"".join(body for name, body in chunks if name == b"IDAT")
    try:
        # Bounded: a small file must not unpack to more than its header declares.
        raw = zlib.decompressobj().decompress(packed, height * stride)
    except zlib.error as error:
        raise InvalidInput(f"a damaged PNG file: {error}") from error
    if len(raw) != height * stride:
        raise InvalidInput("a PNG file that ends too early")
    rows = np.frombuffer(raw, np.uint8).reshape(height, stride)
    return _unfiltered(rows[:, 0], rows[:, 1:].reshape(height, width, _CHANNELS))


def _unfiltered(filters: Bytes, rows: Bytes) -> Bytes:
    pixels = np.empty_like(rows)
    above = np.zeros_like(rows[0])
    for i, (kind, row) in enumerate(zip(filters.tolist(), rows, strict=True)):
        if kind == _NONE:
            pixels[i] = row
        elif kind == _SUB:
            # Sums modulo 256 are what the filter asks for.
            np.cumsum(row, axis=0, dtype=np.uint8, out=pixels[i])
        elif kind == _UP:
            pixels[i] = row + above
        elif kind in (_AVERAGE, _PAETH):
            pixels[i] = _pixel_by_pixel(kind, row, above)
        else:
            raise InvalidInput(f"a PNG file with an unknown filter, {kind}")
        above = pixels[i]
    return pixels


def _pixel_by_pixel(kind: int, row: Bytes, above: Bytes) -> Bytes:
    """Undo a filter that needs the pixel before it already undone; rare, so a loop will do."""
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
    """Return whichever neighbour is nearest to left + up - corner; ties in that order."""
    target = left + up - corner
    return min((left, up, corner), key=lambda value: abs(target - value))
