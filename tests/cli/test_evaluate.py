from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import offaxis
from offaxis.evaluation import evaluate
from offaxis.geometry import Layers
from offaxis.mechanisms.scalar_channel import least_rmse
from offaxis.theory.ceilings import agreement_ceiling, answer_prior, reference_line
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


def test_every_share_stands_beside_its_bound_or_line(
    desk: Path, run: Run, small_head: Layers
) -> None:
    arguments = (*COMMAND, "--targets", "labels.npy", "--seeds", "2")
    metrics = json.loads(run(*arguments, "--json").stdout)["metrics"]
    ceiling = agreement_ceiling(answer_prior(small_head, np.load("private.npy")), 5).probability
    line = reference_line(metrics["accuracy"]["without_privacy"], CLASSES, 5)
    assert abs(ceiling - line) > 0.05, "a swap would show"
    found = metrics["agreement"]["limit"]
    assert (found["kind"], found["value"]) == ("at most", pytest.approx(ceiling))
    assert found["meaning"].startswith("a bound")
    found = metrics["accuracy"]["limit"]
    assert (found["kind"], found["value"]) == ("line", pytest.approx(line))
    assert found["meaning"].startswith("a line, not a bound")
    assert metrics["output_rmse"]["limit"] is None
    rows = {text.split()[0]: text for text in run(*arguments).stdout.splitlines() if text}
    assert f"≤ {100 * ceiling:.1f} %" in rows["agreement"]
    assert f"~ {100 * line:.1f} %" in rows["accuracy"]
    assert "a bound" in rows["≤"]
    assert "a line, not a bound" in rows["~"]


def test_a_promise_that_is_not_pure_has_a_line_but_no_bound(desk: Path, run: Run) -> None:
    arguments = ("evaluate", "gaussian.release", *COMMAND[2:], "--targets", "labels.npy")
    metrics = json.loads(run(*arguments, "--seeds", "2", "--json").stdout)["metrics"]
    assert metrics["accuracy"]["limit"]["kind"] == "line"
    assert metrics["agreement"]["limit"] is None
    assert "≤" not in run(*arguments, "--seeds", "2").stdout


def test_one_output_stands_beside_its_least_error(desk: Path, run: Run) -> None:
    public, private = np.load("public.npy"), np.load("private.npy")
    weights = np.arange(1.0, 6.0)[None]
    model = Layers.linear(weights, np.zeros(1))
    model.save("one.safetensors")
    offaxis.fit(model, public, epsilon=2).save("one.release")
    arguments = ("evaluate", "one.release", "--model", "one.safetensors", *COMMAND[4:])
    scores = json.loads(run(*arguments, "--seeds", "2", "--json").stdout)["metrics"]["output_rmse"]
    least = least_rmse(private @ weights[0], np.ones(len(private)), 2)
    assert 0 < scores["limit"]["value"] == pytest.approx(least)
    assert scores["limit"]["kind"] == "at least"
    assert f"≥ {least:.4g}" in run(*arguments, "--seeds", "2").stdout


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
