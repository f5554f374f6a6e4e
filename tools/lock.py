"""Write requirements/*.txt: exact versions with hashes, for every Python version and system.

``python -m tools.lock`` (``make lock``) changes only what pyproject.toml requires; ``--upgrade``
takes the newest versions. ``pip install --require-hashes`` then installs exactly these files,
whatever the package index serves.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.resolving import PYTHONS, ROOT, resolve

FOLDER = ROOT / "requirements"
LOCKS = {
    "collector.txt": (ROOT / "pyproject.toml", ("--extra", "collector")),
    "build.txt": (FOLDER / "build.in", ()),
}
_OPENING = "# Made by `make lock`; docs/supply-chain.md.\n"


def lock(name: str, source: Path, *options: str) -> None:
    """Write one lock file; locked versions that still fit are kept."""
    file = FOLDER / name
    resolved, reason = resolve(
        source,
        *("--universal", "--python-version", PYTHONS[0], "--generate-hashes"),
        *("--only-binary", ":all:", "--no-annotate", "--output-file", str(file), *options),
    )
    if not resolved:
        sys.exit(f"{name}: {reason}")
    file.write_text(_OPENING + file.read_text())


def main(options: list[str]) -> None:
    """Write all lock files."""
    for name, (source, more) in LOCKS.items():
        lock(name, source, *more, *options)
        print(f"requirements/{name}")


if __name__ == "__main__":
    main(sys.argv[1:])
