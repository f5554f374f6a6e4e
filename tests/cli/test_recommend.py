"""``offaxis recommend``: one budget, several, a target, several tasks, and priors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer

import offaxis
from offaxis.cli.recommend import _parse_budgets
from offaxis.geometry import Layers
from tests.cli.conftest import Run, assert_fails, assert_usage_error

BASICS = ("recommend", "--model", "task.safetensors", "--public", "many.npy")


def write_inputs() -> None:
    rng = np.random.default_rng(4)
    np.save("many.npy", rng.standard_normal((300, 4)) * [3, 2, 1, 1])
    Layers.linear(np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0], [0, 1, 0, 0]])).save(
        "task.safetensors"
    )


def test_the_best_release_is_described_and_written(workspace: Path, run: Run) -> None:
    write_inputs()
    result = run(*BASICS, "--epsilon", "3", "--effort", "full", "--out", "best.release")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert text.startswith("At ε = 3:")
    assert "no ε-LDP report allows more than" in text
    assert "none better" in text
    note = (
        "The candidates were compared, and the best one chosen, on 60 vectors; the summary above "
        "is measured on 60 held-out ones."
    )
    assert f"{note} ± is three standard errors." in text
    assert all(line.lstrip()[:1] not in "%±" for line in result.stdout.splitlines() if line.strip())
    assert offaxis.load("best.release").guarantee.epsilon == 3


def test_the_json_lists_all_candidates(workspace: Path, run: Run) -> None:
    write_inputs()
    facts = json.loads(run(*BASICS, "--epsilon", "3", "--json").stdout)
    assert facts["expected"]["low"] < facts["expected"]["score"] < facts["expected"]["high"]
    assert facts["expected"]["score"] <= facts["ceiling"] + 0.1
    assert facts["candidates"][0]["title"] == facts["choice"]
    assert facts["out"] is None


def test_the_smallest_budget_reaches_the_target(workspace: Path, run: Run) -> None:
    write_inputs()
    facts = json.loads(run(*BASICS, "--target", "0.6", "--json").stdout)
    assert facts["target"] == 0.6
    assert facts["least_possible_epsilon"] <= facts["epsilon"]
    assert facts["expected"]["score"] >= 0.6


def test_either_a_budget_or_a_target_is_required(workspace: Path, run: Run) -> None:
    write_inputs()
    assert_usage_error(run(*BASICS), "Missing option '--epsilon' or '--target'")
    both = run(*BASICS, "--epsilon", "1", "--target", "0.5")
    assert_usage_error(both, "--epsilon and --target exclude each other")
    result = run(*BASICS, "--target", "0.35")
    assert "is the smallest budget found to reach 0.35" in " ".join(result.stdout.split())
    assert_fails(run(*BASICS, "--target", "1.1"), 3, "No report of a budget up to 10 can reach")


@pytest.mark.parametrize(
    ("text", "budgets"),
    [("3", [3]), ("1,3,5", [1, 3, 5]), ("2:3", [2, 2.5, 3]), ("0.7:1.2", [0.7, 1, 1.2])],
)
def test_budgets_are_parsed(text: str, budgets: list[float]) -> None:
    assert _parse_budgets(text) == budgets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "1,3,5 or a range") for text in ("", "a", "1,b", "1:2:3")),
        ("3:1", "the range of --epsilon is reversed; write 1:3"),
        ("1,-2", "epsilon must be positive"),
        ("0:2", "epsilon must be positive"),
    ],
)
def test_invalid_budgets_are_usage_errors(text: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        _parse_budgets(text)


def test_an_existing_release_is_replaced_only_with_force(workspace: Path, run: Run) -> None:
    write_inputs()
    old = Path("laplace.release").read_bytes()
    command = (*BASICS, "--epsilon", "3", "--out", "laplace.release")
    assert_fails(run(*command), 3, "laplace.release already exists", "--force")
    assert Path("laplace.release").read_bytes() == old
    assert run(*command, "--force").exit_code == 0
    assert offaxis.load("laplace.release").guarantee.epsilon == 3


def test_several_budgets_are_printed_as_one_table(workspace: Path, run: Run) -> None:
    write_inputs()
    result = run(*BASICS, "--epsilon", "1,4")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert text.startswith(("best release of a ε recommended", "ε recommended"))
    assert "Expected: measured on 60 held-out vectors; keeps: on the" in text
    assert "three standard errors" in text
    facts = json.loads(run(*BASICS, "--epsilon", "1,4", "--json").stdout)
    assert [advice["epsilon"] for advice in facts["budgets"]] == [1, 4]
    assert run(*BASICS, "--epsilon", "1,4", "--out", "best.release").exit_code == 2


def test_several_tasks_are_listed_in_a_table(workspace: Path, run: Run) -> None:
    write_inputs()
    Layers.linear(np.array([[1.0, 1, 0, 0], [0.0, 0, 1, 0]])).save("other.safetensors")
    models = ("--model", "left=task.safetensors", "--model", "right=other.safetensors")
    command = ("recommend", *models, "--public", "many.npy", "--epsilon", "3")
    result = run(*command, "--weight", "left=2", "--weight", "right=1", "--out", "both.release")
    assert result.exit_code == 0, result.output
    assert "left" in result.stdout
    assert "right" in result.stdout
    assert offaxis.load("both.release").guarantee.pure
    assert_usage_error(run(*command, "--weight", "left=2"), "name every task")
    not_a_number = run(*command, "--weight", "left=x")
    assert_usage_error(not_a_number, "--weight must be NAME=NUMBER, got 'left=x'")
    one_model = run(*BASICS, "--epsilon", "3", "--weight", "left=2")
    assert_usage_error(one_model, "--weight requires several models")
    unnamed = ("--model", "task.safetensors", "--model", "right=other.safetensors")
    result = run("recommend", *unnamed, "--public", "many.npy", "--epsilon", "3")
    assert_usage_error(result, "each of several models needs a name")


def test_a_prior_replaces_public_vectors(workspace: Path, run: Run) -> None:
    write_inputs()
    command = ("recommend", "--model", "task.safetensors", "--epsilon", "3")
    result = run(*command, "--prior", "box:-3,3", "--out", "best.release")
    assert result.exit_code == 0, result.output
    assert "not of people" in " ".join(result.stdout.split())
    assert "synthetic prior" in offaxis.load("best.release").provenance.statement
    assert run(*command).exit_code == 2
    assert run(*command, "--prior", "ball:1", "--public", "many.npy").exit_code == 2
    assert_usage_error(run(*command, "--prior", "ball"), "ball:RADIUS")


def test_vectors_and_means_need_no_model(workspace: Path, run: Run) -> None:
    write_inputs()
    basics = ("recommend", "--public", "many.npy", "--epsilon", "3")
    for goal in ("vectors", "means"):
        result = run(*basics, "--goal", goal, "--out", f"{goal}.release")
        assert result.exit_code == 0, result.output
        assert offaxis.load(f"{goal}.release").supports_mean == (goal == "means")
    assert_usage_error(run(*basics), "Missing option '--model'", "--goal vectors or means")


def test_a_recommendation_without_a_prior_needs_a_model_for_it(workspace: Path, run: Run) -> None:
    result = run("recommend", "--prior", "box:0,1", "--goal", "vectors", "--epsilon", "1")
    assert result.exit_code in (2, 3), result.output


def test_an_onnx_file_is_a_model(workspace: Path, run: Run) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    weight = np.eye(3, 5, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
        "head",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), "head.onnx")
    command = ("fit", "--public", "public.npy", "--epsilon", "2", "--out", "onnx.release")
    result = run(*command, "--model", "head.onnx")
    assert result.exit_code == 0, result.output
    assert "Expected to keep" in result.stdout
    assert offaxis.load("onnx.release").encoder.kind == "argmax"
    assert_fails(run(*command[:-1], "b.release", "--model", "missing.onnx"), 3, "not found")
