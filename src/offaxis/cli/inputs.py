"""Paths of inputs and outputs, checked before the work begins."""

from __future__ import annotations

import csv
import importlib
import inspect
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from offaxis.cli.terminal import waiting
from offaxis.engines.columns import arrow, is_list, is_number, lists_of, rows_of
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.files import replacing
from offaxis.geometry import Layers, TaskModel, as_task_model
from offaxis.release import Release


def check_input(path: Path) -> None:
    """Refuse a file that is not there, before any work is done."""
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")


def check_output(path: Path, *inputs: Path) -> None:
    """Refuse, before any work is done, a path that cannot be written or that is an input."""
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}; make it first")
    for source in inputs:
        if path.exists() and source.exists() and path.samefile(source):
            raise InvalidInput(f"{path} is an input of this command; choose another --out")


def check_new(path: Path, loss: str, *, force: bool) -> None:
    """Refuse to replace what cannot be had again, before any work is done.

    Releases and reports are such: ``loss`` says what would be lost.
    """
    if path.exists() and not force:
        raise InvalidInput(f"{path} is already there, and {loss}; choose another --out, or --force")


def check_new_release(path: Path, *, force: bool) -> None:
    """Refuse to replace a release that somebody may report with."""
    check_new(path, "reports of a release that is replaced can no longer be read", force=force)


def check_new_reports(path: Path, *, force: bool) -> None:
    """Refuse to replace reports that were paid for."""
    loss = "making its reports again would spend the budget again: send the ones it holds"
    check_new(path, loss, force=force)


# ----------------------------------------------------------------------------
# Numbers from a .csv file, with or without a header row; what is ambiguous is an error.

_BLOCK = 1 << 20
_EXACT = 2.0**53
"""Whole numbers below this are exact in float64."""


def read_csv(path: Path, name: str | None = None) -> NDArray[Any]:
    """Return the rows of a file, (n, columns): int64 if no number has a point, else float64."""
    skip = 0
    try:
        skip = _lines_before_data(path)
        with path.open(encoding="utf-8-sig") as file, warnings.catch_warnings():
            # A file without rows is refused later, by those who know what they wanted to read.
            warnings.filterwarnings("ignore", "loadtxt: input contained no data", UserWarning)
            table = np.loadtxt(
                file, delimiter=",", skiprows=skip, ndmin=2, comments=None, dtype=np.float64
            )
        whole = _only_whole_numbers(path, skip)
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"{path} is not a table of numbers separated by commas{_place(str(error), skip)}"
        ) from None
    if whole and np.abs(table).max(initial=0.0) < _EXACT:
        return table.astype(np.int64)
    return table


def _place(message: str, skip: int) -> str:
    """Say where NumPy stumbled, without the cell itself: it may be private."""
    found = re.search(r"row (\d+), column (\d+)", message)
    if found:
        # NumPy counts data rows from 0 and columns from 1.
        return f": see row {int(found[1]) + skip + 1}, column {found[2]} of the file"
    found = re.search(r"columns changed from (\d+) to (\d+)", message)
    return f": rows have {found[1]} and {found[2]} columns" if found else ""


def _lines_before_data(path: Path) -> int:
    """Count the lines up to the first row of numbers."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for index, line in enumerate(file):
            if line.strip():
                return index + _is_header(path, next(csv.reader([line])))
    raise InvalidInput(f"{path} is empty")


def _is_header(path: Path, cells: list[str]) -> bool:
    """Tell a header from numbers, or refuse to guess: no row may be lost or made up."""
    numbers = [_is_number(cell) for cell in cells]
    if len(cells) > 2 and cells == [str(index) for index in range(len(cells))]:
        raise InvalidInput(
            f"the first row of {path} is 0, 1, … {len(cells) - 1}: column names or a vector? "
            f"Save the file without column names (pandas: header=False, index=False)"
        )
    if all(numbers):
        return False
    if any(numbers) or not all(cell.strip() for cell in cells):
        raise InvalidInput(
            f"the first row of {path} is neither numbers nor column names: only columns "
            f"{', '.join(str(i + 1) for i, is_number in enumerate(numbers) if is_number) or 'none'}"
            f" hold numbers. Fill in what is missing, and save without row numbers "
            f"(pandas: index=False)"
        )
    return True


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _only_whole_numbers(path: Path, skip: int) -> bool:
    """Tell whether every number is written without a point or an exponent, as labels are."""
    with path.open("rb") as file:
        for _ in range(skip):
            file.readline()
        seen = False
        while block := file.read(_BLOCK):
            if block.translate(None, b"0123456789-+, \r\n\t\xef\xbb\xbf"):
                return False
            seen = True
    return seen


# ----------------------------------------------------------------------------
# Vectors in .parquet files: one column of lists, or one column of numbers a coordinate.

COLUMN = "vector"
"""The column that decoded vectors are written to."""


def read_parquet(path: Path, name: str | None = None) -> NDArray[Any]:
    """Return a column, or all of a file's columns, as (n, m)."""
    pa = arrow()
    try:
        names = pa.parquet.read_schema(path).names
        if name is not None and name not in names:
            raise InvalidInput(f"{path} has no column {name!r}; it has {', '.join(names)}")
        table = pa.parquet.read_table(path, columns=None if name is None else [name])
    except pa.ArrowException as error:
        raise InvalidInput(f"{path} is not a readable .parquet file: {error}") from None
    if any(column.null_count for column in table.columns):
        raise InvalidInput(f"{path} has missing values; remove or replace those rows first")
    lists = [is_list(column.type) for column in table.columns]
    if lists == [True]:
        return rows_of(table.column(0), str(path))
    if not lists or not all(is_number(column.type) for column in table.columns):
        raise InvalidInput(
            f"{path} must have one column of lists or only columns of numbers; "
            f"choose one of {', '.join(names)} as {path}:column"
        )
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def write_parquet(file: BinaryIO, array: NDArray[Any]) -> None:
    """Write one vector or a batch as one column of lists of constant length."""
    pa = arrow()
    batch = np.atleast_2d(array)
    pa.parquet.write_table(pa.table({COLUMN: lists_of(batch)}), file)


