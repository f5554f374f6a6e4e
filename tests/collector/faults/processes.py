"""Collectors in separate processes, which can be killed and restarted.

:class:`Spawned` runs the command ``offaxis serve``. :class:`Forks` forks the same from a process
without threads that has everything loaded, which takes a tenth of the time.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tools.ports import free_port

_PATIENCE = 180.0


class Process(Protocol):
    """A running process."""

    pid: int

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""

    def kill(self) -> None:
        """Kill it abruptly, and wait until it has ended."""


Launch = Callable[[str, int], Process]


class Spawned:
    """A collector started by its command, logging to a file."""

    def __init__(self, database: str, port: int, log: Path) -> None:
        command = [sys.executable, "-m", "offaxis.cli", "serve", "--database", database]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "--port", str(port), "--device-rate", "10000000"],
                stdout=subprocess.DEVNULL,
                stderr=out,
            )
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill it, and wait until it has ended."""
        self._process.kill()
        self._process.wait()


class Forks:
    """Starts collectors by forking; ``broken`` names a broken control."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.collector.faults.forking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            text=True,
        )

    def start(self, database: str, port: int, broken: str = "") -> Forked:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"database": database, "port": port, "broken": broken}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Forked(int(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


class Forked:
    """A forked collector; its parent does not wait for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        while self.alive:
            time.sleep(0.002)


class Collector:
    """A collector on one port, in one process after the other."""

    def __init__(self, launch: Launch, database: str) -> None:
        self.port = free_port()
        self.kills = 0
        self._launch, self._database = launch, database
        self._lock = threading.Lock()
        self.process = launch(database, self.port)

    def kill(self) -> None:
        """Kill it and start it again, without waiting until it is ready."""
        with self._lock:
            self.process.kill()
            self.kills += 1
            self.process = self._launch(self._database, self.port)

    def start_again(self) -> None:
        """Start it again if it ended because the database was not available."""
        with self._lock:
            if not self.process.alive:
                self.process = self._launch(self._database, self.port)

    def close(self) -> None:
        self.process.kill()

    def status(self, path: str = "/readyz") -> int:
        """Return the status of a response, or 0 if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def wait_until_ready(self) -> None:
        """Wait until it is ready."""
        began = time.monotonic()
        while self.status() != 200:
            assert time.monotonic() - began < _PATIENCE, "the collector does not become ready"
            self.start_again()
            time.sleep(0.02)

    def get_json(self, path: str, token: str) -> Any:
        """Return the JSON at a path."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            body = response.read()
            assert response.status == 200, (response.status, body)
            return json.loads(body)
        finally:
            connection.close()
