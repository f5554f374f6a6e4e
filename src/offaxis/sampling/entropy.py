"""Cryptographic randomness: the only source of random bits for reports.

Contract: :class:`Entropy` is an AES-256-CTR key stream under a key from the operating system. It
takes no argument, so no seed can reach a report. A copy in a forked process draws a new key before
its first byte. If the operating system provides no randomness, the call fails; there is no weaker
fallback.

:class:`JobKey` and :class:`RecordEntropy` serve bulk jobs, in which a task that is retried must
repeat its bytes.
"""

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


class RandomBits(Protocol):
    """A source of independent uniform bits, as samplers require it."""

    def words(self, count: int) -> NDArray[np.uint16]:
        """Return ``count`` independent uniform 16-bit integers."""
        ...

    def integer(self, bits: int) -> int:
        """Return one uniform integer in [0, 2**bits)."""
        ...


# ---- Randomness of a report

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def fresh_key() -> bytes:
    """Return 32 bytes from the operating system, or raise EntropyFailure."""
    try:
        return os.urandom(KEY_BYTES)
    except (NotImplementedError, OSError) as error:
        raise EntropyFailure(f"the operating system provided no randomness: {error}") from error


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

    def _current_stream(self) -> KeyStream:
        # The fork count catches a reused process id; the process id catches an uncounted fork.
        if self._process != (os.getpid(), _forks):
            self._rekey()
        return self._stream

    def words(self, count: int) -> NDArray[np.uint16]:
        """Return ``count`` independent uniform 16-bit integers."""
        return self._current_stream().words(count)

    def integer(self, bits: int) -> int:
        """Return one uniform integer in [0, 2**bits)."""
        return self._current_stream().integer(bits)

    def __reduce__(self) -> str:
        """Reject copying and pickling: two copies would repeat each other's bits."""
        raise EntropyFailure("an Entropy cannot be pickled or copied; create one where it is used")


# ---- Randomness of a bulk job

RecordId = int | str | bytes
_DOMAIN: Final = b"offaxis bulk job 1\x00"


class JobKey:
    """The key of one bulk job: 32 bytes from the operating system. It accepts no seed.

    A job on many machines loses tasks and computes them again. With fresh randomness a record would
    then be released twice, at twice the privacy cost. So a job draws one key, and the bits of a
    record are a function of the key and of everything the report depends on: the release, the
    record id and the vector.

    Contract: if HMAC-SHA256 is a pseudorandom function, the bits of different (release, id, vector)
    are independent and uniform for anyone who does not know the key; the same triple gives the same
    bits. The vector is included because two vectors with one id would otherwise get the same noise,
    and the difference of their reports would be the difference of the vectors (docs/proofs.md,
    "Bulk jobs"). Anyone who knows the key can remove the noise from every report of the job, so the
    key is destroyed when the job ends.

    The key is sent to the machines of the job by pickle, and nowhere else. :meth:`destroy`
    overwrites this copy only; every process holds a separate copy.
    """

    __slots__ = ("_key",)

    def __init__(self) -> None:
        self._key = bytearray(fresh_key())

    @property
    def destroyed(self) -> bool:
        """Whether this copy of the key has been overwritten."""
        return not self._key

    def _live_key(self) -> bytearray:
        if self.destroyed:
            raise EntropyFailure("the key of this job was destroyed; start a new job")
        return self._key

    def stream(self, release_hash: str, record_id: RecordId, vector_bytes: bytes) -> RecordEntropy:
        """Return the random bits of one record.

        Parameters
        ----------
        release_hash : str
            The hash of the release, in hexadecimal.
        record_id : int, str or bytes
            The number 1, the text "1" and the byte "1" are three different ids.
        vector_bytes : bytes
            The vector as little-endian float64.
        """
        return self.streams(release_hash)(record_id, vector_bytes)

    def streams(self, release_hash: str) -> Callable[[RecordId, bytes], RecordEntropy]:
        """Return :meth:`stream` for one release, to call for many records."""
        prefix = _DOMAIN + _framed(release_hash.encode())

        def stream(record_id: RecordId, vector_bytes: bytes) -> RecordEntropy:
            digest = hashlib.sha256(vector_bytes).digest()
            message = prefix + _framed(canonical(record_id)) + digest
            return RecordEntropy(self, message)

        return stream

    def destroy(self) -> None:
        """Overwrite the key; it then gives neither bits nor copies."""
        self._key[:] = bytes(len(self._key))
        self._key.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the key for another machine of the same job."""
        return _unpickled, (bytes(self._live_key()),)

    def __repr__(self) -> str:
        """Reveal nothing about the key."""
        return "JobKey(destroyed)" if self.destroyed else "JobKey(…)"


class RecordEntropy:
    """Uniform bits of one record of a bulk job; created by :meth:`JobKey.stream` only."""

    __slots__ = ("_stream",)

    def __init__(self, job: JobKey, message: bytes) -> None:
        if type(job) is not JobKey:
            raise TypeError(f"a RecordEntropy comes from a JobKey, got {type(job).__name__}")
        self._stream = KeyStream(hmac.digest(job._live_key(), message, "sha256"))

    def words(self, count: int) -> NDArray[np.uint16]:
        """Return ``count`` independent uniform 16-bit integers."""
        return self._stream.words(count)

    def integer(self, bits: int) -> int:
        """Return one uniform integer in [0, 2**bits)."""
        return self._stream.integer(bits)

    def __reduce__(self) -> str:
        """Reject copying and pickling: two copies would repeat each other's bits."""
        raise EntropyFailure("a RecordEntropy cannot be pickled or copied; send the job's key")


RealEntropy = Entropy | RecordEntropy
"""The sources that a report may be drawn from."""


def canonical(record_id: RecordId) -> bytes:
    """Encode a record id as bytes; different ids have different encodings."""
    if isinstance(record_id, str):
        return b"s" + record_id.encode("utf-8", "surrogatepass")
    if isinstance(record_id, bytes):
        return b"b" + record_id
    if isinstance(record_id, int) and not isinstance(record_id, bool):
        return b"i%d" % record_id
    # The message omits the id, which may be a person's name.
    raise InvalidInput(
        f"a record id must be an integer, text or bytes, got {type(record_id).__name__}"
    )


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "little") + part


def _unpickled(key: bytes) -> JobKey:
    job = JobKey.__new__(JobKey)
    job._key = bytearray(key)
    return job


# ---- Key stream

_START = modes.CTR(bytes(16))
_ZEROS = memoryview(bytes(1 << 17))


class KeyStream:
    """The AES-256-CTR key stream of one key, from its first byte on. Use every key only once."""

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
                f"a source of randomness serves one thread; create one per thread ({error})"
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
