"""The cache: whole, checked files in the user's own cache folder, and nothing half written.

A set is one safetensors file. Its *fingerprint* covers names, types, shapes and values, and is
compared every time the file is read, so a damaged file is an error and never data.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from offaxis.errors import InvalidInput
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
