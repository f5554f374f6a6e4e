from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, assert_fails, assert_misused
from tests.experiments.data import tiny


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a cache to be, an own copy of MNIST, and an empty registry."""
    tiny.use_tiny(monkeypatch)
    monkeypatch.setattr("experiments.data.cache.importlib.util.find_spec", lambda name: None)
    tiny.Registry(tmp_path, monkeypatch)
    tiny.mnist_folder(tmp_path / "own", packed=True)
    monkeypatch.setenv("OFFAXIS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_list_names_every_set_and_how_to_get_it(shop: Path, run: Run) -> None:
    told = run("data", "list")
    assert told.exit_code == 0, told.output
    for words in ("mnist", "cifar10-c", "bundled", "139", str(shop / "cache")):
        assert words in told.stdout
    facts = json.loads(run("data", "list", "--json", "--cache", shop / "other").stdout)
    assert facts["cache"] == str(shop / "other")
    states = {each["name"]: each for each in facts["sets"]}
    assert list(states) == ["mnist", "cifar10", "cifar10-c", "lhsm", "digits"]
    assert not states["mnist"]["ready"]
    assert states["lhsm"]["ready"]


def test_get_an_own_copy(shop: Path, run: Run) -> None:
    told = run("data", "get", "mnist", "--from", shop / "own")
    assert told.exit_code == 0, told.output
    assert told.stdout == f"mnist is ready: {shop / 'cache' / 'mnist.safetensors'}\n"
    facts = json.loads(run("data", "get", "mnist", "--json").stdout)
    path = str(shop / "cache" / "mnist.safetensors")
    assert facts == {"name": "mnist", "path": path, "already": True}
    sets = json.loads(run("data", "list", "--json").stdout)["sets"]
    assert sets[0]["ready"]
    assert sets[0]["bytes"] == Path(path).stat().st_size


def test_a_cache_by_option(shop: Path, run: Run) -> None:
    told = run("data", "get", "mnist", "--from", shop / "own", "--cache", shop / "mine")
    assert told.exit_code == 0, told.output
    assert (shop / "mine" / "mnist.safetensors").is_file()
    assert not (shop / "cache").exists()


def test_what_is_installed_needs_no_cache(shop: Path, run: Run) -> None:
    told = run("data", "get", "lhsm")
    assert told.stdout == "lhsm was already here: part of an installed package\n"
    assert not (shop / "cache").exists()


def test_errors_are_one_line(shop: Path, run: Run) -> None:
    assert_misused(run("data", "get", "imagenet"), "choose one of mnist, cifar10")
    assert_misused(run("data", "get", "cifar"), "there is no data set 'cifar'; did you mean")
    assert_fails(run("data", "get", "cifar10"), 3, "Try again when online", "--from PATH")
    assert_fails(run("data", "get", "mnist", "--from", shop / "none"), 3, "there is no")
