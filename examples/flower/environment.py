"""Make an environment for Flower beside the project's own, once.

    python -m examples.flower.environment

Flower pins versions of fastapi, typer and rich that other extras do not share, so it gets
``.venv-flower``. Nothing is downloaded when it is there already and the pins have not changed.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv-flower"
WANTED = ("flwr==1.41.0", "scikit-learn>=1.6")
"""The runtime (runtime.py) uses parts of Flower that change between versions."""


def python() -> Path:
    """Return the interpreter of the environment."""
    return HOME / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def prepare() -> Path:
    """Make the environment if it is not there, and return its interpreter."""
    mark, wanted = HOME / "offaxis-ready", "\n".join(WANTED)
    if not mark.exists() or mark.read_text() != wanted:
        venv.create(HOME, with_pip=True)
        install = [python(), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*install, *WANTED, "--editable", str(ROOT)], check=True)
        mark.write_text(wanted)
    return python()


if __name__ == "__main__":
    print(prepare())
