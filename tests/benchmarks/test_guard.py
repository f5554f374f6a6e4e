from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness import OURS, Contender, Effort, Fallen, fallen, judge, read_ratios
from offaxis.errors import InvalidInput

RECORDED = {"a": 10.0, "b": 0.2}


def test_what_fell_below_the_fraction_is_named() -> None:
    assert fallen({"a": 5.1, "b": 0.11}, RECORDED) == []
    assert fallen({"a": 4.9, "b": 0.11}, RECORDED) == [Fallen("a", 10.0, 4.9)]
    assert fallen({"a": 4.9, "b": 0.11}, RECORDED, fraction=0.4) == []


def test_a_missing_rival_accuses_nobody() -> None:
    assert fallen({"a": 9.0, "new": 1e-9}, RECORDED) == []


def test_a_guard_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nothing is guarded"):
        fallen({"other": 1.0}, RECORDED)


def test_a_busy_moment_is_forgiven_and_a_slower_function_is_not() -> None:
    asked: list[str] = []

    def again(group: str) -> dict[str, float]:
        asked.append(group)
        return {"a": 9.0} if group == "first" else {"b": 0.05 / len(asked)}

    now = {"first": {"a": 1.0}, "second": {"b": 0.04}, "third": {"c": 1.0}}
    assert judge(now, RECORDED, again) == [Fallen("b", 0.2, 0.04)]
    assert asked == ["first", "second", "second"]


def _work(times: int) -> int:
    return sum(i * i for _ in range(times) for i in range(2_000))


def test_a_slowed_twin_trips_the_guard() -> None:
    """Real clocks: the twin does fifty times the work, the guard asks for a fifth of the ratio."""
    effort = Effort("test", seconds=0.05, rounds=3, doublings=1, streamed=1)

    def measured(times: int) -> dict[str, float]:
        contenders = {OURS: Contender(lambda: _work(times)), "rival": Contender(lambda: _work(10))}
        return effort.race("test", "work", "ms", contenders).ratios()

    recorded = measured(1)
    same = judge({"test": measured(1)}, recorded, lambda _: measured(1), fraction=0.2)
    slow = judge({"test": measured(50)}, recorded, lambda _: measured(50), fraction=0.2)
    assert same == []
    assert [entry.name for entry in slow] == ["test: work, against rival"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"ratios": [1]}', '{"ratios": {"a": "x"}}', '{"ratios": {"a": 0}}']
)
def test_a_file_without_ratios_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"record\.json"):
        read_ratios(tmp_path / "record.json")


def test_the_repository_carries_a_record() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "guard.json"
    ratios = read_ratios(path)
    assert set(json.loads(path.read_text())) == {"effort", "conditions", "ratios"}
    assert {name.split(":")[0] for name in ratios} >= {"reports", "simulate", "Gram", "growth"}
    assert any("OpenDP" in name for name in ratios)
