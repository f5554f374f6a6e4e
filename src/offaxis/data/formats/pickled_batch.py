"""Reading a batch of the official Python version of CIFAR-10 without unpickling it.

Unpickling runs whatever a file asks for. Here the file is only read as a list of instructions, none
of which is carried out: the pixels are its one long string, the labels the numbers that follow the
word ``labels``. A file made otherwise gives wrong content, which its checksum shows.
"""

from __future__ import annotations

import pickletools

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput

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
