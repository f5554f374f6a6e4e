"""Commands of the docs, run as a shell runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.programs import program

ROOT = Path(__file__).parents[2]


def walk(script: str, folder: Path, timeout: float = 300) -> str:
    """Run a script in the folder, with this environment's commands."""
    program("curl")
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = "trap 'kill ${COLLECTOR:-} 2>/dev/null || :' EXIT\n" + script
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PATH": tools, "CHECKOUT": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
