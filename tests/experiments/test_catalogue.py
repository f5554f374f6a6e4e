from __future__ import annotations

import re

import numpy as np
import pytest

from experiments import engine, sources
from experiments.catalogue import RECOVERY_BUDGETS, chosen, studies, study
from experiments.compare import compare
from experiments.engine import Outcome
from experiments.published import published, tables
from experiments.rows import COUNTERPARTS, LEAST, LINE, LINES, PUBLIC_MEAN
from experiments.without_guarantee import LABEL
from offaxis.errors import InvalidInput
from tests.experiments import tiny_study as tiny


def test_every_table_and_figure_of_the_paper_is_a_study() -> None:
    found = studies()
    assert set(tables()) <= set(found)
    assert {"clipping", "recovery", "mnist-curve", "ellipse"} <= set(found)


def test_a_family_is_run_by_its_name() -> None:
    family = {"beyond-mlp", "beyond-lr", "beyond-shifts", "beyond-heads", "beyond-predicted"}
    assert {entry.name for entry in chosen("beyond")} >= family
    assert [entry.name for entry in chosen("main-lr")] == ["main-lr"]


def test_every_setting_of_every_study_has_its_line() -> None:
    for entry in studies().values():
        for row in entry.rows:
            label = PUBLIC_MEAN if row.setting == "lhsm" else LINE
            asked = row.setting.split()[0]
            if asked in ("means", "fidelity") or (asked == "agreement" and "lhsm" in row.setting):
                continue
            beside = [
                other
                for other in entry.rows
                if (other.label, other.setting, other.level) == (label, row.setting, row.level)
            ]
            assert len(beside) == 1
            assert set(row.epsilons) <= set(beside[0].epsilons)


def test_lines_by_hand() -> None:
    source = tiny.changing_source()
    usual = source.task.outputs(source.geometry.mean[None])[0, 0]
    for label, wanted in ((PUBLIC_MEAN, None), (LEAST, 1e-3)):
        found = engine.measure_row(source, LINES[label], [1.0, 60.0], seeds=2)
        assert found is not None
        for seed in range(2):
            answers = source.sample(seed).answers
            alone = np.sqrt(np.mean((answers - usual) ** 2))
            if wanted is None:
                assert found[1.0][seed] == found[60.0][seed] == pytest.approx(alone)
            else:  # at a huge budget nothing but the error without privacy is left
                assert found[60.0][seed] == pytest.approx(0.1, abs=wanted)
                assert 0.1 < found[1.0][seed] < np.hypot(alone, 0.1)
    images = tiny.source(500)
    found = engine.measure_row(images, LINES[LINE], [2.0], seeds=3)
    assert found is not None
    assert found[2.0] == pytest.approx((np.exp(2) / (np.exp(2) + 2),) * 3)  # always right


@pytest.mark.parametrize("name", tables())
def test_every_published_number_has_its_place(name: str) -> None:
    entry = study(name)
    outcomes = [
        Outcome(row, epsilon, "accuracy", (0.5,)) for row in entry.rows for epsilon in row.epsilons
    ]
    with_paper = [line for line in compare(entry, outcomes) if line.paper is not None]
    assert len(with_paper) == sum(len(row.figures) for row in published(name))


def test_rows_without_a_guarantee_are_marked_and_followed_by_their_counterparts() -> None:
    marked = 0
    for entry in studies().values():
        for row, after in zip(entry.rows, (*entry.rows[1:], None), strict=True):
            assert (row.mechanism.mark == LABEL) is (row.label in COUNTERPARTS)
            if row.mechanism.mark:
                marked += 1
                assert after is not None
                assert after.label == COUNTERPARTS[row.label]
                assert (after.setting, after.level) == (row.setting, row.level)
                assert not after.mechanism.mark
    assert marked > 30


def test_reshaped_rows_use_the_published_setting() -> None:
    for name in ("main-lr", "main-mlp", "cifar10-linear"):
        for row in study(name).rows:
            mechanism = row.mechanism
            assert (mechanism.percentile, mechanism.lambda_max) == (90.0, 1000.0)
            assert (mechanism.reshaping == "jacobian") is ("+PA" in row.label)


def test_levels_reach_the_mechanism_or_the_setting() -> None:
    caps = {row.mechanism.lambda_max for row in study("lambda-max").rows}
    assert caps == {1e1, 1e2, 1e3, 1e4, 1e5}
    settings = {row.setting for row in study("shift-fog").rows}
    assert settings == {"cifar10 relu", *(f"cifar10-c fog {s} relu" for s in range(1, 6))}
    assert len({row.mechanism.percentile for row in study("clipping").rows}) == 10


def test_recovery_looks_at_twenty_shifts_and_shares_their_cells() -> None:
    entry = study("recovery")
    assert len({row.level for row in entry.rows}) == 20
    assert {row.epsilons for row in entry.rows} == {RECOVERY_BUDGETS}
    keys = {(row.setting, row.mechanism.key) for row in entry.rows}
    shifts = {
        (row.setting, row.mechanism.key)
        for corruption in sources.CORRUPTIONS
        for row in study(f"shift-{corruption}").rows
    }
    assert keys <= shifts


def test_names_that_do_not_exist_are_errors() -> None:
    with pytest.raises(InvalidInput, match="there is no study 'main'"):
        study("main")
    for name in ("", "cifar10 sigmoid", "mnist tanh", "cifar10-c fog 6 relu"):
        with pytest.raises(InvalidInput, match="no setting"):
            sources.open_source(name)


def test_every_setting_is_one_that_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(sources, "_images", lambda *args, **which: asked.append((args, which)))
    monkeypatch.setattr(sources, "_households", lambda: asked.append("lhsm"))
    names = {row.setting for entry in studies().values() for row in entry.rows}
    bases = {re.sub("^(agreement|fidelity|means [0-9]+) (pooled )?", "", name) for name in names}
    for name in bases - {"plane"}:
        sources.open_source.__wrapped__(name)
    assert len(asked) == len(bases) - 1 == 26


@pytest.mark.parametrize("name", ["beyond-mlp", "beyond-lr"])
def test_beyond_the_paper_every_row_is_valid(name: str) -> None:
    rows = study(name).rows
    assert all(not row.mechanism.mark for row in rows)
    assert len({row.setting for row in rows}) == 1
    base = study(name.replace("beyond", "main"))
    assert {row.label for row in rows} > {r.label for r in base.rows if not r.mechanism.mark}
