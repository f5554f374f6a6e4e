"""Prescribed random bits, for tests of samplers and for recorded vectors."""

from __future__ import annotations

import hashlib

import numpy as np


class Tape:
    """Bytes served in order through the interface of an Entropy; reading past the end fails."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self.used = 0

    @classmethod
    def named(cls, name: str, size: int) -> Tape:
        """Return ``size`` bytes of SHAKE-128 of the name, which any language can reproduce."""
        return cls(hashlib.shake_128(name.encode()).digest(size))

    def _take(self, count: int) -> bytes:
        taken = bytes(self._data[self.used : self.used + count])
        assert len(taken) == count, "the tape is too short"
        self.used += count
        return taken

    def words(self, count: int) -> np.ndarray:
        return np.frombuffer(bytearray(self._take(2 * count)), dtype="<u2")

    def integer(self, bits: int) -> int:
        size = (bits + 7) // 8
        return int.from_bytes(self._take(size), "little") >> (8 * size - bits)

    def at_end(self) -> bool:
        return self.used == len(self._data)
