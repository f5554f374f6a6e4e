"""``offaxis passport``: the table, the JSON, the page and the exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import offaxis
from offaxis.learning import fit_pairs, principal
from tests.auditing.broken_controls import HalfTheNoise, with_broken_control
from tests.cli.conftest import Run, assert_fails, assert_usage_error

COMMAND = ("passport", "laplace.release", "--public", "public.npy", "--trials", "100")


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_table_shows_attacks_bounds_and_controls(workspace: Path, run: Run) -> None:
    result = run(*COMMAND)
    assert result.exit_code == 0, result.output
    text = words(result.stdout)
    assert "Leak passport ε = 5, pure, laplace NO BOUND EXCEEDED" in text
    for word in ("NEAREST CANDIDATE", "RECONSTRUCTION", "MEMBERSHIP", "LINKAGE", "LEARNT MODEL"):
        assert word in text
    for word in ("success", "chance", "at most", "raw", "float", "unclipped", "100.0 %"):
        assert word in text
    assert "The bounds are proved; the attacks are examples." in text
    assert "stand-in: the side of the public median" in text
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_the_json_and_the_page_agree(workspace: Path, run: Run) -> None:
    release = offaxis.load("laplace.release")
    np.save("sides.npy", np.arange(60) // 2 % 2)
    arguments = ("--labels", "sides.npy", "--json", "--html", "passport.html", "--seed", "3")
    result = run(*COMMAND, *arguments, "--no-controls", "--expect", release.hash)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["release"] == release.hash
    assert facts["html"] == "passport.html"
    assert facts["epsilon"] == "5"
    assert facts["exceeded"] is False
    assert facts["seed"] == 3
    assert facts["labels"] == "the given labels, of 2 kinds"
    assert {leak["source"] for leak in facts["leaks"]} == {"release"}
    page = Path("passport.html").read_text(encoding="utf-8")
    assert release.hash in page
    assert facts["summary"] in page


def test_answers_of_pairs_are_read_by_name(workspace: Path, run: Run) -> None:
    public = np.load("public.npy")
    fit_pairs(principal(public, 2), ["no", "yes"], epsilon=1).save("pairs.release")
    Path("answers.txt").write_text("yes\nyes\nno\nno\n" * 15, encoding="utf-8")
    arguments = ("--labels", "answers.txt", "--no-controls", "--json")
    result = run("passport", "pairs.release", *COMMAND[2:], *arguments)
    assert result.exit_code == 0, result.output
    assert any("offaxis.learn" in leak["setting"] for leak in json.loads(result.stdout)["leaks"])


def test_a_leak_beyond_its_bound_exits_with_1(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = np.load("public.npy")
    sound = offaxis.fit(None, public, epsilon="1/2", mechanism="laplace", reshaping="none")
    broken = with_broken_control(sound, HalfTheNoise, epsilon="4")
    broken = with_broken_control(broken, _Claims)
    monkeypatch.setattr("offaxis.cli.passport.Release.load", lambda *_, **__: broken)
    result = run(*COMMAND[:4], "--trials", "500", "--no-controls")
    assert result.exit_code == 1, result.output
    text = words(result.stdout)
    assert "A BOUND IS EXCEEDED" in text
    assert "NO BOUND EXCEEDED" not in text
    assert "Beyond what ε = 1/2" in text or "Beyond what ε = 0.5" in text


class _Claims(HalfTheNoise):
    """Noise for ε = 4 under a claim of 1/2."""

    @property
    def guarantee(self) -> offaxis.Guarantee:
        return offaxis.Guarantee("1/2")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--expect", "00"), 3, "00"),
        (("--labels", "labels.npy"), 3, "one value for each of the 60 public vectors"),
        (("--html", "no/passport.html"), 3, "folder no not found"),
        (("--html", "laplace.release"), 3, "is an input"),
        (("--html", "public.npy"), 3, "is an input"),
        (("--public", "private.npy"), 3, "needs 40 public vectors or more, got 7"),
        (("--public", "missing.npy"), 3, "missing.npy"),
    ],
)
def test_invalid_input_exits_with_3(
    workspace: Path, run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = Path("laplace.release").read_bytes(), Path("public.npy").read_bytes()
    assert_fails(run(*COMMAND, *arguments), code, message)
    assert (Path("laplace.release").read_bytes(), Path("public.npy").read_bytes()) == before


def test_too_few_trials_are_a_usage_error(workspace: Path, run: Run) -> None:
    assert_usage_error(run(*COMMAND[:4], "--trials", "99"), "greater than or equal to 100")


def test_a_missing_extra_is_reported_before_any_attack(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("offaxis.cli.passport.issue", lambda *_, **__: pytest.fail("attacked"))
    assert_fails(run(*COMMAND, "--html", "passport.html"), 4, "pip install '.[html]'")
    assert not Path("passport.html").exists()
