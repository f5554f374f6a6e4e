"""Node, which runs the browser's modules without a browser."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def node() -> str:
    """The path of Node 20 or newer; installed where a machine has none and allows it."""
    if shutil.which("node") is None and hasattr(os, "geteuid") and os.geteuid() == 0:
        subprocess.run(["apt-get", "install", "-y", "-qq", "nodejs"], check=False)
    found = shutil.which("node")
    if found is None:
        pytest.fail("these tests need Node 20 or newer on the PATH: install nodejs")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.strip().lstrip("v").split(".")[0]) < 20:
        pytest.fail(f"these tests need Node 20 or newer, found {version.stdout.strip()}")
    return found


class Bridge:
    """The client in a process of its own: one question a line, one answer a line."""

    def __init__(self, node: str) -> None:
        self._process = subprocess.Popen(
            [node, str(FOLDER / "bridge.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, ask: str, **request: Any) -> Any:
        """Return the answer; bytes travel as base64."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({"ask": ask, **request}, default=lambda b: base64.b64encode(b).decode())
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "failed" not in answer, answer["failed"]
        return answer["answer"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def client(node: str) -> Iterator[Bridge]:
    """The client, asked by its bridge."""
    bridge = Bridge(node)
    yield bridge
    bridge.close()
