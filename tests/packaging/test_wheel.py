"""The wheel is complete, and works in an environment with only its dependencies."""

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


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_wheel_has_every_tracked_file_and_valid_metadata(wheel: Path) -> None:
    try:
        package.tracked()
    except subprocess.CalledProcessError:
        pytest.skip("not a git clone")
    assert package.faults_of_wheel(wheel) == []


def test_a_missing_or_extra_file_in_the_wheel_is_reported(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = {f"src/{name}" for name in package.contents(wheel) if name.startswith("offaxis/")}
    monkeypatch.setattr(package, "tracked", lambda *_: packed | {"src/offaxis/lost.html"})
    assert package.faults_of_wheel(wheel) == ["the wheel lacks offaxis/lost.html"]
    monkeypatch.setattr(package, "tracked", lambda *_: packed - {"src/offaxis/py.typed"})
    assert package.faults_of_wheel(wheel) == ["the wheel has offaxis/py.typed, which git ignores"]


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    python = package.install(wheel, tmp_path / "empty")
    output = package.smoke(python)
    assert output.startswith("offaxis ")
    assert " works; " in output


def test_the_pages_of_a_collector_are_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    package.check_collector(Path(sys.executable))
    monkeypatch.setattr(package, "PAGES", ("/readyz", "/lost.html"))
    with pytest.raises(SystemExit, match=r"/lost\.html responds with 404"):
        package.check_collector(Path(sys.executable))


def test_a_collector_that_does_not_start_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if another server on the same port serves every page."""
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
                package.check_collector(tmp_path / "python")
        finally:
            other.shutdown()
            thread.join()
