"""Create a separate environment for Flower, once.

    python -m examples.flower.environment

Flower pins versions of fastapi, typer and rich that conflict with other extras, so it is installed
into ``.venv-flower``. Nothing is downloaded if that exists and the requirements are unchanged.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv-flower"
REQUIREMENTS = ("flwr==1.41.0", "scikit-learn>=1.6")
"""Flower is pinned exactly: runtime.py uses parts of it that change between versions."""


def python() -> Path:
    """Return the interpreter of the environment."""
    return HOME / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def prepare() -> Path:
    """Create the environment if it does not exist, and return its interpreter."""
    marker, requirements = HOME / "offaxis-ready", "\n".join(REQUIREMENTS)
    if not marker.exists() or marker.read_text() != requirements:
        venv.create(HOME, with_pip=True)
        install = [python(), "-m", "pip", "--disable-pip-version-check", "install"]
        subprocess.run(
            [*install, "--quiet", "--retries", "10", *REQUIREMENTS, "--editable", str(ROOT)],
            check=True,
        )
        marker.write_text(requirements)
    return python()


if __name__ == "__main__":
    print(prepare())
