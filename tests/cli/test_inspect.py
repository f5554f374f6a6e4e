from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import offaxis
from tests.cli.conftest import Run, assert_fails


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_card_of_a_release(desk: Path, run: Run) -> None:
    result = run("inspect", "laplace.release")
    assert result.exit_code == 0
    release = offaxis.load("laplace.release")
    card = words(result.stdout)
    assert "WEAK PROTECTION" in card
    assert "by a factor of at most 149" in card
    for assumption in release.guarantee.assumptions:
        assert assumption[1:] in card
    for part in (
        "made to a vector, not to a person",
        f"yes, {release.report_size} bytes each",
        "small head (layers)",
        "60 public vectors",
        "made up for a test",
        "lambda_max 1000",
        release.hash,
        release.provenance.public.sha256,
        release.provenance.model.sha256,
    ):
        assert part in card


def test_the_card_fits_a_pipe(desk: Path, run: Run) -> None:
    for name in ("laplace.release", "gaussian.release"):
        lines = run("inspect", name).stdout.splitlines()
        assert max(len(line) for line in lines) <= 80
        assert all(line == line.rstrip() for line in lines)
        assert "\x1b" not in "".join(lines)


def test_the_card_of_a_release_that_cannot_report(desk: Path, run: Run) -> None:
    card = words(run("inspect", "gaussian.release").stdout)
    assert "SIMULATION ONLY" in card
    assert "This release cannot make reports." in card
    assert "PROTECTION" not in card
    assert "hard limit" not in card
    assert "1 in 100,000" in card
    assert "one report in total, ever" in card


def test_a_plain_release_names_no_model(desk: Path, run: Run) -> None:
    offaxis.fit(None, np.load("public.npy"), epsilon=9, reshaping="none").save("plain.release")
    card = words(run("inspect", "plain.release").stdout)
    assert "none was used" in card
    assert "VERY WEAK PROTECTION" in card


def test_json_holds_facts_and_words(desk: Path, run: Run) -> None:
    facts = json.loads(run("inspect", "laplace.release", "--json").stdout)
    release = offaxis.load("laplace.release")
    assert facts["release"] == release.hash
    assert facts["guarantee"]["assumptions"] == list(release.guarantee.assumptions)
    assert facts["report_bytes"] == release.report_size
    assert facts["card"]["strength"] == "weak"
    assert facts["card"]["not_promised"]
    assert facts["provenance"]["statement"] == "made up for a test"


@pytest.mark.parametrize(("epsilon", "name"), [("1e-9", "privunitg"), ("10000", "laplace")])
def test_extreme_budgets_have_cards(desk: Path, run: Run, epsilon: str, name: str) -> None:
    release = offaxis.fit(
        None, np.load("public.npy"), epsilon=epsilon, reshaping="none", randomizer=name
    )
    release.save("odd.release")
    assert run("inspect", "odd.release").exit_code == 0
    assert json.loads(run("inspect", "odd.release", "--json").stdout)["release"] == release.hash


def test_a_statement_cannot_steer_the_terminal(desk: Path, run: Run) -> None:
    hostile = "\x1b[2J\x1b[31m[bold]calm[/bold] :smile: \u202eevil\nand more"
    public = np.load("public.npy")
    offaxis.fit(None, public, epsilon=1, reshaping="none", statement=hostile).save("odd.release")
    card = run("inspect", "odd.release").stdout
    assert "\x1b" not in card
    assert "\u202e" not in card
    assert "[bold]calm[/bold] :smile:" in card


def test_altered_and_missing_releases(desk: Path, run: Run) -> None:
    blob = bytearray(Path("laplace.release").read_bytes())
    blob[-1] ^= 1
    Path("bad.release").write_bytes(blob)
    assert_fails(run("inspect", "bad.release"), 3, "altered or damaged")
    Path("cut.release").write_bytes(blob[:100])
    assert_fails(run("inspect", "cut.release", "--json"), 3)
    assert_fails(run("inspect", "missing.release"), 3, "make one with: offaxis fit")
    assert_fails(run("inspect", "."), 3, "there is no release file")
