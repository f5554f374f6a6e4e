"""Separate environments for examples whose requirements differ from those of this checkout."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def prepare(home: Path, requirements: Sequence[str], editable: Sequence[Path] = (ROOT,)) -> Path:
    """Create an environment if it does not exist, and return its interpreter.

    Nothing is downloaded if it exists and the requirements are unchanged.
    """
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    marker, wanted = home / "offaxis-ready", "\n".join([*requirements, *map(str, editable)])
    if not marker.exists() or marker.read_text() != wanted:
        venv.create(home, with_pip=True, clear=True)
        install = [python, "-m", "pip", "--disable-pip-version-check", "install"]
        local = [part for path in editable for part in ("--editable", str(path))]
        subprocess.run([*install, "--quiet", "--retries", "10", *requirements, *local], check=True)
        marker.write_text(wanted)
    return python
