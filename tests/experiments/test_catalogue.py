from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from experiments import engine, sources
from experiments.catalogue import (
    OURS,
    RECOVERY_BUDGETS,
    paper_studies,
    studies,
    studies_named,
    study,
)
from experiments.compare import compare
from experiments.engine import Outcome
from experiments.methods import COUNTERPARTS, LEAST, LINE, LINES, PUBLIC_MEAN, STATED
from experiments.models.weights import CIFAR_ENCODERS, network_of
from experiments.published import published, tables
from experiments.sources import members
from experiments.without_guarantee import LABEL, TASK_AWARE_IMAGES
from offaxis.errors import InvalidInput
from offaxis.plugins import is_plugin
from tests.experiments import tiny_study as tiny


def test_every_table_and_figure_of_the_paper_is_a_study() -> None:
    both = {*tables(), "clipping", "mnist-clipping", "recovery"}
    assert both | {f"{name}-ours" for name in both} == set(paper_studies())
    assert {*both, "mnist-curve", "ellipse"} <= set(studies())


def test_the_studies_beyond_the_paper_have_a_common_name() -> None:
    family = {"beyond-mlp", "beyond-lr", "beyond-shifts", "beyond-heads", "beyond-predicted"}
    assert {entry.name for entry in studies_named("beyond")} >= family
    assert [entry.name for entry in studies_named("main-lr")] == ["main-lr"]


def test_every_setting_of_every_study_has_its_reference_line() -> None:
    for entry in studies().values():
        for row in entry.rows:
            label = PUBLIC_MEAN if row.setting == "lhsm" else LINE
            score = row.setting.split()[0]
            if score in ("means", "fidelity") or (score == "agreement" and "lhsm" in row.setting):
                continue
            if row.method.kind == TASK_AWARE_IMAGES:
                continue
            lines = [
                other
                for other in entry.rows
                if (other.label, other.setting, other.level) == (label, row.setting, row.level)
            ]
            assert len(lines) == 1
            assert set(row.epsilons) <= set(lines[0].epsilons)


def test_reference_lines_equal_their_formulas() -> None:
    source = tiny.changing_source()
    at_mean = source.task.outputs(source.geometry.mean[None])[0, 0]
    for label, tolerance in ((PUBLIC_MEAN, None), (LEAST, 1e-3)):
        scores = engine.measure_row(source, LINES[label], [1.0, 60.0], seeds=2)
        assert scores is not None
        for seed in range(2):
            answers = source.sample(seed).answers
            constant = np.sqrt(np.mean((answers - at_mean) ** 2))
            if tolerance is None:
                assert scores[1.0][seed] == scores[60.0][seed] == pytest.approx(constant)
            else:  # at a huge budget only the error without privacy remains
                assert scores[60.0][seed] == pytest.approx(0.1, abs=tolerance)
                assert 0.1 < scores[1.0][seed] < np.hypot(constant, 0.1)
    images = tiny.source(500)
    scores = engine.measure_row(images, LINES[LINE], [2.0], seeds=3)
    assert scores is not None
    assert scores[2.0] == pytest.approx((np.exp(2) / (np.exp(2) + 2),) * 3)  # always right


@pytest.mark.parametrize("name", tables())
def test_every_published_number_is_compared(name: str) -> None:
    entry = study(name)
    outcomes = [
        Outcome(row, epsilon, "accuracy", (0.5,)) for row in entry.rows for epsilon in row.epsilons
    ]
    with_paper = [cell for cell in compare(entry, outcomes) if cell.paper is not None]
    assert len(with_paper) == sum(len(row.numbers) for row in published(name))


def test_cells_without_a_guarantee_are_marked() -> None:
    for entry in studies().values():
        for row in entry.rows:
            marked = {epsilon for epsilon in row.epsilons if row.method.mark_at(epsilon) == LABEL}
            if row.label == "CW+PA w/o bounding" or row.method.kind == TASK_AWARE_IMAGES:
                assert marked == set(row.epsilons)
                assert row.method.mark == LABEL
            else:
                assert marked == ({10.0} if row.label.startswith("PLAN (") else set())
                assert row.method.mark == (STATED if is_plugin(row.method.mechanism) else "")


def test_in_our_setting_rows_without_a_guarantee_are_followed_by_their_counterparts() -> None:
    pairs = 0
    for entry in (one for one in studies().values() if one.name.endswith(OURS)):
        for row, after in pairwise(entry.rows):
            if row.label in COUNTERPARTS:
                pairs += 1
                assert after.label == COUNTERPARTS[row.label]
                assert (after.setting, after.level) == (row.setting, row.level)
                assert not after.method.mark_at(10.0)
    assert pairs > 30


