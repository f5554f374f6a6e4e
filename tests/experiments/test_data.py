from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, assert_fails, assert_usage_error
from tests.experiments.data import tiny


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a local copy of MNIST, an empty registry, and no cache yet."""
    tiny.use_tiny(monkeypatch)
    monkeypatch.setattr("experiments.data.cache.importlib.util.find_spec", lambda name: None)
    tiny.Registry(tmp_path, monkeypatch)
    tiny.mnist_folder(tmp_path / "local", packed=True)
    monkeypatch.setenv("OFFAXIS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_list_shows_every_data_set_and_how_to_get_it(folder: Path, run: Run) -> None:
    result = run("data", "list")
    assert result.exit_code == 0, result.output
    for words in ("mnist", "cifar10-c", "bundled", "139", str(folder / "cache")):
        assert words in result.stdout
    facts = json.loads(run("data", "list", "--json", "--cache", folder / "other").stdout)
    assert facts["cache"] == str(folder / "other")
    states = {entry["name"]: entry for entry in facts["sets"]}
    assert list(states) == ["mnist", "cifar10", "cifar10-c", "lhsm", "digits"]
    assert not states["mnist"]["ready"]
    assert states["lhsm"]["ready"]


def test_a_local_copy_is_cached(folder: Path, run: Run) -> None:
    result = run("data", "get", "mnist", "--from", folder / "local")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"mnist is ready: {folder / 'cache' / 'mnist.safetensors'}\n"
    facts = json.loads(run("data", "get", "mnist", "--json").stdout)
    path = str(folder / "cache" / "mnist.safetensors")
    assert facts == {"name": "mnist", "path": path, "already": True}
    sets = json.loads(run("data", "list", "--json").stdout)["sets"]
    assert sets[0]["ready"]
    assert sets[0]["bytes"] == Path(path).stat().st_size


def test_the_cache_can_be_chosen_by_option(folder: Path, run: Run) -> None:
    result = run("data", "get", "mnist", "--from", folder / "local", "--cache", folder / "mine")
    assert result.exit_code == 0, result.output
    assert (folder / "mine" / "mnist.safetensors").is_file()
    assert not (folder / "cache").exists()


def test_bundled_data_need_no_cache(folder: Path, run: Run) -> None:
    result = run("data", "get", "lhsm")
    assert result.stdout == "lhsm was already available: bundled\n"
    assert not (folder / "cache").exists()


def test_errors_are_one_line(folder: Path, run: Run) -> None:
    assert_usage_error(run("data", "get", "imagenet"), "choose one of mnist, cifar10")
    assert_usage_error(run("data", "get", "cifar"), "there is no data set 'cifar'; did you mean")
    assert_fails(run("data", "get", "cifar10"), 3, "Try again when online", "--from PATH")
    assert_fails(run("data", "get", "mnist", "--from", folder / "none"), 3, "none not found")
