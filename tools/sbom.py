"""Write the software bill of materials of a collector (CycloneDX): ``python -m tools.sbom FILE``.

The tool installs exactly the locked packages, by hash, into a new environment and lists them with
their licences and dependencies.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tools.environments import create_environment

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements/collector.txt"
INSTALL = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(LOCK))


def main(out: Path) -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        python = create_environment(Path(folder), *INSTALL)
        cyclonedx = Path(sysconfig.get_path("scripts")) / "cyclonedx-py"
        options = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library")
        output = ("--output-reproducible", "--output-file", str(out))
        subprocess.run([str(cyclonedx), "environment", str(python), *options, *output], check=True)
    print(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
