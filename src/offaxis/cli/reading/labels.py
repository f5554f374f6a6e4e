"""Group labels from files, one a report, read a part at a time: text or whole numbers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from offaxis.cli.reading.arrays import NAMED, locate, read_array, reader_of
from offaxis.engines.columns import arrow
from offaxis.errors import InvalidInput

Label = str | int
_NAMED: Final = (".csv", *NAMED)
_ROWS: Final = 1 << 14


def locate_labels(source: str) -> tuple[Path, str | None]:
    """Split ``file.csv:column`` into the file and the column."""
    return locate(source, _NAMED)


def read_labels(source: str, count: int) -> Iterator[Label]:
    """Give the labels of a file, of which there must be ``count``.

    Parameters
    ----------
    source : str
        ``file.csv:column`` of a file with a header; a .csv file of one column without a header; a
        .txt file with one label a line; a .npy, .npz or .parquet file of text or whole numbers.
        Labels of .csv and .txt files are text as it stands.

    Raises
    ------
    InvalidInput
        At once if there is no such file; on the way if it is damaged, a label is missing, or there
        are more or fewer than ``count``.
    """
    path, name = locate_labels(source)
    reader = reader_of(path, _READERS)
    if path.suffix.lower() == ".parquet":
        arrow()
    return _exactly(reader(path, name), count, path, headless=_headless(path, name))


def _headless(path: Path, name: str | None) -> bool:
    return path.suffix.lower() == ".csv" and name is None


def _exactly(labels: Iterator[Label], count: int, path: Path, *, headless: bool) -> Iterator[Label]:
    seen = 0
    for seen, label in enumerate(labels, 1):
        if seen <= count:
            yield label
    if seen == count:
        return
    hint = f"; if the first row names the column, say {path}:NAME" if headless else ""
    hint = hint if seen == count + 1 else ""
    raise InvalidInput(f"{path} must hold one label a report, {count:,}, but holds {seen:,}{hint}")


def _checked(label: str, path: Path, line: int) -> str:
    if not label.strip():
        raise InvalidInput(f"line {line} of {path} holds no label; every report needs one")
    return label


def _from_txt(path: Path, name: str | None) -> Iterator[Label]:
    with _text(path) as file:
        try:
            for line, text in enumerate(file, 1):
                yield _checked(text.rstrip("\r\n"), path, line)
        except UnicodeDecodeError:
            raise _not_text(path) from None


def _from_csv(path: Path, name: str | None) -> Iterator[Label]:
    with _text(path) as file:
        rows = csv.reader(file, strict=True)
        try:
            at, width = (0, 1) if name is None else _column(path, name, next(rows, []))
            for row in rows:
                # The content is not repeated: it may be somebody's.
                if row and len(row) != width:
                    wanted = "say which column: FILE:COLUMN" if name is None else "mend the row"
                    raise InvalidInput(
                        f"line {rows.line_num} of {path} has {len(row)} columns, not {width}; "
                        f"{wanted}"
                    )
                yield _checked(row[at] if row else "", path, rows.line_num)
        except UnicodeDecodeError:
            raise _not_text(path) from None
        except csv.Error as error:
            raise InvalidInput(f"{path}, line {rows.line_num}: {error}") from None


def _column(path: Path, name: str, header: list[str]) -> tuple[int, int]:
    if header.count(name) != 1:
        wrong = "more than one column" if name in header else "no column"
        raise InvalidInput(f"{path} has {wrong} {name!r}; its first row is {', '.join(header)}")
    return header.index(name), len(header)


def _text(path: Path) -> Any:
    return path.open(encoding="utf-8-sig", newline="")


def _not_text(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} is not UTF-8 text; save it as such")


def _from_array(path: Path, name: str | None) -> Iterator[Label]:
    array = read_array(str(path) if name is None else f"{path}:{name}")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iubU":
        raise InvalidInput(
            f"{path} must hold one label a report, text or a whole number, got an array of shape "
            f"{array.shape} and dtype {array.dtype}; convert it, for example with .astype(str)"
        )
    for start in range(0, len(array), _ROWS):
        yield from array[start : start + _ROWS].tolist()


def _from_parquet(path: Path, name: str | None) -> Iterator[Label]:
    pa = arrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            chosen = names[0] if name is None and len(names) == 1 else name
            if chosen not in names:
                raise InvalidInput(f"choose a column of {path}: {', '.join(names)}, as FILE:COLUMN")
            _check_kind(pa, path, file.schema_arrow.field(chosen).type)
            for batch in file.iter_batches(_ROWS, columns=[chosen]):
                if batch.column(0).null_count:
                    raise InvalidInput(f"{path} has missing labels; every report needs one")
                yield from batch.column(0).to_pylist()
    except pa.ArrowException as error:
        raise InvalidInput(f"{path} is not a readable .parquet file: {error}") from None


def _check_kind(pa: Any, path: Path, kind: Any) -> None:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    if not any(test(inner) for test in tests):
        raise InvalidInput(f"labels must be text or whole numbers; the column of {path} is {kind}")


_READERS: Final[dict[str, Callable[[Path, str | None], Iterator[Label]]]] = {
    ".csv": _from_csv,
    ".txt": _from_txt,
    ".npy": _from_array,
    ".npz": _from_array,
    ".parquet": _from_parquet,
}
