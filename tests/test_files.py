"""Files are written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offaxis.errors import InvalidInput
from offaxis.files import replacing


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with replacing(target) as file:
        file.write(b"half")
        assert not target.exists()
    assert target.read_bytes() == b"half"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_keeps_the_previous_file(tmp_path: Path, failure: type[BaseException]) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")

    def interrupted() -> None:
        with replacing(target) as file:
            file.write(b"new")
            raise failure

    with pytest.raises(failure):
        interrupted()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_path_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "folder"):
        with pytest.raises(InvalidInput, match="cannot write"), replacing(path) as file:
            file.write(b"x")
    assert list(tmp_path.iterdir()) == []


def test_the_umask_applies(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with replacing(tmp_path / "out") as file:
            file.write(b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_a_symlink_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with replacing(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
