"""Devices that are killed repeatedly until they have answered all rounds.

    python -m tests.collector.faults.dying    one JSON job on standard input

Forks one process with an ``offaxis.client.Device`` per life; the forking process has no threads.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from offaxis.client import Device
from offaxis.errors import BudgetExceeded, OffaxisError
from offaxis.privacy.ledger import Limit


def open_device(job: dict[str, Any], number: int) -> Device:
    """Open a device of a job."""
    return Device(
        Path(job["folder"]) / f"{number}.device",
        job["url"],
        publisher=job["publisher"],
        token=job["token"],
        limits=[Limit(Fraction(job["limit"]))],
        epsilon=Fraction(job["epsilon"]),
        spread=0.0,
        patience=5.0,
    )


def live(job: dict[str, Any], number: int) -> bool:
    """Answer all rounds that the limit allows, with a new vector each time; return if done."""
    with open_device(job, number) as device:
        for name in job["rounds"]:
            vector = np.frombuffer(os.urandom(job["dim"]), dtype=np.uint8).astype(float)
            try:
                device.report(name, vector)
            except BudgetExceeded:
                break
            device.send(at_once=True)
        return all(entry.state != "queued" for entry in device.status())


def kill_repeatedly(job: dict[str, Any]) -> int:
    """Run all devices concurrently and kill each at random times; return the number of kills."""
    rng = random.Random(job["seed"])
    lives: dict[int, tuple[int, float]] = {}
    lived = dict.fromkeys(range(job["devices"]), 0)
    left = set(lived)
    kills = 0
    while left:
        for number in left - set(lives):
            # Lives get longer, so that all devices finish on any machine.
            longest = job["seconds"] * job["growing"] ** lived[number]
            lived[number] += 1
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if live(job, number) else 1)
                except OffaxisError:
                    # Its collector is down; too many processes would keep it from starting.
                    time.sleep(0.1)
                    os._exit(2)
            lives[number] = (child, time.monotonic() + rng.uniform(0.0, longest))
        time.sleep(0.002)
        for number, (child, end) in list(lives.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended and time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                _, status = os.waitpid(child, 0)
                ended = child
                kills += os.WIFSIGNALED(status)
            if ended:
                del lives[number]
                left -= {number} if status == 0 else set()
    return kills


def devices(job: dict[str, Any]) -> subprocess.Popen[str]:
    """Start a job's devices; the process prints the number of kills at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.collector.faults.dying"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(job))
    process.stdin.close()
    process.stdin = None
    return process


def main() -> None:
    """Run one job."""
    sys.stdout.write(f"{kill_repeatedly(json.load(sys.stdin))}\n")


if __name__ == "__main__":
    main()
