"""Write requirements/*.txt: exact versions with hashes, for every Python and system at once.

``python -m tools.lock`` (``make lock``); ``--upgrade`` takes the newest versions, without it only
what pyproject.toml asks for changes. ``pip install --require-hashes`` then takes these files and no
others, whoever answers for the index.
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
    """Write one file; versions that are there and still fit stay."""
    file = FOLDER / name
    found, reason = resolve(
        source,
        *("--universal", "--python-version", PYTHONS[0], "--generate-hashes"),
        *("--only-binary", ":all:", "--no-annotate", "--output-file", str(file), *options),
    )
    if not found:
        sys.exit(f"{name}: {reason}")
    file.write_text(_OPENING + file.read_text())


def main(options: list[str]) -> None:
    """Write all files."""
    for name, (source, more) in LOCKS.items():
        lock(name, source, *more, *options)
        print(f"requirements/{name}")


if __name__ == "__main__":
    main(sys.argv[1:])
