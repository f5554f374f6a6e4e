"""AES-256 in counter mode as a source of uniform bits; who holds the key decides what it is for."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from offaxis.errors import EntropyFailure

KEY_BYTES = 32
_START = modes.CTR(bytes(16))
_ZEROS = memoryview(bytes(1 << 17))


class KeyStream:
    """The key stream of one key, from its first byte on; every key must be used once."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), _START).encryptor()

    def _take(self, count: int) -> bytearray:
        out = bytearray(count)
        plain = _ZEROS[:count] if count <= len(_ZEROS) else memoryview(bytes(count))
        try:
            taken = self._cipher.update_into(plain, out)
        except RuntimeError as error:
            raise EntropyFailure(
                f"a source of randomness serves one thread; create one where it is used ({error})"
            ) from error
        if taken != count:
            raise EntropyFailure("the key stream ended early")
        return out

    def words(self, count: int) -> NDArray[np.uint16]:
        """Return ``count`` independent uniform 16-bit integers."""
        return np.frombuffer(self._take(2 * count), dtype="<u2")

    def integer(self, bits: int) -> int:
        """Return one uniform integer in [0, 2**bits)."""
        size = (bits + 7) // 8
        return int.from_bytes(self._take(size), "little") >> (8 * size - bits)
