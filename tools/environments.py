"""New environments that hold what they are told to, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python")


def environment(home: Path, *wanted: str) -> Path:
    """Make an environment, let pip install what is wanted into it, and return its interpreter."""
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin/python"
    # Bytecode is made when a module is first imported, which few are.
    command = [*_PIP, str(python), "install", "--no-compile", *wanted]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return python
