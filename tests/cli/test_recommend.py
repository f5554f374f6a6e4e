from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer

import offaxis
from offaxis.cli.recommend import _budgets
from offaxis.geometry import Layers
from tests.cli.conftest import Run, assert_fails

BASICS = ("recommend", "--model", "task.safetensors", "--public", "many.npy")


def prepare() -> None:
    rng = np.random.default_rng(4)
    np.save("many.npy", rng.standard_normal((300, 4)) * [3, 2, 1, 1])
    Layers.linear(np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0], [0, 1, 0, 0]])).save(
        "task.safetensors"
    )


def test_the_best_release_is_told_and_written(desk: Path, run: Run) -> None:
    prepare()
    told = run(*BASICS, "--epsilon", "3", "--out", "best.release")
    assert told.exit_code == 0, told.output
    words = " ".join(told.stdout.split())
    assert words.startswith("At ε = 3:")
    assert "no ε-LDP report allows more than" in words
    assert "none better" in words
    assert offaxis.load("best.release").guarantee.epsilon == 3


def test_json(desk: Path, run: Run) -> None:
    prepare()
    facts = json.loads(run(*BASICS, "--epsilon", "3", "--json").stdout)
    assert facts["expected"]["low"] < facts["expected"]["score"] < facts["expected"]["high"]
    assert facts["expected"]["score"] <= facts["ceiling"] + 0.1
    assert facts["tried"][0]["title"] == facts["choice"]
    assert facts["out"] is None


def test_the_smallest_budget(desk: Path, run: Run) -> None:
    prepare()
    facts = json.loads(run(*BASICS, "--wanted", "0.6", "--json").stdout)
    assert facts["wanted"] == 0.6
    assert facts["least_possible_epsilon"] <= facts["epsilon"]
    assert facts["expected"]["score"] >= 0.6


def test_a_budget_or_a_wish_but_not_both(desk: Path, run: Run) -> None:
    prepare()
    assert run(*BASICS).exit_code == 2
    assert run(*BASICS, "--epsilon", "1", "--wanted", "0.5").exit_code == 2
    told = run(*BASICS, "--wanted", "0.35")
    assert "is the smallest budget found to reach 0.35" in " ".join(told.stdout.split())
    assert_fails(run(*BASICS, "--wanted", "1.1"), 3, "No report of a budget up to 10 can reach")


@pytest.mark.parametrize(
    ("text", "budgets"),
    [("3", [3]), ("1,3,5", [1, 3, 5]), ("2:3", [2, 2.5, 3]), ("0.7:1.2", [0.7, 1, 1.2])],
)
def test_budgets_are_read(text: str, budgets: list[float]) -> None:
    assert _budgets(text) == budgets


@pytest.mark.parametrize("text", ["", "a", "1,b", "3:1", "1:2:3"])
def test_no_budgets(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"1,3,5 or a range"):
        _budgets(text)


def test_several_budgets_are_one_table(desk: Path, run: Run) -> None:
    prepare()
    told = run(*BASICS, "--epsilon", "1,4")
    assert told.exit_code == 0, told.output
    words = " ".join(told.stdout.split())
    assert words.startswith(("best release of a ε choose", "ε choose"))
    assert "three standard errors" in words
    facts = json.loads(run(*BASICS, "--epsilon", "1,4", "--json").stdout)
    assert [each["epsilon"] for each in facts["budgets"]] == [1, 4]
    assert run(*BASICS, "--epsilon", "1,4", "--out", "best.release").exit_code == 2


def test_several_tasks_are_shown_one_by_one(desk: Path, run: Run) -> None:
    prepare()
    Layers.linear(np.array([[1.0, 1, 0, 0], [0.0, 0, 1, 0]])).save("other.safetensors")
    models = ("--model", "left=task.safetensors", "--model", "right=other.safetensors")
    asked = ("recommend", *models, "--public", "many.npy", "--epsilon", "3")
    told = run(*asked, "--weight", "left=2", "--weight", "right=1", "--out", "both.release")
    assert told.exit_code == 0, told.output
    assert "left" in told.stdout
    assert "right" in told.stdout
    assert offaxis.load("both.release").guarantee.pure
    assert_fails(run(*asked, "--weight", "left=2"), 3, "name every task")
    assert run(*asked, "--weight", "left=x").exit_code == 2
    unnamed = ("--model", "task.safetensors", "--model", "right=other.safetensors")
    assert_fails(
        run("recommend", *unnamed, "--public", "many.npy", "--epsilon", "3"), 3, "need a name each"
    )


def test_a_prior_stands_for_public_vectors(desk: Path, run: Run) -> None:
    prepare()
    asked = ("recommend", "--model", "task.safetensors", "--epsilon", "3")
    told = run(*asked, "--prior", "box:-3,3", "--out", "best.release")
    assert told.exit_code == 0, told.output
    assert "not of people" in " ".join(told.stdout.split())
    assert "synthetic prior" in offaxis.load("best.release").provenance.statement
    assert run(*asked).exit_code == 2
    assert run(*asked, "--prior", "ball:1", "--public", "many.npy").exit_code == 2
    assert_fails(run(*asked, "--prior", "ball"), 3, "ball:RADIUS")
