"""``offaxis audit``: the table, the JSON, the page and the exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import offaxis
from tests.auditing.broken_controls import LengthLeaks, with_broken_control
from tests.checks import ALPHA
from tests.cli.conftest import Run, assert_fails

COMMAND = ("audit", "laplace.release", "--reports", "400", "--false-alarm", str(ALPHA))


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_table_shows_all_tests_and_claims_no_proof(workspace: Path, run: Run) -> None:
    result = run(*COMMAND)
    assert result.exit_code == 0
    text = words(result.stdout)
    assert "ε = 5, pure, laplace NO VIOLATION FOUND" in text
    assert "No violation found at ε = 5 with" in text
    assert "this run could not have contradicted ε = 5; run at least" in text
    assert "finding none does not show that there are none" in text
    for word in ("WHITE BOX", "BLACK BOX", "BYTES", "CONDUCT", "worst-pair", "freshness", "ε ≥"):
        assert word in text
    for word in ("verified", "proved", "safe"):
        assert word not in text.lower()
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_the_json_and_the_page_agree(workspace: Path, run: Run) -> None:
    release = offaxis.load("laplace.release")
    arguments = ("--json", "--html", "audit.html", "--expect", release.hash)
    result = run(*COMMAND, *arguments)
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert facts["release"] == release.hash
    assert facts["html"] == "audit.html"
    assert facts["epsilon"] == "5"
    assert facts["violation"] is False
    assert facts["false_alarm"] == ALPHA
    names = [finding["test"] for finding in facts["findings"]]
    assert len(names) == len(set(names)) > 15
    page = Path("audit.html").read_text(encoding="utf-8")
    assert release.hash in page
    assert facts["summary"] in page


def test_a_violation_exits_with_1(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = with_broken_control(offaxis.load("laplace.release"), LengthLeaks)
    monkeypatch.setattr("offaxis.cli.audit.Release.load", lambda *_, **__: broken)
    result = run(*COMMAND)
    assert result.exit_code == 1
    text = words(result.stdout)
    assert "VIOLATION FOUND" in text
    assert "NO VIOLATION" not in text
    assert "Violation found at ε = 5 by: length, support" in text
    assert "VIOLATION: lengths of" in text


def test_the_help_explains_the_exit_code(run: Run) -> None:
    assert "audit" in run("--help").stdout
    text = words(run("audit", "--help").stdout)
    assert "Exit code 1 means a violation" in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--reports", "399"), 3, "reports must be at least 400"),
        (("--reports", "400", "--expect", "00"), 3, "00"),
        (("--reports", "400", "--html", "no/audit.html"), 3, "folder no not found"),
        (("--reports", "400", "--html", "laplace.release"), 3, "is an input"),
    ],
)
def test_invalid_input_exits_with_3(
    workspace: Path, run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = Path("laplace.release").read_bytes()
    assert_fails(run("audit", "laplace.release", *arguments), code, message)
    assert Path("laplace.release").read_bytes() == before


def test_full_and_reports_exclude_each_other(workspace: Path, run: Run) -> None:
    result = run(*COMMAND, "--full")
    assert result.exit_code == 2
    assert result.stdout == ""


def test_a_missing_extra_is_reported_before_any_report_is_made(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("offaxis.cli.audit.attack", lambda *_, **__: pytest.fail("made reports"))
    assert_fails(run(*COMMAND, "--html", "audit.html"), 4, "pip install '.[html]'")
    assert not Path("audit.html").exists()
