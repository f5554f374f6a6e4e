"""``offaxis evaluate``, and what theory predicts, which ``offaxis inspect`` shows as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offaxis
from offaxis import theory
from offaxis.evaluation import evaluate
from offaxis.geometry import Layers
from offaxis.mechanisms.scalar_channel import least_rmse
from offaxis.theory.ceilings import agreement_ceiling, answer_prior, reference_line
from offaxis.theory.table import CONDITIONS, label
from tests.cli.conftest import CLASSES, Run, assert_fails, assert_usage_error

COMMAND = ("evaluate", "laplace.release", "--model", "head.safetensors", "--vectors", "private.npy")


def test_metrics_are_those_of_the_library(workspace: Path, run: Run, small_head: Layers) -> None:
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


def test_the_table_fits_80_columns(workspace: Path, run: Run) -> None:
    result = run(*COMMAND, "--targets", "labels.npy", "--seeds", "1")
    assert "7 vectors, 1 repetition with simulated reports" in result.stdout
    for word in ("accuracy", "agreement", "output_rmse", "without privacy", "with the release"):
        assert word in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_the_table_shows_bounds_and_lines(workspace: Path, run: Run, small_head: Layers) -> None:
    arguments = (*COMMAND, "--targets", "labels.npy", "--seeds", "2")
    metrics = json.loads(run(*arguments, "--json").stdout)["metrics"]
    ceiling = agreement_ceiling(answer_prior(small_head, np.load("private.npy")), 5).probability
    line = reference_line(metrics["accuracy"]["without_privacy"], CLASSES, 5)
    assert abs(ceiling - line) > 0.05, "swapped values would be noticed"
    limit = metrics["agreement"]["limit"]
    assert (limit["kind"], limit["value"]) == ("at most", pytest.approx(ceiling))
    assert limit["meaning"].startswith("a bound")
    limit = metrics["accuracy"]["limit"]
    assert (limit["kind"], limit["value"]) == ("line", pytest.approx(line))
    assert limit["meaning"].startswith("a line, not a bound")
    assert metrics["output_rmse"]["limit"] is None
    rows = {text.split()[0]: text for text in run(*arguments).stdout.splitlines() if text}
    assert f"≤ {100 * ceiling:.1f} %" in rows["agreement"]
    assert f"~ {100 * line:.1f} %" in rows["accuracy"]
    assert "a bound" in rows["≤"]
    assert "a line, not a bound" in rows["~"]


def test_a_guarantee_that_is_not_pure_has_a_line_but_no_bound(workspace: Path, run: Run) -> None:
    arguments = ("evaluate", "gaussian.release", *COMMAND[2:], "--targets", "labels.npy")
    metrics = json.loads(run(*arguments, "--seeds", "2", "--json").stdout)["metrics"]
    assert metrics["accuracy"]["limit"]["kind"] == "line"
    assert metrics["agreement"]["limit"] is None
    assert "≤" not in run(*arguments, "--seeds", "2").stdout


def test_a_single_output_is_compared_with_its_least_error(workspace: Path, run: Run) -> None:
    public, private = np.load("public.npy"), np.load("private.npy")
    weights = np.arange(1.0, 6.0)[None]
    model = Layers.linear(weights, np.zeros(1))
    model.save("one.safetensors")
    offaxis.fit(model, public, epsilon=2, mechanism="laplace").save("one.release")
    arguments = ("evaluate", "one.release", "--model", "one.safetensors", *COMMAND[4:])
    scores = json.loads(run(*arguments, "--seeds", "2", "--json").stdout)["metrics"]["output_rmse"]
    least = least_rmse(private @ weights[0], np.ones(len(private)), 2)
    assert 0.98 * least < scores["limit"]["value"] <= least
    assert scores["limit"]["kind"] == "at least"
    assert f"≥ {scores['limit']['value']:.4g}" in run(*arguments, "--seeds", "2").stdout


def test_exact_makes_real_reports(workspace: Path, run: Run) -> None:
    first, second = (
        json.loads(run(*COMMAND, "--exact", "--seeds", "2", "--json").stdout) for _ in "ab"
    )
    assert first["exact"] is True
    assert first["seed"] is None
    assert first["metrics"]["output_rmse"] != second["metrics"]["output_rmse"]
    assert "real reports" in run(*COMMAND, "--exact", "--seeds", "2").stdout


def test_labels_and_targets_are_read_from_csv(
    workspace: Path, run: Run, small_head: Layers
) -> None:
    np.savetxt("labels.csv", np.load("labels.npy"), fmt="%d", header="label", comments="")
    facts = json.loads(run(*COMMAND, "--targets", "labels.csv", "--seeds", "2", "--json").stdout)
    assert "accuracy" in facts["metrics"]
    np.savetxt("targets.csv", small_head.outputs(np.load("private.npy")), delimiter=",")
    facts = json.loads(run(*COMMAND, "--targets", "targets.csv", "--seeds", "2", "--json").stdout)
    assert facts["metrics"]["rmse"]["without_privacy"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "privunit2"])
def test_every_mechanism_is_evaluated_simulated_and_exactly(
    workspace: Path, run: Run, name: str
) -> None:
    arguments = ("evaluate", f"{name}.release", *COMMAND[2:], "--seeds", "2")
    assert "simulated reports" in run(*arguments).stdout
    assert "real reports" in run(*arguments, "--exact").stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--targets", "short.npy"), "targets must be 7"),
        (("--targets", "high.npy"), f"labels must be integers 0 … {CLASSES - 1}"),
        (("--vectors", "missing.npy"), "file not found"),
        (("--model", "missing.safetensors"), "file not found"),
    ],
)
def test_invalid_input_exits_with_3(
    workspace: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    np.save("short.npy", np.zeros(6, dtype=int))
    np.save("high.npy", np.full(7, CLASSES))
    assert_fails(run(*COMMAND, *options), 3, message)


# ---- Theory


OPTIONS = ("--model", "head.safetensors", "--vectors", "private.npy", "--theory", "--seeds", "30")


def _theory(run: Run, *arguments: str) -> dict[str, dict[str, Any]]:
    result = run("evaluate", *arguments, "--json")
    assert result.exit_code == 0, result.output
    rows: dict[str, dict[str, Any]] = json.loads(result.stdout)["theory"]
    return rows


def test_theory_rows_are_those_of_the_library(
    workspace: Path, run: Run, small_head: Layers
) -> None:
    rows = _theory(run, "laplace.release", *OPTIONS, "--seed", "3")
    release, vectors = offaxis.load("laplace.release"), np.load("private.npy")
    arguments: Any = (release, small_head, vectors)
    risk = theory.first_order_risk(*arguments)
    measured = theory.nonlinear_risk(*arguments, draws=30, seed=3)
    bound = theory.remainder_bound(*arguments, draws=30, seed=3)
    answers = theory.disagreement_bound(*arguments, draws=30, seed=3)
    assert list(rows) == list(CONDITIONS)
    assert rows["noise_risk"]["theory"] == risk.noise
    assert rows["clipping_risk"]["theory"] == risk.clipping
    assert rows["first_order_risk"]["theory"] == risk.total
    assert rows["first_order_risk"]["measured"] == measured.mean
    assert rows["first_order_risk"]["standard_error"] == measured.standard_error
    assert rows["root_gap"]["theory"] == bound.root
    assert rows["root_gap_behind_first_layer"]["theory"] == bound.sharper_root
    assert rows["root_gap_of_leaving_reports"]["theory"] == bound.sharper_leaving_root
    assert rows["risk_gap"]["theory"] == bound.sharper_leaving_risk
    assert rows["risk_gap"]["measured"] == abs(measured.mean - risk.total)
    assert rows["disagreement"]["theory"] == answers.averaged
    assert rows["disagreement"]["measured"] == answers.measured.mean
    assert rows["stretch_l1"]["theory"] == theory.amplification(release).l1
    assert rows["stretch_l2"]["theory"] == theory.amplification(release).l2
    assert "'public vectors given' fails" in rows["public_private_gap"]["fails"]


def test_the_public_private_gap_needs_the_public_vectors_of_the_release(
    workspace: Path, run: Run, small_head: Layers
) -> None:
    offaxis.fit(small_head, np.load("public.npy"), epsilon=5, mechanism="laplace").save(
        "own.release"
    )
    rows = _theory(run, "own.release", *OPTIONS, "--public", "public.npy")
    gap = rows["public_private_gap"]
    assert gap["fails"] is None
    assert 0 < gap["measured"] < gap["theory"]
    other = run("evaluate", "own.release", *OPTIONS, "--public", "private.npy")
    assert_fails(other, 3, "fitting needs at least 10")
    np.save("other.npy", np.load("public.npy") + 1)
    other = run("evaluate", "own.release", *OPTIONS, "--public", "other.npy")
    assert_fails(other, 3, "public must hold the vectors the release was fitted to")


def test_inspect_prints_the_same_theory(workspace: Path, run: Run) -> None:
    arguments = ("laplace.release", *OPTIONS[:4], "--seeds", "30", "--seed", "3")
    facts = json.loads(run("inspect", *arguments, "--json").stdout)
    assert facts["theory"] == _theory(run, *arguments, "--theory")
    assert facts["stretch"]["l1"] == facts["theory"]["stretch_l1"]["theory"]
    inspected = run("inspect", *arguments).stdout
    assert inspected.startswith(run("inspect", "laplace.release").stdout)
    evaluated = run("evaluate", *arguments, "--theory").stdout
    heading = "theory, compared with"
    assert inspected[inspected.index(heading) :] == evaluated[evaluated.index(heading) :]


def test_inspect_accepts_the_public_vectors(workspace: Path, run: Run, small_head: Layers) -> None:
    offaxis.fit(small_head, np.load("public.npy"), epsilon=5, mechanism="laplace").save(
        "own.release"
    )
    arguments = ("own.release", *OPTIONS[:4], "--public", "public.npy", "--seeds", "2", "--json")
    gap = json.loads(run("inspect", *arguments).stdout)["theory"]["public_private_gap"]
    assert gap["fails"] is None
    assert 0 < gap["measured"] < gap["theory"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "head.safetensors"), "add --vectors"),
        (("--vectors", "private.npy"), "add --model"),
        (("--public", "public.npy"), "--public is used with --model and --vectors only"),
    ],
)
def test_inspect_rejects_incomplete_options_for_theory(
    workspace: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    assert_usage_error(run("inspect", "laplace.release", *options), message)


def test_the_theory_table_fits_80_columns(workspace: Path, run: Run) -> None:
    result = run("evaluate", "laplace.release", *OPTIONS)
    assert result.exit_code == 0, result.output
    assert "theory, compared with 30 simulated reports per vector" in result.stdout
    for word in ("measured", "holds for", *map(label, CONDITIONS)):
        assert word in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize(
    ("name", "failing", "reason"),
    [
        ("gaussian", {"disagreement"}, "'Laplace noise' fails"),
        ("privunit2", set(list(CONDITIONS)[:8]), "'additive noise' fails"),
    ],
)
def test_a_failing_condition_is_named_and_the_other_rows_stay(
    workspace: Path, run: Run, name: str, failing: set[str], reason: str
) -> None:
    rows = _theory(run, f"{name}.release", *OPTIONS)
    for quantity, row in rows.items():
        if quantity == "public_private_gap":
            continue
        assert (row["theory"] is None) == (quantity in failing)
        if quantity in failing:
            assert reason in row["fails"]
    assert "fails" in run("evaluate", f"{name}.release", *OPTIONS).stdout


def test_a_smooth_model_has_only_a_first_order_risk(
    workspace: Path, run: Run, small_head: Layers
) -> None:
    Layers(small_head.weights, small_head.biases, activation="gelu").save("bent.safetensors")
    rows = _theory(run, "laplace.release", *OPTIONS, "--model", "bent.safetensors")
    assert rows["first_order_risk"]["theory"] > 0
    for quantity in ("root_gap", "risk_gap", "disagreement"):
        assert "'piecewise affine' fails" in rows[quantity]["fails"]


def test_without_the_option_no_theory_is_shown(workspace: Path, run: Run) -> None:
    command = ("evaluate", "laplace.release", *OPTIONS[:4], "--seeds", "2")
    assert "theory" not in json.loads(run(*command, "--json").stdout)
    assert "theory" not in run(*command).stdout


def test_options_that_exclude_each_other_are_rejected(workspace: Path, run: Run) -> None:
    command = ("evaluate", "laplace.release", *OPTIONS[:4])
    public = run(*command, "--public", "public.npy")
    assert_usage_error(public, "--public is used with --theory only")
    one_seed = run(*command, "--theory", "--seeds", "1")
    assert_usage_error(one_seed, "needs --seeds 2 or more, got 1")
