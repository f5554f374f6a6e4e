"""Arrays from and to files: .npy, .npz, .csv and .parquet. Nothing is ever unpickled."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from offaxis.cli.reading.csv_file import read_csv
from offaxis.cli.reading.parquet_file import read_parquet, write_parquet
from offaxis.cli.showing.progress import waiting
from offaxis.engines.columns import arrow
from offaxis.errors import InvalidInput
from offaxis.files import replacing

Array = NDArray[Any]
Reader = TypeVar("Reader")
FORMATS: Final = (".npy", ".npz", ".csv", ".parquet")
NAMED: Final = (".npz", ".parquet")
"""Files that hold several arrays, each under a name."""


def locate(source: str, named: tuple[str, ...] = NAMED) -> tuple[Path, str | None]:
    """Split ``file.npz:name`` and ``file.parquet:column`` into the file and the name."""
    path, colon, name = source.rpartition(":")
    if colon and name and not {"/", "\\"} & set(name) and path.lower().endswith(named):
        return (Path(source), None) if Path(source).exists() else (Path(path), name)
    return Path(source), None


def reader_of(path: Path, readers: Mapping[str, Reader]) -> Reader:
    """Return what reads a file, by its ending; refuse one that is not there."""
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InvalidInput(f"{path} must be a file of type {', '.join(readers)}")
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}; check its name and the folder you are in")
    return reader


def read_array(source: str) -> Array:
    """Read the array of a file.

    Parameters
    ----------
    source : str
        A .npy (memory-mapped), .npz, .csv or .parquet file. ``file.npz:name`` and
        ``file.parquet:column`` choose one array out of several.

    Raises
    ------
    InvalidInput
        If the file does not exist, is damaged, or does not hold one array of numbers.
    MissingExtra
        If it is a .parquet file and pyarrow is not installed.
    """
    path, name = locate(source)
    reader = reader_of(path, _READERS)
    with waiting(f"reading {path.name}"):
        array = reader(path, name)
    if array.ndim == 0:
        raise InvalidInput(f"{path} holds a single number, not vectors")
    return array


def read_targets(source: str) -> Array:
    """Read one target a vector: (n,) if there is one column, else (n, k)."""
    array = read_array(source)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _read_npy(path: Path, name: str | None) -> Array:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError) as error:
        raise InvalidInput(f"{path} is not a readable .npy file of numbers: {error}") from None


def _read_npz(path: Path, name: str | None) -> Array:
    try:
        with path.open("rb") as file:
            return _pick(path, np.load(file, allow_pickle=False), name)
    except InvalidInput:
        raise
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{path} is not a readable .npz file of numbers: {error}") from None


def _pick(path: Path, archive: Any, name: str | None) -> Array:
    """Return the array asked for, or the only one."""
    if isinstance(archive, np.ndarray):
        raise InvalidInput(f"{path} is a single .npy array; rename it to end in .npy")
    names = archive.files
    chosen = names[0] if name is None and len(names) == 1 else name
    if chosen not in names:
        wrong = f"holds no array {name!r}" if name else f"holds {len(names)} arrays"
        raise InvalidInput(
            f"{path} {wrong}; choose one of {', '.join(names) or 'none'} as {path}:name"
        )
    array: Array = archive[chosen]
    return array


_READERS: Final[dict[str, Callable[[Path, str | None], Array]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": read_csv,
    ".parquet": read_parquet,
}


def _write_csv(file: BinaryIO, array: Array) -> None:
    # 17 digits give every float64 back exactly.
    np.savetxt(file, np.atleast_2d(array), fmt="%.17g", delimiter=",")


_WRITERS: Final[dict[str, Callable[[BinaryIO, Array], None]]] = {
    ".npy": lambda file, array: np.save(file, array, allow_pickle=False),
    ".npz": lambda file, array: np.savez(file, vectors=array),
    ".csv": _write_csv,
    ".parquet": write_parquet,
}


def check_format(path: Path) -> None:
    """Refuse, before any work is done, an output file of a type that cannot be written."""
    if path.suffix.lower() not in _WRITERS:
        raise InvalidInput(f"cannot write {path}: it must end in {', '.join(FORMATS)}")
    if path.suffix.lower() == ".parquet":
        arrow()


def write_array(path: Path, array: Array) -> None:
    """Write one vector or a batch; the file appears whole or not at all."""
    with waiting(f"writing {path.name}"), replacing(path) as file:
        _WRITERS[path.suffix.lower()](file, array)
