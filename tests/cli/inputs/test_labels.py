"""Labels are read from every format, one a report, and nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offaxis.cli.decode import read_labels
from offaxis.errors import InvalidInput

TEXT = ["north", "south, far", "Zürich", "north"]


def save(path: Path, labels: list[str] | list[int]) -> None:
    if path.suffix == ".npy":
        np.save(path, np.array(labels))
    elif path.suffix == ".npz":
        np.savez(path, place=np.array(labels), other=np.zeros(2))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({"place": labels, "id": list(range(len(labels)))}), path)
    else:
        path.write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")


@pytest.mark.parametrize("name", ["a.npy", "a.npz:place", "a.parquet:place", "a.txt"])
def test_text_of_every_format(tmp_path: Path, name: str) -> None:
    save(tmp_path / name.split(":")[0], TEXT)
    assert list(read_labels(str(tmp_path / name), 4)) == TEXT


@pytest.mark.parametrize("name", ["a.npy", "a.npz:place", "a.parquet:place"])
def test_whole_numbers_stay_numbers(tmp_path: Path, name: str) -> None:
    save(tmp_path / name.split(":")[0], [3, 1, 3])
    found = list(read_labels(str(tmp_path / name), 3))
    assert found == [3, 1, 3]
    assert all(type(label) is int for label in found)


def test_a_column_of_a_table(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text('﻿id,place\n1,north\n2,"south, far"\n', encoding="utf-8")
    assert list(read_labels(f"{file}:place", 2)) == ["north", "south, far"]
    assert list(read_labels(f"{file}:id", 2)) == ["1", "2"]


def test_a_csv_without_a_column_has_no_header(tmp_path: Path) -> None:
    file = tmp_path / "place.csv"
    file.write_text("place\nnorth\nsouth\n")
    assert list(read_labels(str(file), 3)) == ["place", "north", "south"]
    with pytest.raises(InvalidInput, match=r"2, but holds 3; if the first row names .*:NAME"):
        list(read_labels(str(file), 2))


def test_categories_are_labels(tmp_path: Path) -> None:
    column = pa.array(TEXT).dictionary_encode()
    pq.write_table(pa.table({"place": column}), tmp_path / "a.parquet")
    assert list(read_labels(str(tmp_path / "a.parquet"), 4)) == TEXT


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("name", ["a.npy", "a.npz:place", "a.parquet:place", "a.txt"])
def test_another_number_of_labels(tmp_path: Path, name: str, count: int) -> None:
    save(tmp_path / name.split(":")[0], TEXT)
    with pytest.raises(InvalidInput, match=f"one label a report, {count}, but holds 4$"):
        list(read_labels(str(tmp_path / name), count))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"north\n\nsouth\n", "line 2 .* holds no label"),
        ("a.csv", b"north\n\nsouth\n", "line 2 .* holds no label"),
        ("a.csv", b"north,1\n", "line 1 .* has 2 columns, not 1; say which column"),
        ("a.csv:place", b"id,place\n1\n", "line 2 .* has 1 columns, not 2"),
        ("a.csv:town", b"id,place\n1,north\n", "no column 'town'.*id, place"),
        ("a.csv:a", b"a,a\n1,2\n", "more than one column 'a'"),
        ("a.csv", b'"north\n', "line"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.csv", b"\xff\xfe", "not UTF-8"),
        ("a.parquet", b"PAR", "not a readable .parquet"),
        ("a.npy", b"NUM", "not a readable .npy"),
        ("a.xlsx", b"", "must be a file of type"),
    ],
)
def test_files_that_hold_no_labels(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name.split(":")[0]).write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        list(read_labels(str(tmp_path / name), 2))


@pytest.mark.parametrize("array", [np.ones(2), np.ones((2, 2), int), np.array([b"a", b"b"])])
def test_arrays_that_are_no_labels(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InvalidInput, match=r"text or a whole number.*astype\(str\)"):
        list(read_labels(str(tmp_path / "a.npy"), 2))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a", None]), "missing labels"),
        (pa.array([1.0, 2.0]), "text or whole numbers; the column .* is double"),
        (pa.array([[1], [2]]), "text or whole numbers"),
    ],
)
def test_columns_that_are_no_labels(tmp_path: Path, column: pa.Array, message: str) -> None:
    pq.write_table(pa.table({"place": column}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=message):
        list(read_labels(str(tmp_path / "a.parquet"), 2))


def test_a_column_must_be_chosen(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", TEXT)
    with pytest.raises(InvalidInput, match=r"choose a column .* place, id"):
        list(read_labels(str(tmp_path / "a.parquet"), 4))


def test_a_missing_file_is_known_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no file"):
        read_labels(str(tmp_path / "a.txt"), 2)
