from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.catalogue import studies
from experiments.compare import compare
from experiments.engine import Outcome
from experiments.methods import CLEAN
from experiments.pages.page import setting_text
from experiments.pages.panels import panels
from experiments.sources import Setting, open_source
from offaxis.errors import InvalidInput
from tests.cli.conftest import Run, assert_fails, assert_usage_error
from tests.experiments import tiny_study as tiny


@pytest.fixture(scope="module")
def source() -> Setting:
    return tiny.source(60)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Setting) -> Path:
    """Change to an empty folder and return it; every setting is a tiny one."""
    monkeypatch.setattr("experiments.cli.open_source", lambda name: source)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_shows_every_study(run: Run) -> None:
    result = run("list")
    assert result.exit_code == 0, result.output
    assert "shift-defocus-blur" in result.stdout
    facts = json.loads(run("list", "--json").stdout)
    assert len(facts["studies"]) == len(studies())


def test_run_writes_tables_figures_and_a_page(desk: Path, run: Run) -> None:
    result = run("run", "cifar10-mlp-relu", "--seeds", "1")
    assert result.exit_code == 0, result.output
    folder = desk / "offaxis-studies"
    for ending in ("csv", "parquet", "html", "svg", "png"):
        assert (folder / f"cifar10-mlp-relu.{ending}").stat().st_size > 1000
    page = (folder / "cifar10-mlp-relu.html").read_text()
    assert page.count('<span class="mark">no guarantee</span>') == 2  # the row and the note
    assert "not in the paper’s table" in page
    assert "<script" not in page
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run("run", "cifar10-mlp-relu", "--seeds", "1").exit_code == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_compare_shows_ours_the_papers_and_the_difference_without_matplotlib(
    desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("compare", "cifar10-mlp-relu", "--seeds", "1")
    assert result.exit_code == 0, result.output
    assert "no page: pip install '.[html]' in a checkout of offaxis" in result.stderr
    for words in ("ours", "paper", "diff", "CW+PA w/o bounding  no guarantee", " .548 "):
        assert words in result.stdout
    facts = json.loads(run("compare", "cifar10-mlp-relu", "--seeds", "1", "--json").stdout)
    assert len(facts["rows"]) == facts["numbers"] == 108
    assert facts["published"] == 96


def test_the_recovery_page_shows_the_ratios(desk: Path, run: Run) -> None:
    result = run("run", "recovery", "--seeds", "1", "--out", "here", "--json")
    assert result.exit_code == 0, result.output
    (facts,) = json.loads(result.stdout)["studies"]
    assert str(Path("here") / "recovery.html") in facts["files"]
    page = (desk / "here" / "recovery.html").read_text()
    assert "Recovery ratios" in page
    assert "<svg" in page


@pytest.mark.parametrize("name", [name for name in studies() if name != "ellipse"])
def test_the_panels_of_every_study_show_every_row(name: str) -> None:
    entry = studies()[name]
    outcomes = [Outcome(row, e, "accuracy", (0.3, 0.4)) for row in entry.rows for e in row.epsilons]
    if name.startswith("recovery"):
        outcomes = [replace(o, runs=(0.9,)) if o.row.label == CLEAN else o for o in outcomes]
    shown, columns = panels(entry, compare(entry, outcomes))
    assert 1 <= columns <= 4
    rows = {row.label for row in entry.rows if row.method.kind != "clean"}
    curves = sum(len(panel.series) for panel in shown)
    assert curves >= len(rows) or name.startswith("recovery")
    assert all(len(series.x) == len(series.y) for panel in shown for series in panel.series)


def test_the_study_of_the_noise_shape_needs_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("run", "ellipse", "--seeds", "2")
    assert result.exit_code == 0, result.output
    with (tmp_path / "offaxis-studies" / "ellipse.csv").open(newline="") as file:
        means = {row["mechanism"]: float(row["mean"]) for row in csv.DictReader(file)}
    assert means["Laplace (l1)"] < means["Laplace+PA"] < means["No randomization"]
    page = (tmp_path / "offaxis-studies" / "ellipse.html").read_text()
    titles = re.findall(r'font-size: ([\d.]+)px[^>]* y="([-\d.]+)">Laplace, \w+</text>', page)
    assert len(titles) == 2
    # A capital letter is three quarters of the size high; y is the baseline.
    assert all(float(y) > 0.75 * float(size) for size, y in titles)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("main-lr", "a cap of 1,000, order 1, δ = 1e-5 for (ε, δ) mechanisms and the rank rule"),
        (
            "main-lr-ours",
            "90th percentile of the public norms, a cap of 1,000, order 1 and δ = 1e-5",
        ),
        ("cifar10-linear-ours", "90th percentile of the public norms, a cap of 1,000 and order 1."),
        ("ellipse", "90th percentile of the public norms, a cap of 6 and order 1."),
        (
            "clipping-ours",
            "10th to 100th percentile of the public norms, a cap of 1,000 and order 1.",
        ),
        (
            "lambda-max-ours",
            "90th percentile of the public norms, a cap of 10 to 100,000 and order 1.",
        ),
    ],
)
def test_the_page_states_the_setting_of_its_study(name: str, setting: str) -> None:
    text = setting_text(studies()[name])
    assert setting in text
    assert ("published setting" in text) == name.startswith(("main-lr", "cifar10-linear"))


def test_a_page_whose_rows_have_their_own_settings_states_none() -> None:
    assert setting_text(studies()["means"]) == ""


def test_a_study_must_be_named(desk: Path, run: Run) -> None:
    assert run("run").exit_code == 2
    assert run("run", "main-lr", "--all").exit_code == 2
    assert_usage_error(run("run", "main-rl"), "no study 'main-rl'; did you mean 'main-lr'?")
    result = run("compare", "nosuch")
    assert_usage_error(result, "there is no study 'nosuch'; python -m experiments list lists them")
    assert_fails(run("run", "main-lr", "--into", "no.md"), 3, "file not found: no.md")


def test_all_continues_after_a_study_that_cannot_be_run(
    desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = {name: studies()[name] for name in ("clipping", "ellipse")}
    monkeypatch.setattr("experiments.cli.studies", lambda: two)

    def opener(name: str) -> Setting:
        if name != "plane":
            raise InvalidInput("the images are missing")
        return open_source(name)

    monkeypatch.setattr("experiments.cli.open_source", opener)
    result = run("run", "--all", "--seeds", "1")
    assert result.exit_code == 3, result.output
    assert "clipping was not run: the images are missing" in result.stderr
    assert "1 of 2 studies were not run" in result.stderr
    assert (desk / "offaxis-studies" / "ellipse.html").exists()
