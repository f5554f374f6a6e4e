"""Steps in a forked process, and the errors that they raised there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any


def in_child(*steps: Callable[[], Any]) -> list[str]:
    """Take steps in a forked process; return for each the error it raised, or "answered"."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for a lock of the parent's threads ends
        outcomes = []
        for step in steps:
            try:
                step()
                outcomes.append("answered")
            except BaseException as error:
                outcomes.append(f"{type(error).__name__}: {error}")
        os.write(writer, json.dumps(outcomes).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as stream:
        answers: list[str] = json.loads(stream.read())
    return answers
