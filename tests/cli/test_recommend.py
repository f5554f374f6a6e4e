from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer

import offaxis
from offaxis.cli.recommend import _budgets
from offaxis.geometry import Layers
from tests.cli.conftest import Run, assert_fails, assert_misused

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
    table = "Compared on 60 vectors, and chosen there; the sentence above is measured on 60 others."
    assert f"{table} ± is three standard errors." in words
    assert all(line.lstrip()[:1] not in "%±" for line in told.stdout.splitlines() if line.strip())
    assert offaxis.load("best.release").guarantee.epsilon == 3


def test_json(desk: Path, run: Run) -> None:
    prepare()
    facts = json.loads(run(*BASICS, "--epsilon", "3", "--json").stdout)
    assert facts["expected"]["low"] < facts["expected"]["score"] < facts["expected"]["high"]
    assert facts["expected"]["score"] <= facts["ceiling"] + 0.1
    assert facts["candidates"][0]["title"] == facts["choice"]
    assert facts["out"] is None


def test_the_smallest_budget(desk: Path, run: Run) -> None:
    prepare()
    facts = json.loads(run(*BASICS, "--target", "0.6", "--json").stdout)
    assert facts["target"] == 0.6
    assert facts["least_possible_epsilon"] <= facts["epsilon"]
    assert facts["expected"]["score"] >= 0.6


def test_a_budget_or_a_wish_but_not_both(desk: Path, run: Run) -> None:
    prepare()
    assert_misused(run(*BASICS), "Missing option '--epsilon' or '--target'")
    both = run(*BASICS, "--epsilon", "1", "--target", "0.5")
    assert_misused(both, "--epsilon and --target exclude each other")
    told = run(*BASICS, "--target", "0.35")
    assert "is the smallest budget found to reach 0.35" in " ".join(told.stdout.split())
    assert_fails(run(*BASICS, "--target", "1.1"), 3, "No report of a budget up to 10 can reach")


@pytest.mark.parametrize(
    ("text", "budgets"),
    [("3", [3]), ("1,3,5", [1, 3, 5]), ("2:3", [2, 2.5, 3]), ("0.7:1.2", [0.7, 1, 1.2])],
)
def test_budgets_are_read(text: str, budgets: list[float]) -> None:
    assert _budgets(text) == budgets


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "1,3,5 or a range") for text in ("", "a", "1,b", "1:2:3")),
        ("3:1", "the range of --epsilon runs downwards, write 1:3"),
        ("1,-2", "epsilon must be positive"),
        ("0:2", "epsilon must be positive"),
    ],
)
def test_no_budgets(text: str, words: str) -> None:
    with pytest.raises(typer.BadParameter, match=words):
        _budgets(text)


def test_a_release_that_is_there_is_not_replaced_unless_forced(desk: Path, run: Run) -> None:
    prepare()
    old = Path("laplace.release").read_bytes()
    asked = (*BASICS, "--epsilon", "3", "--out", "laplace.release")
    assert_fails(run(*asked), 3, "laplace.release is already there", "--force")
    assert Path("laplace.release").read_bytes() == old
    assert run(*asked, "--force").exit_code == 0
    assert offaxis.load("laplace.release").guarantee.epsilon == 3


def test_several_budgets_are_one_table(desk: Path, run: Run) -> None:
    prepare()
    told = run(*BASICS, "--epsilon", "1,4")
    assert told.exit_code == 0, told.output
    words = " ".join(told.stdout.split())
    assert words.startswith(("best release of a ε choose", "ε choose"))
    assert "Expected: measured on 60 held-out vectors; keeps: on the" in words
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
    assert_misused(run(*asked, "--weight", "left=2"), "name every task")
    assert_misused(run(*asked, "--weight", "left=x"), "--weight must be NAME=NUMBER, got 'left=x'")
    one = run(*BASICS, "--epsilon", "3", "--weight", "left=2")
    assert_misused(one, "--weight goes with several models")
    unnamed = ("--model", "task.safetensors", "--model", "right=other.safetensors")
    told = run("recommend", *unnamed, "--public", "many.npy", "--epsilon", "3")
    assert_misused(told, "need a name each")


def test_a_prior_stands_for_public_vectors(desk: Path, run: Run) -> None:
    prepare()
    asked = ("recommend", "--model", "task.safetensors", "--epsilon", "3")
    told = run(*asked, "--prior", "box:-3,3", "--out", "best.release")
    assert told.exit_code == 0, told.output
    assert "not of people" in " ".join(told.stdout.split())
    assert "synthetic prior" in offaxis.load("best.release").provenance.statement
    assert run(*asked).exit_code == 2
    assert run(*asked, "--prior", "ball:1", "--public", "many.npy").exit_code == 2
    assert_misused(run(*asked, "--prior", "ball"), "ball:RADIUS")
