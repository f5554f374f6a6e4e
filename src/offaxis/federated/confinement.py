"""One living copy of a client: what holds its secrets serves one process, and never steps back.

Contract: an object that is :class:`Confined` gives out no secret, and takes no step, in any other
process than the one that made it, and cannot be copied or pickled. :func:`claim` refuses a step
from a state that is not the latest one of its client *in this process*. A program that starts over
from an older state in a new process is not noticed here; :class:`~offaxis.federated.ClientFile`
notices some of these cases.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from typing import NoReturn

from offaxis.errors import InvalidInput, RoundRefused

Position = tuple[int, int]
"""Round number and step of a client; it only grows."""

_forks = 0
_latest: dict[Hashable, Position] = {}
_lock = threading.Lock()


def _forked() -> None:
    global _forks, _lock
    _forks += 1
    # Another thread of the parent may have held it; that thread does not exist here.
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def current_process() -> tuple[int, int]:
    """Identify this process.

    The fork count detects a reused process id; the process id detects a fork that was not counted.
    """
    return os.getpid(), _forks


class Confined:
    """An object that serves only the process that made it, and cannot be copied.

    After ``fork`` parent and child hold the same object. Two living copies of a client could sign
    two sets of survivors in one round, and two sums that differ in one update reveal it.
    """

    def __init__(self) -> None:
        self._process = current_process()

    def check_process(self) -> None:
        """Raise RoundRefused in any other process than the one that made this object."""
        if self._process != current_process():
            raise RoundRefused(
                f"this {type(self).__name__} was made in process {self._process[0]} and is used in "
                f"process {os.getpid()}, after a fork; two processes could sign two sets of one "
                f"round: reopen the ClientFile in this process"
            )

    def __reduce__(self) -> NoReturn:
        """Reject copying and pickling: each copy could sign another set."""
        raise InvalidInput(
            f"a {type(self).__name__} cannot be copied or pickled; reopen the ClientFile instead"
        )


def claim(client: Hashable, name: str, before: Position, after: Position) -> None:
    """Record a step of a client; raise RoundRefused if a later one was taken in this process.

    Call it before the answer is returned. Of two objects that take the same step only one succeeds.
    With ``after == before`` it is a check only.
    """
    with _lock:
        latest = _latest.get(client, before)
        if latest > before:
            raise RoundRefused(
                f"this state of {name} is of round {before[0]}, but the client has gone on to "
                f"round {latest[0]} or to a later step of it; an older state could sign twice: use "
                f"the latest state(), or reopen the ClientFile"
            )
        _latest[client] = after
