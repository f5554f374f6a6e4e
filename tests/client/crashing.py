"""Devices that die: a process that is told to run one and to end it at a given step.

Every SQL statement that begins, writes or ends anything and both sides of every exchange are steps.
The process that forks has no threads, so that its children are whole.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from typing import Any

import numpy as np

from offaxis.client import Device
from offaxis.client.transport import Transport
from offaxis.privacy.ledger import Limit
from offaxis.release import Release

DIED = 9
_WRITES = ("BEGIN", "INSERT", "UPDATE", "COMMIT")


class Quick(sqlite3.Connection):
    """Waits for no disk: what a killed process wrote is the system's, and not lost."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous = FULL", "synchronous = OFF"), *parameters)


class Steps:
    """Counts steps and ends the process, as a power cut does, at one of them."""

    def __init__(self, last: int) -> None:
        self.last, self.seen = last, 0

    def statement(self, text: str) -> None:
        if text.startswith(_WRITES):
            self()

    def __call__(self) -> None:
        self.seen += 1
        if self.seen == self.last:
            os._exit(DIED)


def watched(steps: Steps, twin: str | None) -> None:
    """Let statements and exchanges of this process count as steps."""
    connect, ask = sqlite3.connect, Transport.ask

    def connect_watched(*args: Any, **options: Any) -> sqlite3.Connection:
        database = connect(*args, **options, factory=Quick)
        if twin is None:
            database.set_trace_callback(steps.statement)
        return database

    def ask_watched(self: Transport, method: str, path: str, **options: Any) -> Any:
        steps()
        if twin is not None and method == "PUT":
            # The broken twin: every try is a new report.
            options["body"] = Release.load(twin).privatize(np.zeros(6))
        answer = ask(self, method, path, **options)
        steps()
        return answer

    sqlite3.connect = connect_watched  # type: ignore[assignment]
    Transport.ask = ask_watched  # type: ignore[method-assign]


def live(order: dict[str, Any]) -> None:
    """Answer a round and send it, with another vector in every life."""
    vector = np.frombuffer(os.urandom(6), dtype=np.uint8).astype(float)
    with Device(
        order["state"], order["url"], publisher=order["publisher"], limits=[Limit(8)], spread=0.0
    ) as device:
        device.report("energy-1", lambda: vector)
        device.send(at_once=True)


def main() -> None:
    """Carry out orders, one JSON line each, and say how each life ended."""
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            watched(Steps(order.get("step", 0)), order.get("twin"))
            live(order)
            os._exit(0)
        if "seconds" in order:
            time.sleep(order["seconds"])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
