"""Missing programs are installed, or tests that need them are skipped."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import NO_INSTALL, find_program, install_package

MISSING = "no-such-program"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the commands that would run, and run none of them."""
    recorded: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: recorded.append(command))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(
        shutil, "which", lambda name: None if name == MISSING else f"/usr/bin/{name}"
    )
    monkeypatch.delenv(NO_INSTALL, raising=False)
    return recorded


def test_a_program_on_the_path_is_returned(commands: list[list[str]]) -> None:
    assert find_program("sh") == "/usr/bin/sh"
    assert commands == []


def test_a_missing_program_is_installed(commands: list[list[str]]) -> None:
    with pytest.raises(
        pytest.fail.Exception, match=f"need {MISSING} on the PATH: install a-package"
    ):
        find_program(MISSING, package="a-package")
    update, install = commands
    assert update[-1] == "update"
    assert install[-3:] == ["install", "-y", "a-package"]


def test_nothing_is_installed_without_root(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    install_package("a-package")
    assert commands == []


def test_tests_are_skipped_if_installing_is_forbidden(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NO_INSTALL, "1")
    with pytest.raises(pytest.skip.Exception, match="a-package is not installed, and OFFAXIS_NO"):
        find_program(MISSING, package="a-package")
    assert commands == []
    assert find_program("sh") == "/usr/bin/sh"


def test_contributing_documents_the_variable() -> None:
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    assert f"{NO_INSTALL}=1" in page
