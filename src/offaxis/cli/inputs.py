"""Inputs and outputs of the commands: paths, arrays and models.

Paths are checked before the work begins. Arrays are read from .npy, .npz, .csv and .parquet files;
nothing is ever unpickled.
"""

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

from offaxis.cli.terminal import spinner
from offaxis.engines.columns import arrow, is_list, is_number, lists_of, rows_of
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.files import replacing
from offaxis.geometry import Layers, TaskModel, as_task_model

# ---- Paths, checked before any work is done


def check_input(path: Path) -> None:
    """Reject an input file that does not exist."""
    if not path.is_file():
        raise InvalidInput(f"file not found: {path}")


def check_output(path: Path, *inputs: Path) -> None:
    """Reject an output path that cannot be written, or that is one of the inputs."""
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: folder {path.parent} not found; create it first")
    for source in inputs:
        if path.exists() and source.exists() and path.samefile(source):
            raise InvalidInput(f"{path} is an input of this command; choose another --out")


def check_new(path: Path, loss: str, *, force: bool) -> None:
    """Reject an existing output path, unless ``force`` is set.

    For files that cannot be made again, such as releases and reports; ``loss`` states what
    replacing the file would cost.
    """
    if path.exists() and not force:
        raise InvalidInput(
            f"{path} already exists, and {loss}; choose another --out, or use --force"
        )


def check_new_release(path: Path, *, force: bool) -> None:
    """Reject replacing a release: devices may already use it."""
    check_new(path, "reports of a replaced release can no longer be read", force=force)


def check_new_reports(path: Path, *, force: bool) -> None:
    """Reject replacing reports that are already paid for."""
    loss = "making its reports again would spend the budget again: send the existing ones"
    check_new(path, loss, force=force)


# ---- Arrays

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


def find_reader(path: Path, readers: Mapping[str, Reader]) -> Reader:
    """Return the reader for a file's suffix; reject a missing file."""
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InvalidInput(f"{path} must be a file of type {', '.join(readers)}")
    if not path.is_file():
        raise InvalidInput(f"file not found: {path}; check its name and the current folder")
    return reader


def read_array(source: str) -> Array:
    """Read the array of a file.

    Parameters
    ----------
    source : str
        A .npy (memory-mapped), .npz, .csv or .parquet file. ``file.npz:name`` and
        ``file.parquet:column`` select one of several arrays.

    Raises
    ------
    InvalidInput
        If the file does not exist, is damaged, or does not hold one array of numbers.
    MissingExtra
        If it is a .parquet file and pyarrow is not installed.
    """
    path, name = locate(source)
    reader = find_reader(path, _READERS)
    with spinner(f"reading {path.name}"):
        array = reader(path, name)
    if array.ndim == 0:
        raise InvalidInput(f"{path} holds a single number, not vectors")
    return array


def read_targets(source: str) -> Array:
    """Read one target per vector: (n,) from a single column, else (n, k)."""
    array = read_array(source)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def check_format(path: Path) -> None:
    """Reject an output file of an unsupported type, before any work is done."""
    if path.suffix.lower() not in _WRITERS:
        raise InvalidInput(f"cannot write {path}: it must end in {', '.join(FORMATS)}")
    if path.suffix.lower() == ".parquet":
        arrow()


def write_array(path: Path, array: Array) -> None:
    """Write one vector or a batch; the file appears complete or not at all."""
    with spinner(f"writing {path.name}"), replacing(path) as file:
        _WRITERS[path.suffix.lower()](file, array)


# ---- .npy and .npz


def _read_npy(path: Path, name: str | None) -> Array:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError) as error:
        raise InvalidInput(f"{path} is not a readable .npy file of numbers: {error}") from None


def _read_npz(path: Path, name: str | None) -> Array:
    try:
        with path.open("rb") as file:
            return _select_array(path, np.load(file, allow_pickle=False), name)
    except InvalidInput:
        raise
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{path} is not a readable .npz file of numbers: {error}") from None


