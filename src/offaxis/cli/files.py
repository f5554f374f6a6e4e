"""Paths of inputs and outputs, checked before the work begins."""

from __future__ import annotations

from pathlib import Path

from offaxis.errors import InvalidInput


def check_input(path: Path) -> None:
    """Refuse a file that is not there, before any work is done."""
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")


def check_output(path: Path, *inputs: Path) -> None:
    """Refuse, before any work is done, a path that cannot be written or that is an input."""
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}; make it first")
    for source in inputs:
        if path.exists() and source.exists() and path.samefile(source):
            raise InvalidInput(f"{path} is an input of this command; choose another --out")


def check_new(path: Path, loss: str, *, force: bool) -> None:
    """Refuse to replace what cannot be had again, before any work is done.

    Releases and reports are such: ``loss`` says what would be lost.
    """
    if path.exists() and not force:
        raise InvalidInput(f"{path} is already there, and {loss}; choose another --out, or --force")


def check_new_release(path: Path, *, force: bool) -> None:
    """Refuse to replace a release that somebody may report with."""
    check_new(path, "reports of a release that is replaced can no longer be read", force=force)


def check_new_reports(path: Path, *, force: bool) -> None:
    """Refuse to replace reports that were paid for."""
    loss = "making its reports again would spend the budget again: send the ones it holds"
    check_new(path, loss, force=force)
