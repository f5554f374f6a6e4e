"""Write what a collector consists of as a CycloneDX file: ``python -m tools.sbom FILE``.

The locked packages are really installed, by their hashes and without any other, and the list is
taken from what is then there, with licences and who needs whom.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tools.environments import environment

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements/collector.txt"
EXACTLY = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(LOCK))


def main(out: Path) -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder), *EXACTLY)
        cyclonedx = Path(sysconfig.get_path("scripts")) / "cyclonedx-py"
        options = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library")
        written = ("--output-reproducible", "--output-file", str(out))
        subprocess.run([str(cyclonedx), "environment", str(python), *options, *written], check=True)
    print(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