# ----------------------------------------------------------------------------
# Arrays from and to files: .npy, .npz, .csv and .parquet. Nothing is ever unpickled.

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


# ----------------------------------------------------------------------------
# Release files by name.


def load_release(path: Path, expect: str | None = None) -> Release:
    """Read a release file strictly, and only the one that is expected."""
    return Release.load(path, expect=expect)


# ----------------------------------------------------------------------------
# Public models by name: an import path, a torch.export file, or the package's own weights file.

_IMPORT_PATH = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".bin", ".ckpt")


def load_model(source: str) -> TaskModel:
    """Load a public model.

    Parameters
    ----------
    source : str
        ``package.module:attribute``, where the attribute is a model or a function without
        arguments that returns one (its module is imported, the current folder is searched first);
        ``file.pt2``, written by torch.export.save; or ``file.safetensors``, written by Layers.save.
        The first two can run code: load only models you trust.
    """
    with waiting("loading the model"):
        suffix = Path(source).suffix.lower()
        if suffix in (".safetensors", ".pt2"):
            if not Path(source).is_file():
                raise InvalidInput(f"there is no file {source}")
            model = Layers.load(source) if suffix == ".safetensors" else _exported(source)
        elif match := _IMPORT_PATH.fullmatch(source):
            model = _imported(match[1], match[2])
        elif suffix in _PICKLES:
            raise InvalidInput(
                f"{source} would have to be unpickled, which can run anything: save the model with "
                f"torch.export.save as .pt2 or its weights with Layers.save as .safetensors, "
                f"or name a function that loads it, as package.module:function"
            )
        else:
            raise InvalidInput(
                f"the model must be an import path package.module:attribute, a .pt2 file or a "
                f".safetensors file, got {source!r}"
            )
        return as_task_model(model)


def _imported(module_name: str, attribute: str) -> Any:
    # Installed commands do not look into the current folder, where the user's own code is.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        # The user's own code runs here and may raise anything.
        raise InvalidInput(f"cannot import {module_name}: {_reason(error)}") from error
    finally:
        sys.path.pop(0)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InvalidInput(f"{module_name} has no attribute {attribute!r}")
        found = getattr(found, part)
    if inspect.isclass(found):
        raise InvalidInput(
            f"{module_name}:{attribute} is a class, and a new instance would not be trained; "
            f"name a trained model or a function that returns one"
        )
    return _returned(found, f"{module_name}:{attribute}") if inspect.isroutine(found) else found


def _returned(function: Any, name: str) -> Any:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{name} takes arguments; name a model or a function without arguments that returns "
            f"one. To use a function of a batch as the model, return "
            f"offaxis.geometry.FiniteDifferences(function)"
        ) from None
    try:
        return function()
    except Exception as error:
        raise InvalidInput(f"{name} failed: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _exported(path: str) -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra(
            f".pt2 files need torch: {installing('torch')}, "
            f"or save the weights with Layers.save as .safetensors"
        ) from None
    try:
        program = torch.export.load(path)
    except Exception as error:
        # torch has no error of its own for a damaged file; it raises whatever happens to break.
        reason = _reason(error)
        raise InvalidInput(f"{path} is not a readable torch.export file: {reason}") from None
    inputs = set(program.graph_signature.user_inputs)
    shapes = [node.meta["val"].shape for node in program.graph.nodes if node.name in inputs]
    if len(shapes) != 1 or len(shapes[0]) != 2:
        raise InvalidInput(f"{path} must take one batch (n, m), got {[list(s) for s in shapes]}")
    if isinstance(shapes[0][0], int):
        raise InvalidInput(
            f"{path} only takes batches of exactly {shapes[0][0]} vectors; export it with "
            f"dynamic_shapes=({{0: torch.export.Dim('batch')}},)"
        )
    return program.module()
