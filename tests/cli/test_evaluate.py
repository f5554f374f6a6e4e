from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import offaxis
from offaxis.evaluation import evaluate
from offaxis.geometry import Layers
from tests.cli.conftest import CLASSES, Run, assert_fails

COMMAND = ("evaluate", "laplace.release", "--model", "head.safetensors", "--vectors", "private.npy")


def test_scores_are_those_of_the_library(desk: Path, run: Run, small_head: Layers) -> None:
    result = run(*COMMAND, "--targets", "labels.npy", "--seeds", "3", "--seed", "8", "--json")
    facts = json.loads(result.stdout)
    release = offaxis.load("laplace.release")
    expected = evaluate(
        release, small_head, np.load("private.npy"), np.load("labels.npy"), seeds=3, seed=8
    )
    assert facts["release"] == release.hash
    assert set(facts["metrics"]) == {"accuracy", "agreement", "output_rmse"}
    for name, scores in facts["metrics"].items():
        assert scores["runs"] == expected.runs[name].tolist()
        assert scores["without_privacy"] == expected.clean[name]
        assert scores["mean"] == expected.mean(name)


def test_the_table_for_people(desk: Path, run: Run) -> None:
    result = run(*COMMAND, "--targets", "labels.npy", "--seeds", "1")
    assert "7 vectors, 1 repetition with simulated reports" in result.stdout
    for word in ("accuracy", "agreement", "output_rmse", "without privacy", "with the release"):
        assert word in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_exact_draws_real_reports(desk: Path, run: Run) -> None:
    once, again = (
        json.loads(run(*COMMAND, "--exact", "--seeds", "2", "--json").stdout) for _ in "ab"
    )
    assert once["exact"] is True
    assert once["seed"] is None
    assert once["metrics"]["output_rmse"] != again["metrics"]["output_rmse"]
    assert "real reports" in run(*COMMAND, "--exact", "--seeds", "2").stdout


def test_labels_and_targets_from_csv(desk: Path, run: Run, small_head: Layers) -> None:
    np.savetxt("labels.csv", np.load("labels.npy"), fmt="%d", header="label", comments="")
    facts = json.loads(run(*COMMAND, "--targets", "labels.csv", "--seeds", "2", "--json").stdout)
    assert "accuracy" in facts["metrics"]
    np.savetxt("targets.csv", small_head.outputs(np.load("private.npy")), delimiter=",")
    facts = json.loads(run(*COMMAND, "--targets", "targets.csv", "--seeds", "2", "--json").stdout)
    assert facts["metrics"]["rmse"]["without_privacy"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "privunit2"])
def test_every_randomizer_is_evaluated_simulated_and_exactly(
    desk: Path, run: Run, name: str
) -> None:
    arguments = ("evaluate", f"{name}.release", *COMMAND[2:], "--seeds", "2")
    assert "simulated reports" in run(*arguments).stdout
    assert "real reports" in run(*arguments, "--exact").stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--targets", "short.npy"), "targets must be 7"),
        (("--targets", "high.npy"), f"labels must be integers 0 … {CLASSES - 1}"),
        (("--vectors", "missing.npy"), "there is no file"),
        (("--model", "missing.safetensors"), "there is no file"),
    ],
)
def test_bad_input(desk: Path, run: Run, options: tuple[str, ...], message: str) -> None:
    np.save("short.npy", np.zeros(6, dtype=int))
    np.save("high.npy", np.full(7, CLASSES))
    assert_fails(run(*COMMAND, *options), 3, message)
