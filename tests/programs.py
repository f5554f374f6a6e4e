"""Programs that tests need beside Python: found, or installed where the machine allows it."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def program(name: str, *, package: str = "") -> str:
    """Return the path of a program; fail if there is none and Debian's packages give none."""
    found = shutil.which(name)
    if found is None:
        install(package or name)
        found = shutil.which(name)
    if found is None:
        pytest.fail(f"these tests need {name} on the PATH: install {package or name}")
    return found


def install(package: str) -> None:
    """Install a Debian package, if this is Debian and we are allowed to."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Other workers may be installing, too.
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
    for step in (["update"], ["install", "-y", package]):
        subprocess.run([*apt, *step], check=False, env=quiet, stdout=subprocess.DEVNULL)
