"""Resolve every extra for every Python and say how many packages each brings.

``python -m tools.extras [NAME…]`` (``make extras``). Metadata alone is fetched, so that torch with
all of CUDA costs kilobytes. An extra that does not resolve ends it with an error.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tools.resolving import PYTHONS, ROOT, extras, resolve

LINUX = "x86_64-manylinux_2_28"
OTHERS = ("aarch64-apple-darwin", "x86_64-pc-windows-msvc")
EVERYWHERE = ("", "all")
"""What is resolved for other systems, too: the core, and the extras of people who release."""


def _packages(name: str, python: str, platform: str) -> tuple[int, str]:
    found, text = resolve(
        ROOT / "pyproject.toml",
        *(("--extra", name) if name else ()),
        *("--constraint", "constraints.txt", "--python-version", python),
        *("--python-platform", platform, "--no-annotate"),
        # pyspark's metadata is stated in tools/resolving.py.
        *("--only-binary", ":all:", "--no-binary", "pyspark"),
    )
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", " "))]
    return (len(lines), "") if found else (0, text.strip())


def main(names: list[str]) -> None:
    """Print one line an extra, and what failed."""
    cases = [
        (name, python, platform)
        for name in names or ["", *extras()]
        for platform in (LINUX, *(OTHERS if name in EVERYWHERE else ()))
        for python in PYTHONS
    ]
    with ThreadPoolExecutor(6) as pool:
        found = dict(zip(cases, pool.map(lambda case: _packages(*case), cases), strict=True))
    print(f"{'extra':14}{'platform':26}" + "".join(f"{python:>8}" for python in PYTHONS))
    for name, platform in dict.fromkeys((name, platform) for name, _, platform in cases):
        counts = [found[name, python, platform][0] or "fails" for python in PYTHONS]
        print(f"{name or '(core)':14}{platform:26}" + "".join(f"{count:>8}" for count in counts))
    failed = {case: reason for case, (_, reason) in found.items() if reason}
    for (name, python, platform), reason in failed.items():
        print(f"\n{name} on Python {python}, {platform}:\n{reason}", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
