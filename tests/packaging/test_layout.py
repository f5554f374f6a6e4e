"""A concept has one file, and a report crosses few of them (CONTRIBUTING.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.layout import (
    LONGEST_FILE,
    LONGEST_PATHS,
    report_path,
    small_with_one_importer,
    source_files,
)


def test_no_file_is_too_long():
    long = {str(file.path): file.lines for file in source_files() if file.lines > LONGEST_FILE}
    assert not long


def test_no_small_file_serves_a_single_importer():
    assert not [file.module for file in small_with_one_importer(source_files())]


def test_a_small_file_with_one_importer_is_found(tmp_path: Path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text('"""Two lines of docstring,\n\nno code."""\n\nONE = 1\n')
    (package / "user.py").write_text("from package.helper import ONE\n\nprint(ONE)\n")
    files = source_files(package)
    assert [file.module for file in small_with_one_importer(files)] == ["package.helper"]
    assert {file.module: (file.code, file.import_lines) for file in files} == {
        "package": (0, 0),
        "package.helper": (1, 0),
        "package.user": (2, 1),
    }


@pytest.mark.parametrize(("mechanism", "most"), LONGEST_PATHS.items())
def test_a_report_crosses_few_files(mechanism: str, most: int):
    path = report_path(mechanism)
    assert "release.py" in path
    assert "formats/reports.py" in path
    assert len(path) <= most, path
