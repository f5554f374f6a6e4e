"""A working folder with real files, and a function that runs the command line in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import offaxis
from offaxis.cli.app import app
from offaxis.geometry import Layers

DIM = 5
CLASSES = 3

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def small_head() -> Layers:
    rng = np.random.default_rng(3)
    shapes = [(4, DIM), (CLASSES, 4)]
    weights = [rng.standard_normal(shape) for shape in shapes]
    biases = [rng.standard_normal(rows) for rows, _ in shapes]
    # All answers occur for the vectors of the tests.
    vectors = np.random.default_rng(4).standard_normal((1000, DIM))
    biases[-1] -= Layers(weights, biases).outputs(vectors).mean(axis=0)
    return Layers(weights, biases, name="small head")


@pytest.fixture(scope="session")
def releases(small_head: Layers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three releases: laplace, gaussian and privunit2."""
    folder = tmp_path_factory.mktemp("releases")
    vectors = np.random.default_rng(4).standard_normal((60, DIM))
    offaxis.fit(
        small_head, vectors, epsilon=5, statement="made up for a test", mechanism="laplace"
    ).save(folder / "laplace.release")
    offaxis.fit(small_head, vectors, epsilon=2, mechanism="gaussian", delta=1e-5, unit="user").save(
        folder / "gaussian.release"
    )
    offaxis.fit(small_head, vectors, epsilon="7/2", mechanism="privunit2").save(
        folder / "privunit2.release"
    )
    return folder


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_head: Layers, releases: Path
) -> Path:
    """Return the current folder, which holds a model, vectors, labels and three releases."""
    rng = np.random.default_rng(5)
    small_head.save(tmp_path / "head.safetensors")
    np.save(tmp_path / "public.npy", rng.standard_normal((60, DIM)))
    np.save(tmp_path / "private.npy", rng.standard_normal((7, DIM)))
    np.save(tmp_path / "labels.npy", rng.integers(0, CLASSES, 7))
    for release in releases.iterdir():
        (tmp_path / release.name).write_bytes(release.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run() -> Run:
    """Return a function that runs the command with arguments."""
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


def assert_usage_error(result: Result, *words: str) -> None:
    """Check for a usage error: exit code 2, the usage of the command, and the message."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: ")
    # The message is printed in a box, which breaks its lines.
    message = " ".join(result.stderr.translate(str.maketrans("", "", "│╭╮╰╯─")).split())
    for word in words:
        assert word in message, message


def assert_fails(result: Result, code: int, *words: str) -> None:
    """Check the exit code, and that the message is one line on standard error."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr
