"""Official files, told by their content: whatever way a set arrived, these bytes must come out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from offaxis.errors import InvalidInput

Parts = dict[str, bytes]
"""Content of the official files by name, unpacked."""

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, the steps finished so far and the steps in all, if known."""


def silent(label: str, done: int, total: int | None) -> None:
    """Show nothing."""


def check_parts(parts: Mapping[str, bytes], official: Mapping[str, str], origin: str) -> None:
    """Refuse content whose SHA-256 is not that of the official files."""
    for name, expected in official.items():
        if name not in parts:
            raise InvalidInput(f"{origin} lacks {name}")
        found = hashlib.sha256(parts[name]).hexdigest()
        if found != expected:
            raise InvalidInput(
                f"{name} of {origin} is not the official file: SHA-256 {found[:16]}…, "
                f"expected {expected[:16]}…; the copy is damaged or of another version"
            )


def find_file(folder: Path, names: tuple[str, ...], depth: int = 3) -> Path | None:
    """Find the first of ``names`` in a folder or at most ``depth`` folders below it."""
    for level in range(depth + 1):
        for name in names:
            found = sorted(folder.glob("*/" * level + name))
            if found:
                return found[0]
    return None
