"""Write files completely or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from offaxis.errors import InvalidInput


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces ``path`` only after it is completely written.

    After any failure, including an interrupt, the previous content of ``path`` is unchanged.
    """
    target = path.resolve()
    # The name is chosen before the file exists, so that no interrupt can leave it behind.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with _create(draft, path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _replace(draft, target, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _create(draft: Path, path: Path) -> BinaryIO:
    try:
        return draft.open("xb")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}") from error


def _replace(draft: Path, target: Path, path: Path) -> None:
    try:
        draft.replace(target)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}") from error
