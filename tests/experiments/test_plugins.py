"""Own mechanisms and data in the studies: rows added, data exchanged, and errors with the fix."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from experiments import engine
from experiments.catalogue import study
from experiments.cli import app
from experiments.methods import STATED
from experiments.plugins import data_set, load
from experiments.sources import open_source
from offaxis import plugins
from offaxis.errors import InvalidInput

PLUGIN = '''
import numpy as np
from experiments.plugins import data_set
from offaxis.mechanisms import find_mechanism
from offaxis.randomizers import CustomRandomizer

class Quiet(CustomRandomizer):
    """Hardly any noise, so that its rows must be the best."""
    kind = "tests.quiet"
    def simulate(self, W, rng):
        return self.domain.project(W) + 1e-6 * rng.standard_normal(W.shape)

Z = np.random.default_rng(0).standard_normal((1500, 5))
HEAD = np.random.default_rng(1).standard_normal((3, 5))
MECHANISMS = {"quiet": Quiet, "own answer": find_mechanism("class-response")}
DATA = [data_set("own", HEAD, Z[:1000], Z[1000:], (Z[1000:] @ HEAD.T).argmax(axis=1))]
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(plugins, "_registered", {})
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    return str(path)


def test_own_mechanisms_are_rows_of_a_study(plugin: str) -> None:
    """Plain and reshaped, in every setting of the study; those without maps only once."""
    before = study("main-mlp")
    after = load(plugin).into(before)
    added = after.rows[len(before.rows) :]
    assert after.rows[: len(before.rows)] == before.rows
    assert [row.label for row in added] == ["quiet", "quiet+PA", "own answer"]
    assert {row.setting for row in added} == {row.setting for row in before.rows}
    assert [row.method.mark for row in added] == [STATED, STATED, ""]
    assert (after.name, after.table) == (before.name, before.table)


def test_a_changed_file_gives_other_keys(plugin: str) -> None:
    """Otherwise finished cells of an earlier version would be shown."""
    first = load(plugin).methods["quiet"].key
    assert load(plugin).methods["quiet"].key == first
    Path(plugin).write_text(PLUGIN.replace("1e-6", "1e-7"))
    assert load(plugin).methods["quiet"].key != first


def test_settings_of_one_mechanism_are_rows_of_their_own(tmp_path: Path, monkeypatch) -> None:
    """A parameter sweep; and a mechanism named like one of offaxis is refused."""
    monkeypatch.setattr(plugins, "_registered", {})
    path = tmp_path / "sweep.py"
    path.write_text(
        PLUGIN.replace(
            "class Quiet",
            "from dataclasses import dataclass, replace\n"
            "from offaxis.mechanisms import mechanism_of\n@dataclass(frozen=True)\nclass Quiet",
        )
        .replace('kind = "tests.quiet"', 'kind = "tests.quiet"\n    size: float = 1.0')
        .replace("1e-6 *", "self.size *")
        .replace(
            '{"quiet": Quiet,',
            '{"a": mechanism_of(Quiet, size=1e-6), "b": mechanism_of(Quiet, size=1e6),',
        )
    )
    rows = load(str(path)).into(study("main-mlp"), "own").rows
    chosen = [row for row in rows if row.label in ("a", "b")]
    cells = engine.run(chosen, tmp_path / "cells", seeds=1, workers=1)
    means = {cell.row.label: cell.mean for cell in cells if cell.epsilon == 1.0}
    assert means["a"] > 0.99
    assert means["b"] < 0.6
    path.write_text(
        "from dataclasses import replace\nfrom offaxis.mechanisms import find_mechanism\n"
        "MECHANISMS = {'mine': replace(find_mechanism('laplace'), order=2)}"
    )
    with pytest.raises(InvalidInput, match="with a dot"):
        load(str(path))


def test_a_changed_module_beside_the_plugin_gives_other_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "beside_it.py").write_text("SIZE = 1e-6")
    path = tmp_path / "mine.py"
    path.write_text("import beside_it\n" + PLUGIN)
    first = load(str(path)).methods["quiet"].key
    (tmp_path / "beside_it.py").write_text("SIZE = 1e-7")
    assert load(str(path)).methods["quiet"].key != first


def test_labels_may_be_names_of_answers() -> None:
    Z = np.random.default_rng(0).standard_normal((60, 2))
    model = LogisticRegression().fit(Z, np.where(Z[:, 0] > 0, "yes", "no"))
    own = data_set("own", model, Z, Z[:3], np.array(["yes", "no", "yes"]))
    assert own.sample(0).answers.tolist() == [1, 0, 1]
    with pytest.raises(InvalidInput, match="has no answer 'maybe'"):
        data_set("own", model, Z, Z[:1], np.array(["maybe"]))


def test_a_study_runs_on_own_data(plugin: str, tmp_path: Path) -> None:
    moved = load(plugin).into(study("main-mlp"), "own")
    assert {row.setting for row in moved.rows} == {"own"}
    assert moved.name == "main-mlp-on-own"
    rows = [row for row in moved.rows if row.label in ("quiet", "Laplace+PA", "No randomization")]
    cells = engine.run(rows, tmp_path / "cells", seeds=1, workers=1)
    means = {(cell.row.label, cell.epsilon): cell.mean for cell in cells}
    assert means["No randomization", 1.0] == 1.0
    # Only directions shorter than the radius are kept whole; clipping keeps the answers.
    assert means["quiet", 1.0] > 0.99
    assert means["Laplace+PA", 1.0] < 0.7


def test_derived_settings_stay_derived(plugin: str) -> None:
    """Means over 10 and 100 people are drawn from own data; 1,000 people are more than it has."""
    moved = load(plugin).into(study("means"), "own")
    assert {row.setting for row in moved.rows} == {"means 10 own", "means 100 own"}
    assert {row.level for row in moved.rows} == {"10", "100"}
    assert open_source("means 10 own").metric == "mean error"


def test_methods_that_do_not_fit_the_task_are_left_out(plugin: str) -> None:
    """The optimal channel is for one output, so no row of three classes has it."""
    moved = load(plugin).into(study("beyond-lr"), "own")
    assert moved.rows
    assert not [row for row in moved.rows if row.method.mechanism == "scalar-response"]


def test_the_command_writes_a_table(plugin: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run = ["run", "main-mlp", "--plugin", plugin, "--on", "own", "--seeds", "1", "--out", out]
    result = CliRunner().invoke(app, run)
    assert result.exit_code == 0, result.output
    with (tmp_path / "out/main-mlp-on-own.csv").open() as file:
        rows = list(csv.DictReader(file))
    quiet = [row for row in rows if row["mechanism"] == "quiet+PA"]
    assert {row["guarantee"] for row in quiet} == {"not part of offaxis"}
    assert {row["guarantee"] for row in rows if row["mechanism"] == "PrivUnit2"} == {"yes"}
    assert min(float(row["mean"]) for row in quiet) > 0.99
    assert (tmp_path / "out/main-mlp-on-own.html").exists()
    refused = CliRunner().invoke(app, ["run", "main-mlp", "--on", "own"])
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "neither MECHANISMS nor DATA"),
        ("import nothing_of_this_name", "cannot be imported: ModuleNotFoundError"),
        ("MECHANISMS = {'Laplace+PA': 'laplace'}", r"has a row 'Laplace\+PA' already"),
        ("MECHANISMS = {'x': 'lapalce'}", "did you mean 'laplace'"),
        ("MECHANISMS = ['laplace']", "must be a mapping"),
    ],
)
def test_a_wrong_plugin_is_refused_with_the_fix(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=message):
        load(str(path)).into(study("main-mlp"))


def test_an_unknown_data_set_is_refused(plugin: str) -> None:
    with pytest.raises(InvalidInput, match="there is no data set 'owm'; did you mean 'own'"):
        load(plugin).into(study("main-mlp"), "owm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "two words"}, "is one word"),
        ({"name": ""}, "is one word"),
        ({"answers": np.zeros(3)}, "4 vectors and 3 answers"),
        ({"answers": np.zeros(4)}, "must be integers from 0 to 2"),
        ({"answers": np.full(4, 3)}, "must be integers from 0 to 2"),
    ],
)
def test_a_wrong_data_set_is_refused(change: dict, message: str) -> None:
    given = {"name": "own", "answers": np.zeros(4, dtype=int)} | change
    with pytest.raises(InvalidInput, match=message):
        data_set(given["name"], np.eye(3), np.eye(3), np.ones((4, 3)), given["answers"])


def test_a_number_is_scored_by_its_error() -> None:
    assert data_set("one", np.ones((1, 3)), np.eye(3), np.ones((4, 3)), np.ones(4)).metric == "rmse"
