from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import run as benchmark
from benchmarks.harness import QUICK
from offaxis.release import Release
from tests.cli.conftest import Run, assert_fails, assert_usage_error


def test_the_guard_reports_a_slower_function(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aggregation runs ten times: its ratio to decoding falls, and the guard reports it."""
    record, low = tmp_path / "record.json", tmp_path / "low.json"
    low.write_text('{"ratios": {"decode: response, m = 64, against one report at a time": 1e-6}}')
    passed = run("decode", "--quick", "--record", record, "--guard", low)
    assert passed.exit_code == 0
    assert "no regressions" in passed.stdout
    aggregate = Release.aggregate

    def slow(self: Release, *arguments: Any, **options: Any) -> Any:
        for _ in range(40):  # a busy machine may have slowed the record itself
            result = aggregate(self, *arguments, **options)
        return result

    monkeypatch.setattr(Release, "aggregate", slow)
    failed = run("decode", "--quick", "--guard", record, "--fraction", "0.3")
    assert failed.exit_code == 1
    assert "means of ten groups" in failed.stdout.split("GUARD")[1]


def test_json_contains_figures_ratios_conditions_and_missing_rivals(
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


def test_a_missing_rival_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opendp", None)
    benchmark.print_conditions(benchmark.Run.start(QUICK))
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
def test_usage_errors(run: Run, wrong: list[str], words: str) -> None:
    assert_usage_error(run(*wrong), words)


def test_bad_files_are_reported_before_anything_is_measured(tmp_path: Path, run: Run) -> None:
    (tmp_path / "empty.json").write_text("{}")
    assert_fails(run("--guard", tmp_path / "empty.json"), 3, "no recorded ratios")
    assert_fails(run("--record", tmp_path), 3, "folder")
    assert_fails(run("--guard", tmp_path / "none"), 3, "file not found")
