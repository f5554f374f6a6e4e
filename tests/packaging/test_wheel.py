"""The wheel is whole, and works where nothing but its dependencies is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
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


def test_a_collector_is_asked_for_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    package.collects(Path(sys.executable))
    monkeypatch.setattr(package, "PAGES", ("/readyz", "/lost.html"))
    with pytest.raises(SystemExit, match=r"/lost\.html answers 404"):
        package.collects(Path(sys.executable))


def test_nobody_answers_for_a_collector_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its port there is another, which has every page."""
    script = tmp_path / "offaxis"
    script.write_text("#!/bin/sh\nsleep 1; echo no such thing >&2; exit 3\n")
    script.chmod(0o755)
    for page in package.PAGES:
        (tmp_path / page[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page[1:]).touch()
    files = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), files) as other:
        monkeypatch.setattr(package, "free_port", lambda: other.server_port)
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            with pytest.raises(SystemExit, match="ended with code 3\nno such thing"):
                package.collects(tmp_path / "python")
        finally:
            other.shutdown()
            thread.join()