def test_modes_are_never_mixed_in_a_study() -> None:
    for name, entry in paper_studies().items():
        methods = [row.method for row in entry.rows if row.method.mechanism]
        expected = "ours" if name.endswith(OURS) else "published"
        assert {method.protocol for method in methods} == {expected}
        images = {row.setting for row in entry.rows} - {"lhsm"}
        for setting in images:
            of_reference = all(re.search("-[0-9]", head) for head in members(setting))
            assert of_reference is (expected == "published"), setting


def test_as_published_has_five_heads_on_each_of_two_encoders() -> None:
    heads = members("published cifar10-c brightness 5 relu")
    assert len(heads) == 10
    assert {network_of("cifar10", head.split()[-1]) for head in heads} == set(CIFAR_ENCODERS)
    assert members("published-first cifar10-c brightness 5 relu") == heads[:5]
    assert len(members("published cifar10 linear")) == 2
    assert len(members("published mnist relu")) == 5


def test_the_row_printed_otherwise_than_computed_is_there_twice() -> None:
    for name in ("ablation", "ablation-ours"):
        ablations = [row.method.ablation for row in study(name).rows]
        assert ablations.count("rotation") == ablations.count("rotation in post") == 3


def test_reshaped_rows_use_the_published_setting() -> None:
    for name in ("main-lr", "main-mlp", "cifar10-linear"):
        for row in study(name).rows:
            method = row.method
            assert (method.percentile, method.lambda_max) == (90.0, 1000.0)
            assert (method.reshaping == "jacobian") is ("+PA" in row.label)


def test_levels_determine_the_method_or_the_setting() -> None:
    caps = {row.method.lambda_max for row in study("lambda-max").rows}
    assert caps == {1e1, 1e2, 1e3, 1e4, 1e5}
    settings = {row.setting for row in study("shift-fog").rows}
    shifts = {f"published-first cifar10-c fog {s} relu" for s in range(1, 6)}
    assert settings == {"published-first cifar10 relu", *shifts}
    assert len({row.method.percentile for row in study("clipping").rows}) == 10


def test_recovery_covers_twenty_shifts_and_shares_their_cells() -> None:
    entry = study("recovery")
    assert len({row.level for row in entry.rows}) == 20
    assert {row.epsilons for row in entry.rows} == {RECOVERY_BUDGETS}
    keys = {(row.setting, row.method.key) for row in entry.rows}
    shifts = {
        (row.setting, row.method.key)
        for corruption in sources.CORRUPTIONS
        for row in study(f"shift-{corruption}").rows
    }
    assert keys <= shifts


def test_unknown_names_are_errors() -> None:
    with pytest.raises(InvalidInput, match="there is no study 'main'"):
        study("main")
    for name in ("", "cifar10 sigmoid", "mnist tanh", "cifar10-c fog 6 relu"):
        with pytest.raises(InvalidInput, match="no setting"):
            sources.open_source(name)


def test_every_setting_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(sources, "_images", lambda *args, **which: opened.append((args, which)))
    monkeypatch.setattr(sources, "_households", lambda: opened.append("lhsm"))
    rows = [row for entry in studies().values() for row in entry.rows]
    names = {setting for row in rows for setting in members(row.setting)}
    bases = {re.sub("^(agreement|fidelity|means [0-9]+) (pooled )?", "", name) for name in names}
    for name in bases - {"plane"}:
        sources.open_source.__wrapped__(name)
    # Ours: 20 shifts, 5 heads, households. Reference: brightness 5 and clean images with 10 heads,
    # 19 shifts with 5, 20 heads with other activations, 2 linear ones, 5 on digits.
    assert len(opened) == len(bases) - 1 == 26 + 20 + 95 + 20 + 2 + 5


@pytest.mark.parametrize("name", ["beyond-mlp", "beyond-lr"])
def test_beyond_the_paper_every_row_has_a_guarantee(name: str) -> None:
    rows = study(name).rows
    assert all(not row.method.mark for row in rows)
    assert len({row.setting for row in rows}) == 1
    base = study(f"{name.replace('beyond', 'main')}{OURS}")
    assert {row.label for row in rows} > {r.label for r in base.rows} - set(COUNTERPARTS)
