"""The demo runs on both tasks, reports its progress, and fails early."""

import sys

import pytest

from experiments.demo.run import RANDOMIZERS, headline_of, run_demo
from offaxis.errors import InvalidInput, MissingExtra


def test_every_mechanism_is_swept_plain_and_reshaped(result):
    table = result.table()
    cells = {(row["randomizer"], row["reshaping"], row["epsilon"]) for row in table}
    assert len(table) == len(cells) == 4 * 2 * 2
    assert {row["randomizer"] for row in table} == set(RANDOMIZERS)
    assert all(0 <= row["accuracy"] <= 1 and row["std"] >= 0 for row in table)


def test_reshaping_improves_privunit2_as_in_the_paper(result):
    plain = result.cell("privunit2", "none", 7.5).mean("accuracy")
    reshaped = result.cell("privunit2", "jacobian", 7.5).mean("accuracy")
    assert plain + 0.15 < reshaped < result.clean


def test_reshaping_improves_the_second_task_too(result):
    households = result.households
    assert 0.05 < households.clean < 0.09 < households.constant
    for name in ("laplace", "privunit2", "privunitg-sphere"):
        for epsilon in (1.0, 7.5):
            means = (households.mean(name, shape, epsilon) for shape in ("jacobian", "none"))
            assert households.clean < next(means) < next(means)
    # Table 1 of the paper: 0.5387 at ε = 1, give or take one draw of households and dates.
    assert abs(households.mean("laplace", "jacobian", 1.0) / 0.5387 - 1) < 0.15
    text = result.html.read_text(encoding="utf-8")
    assert f"{households.mean('privunit2', 'jacobian', 7.5):.3f}" in text


def test_every_stage_of_the_progress_ends_complete(demo_run):
    last = {name: (done, total) for name, done, total in demo_run[1]}
    assert len(last) == 8
    assert all(done == total for done, total in last.values())


def test_the_page_in_a_directory_has_the_default_name(result):
    assert result.html.name == "offaxis-demo.html"
    assert result.html.parent.name.startswith("demo")


def test_the_headline_is_at_the_default_budget_or_the_largest():
    assert headline_of((1.0, 7.5, 10.0)) == 7.5
    assert headline_of((1.0, 0.5)) == 1.0


def test_no_budget_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match="at least one budget"):
        run_demo(tmp_path / "demo.html", epsilons=())


@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_a_missing_extra_is_an_error_before_anything_is_computed(tmp_path, monkeypatch, module):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    calls = []
    with pytest.raises(MissingExtra, match=r"pip install '\.\[html\]' in a checkout"):
        run_demo(tmp_path / "demo.html", progress=lambda *call: calls.append(call))
    assert calls == []
    assert not (tmp_path / "demo.html").exists()
