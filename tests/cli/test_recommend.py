from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import offaxis
from offaxis.geometry import Layers
from tests.cli.conftest import Run, assert_fails

BASICS = ("recommend", "--model", "task.safetensors", "--public", "many.npy")


def prepare() -> None:
    rng = np.random.default_rng(4)
    np.save("many.npy", rng.standard_normal((400, 4)) * [3, 2, 1, 1])
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
    told = run(*BASICS, "--wanted", "0.4")
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("At ε = ")


def test_a_budget_or_a_wish_but_not_both(desk: Path, run: Run) -> None:
    prepare()
    assert run(*BASICS).exit_code == 2
    assert run(*BASICS, "--epsilon", "1", "--wanted", "0.5").exit_code == 2
    assert_fails(run(*BASICS, "--wanted", "1.1"), 3, "no budget up to 10")


def test_the_page(desk: Path, run: Run) -> None:
    prepare()
    told = run(*BASICS, "--epsilon", "1,3", "--report", "advice.html")
    assert told.exit_code == 0, told.output
    assert "figures and tables: advice.html" in told.stdout
    page = Path("advice.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert 'data-epsilon="1"' in page
    assert_fails(run(*BASICS, "--epsilon", "3", "--report", "many.npy"), 3, "is an input")
    assert_fails(run(*BASICS, "--epsilon", "3", "--report", "no/page.html"), 3, "no folder")
