from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness import (
    OURS,
    Contender,
    Effort,
    Regression,
    confirmed_regressions,
    read_ratios,
    regressions,
)
from offaxis.errors import InvalidInput

RECORDED = {"a": 10.0, "b": 0.2}


def test_ratios_below_the_fraction_are_reported() -> None:
    assert regressions({"a": 5.1, "b": 0.11}, RECORDED) == []
    assert regressions({"a": 4.9, "b": 0.11}, RECORDED) == [Regression("a", 10.0, 4.9)]
    assert regressions({"a": 4.9, "b": 0.11}, RECORDED, fraction=0.4) == []


def test_ratios_in_only_one_run_are_ignored() -> None:
    assert regressions({"a": 9.0, "new": 1e-9}, RECORDED) == []


def test_a_guard_without_common_ratios_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="nothing is guarded"):
        regressions({"other": 1.0}, RECORDED)


def test_only_persistent_regressions_are_reported() -> None:
    remeasured: list[str] = []

    def remeasure(group: str) -> dict[str, float]:
        remeasured.append(group)
        return {"a": 9.0} if group == "first" else {"b": 0.05 / len(remeasured)}

    now = {"first": {"a": 1.0}, "second": {"b": 0.04}, "third": {"c": 1.0}}
    assert confirmed_regressions(now, RECORDED, remeasure) == [Regression("b", 0.2, 0.04)]
    assert remeasured == ["first", "second", "second"]


def _work(times: int) -> int:
    return sum(i * i for _ in range(times) for i in range(2_000))


def test_the_guard_reports_a_slower_broken_control() -> None:
    """Real clocks; the control does fifty times the work, the guard requires a fifth of it."""
    effort = Effort("test", seconds=0.05, rounds=3, doublings=1, streamed=1)

    def measured(times: int) -> dict[str, float]:
        contenders = {OURS: Contender(lambda: _work(times)), "rival": Contender(lambda: _work(10))}
        return effort.race("test", "work", "ms", contenders).ratios()

    recorded = measured(1)

    def measured_regressions(times: int) -> list[Regression]:
        now = {"test": measured(times)}
        return confirmed_regressions(now, recorded, lambda _: measured(times), fraction=0.2)

    assert measured_regressions(1) == []
    assert [entry.name for entry in measured_regressions(50)] == ["test: work, against rival"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"ratios": [1]}', '{"ratios": {"a": "x"}}', '{"ratios": {"a": 0}}']
)
def test_a_file_without_ratios_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"record\.json"):
        read_ratios(tmp_path / "record.json")


def test_the_repository_includes_a_record() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "guard.json"
    ratios = read_ratios(path)
    assert set(json.loads(path.read_text())) == {"effort", "conditions", "ratios"}
    assert {name.split(":")[0] for name in ratios} >= {"reports", "simulate", "Gram", "growth"}
    assert any("OpenDP" in name for name in ratios)
