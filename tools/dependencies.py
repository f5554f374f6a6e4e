"""Audit the packages that offaxis installs.

``python -m tools.dependencies`` (``make audit-deps``) checks four things, for the core and the
collector: packages that were not reviewed, licences that are not allowed, installed files that
differ from their packages, and known vulnerabilities of the locked versions. The last check needs a
service; if none responds, the command fails, because "none found" would not be true.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
LOCKED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.M)

_SPDX = {
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
}
"""Licence classifiers and their SPDX names, for packages without a licence expression."""


def reviewed() -> dict[str, dict[str, str]]:
    """Return the reviewed packages and their licences, for core, collector and windows."""
    tables = tomllib.loads((FOLDER / "reviewed.toml").read_text())
    return {name: table for name, table in tables.items() if name != "licences"}


def allowed() -> set[str]:
    """Return the allowed licences."""
    return set(tomllib.loads((FOLDER / "reviewed.toml").read_text())["licences"]["allowed"])


def locked(name: str) -> set[str]:
    """Return the names of the packages in a lock file."""
    return {package for package, _ in LOCKED.findall((FOLDER / name).read_text())}


def closure(package: str, *extras: str) -> set[str]:
    """Return all direct and indirect requirements of a package, from installed metadata."""
    seen: set[tuple[str, str]] = set()
    pending = [(package, extra) for extra in ("", *extras)]
    while pending:
        pair = pending.pop()
        if pair in seen:
            continue
        seen.add(pair)
        name, extra = pair
        for line in distribution(name).requires or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or marker.evaluate({"extra": extra}):
                required = canonicalize_name(requirement.name)
                pending += [(required, one) for one in ("", *requirement.extras)]
    return {name for name, _ in seen} - {package}


def licence(package: str) -> str:
    """Return the licence of an installed package, as an SPDX expression if possible."""
    metadata = distribution(package).metadata.json
    if expression := metadata.get("license_expression"):
        return str(expression)
    lines = [line for line in metadata.get("classifier", ()) if line.startswith("License ::")]
    names = [line.rpartition(" :: ")[2] for line in lines]
    return " OR ".join(_SPDX.get(name, name) for name in names) or str(metadata.get("license"))


def altered(packages: Iterable[str]) -> list[str]:
    """Return the installed files whose hash differs from the one in their package's RECORD."""
    differing = []
    for package in packages:
        installed = distribution(package)
        # Not `installed.files`: newer versions of it leave out deleted files.
        for name, recorded, _ in csv.reader((installed.read_text("RECORD") or "").splitlines()):
            if not recorded:
                continue
            algorithm, _, value = recorded.partition("=")
            path = Path(str(installed.locate_file(name)))
            digest = hashlib.new(algorithm, path.read_bytes()).digest() if path.is_file() else b""
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != value:
                differing.append(f"{package}: {name}")
    return differing


def vulnerable(lock: Path) -> tuple[list[str], list[str]]:
    """Return known vulnerabilities of the locked versions, and the packages not checked."""
    command = [
        *(str(Path(sysconfig.get_path("scripts")) / "pip-audit"), "--requirement", str(lock)),
        *("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return [], sorted(locked(lock.name))
    vulnerabilities = [
        f"{package['name']} {package['version']}: {vulnerability['id']}"
        for package in packages
        for vulnerability in package.get("vulns", ())
    ]
    return vulnerabilities, [p["name"] for p in packages if "skip_reason" in p]


def main() -> None:
    """Print what was checked; exit with an error that lists the faults."""
    faults = []
    names = set().union(*reviewed().values())
    try:
        installed = closure("offaxis", "collector")
    except PackageNotFoundError as error:
        sys.exit(f"{error}: install the collector first, pip install --editable '.[collector]'")
    faults += [f"{name} was never reviewed" for name in sorted(installed - names)]
    for name in sorted(installed):
        if not set(re.findall(r"[\w.-]+", licence(name))) <= allowed() | {"AND", "OR"}:
            faults.append(f"{name} has the licence {licence(name)}")
    print(f"{len(installed)} packages: reviewed, licences checked")
    differing = altered(sorted(installed))
    faults += [f"changed since it was installed: {file}" for file in differing]
    print("installed files: compared with the hashes of their packages")
    unchecked: list[str] = []
    for lock in sorted(FOLDER.glob("*.txt")):
        vulnerabilities, skipped = vulnerable(lock)
        faults += vulnerabilities
        unchecked += skipped
        print(f"{lock.name}: {len(locked(lock.name)) - len(skipped)} versions looked up")
    if unchecked:
        faults.append(f"NOT CHECKED for vulnerabilities: no service answered for {len(unchecked)}")
    sys.exit("\n".join(faults) if faults else None)


if __name__ == "__main__":
    main()
