"""Release files by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offaxis.release import Release


def load_release(path: Path, expect: str | None = None) -> Release:
    """Read a release file strictly, and only the one that is expected."""
    from offaxis.release import Release

    return Release.load(path, expect=expect)
