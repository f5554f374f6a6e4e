from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offaxis
from offaxis import theory
from offaxis.geometry import Layers
from offaxis.theory.table import CONDITIONS, label
from tests.cli.conftest import Run, assert_fails, assert_misused

OPTIONS = ("--model", "head.safetensors", "--vectors", "private.npy", "--theory", "--seeds", "30")


def _rows(run: Run, *arguments: str) -> dict[str, dict[str, Any]]:
    result = run("evaluate", *arguments, "--json")
    assert result.exit_code == 0, result.output
    rows: dict[str, dict[str, Any]] = json.loads(result.stdout)["theory"]
    return rows


def test_numbers_are_those_of_the_library(desk: Path, run: Run, small_head: Layers) -> None:
    rows = _rows(run, "laplace.release", *OPTIONS, "--seed", "3")
    release, vectors = offaxis.load("laplace.release"), np.load("private.npy")
    arguments: Any = (release, small_head, vectors)
    risk = theory.first_order_risk(*arguments)
    real = theory.nonlinear_risk(*arguments, draws=30, seed=3)
    bound = theory.remainder_bound(*arguments, draws=30, seed=3)
    answers = theory.disagreement_bound(*arguments, draws=30, seed=3)
    assert list(rows) == list(CONDITIONS)
    assert rows["noise_risk"]["theory"] == risk.noise
    assert rows["clipping_risk"]["theory"] == risk.clipping
    assert rows["first_order_risk"]["theory"] == risk.total
    assert rows["first_order_risk"]["measured"] == real.mean
    assert rows["first_order_risk"]["standard_error"] == real.standard_error
    assert rows["root_gap"]["theory"] == bound.root
    assert rows["root_gap_behind_first_layer"]["theory"] == bound.sharper_root
    assert rows["risk_gap"]["theory"] == bound.sharper_risk
    assert rows["risk_gap"]["measured"] == abs(real.mean - risk.total)
    assert rows["disagreement"]["theory"] == answers.averaged
    assert rows["disagreement"]["measured"] == answers.measured.mean
    assert rows["stretch_l1"]["theory"] == theory.amplification(release).l1
    assert rows["stretch_l2"]["theory"] == theory.amplification(release).l2
    assert "'public vectors given' fails" in rows["public_private_gap"]["fails"]


def test_the_gap_needs_the_public_vectors_of_the_release(
    desk: Path, run: Run, small_head: Layers
) -> None:
    offaxis.fit(small_head, np.load("public.npy"), epsilon=5).save("own.release")
    rows = _rows(run, "own.release", *OPTIONS, "--public", "public.npy")
    gap = rows["public_private_gap"]
    assert gap["fails"] is None
    assert 0 < gap["measured"] < gap["theory"]
    other = run("evaluate", "own.release", *OPTIONS, "--public", "private.npy")
    assert_fails(other, 3, "fitting needs at least 10")
    np.save("other.npy", np.load("public.npy") + 1)
    other = run("evaluate", "own.release", *OPTIONS, "--public", "other.npy")
    assert_fails(other, 3, "public must hold the vectors the release was fitted to")


def test_inspect_prints_the_same_table(desk: Path, run: Run) -> None:
    given = ("laplace.release", *OPTIONS[:4], "--seeds", "30", "--seed", "3")
    found = json.loads(run("inspect", *given, "--json").stdout)
    assert found["theory"] == _rows(run, *given, "--theory")
    assert found["stretch"]["l1"] == found["theory"]["stretch_l1"]["theory"]
    shown = run("inspect", *given).stdout
    assert shown.startswith(run("inspect", "laplace.release").stdout)
    evaluated = run("evaluate", *given, "--theory").stdout
    assert shown[shown.index("theory, beside") :] == evaluated[evaluated.index("theory, beside") :]


def test_inspect_takes_the_public_vectors(desk: Path, run: Run, small_head: Layers) -> None:
    offaxis.fit(small_head, np.load("public.npy"), epsilon=5).save("own.release")
    given = ("own.release", *OPTIONS[:4], "--public", "public.npy", "--seeds", "2", "--json")
    gap = json.loads(run("inspect", *given).stdout)["theory"]["public_private_gap"]
    assert gap["fails"] is None
    assert 0 < gap["measured"] < gap["theory"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--model", "head.safetensors"), "add --vectors"),
        (("--vectors", "private.npy"), "add --model"),
        (("--public", "public.npy"), "--public is read with --model and --vectors only"),
    ],
)
def test_inspect_refuses_half_of_what_theory_needs(
    desk: Path, run: Run, given: tuple[str, ...], message: str
) -> None:
    assert_misused(run("inspect", "laplace.release", *given), message)


def test_the_table_for_people(desk: Path, run: Run) -> None:
    result = run("evaluate", "laplace.release", *OPTIONS)
    assert result.exit_code == 0, result.output
    assert "theory, beside 30 simulated reports a vector" in result.stdout
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
def test_a_condition_that_fails_is_named_and_the_rest_stays(
    desk: Path, run: Run, name: str, failing: set[str], reason: str
) -> None:
    rows = _rows(run, f"{name}.release", *OPTIONS)
    for quantity, row in rows.items():
        if quantity == "public_private_gap":
            continue
        assert (row["theory"] is None) == (quantity in failing)
        if quantity in failing:
            assert reason in row["fails"]
    assert "fails" in run("evaluate", f"{name}.release", *OPTIONS).stdout


def test_a_model_that_bends_has_a_first_order_risk_only(
    desk: Path, run: Run, small_head: Layers
) -> None:
    Layers(small_head.weights, small_head.biases, activation="gelu").save("bent.safetensors")
    rows = _rows(run, "laplace.release", *OPTIONS, "--model", "bent.safetensors")
    assert rows["first_order_risk"]["theory"] > 0
    for quantity in ("root_gap", "risk_gap", "disagreement"):
        assert "'piecewise affine' fails" in rows[quantity]["fails"]


def test_without_the_option_nothing_is_added(desk: Path, run: Run) -> None:
    plain = ("evaluate", "laplace.release", *OPTIONS[:4], "--seeds", "2")
    assert "theory" not in json.loads(run(*plain, "--json").stdout)
    assert "theory" not in run(*plain).stdout


def test_options_that_do_not_go_together(desk: Path, run: Run) -> None:
    plain = ("evaluate", "laplace.release", *OPTIONS[:4])
    assert_misused(run(*plain, "--public", "public.npy"), "--public is read with --theory only")
    assert_misused(run(*plain, "--theory", "--seeds", "1"), "needs --seeds 2 or more, got 1")
