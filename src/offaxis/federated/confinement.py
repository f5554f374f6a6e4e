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
from typing import ClassVar

from offaxis import files
from offaxis.errors import OffaxisError, RoundRefused

Position = tuple[int, int]
"""Round number and step of a client; it only grows."""

_latest: dict[Hashable, Position] = {}
_lock = threading.Lock()


def _forked() -> None:
    global _lock
    # Another thread of the parent may have held it; that thread does not exist here.
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Confined(files.Confined):
    """An object that serves only the process that made it, and cannot be copied.

    Two living copies of a client could sign two sets of survivors in one round, and two sums that
    differ in one update reveal it.
    """

    _why: ClassVar[str] = "two processes could sign two sets of one round"
    _instead: ClassVar[str] = "reopen the ClientFile"
    _error: ClassVar[type[OffaxisError]] = RoundRefused


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
