"""Answers on the command line: what people are asked, and files of answers.

No message shows an answer, because answers are private; nor the first row of a file, which holds
one if the file has no header.
"""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from offaxis.cli.inputs import NAMED, check_input, find_reader, locate, read_array
from offaxis.cli.options import UsageError, usage_errors
from offaxis.encoding.pairs import Asked, Classes, Number, as_asked
from offaxis.engines.columns import arrow
from offaxis.errors import InvalidInput

ANSWERS: Final = (
    ".csv, .txt, .json, .npy, .npz or .parquet with one answer per vector; several answers are "
    "columns with their names"
)
ASKED: Final = (
    'What people are asked: the names of classes as "no,yes", their number as 10, or a .json file '
    "that describes one answer or several (docs/cli.md)."
)

_NAMED: Final = (".csv", *NAMED)
_SHOWN: Final = 10
"""The most names of classes that are printed."""

_KEYS: Final = ({"name", "names", "optional"}, {"name", "low", "high", "optional", "bins"})

Columns = dict[str | None, list[Any]]
"""Answers by the name of their column; None if it has no name."""


# ---- What is asked


def read_asked(
    text: str | None, number: tuple[float, float] | None, bins: int = 0
) -> tuple[Asked, ...]:
    """Return what the options --answers or --number, with --bins, describe.

    Raises
    ------
    UsageError
        If both or none are given, or one of them cannot be read.
    InvalidInput
        If a .json file does not describe answers.
    """
    if (text is None) == (number is None):
        raise UsageError("Missing option '--answers' or '--number': use one of them")
    if text is not None and text.lower().endswith(".json"):
        return _asked_of_file(Path(text))
    with usage_errors():
        if number is not None:
            return (Number(*number, bins=bins),)
        assert text is not None
        if text.strip().isdigit():
            return as_asked(int(text))
        return as_asked([name.strip() for name in text.split(",")])


def _asked_of_file(path: Path) -> tuple[Asked, ...]:
    content = _json_of(path)
    if isinstance(content, list) and all(isinstance(part, str) for part in content):
        return as_asked(content)
    listed = content if isinstance(content, list) else [content]
    return as_asked([_asked_of(part, path) for part in listed])


def _asked_of(part: Any, path: Path) -> Asked:
    """Read one answer, as ``offaxis inspect --json`` writes it."""
    part = dict(part) if isinstance(part, dict) else {}
    kind = part.pop("kind", None)
    for name, keys in zip(("classes", "number"), _KEYS, strict=True):
        if kind in (name, None) and keys - {"optional", "bins"} <= set(part) <= keys:
            return Number(**part) if name == "number" else Classes(**part)
    raise InvalidInput(
        f'{path} must hold {{"name": "smoker", "names": ["no", "yes"]}} or {{"name": "age", '
        f'"low": 0, "high": 100}}, each with "optional": true if people may have none, or a list '
        f"of these"
    )


def describe_asked(part: Asked) -> str:
    """Write what is asked on one line, with the names of a few classes."""
    text = str(part)
    if isinstance(part, Classes) and part.names != tuple(map(str, range(len(part.names)))):
        listed = ", ".join(part.names[:_SHOWN])
        more = f" and {len(part.names) - _SHOWN} more" if len(part.names) > _SHOWN else ""
        text = f"{part.name}: one of {listed}{more}"
    return f"{text}; people may have none" if part.optional else text


def asked_facts(asked: Sequence[Asked]) -> list[dict[str, Any]]:
    """Describe what is asked for ``--json``, in the form that --answers reads from a file."""
    return [
        {"kind": "classes", "name": part.name, "names": list(part.names), "optional": part.optional}
        if isinstance(part, Classes)
        else {
            "kind": "number",
            "name": part.name,
            "low": part.low,
            "high": part.high,
            "optional": part.optional,
            **({"bins": part.bins} if part.bins else {}),
        }
        for part in asked
    ]


# ---- Files of answers


def locate_answers(source: str) -> Path:
    """Return the file of ``FILE`` or ``FILE:COLUMN``."""
    return locate(source, _NAMED)[0]