def _select_array(path: Path, archive: Any, name: str | None) -> Array:
    """Return the named array, or the only one."""
    if isinstance(archive, np.ndarray):
        raise InvalidInput(f"{path} is a single .npy array; rename it to end in .npy")
    names = archive.files
    selected = names[0] if name is None and len(names) == 1 else name
    if selected not in names:
        problem = f"holds no array {name!r}" if name else f"holds {len(names)} arrays"
        raise InvalidInput(
            f"{path} {problem}; select one of {', '.join(names) or 'none'} as {path}:name"
        )
    array: Array = archive[selected]
    return array


# ---- .csv: numbers with or without a header row; an ambiguous file is an error

_BLOCK = 1 << 20
_EXACT = 2.0**53
"""Integers below this are exact in float64."""


def read_csv(path: Path, name: str | None = None) -> Array:
    """Return the rows of a file, (n, columns): int64 if all numbers are integers, else float64."""
    skip = 0
    try:
        skip = _lines_before_data(path)
        with path.open(encoding="utf-8-sig") as file, warnings.catch_warnings():
            # The caller rejects a file without rows, with a message about what it needs.
            warnings.filterwarnings("ignore", "loadtxt: input contained no data", UserWarning)
            table = np.loadtxt(
                file, delimiter=",", skiprows=skip, ndmin=2, comments=None, dtype=np.float64
            )
        integers = _only_integers(path, skip)
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"{path} is not a table of numbers separated by commas"
            f"{_error_location(str(error), skip)}"
        ) from None
    if integers and np.abs(table).max(initial=0.0) < _EXACT:
        return table.astype(np.int64)
    return table


def _error_location(message: str, skip: int) -> str:
    """Return where NumPy failed, without the cell itself: it may be private."""
    match = re.search(r"row (\d+), column (\d+)", message)
    if match:
        # NumPy counts data rows from 0 and columns from 1.
        return f": see row {int(match[1]) + skip + 1}, column {match[2]} of the file"
    match = re.search(r"columns changed from (\d+) to (\d+)", message)
    return f": rows have {match[1]} and {match[2]} columns" if match else ""


