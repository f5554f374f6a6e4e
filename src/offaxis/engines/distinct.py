"""How many different ids there are, in memory that does not grow with their number.

Ids are hashed under a key of their own and laid into files by their first byte; equal ids meet in
one file. What lies on the disk meanwhile says nothing to whoever has no key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import numpy as np

from offaxis.sampling.entropy import fresh_key
from offaxis.sampling.record_entropy import RecordId, canonical

_DIGEST: Final = 16
_FILES: Final = 256


class DistinctIds:
    """A count of different ids; a context in which its files exist."""

    def __enter__(self) -> Self:
        """Make the files."""
        self._folder = TemporaryDirectory(prefix="offaxis-ids-")
        paths = [Path(self._folder.name, f"{number:03}") for number in range(_FILES)]
        self._files = [path.open("w+b", buffering=1 << 14) for path in paths]
        self._keyed = hashlib.blake2b(key=fresh_key(), digest_size=_DIGEST)
        return self

    def __exit__(self, *failure: Any) -> None:
        """Remove the files."""
        for file in self._files:
            file.close()
        self._folder.cleanup()

    def add(self, ids: Iterable[RecordId]) -> None:
        """Take in some ids."""
        for name in ids:
            hashing = self._keyed.copy()
            hashing.update(canonical(name))
            digest = hashing.digest()
            self._files[digest[0]].write(digest)

    def count(self) -> int:
        """Return how many different ones there were; two of 128 bits collide in no lifetime."""
        found = 0
        for file in self._files:
            file.seek(0)
            digests = np.frombuffer(file.read(), dtype=f"V{_DIGEST}")
            found += len(np.unique(digests))
        return found
