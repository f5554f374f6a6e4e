from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.demo import run as demo
from experiments.demo.result import DemoResult
from offaxis.errors import MissingExtra
from tests.cli.conftest import Run, assert_fails
from tests.experiments.demo.small_demo import Calls, small_demo


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoResult, Calls]:
    return small_demo(tmp_path_factory)


@pytest.fixture(scope="module")
def result(demo_run: tuple[DemoResult, Calls]) -> DemoResult:
    """Return what the real demo finds on two budgets instead of twelve."""
    return demo_run[0]


@pytest.fixture
def asked(result: DemoResult, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Run the demo once for all tests; return what the command asked of it."""
    options: dict[str, object] = {}

    def stand_in(out: Path, **wanted: object) -> DemoResult:
        options.update(wanted, out=out)
        return result

    monkeypatch.setattr(demo, "run_demo", stand_in)
    return options


def test_the_table_and_the_page(
    desk: Path, run: Run, asked: dict[str, object], result: DemoResult
) -> None:
    told = run("demo", "--seeds", "2")
    assert told.exit_code == 0, told.output
    assert asked["out"] == Path("offaxis-demo.html")
    assert asked["seeds"] == 2
    lines = told.stdout.splitlines()
    assert lines[0].startswith("Accuracy in %, mean of 2 repetitions.")
    assert lines[2].split() == ["budget", "ε", "1", "7.5"]
    heights = [f"{100 * result.lines[epsilon]:.1f}" for epsilon in (1.0, 7.5)]
    assert lines[lines.index("answer alone") + 1].split() == ["a", "line", *heights]
    forecast = [f"{result.households.lines[epsilon]:.2f}"[1:] for epsilon in (1.0, 7.5)]
    assert lines[lines.index("forecast alone") + 1].split() == ["a", "line", *forecast]
    assert "not a bound" in told.stdout
    assert " ".join(result.recommended[0].summary.split()) in " ".join(told.stdout.split())
    assert sum(line.startswith("  reshaped") for line in lines) == 4 + 3
    assert sum(line.startswith("  plain") for line in lines) == 4 + 3
    assert max(map(len, lines[:-1])) <= 80
    assert any(line.startswith("Tomorrow's electricity") for line in lines)
    assert lines[-1] == f"curves and noise ellipses: {result.html}"


def test_json(desk: Path, run: Run, asked: dict[str, object], result: DemoResult) -> None:
    facts = json.loads(run("demo", "--out", "my.html", "--json").stdout)
    assert asked["out"] == Path("my.html")
    assert asked["seeds"] == 20
    assert facts["html"] == str(result.html)
    assert len(facts["rows"]) == 4 * 2 * 2
    assert len(facts["households"]["rows"]) == 3 * 2 * 2
    assert 0 < facts["households"]["clean"] < facts["households"]["constant"]
    assert facts["theory"]["disagreement"]["measured"] > 0
    for place, metric, wanted in (
        (facts, "accuracy", result.lines),
        (facts["households"], "rmse", result.households.lines),
    ):
        found = {line["epsilon"]: line[metric] for line in place["lines"]}
        assert found == wanted
        assert {line["kind"] for line in place["lines"]} == {"line"}
    (advised,), (each,) = facts["recommended"], result.recommended
    assert (advised["epsilon"], advised["ceiling"]) == (7.5, each.ceiling)
    assert advised["expected"]["score"] == each.expected.score
    assert advised["summary"] == each.summary
    assert {"randomizer", "reshaping", "epsilon", "accuracy"} <= set(facts["rows"][0])


def test_a_page_that_cannot_be_written_is_known_before_the_work(desk: Path, run: Run) -> None:
    assert_fails(run("demo", "--out", "nowhere/page.html"), 3, "there is no folder")


def test_a_missing_extra(desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(out: Path, **options: object) -> object:
        raise MissingExtra("run pip install 'offaxis[report]'")

    monkeypatch.setattr(demo, "run_demo", missing)
    assert_fails(run("demo"), 4, "offaxis[report]")
