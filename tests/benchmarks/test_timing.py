from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness import best_seconds, conditions, publish, take_turns


class Clock:
    """A clock that only actions advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def taking(self, *seconds: float) -> Callable[[], None]:
        """Return an action that takes these seconds, call by call; the last one repeats."""
        remaining = list(seconds)

        def action() -> None:
            self.now += remaining.pop(0) if len(remaining) > 1 else remaining[0]

        return action


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", lambda: clock.now)
    return clock


def test_the_shortest_run_counts_except_the_warm_up(clock: Clock) -> None:
    assert best_seconds(clock.taking(0.1, 5, 3, 4), repeats=3) == 3


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    actions = {name: (lambda n=name: calls.append(n)) for name in "ab"}
    take_turns(actions, seconds=0, rounds=2)
    assert calls == ["a", "b"] * 3  # one round warms up


def test_rounds_continue_until_the_time_has_passed(clock: Clock) -> None:
    actions = {"a": clock.taking(1, 1, 1, 1, 0.5), "b": clock.taking(2)}
    # Rounds of three seconds: only the third has the shortest run of a.
    assert take_turns(actions, seconds=0, rounds=2) == {"a": 1, "b": 2}
    actions = {"a": clock.taking(1, 1, 1, 0.5), "b": clock.taking(2)}
    assert take_turns(actions, seconds=7, rounds=1) == {"a": 0.5, "b": 2}


def test_conditions_include_the_load() -> None:
    assert {"offaxis", "numpy", "cores", "load_average"} <= conditions().keys()


def test_a_missed_target_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"what": "speed", "value": 12.0, "unit": "m/s", "target": "> 10", "met": True}
    publish("made up", [good], str(tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_text())["figures"] == [good]
    assert "MISSED" not in capsys.readouterr().out
    with pytest.raises(SystemExit, match="1"):
        publish("made up", [good, good | {"met": False}], None)
    assert capsys.readouterr().out.count("MISSED") == 1
