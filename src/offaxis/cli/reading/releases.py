"""Release files by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from offaxis.errors import InvalidRelease

if TYPE_CHECKING:
    from offaxis.release import Release


def load_release(path: Path, expect: str | None = None) -> Release:
    """Read a release file strictly, and only the one that is expected."""
    from offaxis.release import Release

    if not path.is_file():
        raise InvalidRelease(f"there is no release file {path}; make one with: offaxis fit")
    try:
        return Release.load(path, expect=expect)
    except InvalidRelease as error:
        raise InvalidRelease(f"{path}: {error}") from None
