"""A device that crashes at any step sends one report per round, and only after paying for it."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.client.collectors import PUBLISHER, Collector
from tests.client.crashing import CRASHED


class Lives:
    """Devices in separate processes, run one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.client.crashing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def live(self, collector: Collector, state: Path, **job: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        common = {"url": collector.url, "publisher": PUBLISHER, "state": str(state)}
        self._process.stdin.write(json.dumps(common | job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    running = Lives()
    yield running
    running.close()


def paid(state: Path) -> int:
    """Return how many reports were paid for."""
    with closing(sqlite3.connect(state)) as database:
        table = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'payment'").fetchone()
        if not table:
            return 0
        return int(database.execute("SELECT COALESCE(SUM(reports), 0) FROM payment").fetchone()[0])


def check(collector: Collector, state: Path) -> int:
    """Check the uploads so far against the payments so far; return the number of uploads."""
    bodies = [upload.body for upload in collector.uploads()]
    # A device killed during an exchange may have sent part of a report, or only headers.
    longest = max(bodies, key=len, default=b"")
    assert all(longest.startswith(body) for body in bodies), "two different reports for one round"
    assert len({upload.path for upload in collector.uploads()}) <= 1, "two ids for one round"
    assert (len(bodies) > 0) <= paid(state) <= 1
    return len(bodies)


def crash_everywhere(collector, lives, folder: Path, **job: Any) -> list[int]:
    """Crash a device at every step in turn, then restart it; return each number of uploads."""
    sent = []
    step = 1
    while True:
        state = folder / f"{step}.device"
        collector.seen.clear()
        collector.stored.clear()
        status = lives.live(collector, state, step=step, **job)
        check(collector, state)
        if os.waitstatus_to_exitcode(status) == 0:
            return sent
        assert os.waitstatus_to_exitcode(status) == CRASHED
        assert lives.live(collector, state, **job) == 0
        sent.append(check(collector, state))
        assert sent[-1] >= 1
        assert paid(state) == 1
        step += 1


def test_a_device_that_crashes_at_any_step_sends_one_report(collector, lives, release, tmp_path):
    collector.offer(release)
    sent = crash_everywhere(collector, lives, tmp_path)
    assert len(sent) > 30, "enough steps were tried"
    assert sent.count(2) > 3, "some crashed between sending and the response"


def test_a_device_that_randomizes_again_is_caught(collector, lives, release, tmp_path):
    """The broken control makes a new report per attempt; it crashes around exchanges only."""
    collector.offer(release)
    release.save(tmp_path / "r.release")
    with pytest.raises(AssertionError, match="two different reports"):
        crash_everywhere(collector, lives, tmp_path, broken=str(tmp_path / "r.release"))


def test_a_device_that_is_killed_repeatedly_sends_one_report(collector, lives, release, tmp_path):
    """SIGKILL at random times, on one state, until a run ends by itself."""
    collector.offer(release)
    rng = random.Random(20_261_115)
    for person in range(3):
        state = tmp_path / f"{person}.device"
        collector.seen.clear()
        collector.stored.clear()
        for _ in range(6):
            lives.live(collector, state, seconds=rng.uniform(0.0, 0.06))
            check(collector, state)
        assert lives.live(collector, state) == 0
        check(collector, state)
        assert paid(state) == 1
