"""AES-256 in counter mode as a source of uniform bits; who holds the key decides what it is for."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from offaxis.errors import EntropyFailure, InvalidInput

__all__ = ["Entropy"]

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


# ----------------------------------------------------------------------------
# The only place where a real release gets its randomness.
#
# ``Entropy`` is an AES-256-CTR key stream under a key drawn from the operating system. It takes no
# argument: there is no way to give it a seed, so no seed can reach a report. A copy that wakes up
# in a forked process draws a new key before its first byte. If the operating system has no
# randomness to give, the call fails; nothing falls back to anything weaker.

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def fresh_key() -> bytes:
    """Return 32 bytes from the operating system, or fail."""
    try:
        return os.urandom(KEY_BYTES)
    except (NotImplementedError, OSError) as error:
        raise EntropyFailure(f"the operating system gave no randomness: {error}") from error


class RandomBits(Protocol):
    """What a sampler draws from: independent uniform bits."""

    def words(self, count: int) -> NDArray[np.uint16]:
        """Return ``count`` independent uniform 16-bit integers."""
        ...

    def integer(self, bits: int) -> int:
        """Return one uniform integer in [0, 2**bits)."""
        ...


class Entropy:
    """Uniform random bits from the operating system, stretched by AES-256 in counter mode.

    Examples
    --------
    >>> from offaxis.sampling.entropy import Entropy
    >>> entropy = Entropy()  # takes no seed
    >>> entropy.words(4).dtype, 0 <= entropy.integer(8) < 256
    (dtype('uint16'), True)
    >>> import copy
    >>> copy.copy(entropy)
    Traceback (most recent call last):
        ...
    offaxis.errors.EntropyFailure: an Entropy cannot be pickled or copied; ...
    """

    __slots__ = ("_process", "_stream")

    def __init__(self) -> None:
        self._rekey()

    def _rekey(self) -> None:
        self._stream = KeyStream(fresh_key())
        self._process = (os.getpid(), _forks)

    def _own(self) -> KeyStream:
        # The count of forks sees what a reused process id would hide, and the other way round.
        if self._process != (os.getpid(), _forks):
            self._rekey()
        return self._stream

    def words(self, count: int) -> NDArray[np.uint16]:
        """Return ``count`` independent uniform 16-bit integers."""
        return self._own().words(count)

    def integer(self, bits: int) -> int:
        """Return one uniform integer in [0, 2**bits)."""
        return self._own().integer(bits)

    def __reduce__(self) -> str:
        """Refuse to be copied or sent elsewhere: two copies would repeat each other's bits."""
        raise EntropyFailure("an Entropy cannot be pickled or copied; create one where it is used")


# ----------------------------------------------------------------------------
# Randomness of a bulk job, in which a task that is tried again must repeat its bytes.
#
# A job on many machines loses tasks and computes them again; with fresh randomness a record would
# then be released twice, at twice the cost. So a job draws one key from the operating system, and a
# record's bits are a function of the key and of everything that the report depends on: the release,
# the record's id and its vector. Contract: under the assumption that HMAC-SHA256 is a pseudorandom
# function, the bits of different (release, id, vector) are independent and uniform for whoever does
# not know the key; the same triple gives the same bits. The vector is in it because two vectors
# under one id would otherwise get the same noise, and the difference of their reports would be the
# difference of the vectors (docs/proofs.md, "Bulk jobs"). Whoever knows the key can take the noise
# off every report of the job: it is destroyed when the job ends.

RecordId = int | str | bytes
_DOMAIN: Final = b"offaxis bulk job 1\x00"


class JobKey:
    """The key of one job: 32 bytes from the operating system; no way to give it a seed.

    It travels to the machines of the job by pickle and nowhere else. :meth:`destroy` overwrites
    this copy of it; every copy lives in its own process.
    """

    __slots__ = ("_key",)

    def __init__(self) -> None:
        self._key = bytearray(fresh_key())

    @property
    def destroyed(self) -> bool:
        """Whether the key is gone."""
        return not self._key

    def _alive(self) -> bytearray:
        if self.destroyed:
            raise EntropyFailure("the key of this job was destroyed; a new job draws a new one")
        return self._key

    def stream(self, release_hash: str, record_id: RecordId, vector_bytes: bytes) -> RecordEntropy:
        """Return the bits of one record.

        Parameters
        ----------
        release_hash : str
            Of the release, in hexadecimal.
        record_id : int, str or bytes
            The number 1, the text "1" and the byte "1" are three different ids.
        vector_bytes : bytes
            The vector as little-endian float64.
        """
        return self.streams(release_hash)(record_id, vector_bytes)

    def streams(self, release_hash: str) -> Callable[[RecordId, bytes], RecordEntropy]:
        """Return :meth:`stream` of one release, for many records."""
        prefix = _DOMAIN + _framed(release_hash.encode())

        def stream(record_id: RecordId, vector_bytes: bytes) -> RecordEntropy:
            digest = hashlib.sha256(vector_bytes).digest()
            message = prefix + _framed(canonical(record_id)) + digest
            return RecordEntropy(self, message)

        return stream

    def destroy(self) -> None:
        """Overwrite the key; neither bits nor copies of it can be had afterwards."""
        self._key[:] = bytes(len(self._key))
        self._key.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another machine of the same job."""
        return _arrived, (bytes(self._alive()),)

    def __repr__(self) -> str:
        """Show nothing of the key."""
        return "JobKey(destroyed)" if self.destroyed else "JobKey(…)"


class RecordEntropy:
    """Uniform bits of one record of a job, made by :meth:`JobKey.stream` alone."""

    __slots__ = ("_stream",)

    def __init__(self, job: JobKey, message: bytes) -> None:
        if type(job) is not JobKey:
            raise TypeError(f"a RecordEntropy comes from a JobKey, got {type(job).__name__}")
        self._stream = KeyStream(hmac.digest(job._alive(), message, "sha256"))

    def words(self, count: int) -> NDArray[np.uint16]:
        """Return ``count`` independent uniform 16-bit integers."""
        return self._stream.words(count)

    def integer(self, bits: int) -> int:
        """Return one uniform integer in [0, 2**bits)."""
        return self._stream.integer(bits)

    def __reduce__(self) -> str:
        """Refuse to be copied or sent elsewhere: two copies would repeat each other's bits."""
        raise EntropyFailure("a RecordEntropy cannot be pickled or copied; send the job's key")


RealEntropy = Entropy | RecordEntropy
"""What a report may be drawn from."""


def canonical(record_id: RecordId) -> bytes:
    """Write an id so that no two different ones are written alike."""
    if isinstance(record_id, str):
        return b"s" + record_id.encode("utf-8", "surrogatepass")
    if isinstance(record_id, bytes):
        return b"b" + record_id
    if isinstance(record_id, int) and not isinstance(record_id, bool):
        return b"i%d" % record_id
    # The id itself is not repeated: it may be somebody's name.
    raise InvalidInput(
        f"a record's id must be a whole number, text or bytes, got {type(record_id).__name__}"
    )


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "little") + part


def _arrived(key: bytes) -> JobKey:
    job = JobKey.__new__(JobKey)
    job._key = bytearray(key)
    return job
