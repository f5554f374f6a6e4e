"""Output paths, checked before the work begins."""

from __future__ import annotations

from pathlib import Path

from offaxis.errors import InvalidInput


def check_output(path: Path, *inputs: Path) -> None:
    """Refuse, before any work is done, a path that cannot be written or that is an input."""
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}; make it first")
    for source in inputs:
        if path.exists() and source.exists() and path.samefile(source):
            raise InvalidInput(f"{path} is an input of this command; choose another --out")
