"""The only place where a real release gets its randomness.

``Entropy`` is an AES-256-CTR key stream under a key drawn from the operating system. It takes no
argument: there is no way to give it a seed, so no seed can reach a report. A copy that wakes up in
a forked process draws a new key before its first byte. If the operating system has no randomness
to give, the call fails; nothing falls back to anything weaker.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import EntropyFailure
from offaxis.sampling.key_stream import KEY_BYTES, KeyStream

__all__ = ["Entropy"]

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
