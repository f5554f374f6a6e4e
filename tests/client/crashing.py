"""Devices that crash: a process that runs a device and ends it at a given step.

Steps are every SQL statement that begins, writes or commits, and both sides of every exchange.
The forking process has no threads, so its children are complete copies.
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

CRASHED = 9
_WRITES = ("BEGIN", "INSERT", "UPDATE", "COMMIT")


class Quick(sqlite3.Connection):
    """Does not wait for the disk: the system keeps what a killed process wrote."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous = EXTRA", "synchronous = OFF"), *parameters)


class Steps:
    """Counts steps and ends the process abruptly at one of them."""

    def __init__(self, last: int) -> None:
        self.last, self.seen = last, 0

    def statement(self, text: str) -> None:
        if text.startswith(_WRITES):
            self()

    def __call__(self) -> None:
        self.seen += 1
        if self.seen == self.last:
            os._exit(CRASHED)


def count_steps(steps: Steps, broken: str | None) -> None:
    """Count statements and exchanges of this process as steps."""
    connect, request = sqlite3.connect, Transport.request

    def counting_connect(*args: Any, **options: Any) -> sqlite3.Connection:
        database = connect(*args, **options, factory=Quick)
        if broken is None:
            database.set_trace_callback(steps.statement)
        return database

    def counting_request(self: Transport, method: str, path: str, **options: Any) -> Any:
        steps()
        if broken is not None and method == "PUT":
            # The broken control: every attempt sends a new report.
            options["body"] = Release.load(broken).privatize(np.zeros(6))
        response = request(self, method, path, **options)
        steps()
        return response

    sqlite3.connect = counting_connect  # type: ignore[assignment]
    Transport.request = counting_request  # type: ignore[method-assign]


def live(job: dict[str, Any]) -> None:
    """Answer a round and send the report, with another vector in every run."""
    vector = np.frombuffer(os.urandom(6), dtype=np.uint8).astype(float)
    with Device(
        job["state"], job["url"], publisher=job["publisher"], limits=[Limit(8)], spread=0.0
    ) as device:
        device.report("energy-1", lambda: vector)
        device.send(at_once=True)


def main() -> None:
    """Run jobs, one JSON line each, and print how each process ended."""
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            count_steps(Steps(job.get("step", 0)), job.get("broken"))
            live(job)
            os._exit(0)
        if "seconds" in job:
            time.sleep(job["seconds"])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
