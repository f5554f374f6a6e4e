"""Write what a collector consists of as a CycloneDX file: ``python -m tools.sbom FILE``.

The locked packages are really installed, by their hashes and without any other, and the list is
taken from what is then there, with licences and who needs whom.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python")


def install_locked(home: Path) -> Path:
    """Install requirements/collector.txt into a new environment; return its interpreter."""
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin/python"
    exact = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-compile")
    lock = ROOT / "requirements/collector.txt"
    subprocess.run([*_PIP, str(python), "install", *exact, "--requirement", str(lock)], check=True)
    return python


def main(out: Path) -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        python = install_locked(Path(folder))
        cyclonedx = Path(sysconfig.get_path("scripts")) / "cyclonedx-py"
        options = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library")
        written = ("--output-reproducible", "--output-file", str(out))
        subprocess.run([str(cyclonedx), "environment", str(python), *options, *written], check=True)
    print(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
