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
    """Return the result of the real demo at two budgets instead of twelve."""
    return demo_run[0]


@pytest.fixture
def options(result: DemoResult, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Replace the demo by its result; return the options that the command passes to it."""
    passed: dict[str, object] = {}

    def stand_in(out: Path, **settings: object) -> DemoResult:
        passed.update(settings, out=out)
        return result

    monkeypatch.setattr(demo, "run_demo", stand_in)
    return passed


def test_the_command_prints_tables_and_the_path_of_the_page(
    desk: Path, run: Run, options: dict[str, object], result: DemoResult
) -> None:
    outcome = run("demo", "--seeds", "2")
    assert outcome.exit_code == 0, outcome.output
    assert options["out"] == Path("offaxis-demo.html")
    assert options["seeds"] == 2
    lines = outcome.stdout.splitlines()
    assert lines[0].startswith("Accuracy in %, mean of 2 repetitions.")
    assert lines[2].split() == ["budget", "ε", "1", "7.5"]
    heights = [f"{100 * result.lines[epsilon]:.1f}" for epsilon in (1.0, 7.5)]
    assert lines[lines.index("answer alone") + 1].split() == ["line", *heights]
    forecast = [f"{result.households.lines[epsilon]:.2f}"[1:] for epsilon in (1.0, 7.5)]
    assert lines[lines.index("forecast alone") + 1].split() == ["line", *forecast]
    assert "not a bound" in outcome.stdout
    assert " ".join(result.recommended[0].summary.split()) in " ".join(outcome.stdout.split())
    assert sum(line.startswith("  reshaped") for line in lines) == 4 + 3
    assert sum(line.startswith("  plain") for line in lines) == 4 + 3
    assert max(map(len, lines[:-1])) <= 80
    assert any(line.startswith("Tomorrow's electricity") for line in lines)
    assert lines[-1] == f"curves and noise ellipses: {result.html}"


def test_json_has_all_results(
    desk: Path, run: Run, options: dict[str, object], result: DemoResult
) -> None:
    facts = json.loads(run("demo", "--out", "my.html", "--json").stdout)
    assert options["out"] == Path("my.html")
    assert options["seeds"] == 20
    assert facts["html"] == str(result.html)
    assert len(facts["rows"]) == 4 * 2 * 2
    assert len(facts["households"]["rows"]) == 3 * 2 * 2
    assert 0 < facts["households"]["clean"] < facts["households"]["constant"]
    assert facts["theory"]["disagreement"]["measured"] > 0
    for task, metric, expected in (
        (facts, "accuracy", result.lines),
        (facts["households"], "rmse", result.households.lines),
    ):
        assert {line["epsilon"]: line[metric] for line in task["lines"]} == expected
        assert {line["kind"] for line in task["lines"]} == {"line"}
    (shown,), (recommendation,) = facts["recommended"], result.recommended
    assert (shown["epsilon"], shown["ceiling"]) == (7.5, recommendation.ceiling)
    assert shown["expected"]["score"] == recommendation.expected.score
    assert shown["summary"] == recommendation.summary
    assert {"randomizer", "reshaping", "epsilon", "accuracy"} <= set(facts["rows"][0])


def test_an_unwritable_page_is_an_error_before_any_work(desk: Path, run: Run) -> None:
    assert_fails(run("demo", "--out", "nowhere/page.html"), 3, "folder nowhere not found")


def test_a_missing_extra_has_its_exit_code(
    desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(out: Path, **options: object) -> object:
        raise MissingExtra("run pip install 'offaxis[html]'")

    monkeypatch.setattr(demo, "run_demo", missing)
    assert_fails(run("demo"), 4, "offaxis[html]")
