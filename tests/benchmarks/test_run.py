from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import QUICK
from benchmarks.run import Run as Measured
from benchmarks.run import print_conditions
from offaxis.release import Release
from tests.cli.conftest import Run, assert_fails, assert_misused


def test_the_guard_finds_a_slower_function(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means are averaged ten times over: their ratio to decoding falls, and the guard says so."""
    record, low = tmp_path / "record.json", tmp_path / "low.json"
    low.write_text('{"ratios": {"decode: response, m = 64, against one report at a time": 1e-6}}')
    kept = run("decode", "--quick", "--record", record, "--guard", low)
    assert kept.exit_code == 0
    assert "nothing fell" in kept.stdout
    aggregate = Release.aggregate

    def slow(self: Release, *given: Any, **named: Any) -> Any:
        for _ in range(10):
            found = aggregate(self, *given, **named)
        return found

    monkeypatch.setattr(Release, "aggregate", slow)
    fell = run("decode", "--quick", "--guard", record, "--fraction", "0.3")
    assert fell.exit_code == 1
    assert "means of ten groups" in fell.stdout.split("GUARD")[1]


def test_figures_ratios_conditions_and_a_missing_rival(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    facts = json.loads(run("fit", "--quick", "--json").stdout)
    assert "scikit-learn" in facts["not_installed"]
    assert facts["effort"] == "quick"
    assert facts["conditions"]["load_average"] >= 0
    assert {race["group"] for race in facts["races"]} == {"fit"}
    assert [f["who"] for race in facts["races"] for f in race["figures"]] == ["offaxis"] * 3
    assert facts["ratios"] == {}
    assert facts["fallen"] == []


def test_a_missing_rival_is_said_aloud(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opendp", None)
    print_conditions(Measured.start(QUICK))
    assert "not installed, and left out: OpenDP" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["nonsense"], "there is no group 'nonsense'; choose one of reports"),
        (["--quick", "--full"], "--quick and --full exclude each other"),
        (["--fraction", "2"], "--fraction"),
        (["--guard"], "'--guard' requires an argument"),
    ],
)
def test_wrong_usage(run: Run, wrong: list[str], words: str) -> None:
    assert_misused(run(*wrong), words)


def test_a_guard_without_ratios_is_refused_before_anything_is_measured(
    tmp_path: Path, run: Run
) -> None:
    (tmp_path / "empty.json").write_text("{}")
    assert_fails(run("--guard", tmp_path / "empty.json"), 3, "no recorded ratios")
    assert_fails(run("--record", tmp_path), 3, "folder")
    assert_fails(run("--guard", tmp_path / "none"), 3, "there is no file")