def read_answers(source: str, asked: Sequence[Asked]) -> dict[str, list[Any]]:
    """Read one answer per vector, for each answer that is asked.

    Parameters
    ----------
    source : str
        A .csv file with a header, or of one column without; a .txt file with one answer per line; a
        .json file with a list, or an object of lists; a .npy, .npz or .parquet file. Several
        answers are columns with their names; ``FILE:COLUMN`` selects the column of a single one.
    asked : sequence of Classes and Number

    Returns
    -------
    dict of lists
        By name; None stands for a missing answer.

    Raises
    ------
    InvalidInput
        If the file does not hold them. The message contains no answer.
    """
    path, column = locate(source, _NAMED)
    reader = find_reader(path, _READERS)
    if column is not None and len(asked) > 1:
        raise InvalidInput(
            f"this release asks for several answers: name {path} without a column, and its columns "
            f"{', '.join(part.name for part in asked)}"
        )
    wanted = [part.name for part in asked] if column is None else [column]
    columns = reader(path, wanted)
    bare = path.suffix.lower() == ".csv" and None in columns
    if len(asked) == 1 and column is None and len(columns) == 1:
        columns = {wanted[0]: next(iter(columns.values()))}
    missing = [name for name in wanted if name not in columns]
    if missing:
        hint = f"; select one as {path}:COLUMN" if len(asked) == 1 else ""
        raise InvalidInput(f"{path} has no column {missing[0]!r}{hint}")
    pairs = zip(wanted, asked, strict=True)
    return {part.name: _read(columns[name], part, path, bare=bare) for name, part in pairs}


def _read(values: list[Any], part: Asked, path: Path, *, bare: bool) -> list[Any]:
    """Return answers as Python values; text that stands for a number becomes one.

    ``bare`` tells that no row was read as a header.
    """
    if isinstance(part, Classes):
        return values
    numbers = []
    for index, value in enumerate(values):
        try:
            numbers.append(float(value) if isinstance(value, str) else value)
        except ValueError:
            hint = f"; if it is a header, it must be {part.name!r} or left out" * (
                bare and not index
            )
            raise InvalidInput(
                f"entry {index} of {part.name!r} in {path} is not a number{hint}"
            ) from None
    return numbers


def _answers_from_csv(path: Path, wanted: list[str]) -> Columns:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise InvalidInput(f"{path} is not a .csv file in UTF-8") from None
    if not rows:
        raise InvalidInput(f"{path} is empty")
    width = len(rows[0])
    for line, row in enumerate(rows, 1):
        if len(row) != width and (row or width > 1):
            raise InvalidInput(f"row {line} of {path} has {len(row)} columns, not {width}")
    named = width > 1 or rows[0][0] in wanted
    if not named:
        return {None: [row[0] or None if row else None for row in rows]}
    header = rows[0]
    for name in wanted:
        if header.count(name) != 1:
            problem = "more than one column" if name in header else "no column"
            raise InvalidInput(f"{path} has {problem} {name!r}; its first row names the columns")
    places = {name: header.index(name) for name in wanted}
    return {
        name: [row[at] or None if row else None for row in rows[1:]] for name, at in places.items()
    }


def _answers_from_txt(path: Path, wanted: list[str]) -> Columns:
    try:
        return {None: [line or None for line in path.read_text("utf-8-sig").splitlines()]}
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8 text; save it as UTF-8") from None


def _answers_from_json(path: Path, wanted: list[str]) -> Columns:
    content = _json_of(path)
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        # An object per vector; an absent name is a missing answer.
        names = set().union(*content)
        return {name: [row.get(name) for row in content] for name in wanted if name in names}
    if isinstance(content, list):
        return {None: content}
    if isinstance(content, dict) and all(isinstance(part, list) for part in content.values()):
        return dict(content)
    raise InvalidInput(f"{path} must hold a list of answers, or an object of such lists by name")


def _answers_from_arrays(path: Path, wanted: list[str]) -> Columns:
    if path.suffix.lower() == ".npy":
        return {None: _column(read_array(str(path)), path)}
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile:
        raise InvalidInput(f"{path} is not a readable .npz file") from None
    selected = wanted if set(wanted) <= set(names) else names
    return {name: _column(read_array(f"{path}:{name}"), path) for name in selected}


def _column(array: Any, path: Path) -> list[Any]:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iufbU":
        raise InvalidInput(
            f"{path} must hold one answer per vector, text or numbers, got an array of shape "
            f"{array.shape} and dtype {array.dtype}"
        )
    values: list[Any] = array.tolist()
    return values


def _answers_from_parquet(path: Path, wanted: list[str]) -> Columns:
    pa = arrow()
    try:
        names = pa.parquet.read_schema(path).names
        selected = wanted if set(wanted) <= set(names) else names
        table = pa.parquet.read_table(path, columns=selected)
        return {name: table.column(name).to_pylist() for name in selected}
    except pa.ArrowException:
        # Not its text, which may show the contents.
        raise InvalidInput(f"{path} is not a readable .parquet file") from None


def _json_of(path: Path) -> Any:
    check_input(path)
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError):
        # Not its text, which may show the contents.
        raise InvalidInput(f"{path} is not valid JSON in UTF-8") from None


_READERS: Final[dict[str, Callable[[Path, list[str]], Columns]]] = {
    ".csv": _answers_from_csv,
    ".txt": _answers_from_txt,
    ".json": _answers_from_json,
    ".npy": _answers_from_arrays,
    ".npz": _answers_from_arrays,
    ".parquet": _answers_from_parquet,
}
