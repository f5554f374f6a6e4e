"""Files that are written completely or not at all, by one thread of one process at a time.

What keeps such a file open is :class:`Confined` to the process that opened it: a forked child would
share it with its parent.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, NoReturn

from offaxis.errors import InvalidInput, OffaxisError

if sys.platform != "win32":
    import fcntl

_PAUSE: Final = 0.002
"""Seconds between two attempts to lock a file."""


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


# ---- One process

_forks = 0
_locks: set[int] = set()
"""Open files that :func:`exclusive` holds in this process."""


def _forked() -> None:
    global _forks
    _forks += 1
    # The locks are the parent's. A child that kept their files open would hold them longer.
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def current_process() -> tuple[int, int]:
    """Identify this process.

    The fork count detects a reused process id; the process id detects a fork that was not counted.
    """
    return os.getpid(), _forks


class Confined:
    """An object that serves only the process that made it, and cannot be copied.

    After ``fork`` parent and child hold the same object, with the same open files.
    """

    _why: ClassVar[str] = ""
    """What two processes could do with one object."""
    _instead: ClassVar[str] = "make another one"
    _error: ClassVar[type[OffaxisError]] = InvalidInput

    def __init__(self) -> None:
        self._process = current_process()

    def check_process(self) -> None:
        """Raise an error in any other process than the one that made this object."""
        if self._process != current_process():
            why = f"; {self._why}" if self._why else ""
            raise self._error(
                f"this {type(self).__name__} was made in process {self._process[0]} and is used in "
                f"process {os.getpid()}, after a fork{why}: {self._instead} in this process"
            )

    def __reduce__(self) -> NoReturn:
        """Reject copying and pickling."""
        raise InvalidInput(
            f"a {type(self).__name__} cannot be copied or pickled; {self._instead} instead"
        )


# ---- One thread of one process at a time


@contextmanager
def exclusive(path: Path, wait: float) -> Iterator[None]:
    """Hold a lock of this block, in the file ``<path>.lock``.

    SQLite's own locks do not suffice: they belong to the process, which loses all of them as soon
    as any code in it closes the database, as a backup or a checksum does. The lock ends with the
    process that holds it, however that ends. On Windows SQLite's locks belong to an open file, and
    there is no other.

    Raises
    ------
    InvalidInput
        If another thread or process holds the lock for more than ``wait`` seconds, or the lock file
        cannot be opened.
    """
    if sys.platform == "win32":
        yield
        return
    process = current_process()
    try:
        held = _lock(path, wait)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInput(f"cannot use {path}: cannot lock {path.name}.lock: {reason}") from None
    try:
        yield
    finally:
        if process == current_process():  # a forked child has closed it, and the lock stays
            _locks.discard(held)
            fcntl.flock(held, fcntl.LOCK_UN)
            os.close(held)


def _lock(path: Path, wait: float) -> int:
    """Return the open and locked lock file of a path."""
    lock = Path(f"{path}.lock")
    until = time.monotonic() + wait
    while True:
        held = _open_lock(lock, path)
        _locks.add(held)
        try:
            while not _locked_now(held):
                if time.monotonic() > until:
                    raise InvalidInput(f"{path} is in use by another thread or process")
                time.sleep(_PAUSE)
            if _is_still(lock, held):
                return held
        except BaseException:
            _unlock(held)
            raise
        _unlock(held)  # somebody has deleted the lock file


def _open_lock(lock: Path, path: Path) -> int:
    """Open a lock file, or create it for the owner of the path; no link is followed.

    Otherwise the superuser, opening somebody's file, would give that person what a link names.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            held = os.open(lock, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            try:
                held = os.open(lock, flags)
            except FileNotFoundError:
                continue  # somebody has deleted the lock file
            found = os.fstat(held)
            if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
                return held
            os.close(held)
            raise InvalidInput(f"cannot use {path}: {lock.name} is not an ordinary file") from None
        try:
            _give_to_owner(held, path)
        except OSError:
            os.close(held)
            raise
        return held


def _unlock(held: int) -> None:
    _locks.discard(held)
    os.close(held)


def _locked_now(held: int) -> bool:
    """Lock an open file if nobody else has; return whether it is locked now."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(lock: Path, held: int) -> bool:
    """Whether an open file is the one that the path names."""
    try:
        return os.path.samestat(lock.stat(), os.fstat(held))
    except FileNotFoundError:
        return False


def _give_to_owner(held: int, path: Path) -> None:
    """Let the owner of a file open its lock, too, if the superuser has created it."""
    if os.geteuid() == 0 and path.exists():
        owner, lock = path.stat(), os.fstat(held)
        if (owner.st_uid, owner.st_gid) != (lock.st_uid, lock.st_gid):
            os.fchown(held, owner.st_uid, owner.st_gid)


def make_private(file: Path) -> None:
    """Let only the owner read the file, and what is kept beside it."""
    for suffix in ("", "-journal", ".lock", "-wal", "-shm"):
        part = Path(f"{file}{suffix}")
        with suppress(OSError):
            found = part.lstat()  # a link may name anything
            own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if own and stat.S_IMODE(found.st_mode) & 0o077:
                part.chmod(0o600)


def create_private(path: str | Path) -> None:
    """Create the file, if it does not exist, before SQLite does: readable by its owner only."""
    try:
        Path(path).touch(mode=0o600)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}") from None
