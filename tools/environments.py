"""Create virtual environments that contain only the given packages."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python")


def create_environment(home: Path, *arguments: str) -> Path:
    """Create an environment, run ``pip install`` with the arguments, and return its interpreter."""
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin/python"
    # Few modules are imported, so compiling them all would waste time.
    command = [*_PIP, str(python), "install", "--no-compile", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return python