def _lines_before_data(path: Path) -> int:
    """Count the lines before the first row of numbers."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for index, line in enumerate(file):
            if line.strip():
                return index + _is_header(path, next(csv.reader([line])))
    raise InvalidInput(f"{path} is empty")


def _is_header(path: Path, cells: list[str]) -> bool:
    """Distinguish a header from numbers; reject an ambiguous row, so that no row is lost."""
    numeric = [_is_numeric(cell) for cell in cells]
    if len(cells) > 2 and cells == [str(index) for index in range(len(cells))]:
        raise InvalidInput(
            f"the first row of {path} is 0, 1, … {len(cells) - 1}: column names or a vector? "
            f"Save the file without column names (pandas: header=False, index=False)"
        )
    if all(numeric):
        return False
    if any(numeric) or not all(cell.strip() for cell in cells):
        columns = ", ".join(str(i + 1) for i, is_numeric in enumerate(numeric) if is_numeric)
        raise InvalidInput(
            f"the first row of {path} is neither numbers nor column names: only columns "
            f"{columns or 'none'} hold numbers. Fill in missing cells, and save without row "
            f"numbers (pandas: index=False)"
        )
    return True


def _is_numeric(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _only_integers(path: Path, skip: int) -> bool:
    """Return whether all numbers are written without a decimal point or exponent, like labels."""
    with path.open("rb") as file:
        for _ in range(skip):
            file.readline()
        any_data = False
        while block := file.read(_BLOCK):
            if block.translate(None, b"0123456789-+, \r\n\t\xef\xbb\xbf"):
                return False
            any_data = True
    return any_data


def _write_csv(file: BinaryIO, array: Array) -> None:
    # 17 digits represent every float64 exactly.
    np.savetxt(file, np.atleast_2d(array), fmt="%.17g", delimiter=",")


# ---- .parquet: one column of lists, or one column of numbers per coordinate

COLUMN = "vector"
"""The column that decoded vectors are written to."""


def read_parquet(path: Path, name: str | None = None) -> Array:
    """Return one column, or all columns, as (n, m)."""
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
            f"select one of {', '.join(names)} as {path}:column"
        )
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def write_parquet(file: BinaryIO, array: Array) -> None:
    """Write one vector or a batch as a column of fixed-size lists."""
    pa = arrow()
    batch = np.atleast_2d(array)
    pa.parquet.write_table(pa.table({COLUMN: lists_of(batch)}), file)


_READERS: Final[dict[str, Callable[[Path, str | None], Array]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": read_csv,
    ".parquet": read_parquet,
}

_WRITERS: Final[dict[str, Callable[[BinaryIO, Array], None]]] = {
    ".npy": lambda file, array: np.save(file, array, allow_pickle=False),
    ".npz": lambda file, array: np.savez(file, vectors=array),
    ".csv": _write_csv,
    ".parquet": write_parquet,
}


# ---- Models: an import path, a torch.export file, or a weights file written by Layers.save

_IMPORT_PATH = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".bin", ".ckpt")


def load_model(source: str) -> TaskModel:
    """Load a public model.

    Parameters
    ----------
    source : str
        ``package.module:attribute``, where the attribute is a model or a function without
        arguments that returns one (the module is searched in the current folder first);
        ``file.pt2``, written by torch.export.save; ``file.onnx``; or ``file.safetensors``, written
        by Layers.save. The first two can run code: load only models you trust.
    """
    with spinner("loading the model"):
        suffix = Path(source).suffix.lower()
        if suffix in (".safetensors", ".pt2"):
            check_input(Path(source))
            model = Layers.load(source) if suffix == ".safetensors" else _load_exported(source)
        elif suffix == ".onnx":
            check_input(Path(source))
            model = source
        elif _IMPORT_PATH.fullmatch(source):
            model = _import_model(source)
        elif suffix in _PICKLES:
            raise InvalidInput(
                f"{source} would have to be unpickled, which can run any code: save the model with "
                f"torch.export.save as .pt2 or its weights with Layers.save as .safetensors, "
                f"or name a function that loads it, as package.module:function"
            )
        else:
            raise InvalidInput(
                f"the model must be an import path package.module:attribute, a .pt2 file, an "
                f".onnx file or a .safetensors file, got {source!r}"
            )
        return as_task_model(model)


def import_attribute(source: str) -> Any:
    """Return what ``package.module:attribute`` names; the current folder is searched first.

    Raises
    ------
    InvalidInput
        If the source is not of this form, or its module cannot be imported.
    """
    match = _IMPORT_PATH.fullmatch(source)
    if match is None:
        raise InvalidInput(f"name a function as package.module:function, got {source!r}")
    module_name, attribute = match[1], match[2]
    # Installed commands do not search the current folder, where the user's code is.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        target: Any = importlib.import_module(module_name)
    except Exception as error:
        # This runs the user's code, which may raise anything.
        raise InvalidInput(f"cannot import {module_name}: {_reason(error)}") from error
    finally:
        sys.path.pop(0)
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise InvalidInput(f"{module_name} has no attribute {attribute!r}")
        target = getattr(target, part)
    return target


def _import_model(source: str) -> Any:
    target = import_attribute(source)
    if inspect.isclass(target):
        raise InvalidInput(
            f"{source} is a class, and a new instance would not be trained; "
            f"name a trained model or a function that returns one"
        )
    if inspect.isroutine(target):
        return _call_factory(target, source)
    return target


def _call_factory(function: Any, name: str) -> Any:
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


def _load_exported(path: str) -> Any:
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
        # torch has no specific error for a damaged file.
        reason = _reason(error)
        raise InvalidInput(f"{path} is not a readable torch.export file: {reason}") from None
    inputs = set(program.graph_signature.user_inputs)
    shapes = [node.meta["val"].shape for node in program.graph.nodes if node.name in inputs]
    if len(shapes) != 1 or len(shapes[0]) != 2:
        raise InvalidInput(f"{path} must take one batch (n, m), got {[list(s) for s in shapes]}")
    if isinstance(shapes[0][0], int):
        raise InvalidInput(
            f"{path} accepts only batches of exactly {shapes[0][0]} vectors; export it with "
            f"dynamic_shapes=({{0: torch.export.Dim('batch')}},)"
        )
    return program.module()
