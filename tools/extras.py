"""Resolve every extra for every Python version and print how many packages it installs.

``python -m tools.extras [NAME…]`` (``make extras``). Only metadata is fetched, so torch with all of
CUDA costs kilobytes. The command fails if an extra does not resolve.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tools.resolving import PYTHONS, ROOT, extras, resolve

LINUX = "x86_64-manylinux_2_28"
OTHERS = ("aarch64-apple-darwin", "x86_64-pc-windows-msvc")
EVERYWHERE = ("", "all")
"""Extras that are also resolved for other systems: the core, and ``all``."""


def _count_packages(name: str, python: str, platform: str) -> tuple[int, str]:
    resolved, text = resolve(
        ROOT / "pyproject.toml",
        *(("--extra", name) if name else ()),
        *("--constraint", "constraints.txt", "--python-version", python),
        *("--python-platform", platform, "--no-annotate"),
        # tools/resolving.py states the metadata of pyspark, which has no wheel.
        *("--only-binary", ":all:", "--no-binary", "pyspark"),
    )
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", " "))]
    return (len(lines), "") if resolved else (0, text.strip())


def main(names: list[str]) -> None:
    """Print one line per extra and platform, then the failures."""
    cases = [
        (name, python, platform)
        for name in names or ["", *extras()]
        for platform in (LINUX, *(OTHERS if name in EVERYWHERE else ()))
        for python in PYTHONS
    ]
    with ThreadPoolExecutor(6) as pool:
        counted = pool.map(lambda case: _count_packages(*case), cases)
        results = dict(zip(cases, counted, strict=True))
    print(f"{'extra':14}{'platform':26}" + "".join(f"{python:>8}" for python in PYTHONS))
    for name, platform in dict.fromkeys((name, platform) for name, _, platform in cases):
        counts = [results[name, python, platform][0] or "fails" for python in PYTHONS]
        print(f"{name or '(core)':14}{platform:26}" + "".join(f"{count:>8}" for count in counts))
    failed = {case: reason for case, (_, reason) in results.items() if reason}
    for (name, python, platform), reason in failed.items():
        print(f"\n{name} on Python {python}, {platform}:\n{reason}", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
