from __future__ import annotations

from pathlib import Path

import pytest

from offaxis.cli.inputs import check_input, check_new, check_output
from offaxis.errors import InvalidInput


def test_paths_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="it is a folder"):
        check_output(tmp_path)
    with pytest.raises(InvalidInput, match="there is no folder"):
        check_output(tmp_path / "nowhere" / "out")


def test_an_input_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no file"):
        check_input(tmp_path / "missing")
    with pytest.raises(InvalidInput, match="there is no file"):
        check_input(tmp_path)


def test_what_is_there_is_replaced_by_force_alone(tmp_path: Path) -> None:
    check_new(tmp_path / "new", "it is gone", force=False)
    with pytest.raises(InvalidInput, match=r"is already there, and it is gone; .* or --force"):
        check_new(tmp_path, "it is gone", force=False)
    check_new(tmp_path, "it is gone", force=True)


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.touch()
    (tmp_path / "same").hardlink_to(source)
    check_output(tmp_path / "out", source, tmp_path / "missing")
    with pytest.raises(InvalidInput, match="is an input of this command"):
        check_output(tmp_path / "same", source)
