"""Find programs that tests need besides Python, and install missing ones.

Tests install Debian packages: if a program is missing, and the tests run as root on Debian or a
derivative, :func:`install_package` runs ``apt-get install``. Elsewhere the test fails and names the
package. With ``OFFAXIS_NO_INSTALL=1`` in the environment nothing is installed, and tests that need
a missing program are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

NO_INSTALL = "OFFAXIS_NO_INSTALL"


def find_program(name: str, *, package: str = "") -> str:
    """Return the path of a program; install its Debian package if it is missing."""
    path = shutil.which(name)
    if path is None:
        install_package(package or name)
        path = shutil.which(name)
    if path is None:
        pytest.fail(f"these tests need {name} on the PATH: install {package or name}")
    return path


def install_package(package: str) -> None:
    """Install a missing Debian package, if this is Debian and we are root.

    Skip the test instead if ``OFFAXIS_NO_INSTALL=1``.
    """
    if os.environ.get(NO_INSTALL) == "1":
        pytest.skip(f"{package} is not installed, and {NO_INSTALL}=1 forbids installing it")
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Other test workers may be installing packages, too.
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
    for step in (["update"], ["install", "-y", package]):
        subprocess.run([*apt, *step], check=False, env=environment, stdout=subprocess.DEVNULL)
