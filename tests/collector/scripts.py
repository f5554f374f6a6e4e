"""Run commands of the documentation in a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.programs import find_program

ROOT = Path(__file__).parents[2]


def run_script(script: str, folder: Path, timeout: float = 300) -> str:
    """Run a script in the folder with this environment's commands; return its output."""
    find_program("curl")
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = "trap 'kill ${COLLECTOR:-} 2>/dev/null || :' EXIT\n" + script
    result = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PATH": tools, "CHECKOUT": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        timeout=timeout,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
