from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from offaxis.cli.inputs import read_csv
from offaxis.errors import InvalidInput


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    file = path / "a.csv"
    file.write_bytes(text.encode(encoding))
    return file


@pytest.mark.parametrize(
    "text",
    [
        "1.5,2\n3,-4e2\n",
        "x,y\n1.5,2\n3,-4e2\n",
        '"first, really",y\r\n1.5,2\r\n3,-4e2\r\n',
        "\n\n1.5,2\n\n3,-4e2",
        " 1.5 , 2 \n3, -4e2\n",
    ],
)
def test_with_and_without_a_header(tmp_path: Path, text: str) -> None:
    np.testing.assert_array_equal(read_csv(write(tmp_path, text)), [[1.5, 2.0], [3.0, -400.0]])


def test_a_byte_order_mark_is_no_header(tmp_path: Path) -> None:
    table = read_csv(write(tmp_path, "1,2\n3,4\n", "utf-8-sig"))
    np.testing.assert_array_equal(table, [[1, 2], [3, 4]])


def test_one_row_and_one_column_keep_their_shape(tmp_path: Path) -> None:
    assert read_csv(write(tmp_path, "1.5,2,3\n")).shape == (1, 3)
    assert read_csv(write(tmp_path, "1.5\n2\n3\n")).shape == (3, 1)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("label\n3\n1\n", "i"),
        ("-3\n+1\n", "i"),
        ("3.0\n1\n", "f"),
        ("3e0\n1\n", "f"),
        ("90071992547409930\n1\n", "f"),
        ("nan\n1\n", "f"),
        ("1.5.x\n3\n", "i"),
    ],
)
def test_numbers_without_a_point_are_whole(tmp_path: Path, text: str, kind: str) -> None:
    assert read_csv(write(tmp_path, text)).dtype.kind == kind


def test_missing_numbers_stay_visible_for_the_release_to_refuse(tmp_path: Path) -> None:
    assert np.isnan(read_csv(write(tmp_path, "nan,2\n3,inf\n"))[0, 0])


def test_a_header_alone_is_an_empty_table(tmp_path: Path) -> None:
    assert read_csv(write(tmp_path, "x,y\n")).size == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("0,1,2\n0.5,0.5,0.5\n", "column names or a vector"),
        (",x,y\n0,1.5,2\n", "neither numbers nor column names"),
        ("1.5,N/A\n3,4\n", "neither numbers nor column names"),
        ("1.5,\n3,4\n", "neither numbers nor column names"),
        ("1.5,2\n3,n/a\n", "not a table of numbers"),
        ("1.5,2\n3\n", "not a table of numbers"),
        ("1.5;2\n3;4\n", "not a table of numbers"),
    ],
)
def test_what_is_ambiguous_or_broken_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_csv(write(tmp_path, text))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x01\n")
    with pytest.raises(InvalidInput, match="not a table of numbers"):
        read_csv(tmp_path / "a.csv")


@pytest.mark.parametrize("text", ["1,2\n3,secret99\n", "0.5,secret99\n1,2\n"])
def test_a_bad_cell_is_placed_but_never_shown(tmp_path: Path, text: str) -> None:
    """The cell may be private, and messages end up in logs."""
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_csv(path)
    assert "secret99" not in str(caught.value)
    assert "0.5" not in str(caught.value)
    assert "row" in str(caught.value)
