"""The wheel is whole, and works where nothing but its dependencies is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tools import package


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package.build(tmp_path_factory.mktemp("dist"), "--wheel", isolated=False)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_the_wheel_has_every_tracked_file_and_sound_metadata(wheel: Path) -> None:
    try:
        package.tracked()
    except subprocess.CalledProcessError:
        pytest.skip("this is not a clone")
    assert package.faults_of_wheel(wheel) == []


def test_a_wheel_that_lacks_a_file_is_found(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {f"src/{name}" for name in package.contents(wheel) if name.startswith("offaxis/")}
    monkeypatch.setattr(package, "tracked", lambda *_: there | {"src/offaxis/lost.html"})
    assert package.faults_of_wheel(wheel) == ["the wheel lacks offaxis/lost.html"]
    monkeypatch.setattr(package, "tracked", lambda *_: there - {"src/offaxis/py.typed"})
    assert package.faults_of_wheel(wheel) == ["the wheel has offaxis/py.typed, which git ignores"]


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    python = package.install(wheel, tmp_path / "empty")
    said = package.smoke(python)
    assert said.startswith("offaxis ")
    assert " works; " in said
