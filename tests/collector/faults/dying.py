"""Devices that are killed again and again until they have answered all rounds.

    python -m tests.collector.faults.dying    one JSON order on standard input

Forks one process a life, of ``offaxis.client.Device``; the process that forks has no threads.
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


def opened(order: dict[str, Any], number: int) -> Device:
    """Open a device of the order."""
    return Device(
        Path(order["folder"]) / f"{number}.device",
        order["url"],
        publisher=order["publisher"],
        token=order["token"],
        limits=[Limit(Fraction(order["limit"]))],
        epsilon=Fraction(order["epsilon"]),
        spread=0.0,
        patience=5.0,
    )


def live(order: dict[str, Any], number: int) -> bool:
    """Answer all rounds that the limit allows, with another vector in every life; say if done."""
    with opened(order, number) as device:
        for name in order["rounds"]:
            vector = np.frombuffer(os.urandom(order["dim"]), dtype=np.uint8).astype(float)
            try:
                device.report(name, vector)
            except BudgetExceeded:
                break
            device.send(at_once=True)
        return all(entry.state != "queued" for entry in device.status())


def kill_again_and_again(order: dict[str, Any]) -> int:
    """Run all devices at once and kill each at random times; return how often that was."""
    rng = random.Random(order["seed"])
    lives: dict[int, tuple[int, float]] = {}
    lived = dict.fromkeys(range(order["devices"]), 0)
    left = set(lived)
    kills = 0
    while left:
        for number in left - set(lives):
            # Lives grow, so that all devices come to an end on any machine.
            longest = order["seconds"] * order["growing"] ** lived[number]
            lived[number] += 1
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if live(order, number) else 1)
                except OffaxisError:
                    # Its collector is down; too many lives would keep that from coming up.
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


def devices(order: dict[str, Any]) -> subprocess.Popen[str]:
    """Start an order's devices; the process prints the number of kills in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.collector.faults.dying"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order))
    process.stdin.close()
    process.stdin = None
    return process


def main() -> None:
    """Carry out one order."""
    sys.stdout.write(f"{kill_again_and_again(json.load(sys.stdin))}\n")


if __name__ == "__main__":
    main()
