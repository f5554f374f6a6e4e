"""What offaxis installs, and whether it is what it should be.

``python -m tools.dependencies`` (``make audit-deps``) looks at four things, for the core and the
collector: packages that nobody has reviewed, licences that are not allowed, installed files that
are not those of the packages, and known vulnerabilities of the locked versions. The last needs a
service; where none answers it says so and fails, because "none found" would not be true.
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
"""Old names of licences, where a package has not stated its licence in the new way."""


def reviewed() -> dict[str, dict[str, str]]:
    """Return the reviewed packages with their licences: core, collector, windows."""
    tables = tomllib.loads((FOLDER / "reviewed.toml").read_text())
    return {name: table for name, table in tables.items() if name != "licences"}


def allowed() -> set[str]:
    """Return the licences that are allowed."""
    return set(tomllib.loads((FOLDER / "reviewed.toml").read_text())["licences"]["allowed"])


def locked(name: str) -> set[str]:
    """Return the names of the packages of a lock file."""
    return {found for found, _ in LOCKED.findall((FOLDER / name).read_text())}


def closure(package: str, *extras: str) -> set[str]:
    """Return all that a package asks for here, and what that asks for, by installed metadata."""
    seen: set[tuple[str, str]] = set()
    waiting = [(package, extra) for extra in ("", *extras)]
    while waiting:
        case = waiting.pop()
        if case in seen:
            continue
        seen.add(case)
        name, extra = case
        for line in distribution(name).requires or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                found = canonicalize_name(need.name)
                waiting += [(found, more) for more in ("", *need.extras)]
    return {name for name, _ in seen} - {package}


def licence(package: str) -> str:
    """Return the licence that an installed package states, as an SPDX expression if it can be."""
    about = distribution(package).metadata.json
    if stated := about.get("license_expression"):
        return str(stated)
    lines = [line for line in about.get("classifier", ()) if line.startswith("License ::")]
    names = [line.rpartition(" :: ")[2] for line in lines]
    return " OR ".join(_SPDX.get(name, name) for name in names) or str(about.get("license"))


def altered(packages: Iterable[str]) -> list[str]:
    """Return the installed files whose hash is not the one that their package came with."""
    found = []
    for package in packages:
        installed = distribution(package)
        # Not by `files`: newer versions of it leave out what was deleted.
        for name, stated, _ in csv.reader((installed.read_text("RECORD") or "").splitlines()):
            if not stated:
                continue
            mode, _, value = stated.partition("=")
            path = Path(str(installed.locate_file(name)))
            digest = hashlib.new(mode, path.read_bytes()).digest() if path.is_file() else b""
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != value:
                found.append(f"{package}: {name}")
    return found


def vulnerable(lock: Path) -> tuple[list[str], list[str]]:
    """Return known vulnerabilities of the locked versions, and the packages no service knew."""
    command = [
        *(str(Path(sysconfig.get_path("scripts")) / "pip-audit"), "--requirement", str(lock)),
        *("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        told = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return [], sorted(locked(lock.name))
    known = [
        f"{one['name']} {one['version']}: {hole['id']}"
        for one in told
        for hole in one.get("vulns", ())
    ]
    return known, [one["name"] for one in told if "skip_reason" in one]


def main() -> None:
    """Say what is wrong, or that nothing is."""
    faults = []
    known = reviewed()
    names = set().union(*known.values())
    try:
        here = closure("offaxis", "collector")
    except PackageNotFoundError as error:
        sys.exit(f"{error}: install the collector first, pip install --editable '.[collector]'")
    faults += [f"{name} was never reviewed" for name in sorted(here - names)]
    for name in sorted(here):
        if not set(re.findall(r"[\w.-]+", licence(name))) <= allowed() | {"AND", "OR"}:
            faults.append(f"{name} has the licence {licence(name)}")
    print(f"{len(here)} packages: reviewed, licences read")
    changed = altered(sorted(here))
    faults += [f"changed since it was installed: {file}" for file in changed]
    print("installed files: compared with the hashes that their packages came with")
    unknown: list[str] = []
    for lock in sorted(FOLDER.glob("*.txt")):
        holes, silent = vulnerable(lock)
        faults += holes
        unknown += silent
        print(f"{lock.name}: {len(locked(lock.name)) - len(silent)} versions looked up")
    if unknown:
        faults.append(f"NOT CHECKED for vulnerabilities: no service answered for {len(unknown)}")
    sys.exit("\n".join(faults) if faults else None)


if __name__ == "__main__":
    main()
