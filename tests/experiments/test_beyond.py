from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import engine
from experiments.beyond import NOISE_ALONE, RECOMMENDED, RECOMMENDED_METHODS
from experiments.catalogue import study
from experiments.claims import FAITHFUL_SETTING, NOISE_KEEPS, OF_PUBLIC_MEAN, claims
from experiments.compare import (
    ComparedCell,
    against_paper,
    compare,
    kept_under_shifts,
    prediction_checks,
    recommended_budgets,
)
from experiments.engine import Outcome, Row
from experiments.methods import CLEAN, LINE, PUBLIC_MEAN
from experiments.recommended import Prediction
from experiments.scores import Metric
from experiments.sources import open_source
from experiments.tables import records, section, short_records, write_csv
from offaxis.decoding.posterior import PosteriorDecoder
from offaxis.evaluation.recommend import recommend
from offaxis.release import Release
from tests.experiments import tiny_study as tiny

Score = Callable[[Row, float], float]


def cells_of(name: str, score: Score, prediction: Prediction | None = None) -> list[ComparedCell]:
    """Return the cells of a study with invented scores."""
    entry = study(name)
    metric: Metric = "rmse" if name == "beyond-lr" else "accuracy"
    outcomes = [
        Outcome(row, e, metric, (score(row, e),) * 2, prediction if row.method.goal else None)
        for row in entry.rows
        for e in row.epsilons
    ]
    return compare(entry, outcomes)


def good(row: Row, epsilon: float) -> float:
    """Return accuracies for which every claim holds."""
    if row.label in (RECOMMENDED, LINE, CLEAN):
        return 0.8
    return 0.7 if row.label in NOISE_ALONE else 0.3


def low(row: Row, epsilon: float) -> float:
    """Return errors for which every claim holds."""
    if row.label == RECOMMENDED:
        return 0.9 * 0.2 * next((s for e, s in OF_PUBLIC_MEAN.items() if e >= epsilon), 1.0)
    return 0.2 if row.label == PUBLIC_MEAN else 0.3


def changed_at(score: Score, label: str, value: float, *, epsilon: float, level: str = "") -> Score:
    def changed(row: Row, at: float) -> float:
        return value if (row.label, at, row.level) == (label, epsilon, level) else score(row, at)

    return changed


FAMILY: list[tuple[str, Score]] = [
    ("beyond-mlp", good),
    ("beyond-shifts", good),
    ("beyond-heads", good),
    ("beyond-lr", low),
]


@pytest.mark.parametrize(("name", "score"), FAMILY)
def test_claims_hold_on_good_scores(name: str, score: Score) -> None:
    checked = claims(study(name), cells_of(name, score))
    assert len(checked) >= 2
    assert all(claim.holds for claim in checked)


BROKEN: list[tuple[str, Score, str, dict[str, object], str]] = [
    ("beyond-mlp", good, "PrivUnit2+PA", {"value": 0.81, "epsilon": 7.5}, "least margin -0.0100"),
    ("beyond-mlp", good, RECOMMENDED, {"value": 0.78, "epsilon": 1.0}, "ε = 1: 97.5%"),
    ("beyond-lr", low, "Task-Aware", {"value": 0.01, "epsilon": 5.0}, "ε = 5, task-aware, linear"),
    ("beyond-lr", low, RECOMMENDED, {"value": 0.21, "epsilon": 2.0}, "ε = 2: 1.0500"),
    ("beyond-lr", low, RECOMMENDED, {"value": 0.1, "epsilon": 10.0}, "ε = 10: 0.500"),
    (
        "beyond-shifts",
        good,
        "IO (delta=10^-5)",
        {"value": 0.9, "epsilon": 3.0, "level": "fog 3"},
        "fog 3, ε = 3, instance-optimal",
    ),
]


@pytest.mark.parametrize(("name", "score", "label", "change", "worst"), BROKEN)
def test_one_bad_cell_breaks_its_claim(
    name: str, score: Score, label: str, change: dict[str, object], worst: str
) -> None:
    broken = changed_at(score, label, **change)  # type: ignore[arg-type]
    failed = [claim for claim in claims(study(name), cells_of(name, broken)) if not claim.holds]
    assert len(failed) == 1
    assert worst in failed[0].worst


def test_releases_that_only_add_noise_must_keep_enough() -> None:
    def weaker(row: Row, epsilon: float) -> float:
        return 0.6 if row.label in NOISE_ALONE else good(row, epsilon)

    assert max(NOISE_KEEPS.values()) > 0.6
    failed = [c for c in claims(study("beyond-mlp"), cells_of("beyond-mlp", weaker)) if not c.holds]
    assert [claim.text.split()[0] for claim in failed] == ["Releases"]


def test_neither_lines_nor_rows_without_privacy_are_methods_of_the_paper() -> None:
    cells = cells_of("beyond-mlp", lambda row, _: row.method.reports + 0.0)
    for comparison in against_paper(cells):
        assert comparison.best.row.method.kind == "fit"
        assert comparison.best.row.label not in (RECOMMENDED, *NOISE_ALONE)
        assert comparison.line is not None
        assert comparison.line.row.label == LINE


def test_predictions_are_compared_with_measurements() -> None:
    """The prediction is 0.7 ± 0.03."""
    prediction = Prediction("some release", 0.7, 0.01)
    entry = study("beyond-predicted")
    cells = cells_of("beyond-predicted", lambda row, _: 0.729, prediction)
    checks = prediction_checks(cells)
    assert all(check.inside for check in checks)
    assert {(check.pooled, check.corrupted) for check in checks} == {
        (True, False),
        (False, True),
        (False, False),
    }
    agreement, fidelity, faithful = claims(entry, cells)
    assert agreement.holds
    assert fidelity.holds
    assert not faithful.holds  # 0.729 < 0.75

    def off(row: Row, epsilon: float) -> float:
        wrong = ("agreement pooled mnist relu", "agreement lhsm", FAITHFUL_SETTING)
        return 0.735 if row.setting in wrong else 0.72

    agreement, fidelity, _ = claims(entry, cells_of("beyond-predicted", off, prediction))
    assert not agreement.holds
    assert "agreement pooled mnist relu" in agreement.worst
    assert agreement.worst.startswith("25 of 30")  # households of another year are not pooled
    assert fidelity.holds  # only a shifted one is off
    text = section(entry, cells_of("beyond-predicted", off, prediction))
    assert text.count("| agreement mnist relu | 0.700 ± 0.030, 0.735 (outside)") == 1
    assert "| agreement lhsm | 0.700 ± 0.030, 0.735 (outside)" in text
    assert "| fog 2 | 0.720 (+0.000) | 0.720 (+0.000) | 0.720 (+0.000) |" in text
    assert "| brightness 5 | 0.720 (+0.000) | 0.720 (+0.000) | 0.735 (+0.015) |" in text


def test_a_pool_is_divided_at_random() -> None:
    plane, pool = open_source("plane"), open_source("pooled plane")
    vectors = plane.sample(0).vectors
    public = np.concatenate(list(pool.public.batches(8192)))
    private = pool.sample(0).vectors
    both = np.concatenate([public, private])
    assert sorted(map(tuple, both)) == sorted(map(tuple, vectors))
    assert not {*map(tuple, public)} & {*map(tuple, private)}
    # Six standard errors of the difference of two means.
    gap = public.mean(axis=0) - private.mean(axis=0)
    assert (np.abs(gap) < 6 * vectors.std(axis=0) * np.sqrt(4 / len(vectors))).all()
    assert np.array_equal(pool.sample(0).answers, plane.task.outputs(private).argmax(axis=1))
    assert pool.fingerprint != plane.fingerprint


def test_shifts_are_compared_with_no_shift() -> None:
    def score(row: Row, _: float) -> float:
        severity = next((int(word) for word in row.setting.split() if word.isdecimal()), 0)
        return 0.9 - 0.1 * severity

    kept = kept_under_shifts(cells_of("beyond-predicted", score))
    assert len(kept) == 4
    for values in (each for kinds in kept.values() for each in kinds.values()):
        np.testing.assert_allclose(values, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4])


def test_short_results_name_the_recommended_and_the_best(tmp_path: Path) -> None:
    cells = cells_of("beyond-heads", good, Prediction("a codebook", 0.8, 0.01))
    entry = study("beyond-heads")
    write_csv(tmp_path / "a.csv", short_records(entry, cells))
    with (tmp_path / "a.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == 5 * 12
    assert {row["recommended"] for row in read} == {"a codebook"}
    assert all(float(row["margin"]) == pytest.approx(0.5) for row in read)
    assert recommended_budgets(cells) == {"a codebook": sorted(study("main-lr").rows[0].epsilons)}
    assert {row["recommended"] for row in records(entry, cells)} == {"a codebook", None}
    assert not short_records(entry, cells_of("beyond-heads", good))
    text = section(entry, cells)
    assert "| mnist relu: recommended | 0.800 |" in text
    assert "| a codebook | 0.5, 1, " in text


def test_a_recommendation_is_made_once_and_kept_with_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tiny.balanced_head()
    source = tiny.source(200, task=task)
    rows = [Row(RECOMMENDED, "", "tiny", RECOMMENDED_METHODS[RECOMMENDED], (4.0,))]
    budgets: list[float] = []

    def counted(*args: object, **kw: object) -> object:
        budgets.append(float(kw["epsilon"]))  # type: ignore[arg-type]
        return recommend(*args, **kw)  # type: ignore[arg-type]

    monkeypatch.setattr("experiments.recommended.recommend", counted)
    (first,) = engine.run(rows, tmp_path, seeds=2, opener=lambda _: source)
    # Another sample with the same public side: the recommendation is reused.
    other = replace(source, draw=lambda _: (source.sample(0).vectors[:50], np.zeros(50, dtype=int)))
    engine.run(rows, tmp_path, seeds=2, opener=lambda _: other)
    assert budgets == [4.0]
    (again,) = engine.run(rows, tmp_path, seeds=2, opener=lambda _: tiny.source(200, task=task))
    assert again == first
    assert budgets == [4.0]
    alone = recommend(source.task, source.public, epsilon=4.0, goal="answers", effort="full")
    expected = alone.expected
    assert first.prediction == Prediction(alone.candidate.title, expected.score, expected.error)
    release = RECOMMENDED_METHODS[RECOMMENDED].make(source, [4.0])[4.0]
    assert isinstance(release, Release)
    assert release == alone.release


def test_posterior_rows_are_fitted_at_each_budget_and_not_shared_with_plain_ones() -> None:
    source = tiny.source(10)
    method = replace(NOISE_ALONE["posterior PrivUnit2"], rank=3)
    plain = replace(method, posterior=False)
    assert method.key != plain.key
    both = method.make(source, [1.0, 6.0])
    alone = method.make(tiny.source(10), [6.0])[6.0]
    assert both[6.0] == alone
    assert isinstance(alone, Release)
    assert isinstance(alone.decoder, PosteriorDecoder)
    other = plain.make(source, [6.0])[6.0]
    assert isinstance(other, Release)
    assert not isinstance(other.decoder, PosteriorDecoder)
