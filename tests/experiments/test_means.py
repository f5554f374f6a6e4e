"""Means over people: unbiased releases stay above the bound, and biased ones stop improving."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.compare import ComparedCell
from experiments.engine import Outcome, Row, measure_row
from experiments.means import BUDGETS, LIMITS, METHODS, PEOPLE, best_by_people, mean_studies
from experiments.methods import LINES, PUBLIC_MEAN
from experiments.pages.panels import by_people
from experiments.sources import means, open_source
from experiments.tables import people_tables
from offaxis.theory import least_mean_error, sphere_mean_error, task_spectrum
from tests.experiments.tiny_study import source

UNCLIPPED = replace(METHODS["PrivUnit2"], percentile=100.0)


@pytest.fixture(scope="module")
def tiny():
    return source(count=2000)


def error(setting, method, epsilon, seeds):
    scores = measure_row(setting, method, [epsilon], seeds=seeds)
    assert scores is not None
    return float(np.mean(scores[epsilon]))


def test_every_release_is_pure_and_supports_means(tiny):
    setting = means(tiny, 20)
    for method in METHODS.values():
        (release,) = method.make(setting, [3.0]).values()
        assert release.guarantee.pure
        assert np.isfinite(error(setting, method, 3.0, 2))


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_reference_lines_are_the_bounds_divided_by_people(tiny, epsilon):
    spectrum = task_spectrum(tiny.geometry.gram, tiny.geometry.covariance)
    for count in (10, 1000):
        setting = means(tiny, count)
        least = error(setting, LIMITS["least unbiased"], epsilon, 2)
        assert least == pytest.approx(least_mean_error(spectrum, epsilon) / count)
        sphere = error(setting, LIMITS["sphere"], epsilon, 2)
        assert sphere == pytest.approx(sphere_mean_error(spectrum.size, epsilon) / count)


def test_the_public_mean_errs_by_the_deviation_of_the_mean(tiny):
    """E‖mean − μ‖² is the variance divided by the number of people; 2,000 vectors add 5 %."""
    measured = error(means(tiny, 50), LINES[PUBLIC_MEAN], 1.0, 200)
    assert measured == pytest.approx(1 / 50, rel=0.35)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_an_unbiased_release_stays_above_the_bound(tiny, epsilon):
    """Only vectors larger than all public ones are clipped.

    The mean error over 40 seeds of 5 coordinates has a deviation of at most a tenth of itself, and
    the release errs more than 1.5 times the bound: at most one run in 10^4 falls below it.
    """
    setting = means(tiny, 200)
    bound = error(setting, LIMITS["least unbiased"], epsilon, 1)
    assert bound < error(setting, UNCLIPPED, epsilon, 40) < 100 * bound


def test_a_biased_codebook_can_fall_below_the_bound(tiny):
    setting = means(tiny, 200)
    bound = error(setting, LIMITS["least unbiased"], 1.0, 1)
    assert error(setting, METHODS["codebook"], 1.0, 40) < bound


def test_errors_fall_with_people_until_only_bias_remains(tiny):
    vectors = tiny.sample(0).vectors + 3.0
    shifted = replace(tiny, name="shifted", draw=lambda _: (vectors, np.zeros(len(vectors))))
    wide, tight = UNCLIPPED, replace(UNCLIPPED, percentile=1.0)
    few, many = means(shifted, 20), means(shifted, 2000)
    assert error(few, tight, 1.0, 20) < error(few, wide, 1.0, 20)
    assert error(many, wide, 8.0, 20) < error(few, wide, 8.0, 20) / 20
    assert error(many, tight, 8.0, 20) > error(few, tight, 8.0, 20) / 3


def outcome(label, method, people, mean):
    row = Row(label, people, "tiny", method, (1.0,))
    return Outcome(row, 1.0, "mean error", (mean,))


OUTCOMES = [
    outcome(PUBLIC_MEAN, LINES[PUBLIC_MEAN], "10", 0.1),
    outcome(PUBLIC_MEAN, LINES[PUBLIC_MEAN], "1000", 0.1),
    outcome("Laplace", METHODS["Laplace"], "10", 30.4),
    outcome("Laplace", METHODS["Laplace"], "1000", 0.304),
    outcome("PrivUnit2", METHODS["PrivUnit2"], "10", 0.2),
    outcome("PrivUnit2", METHODS["PrivUnit2"], "1000", 0.002),
]


def test_the_best_method_is_a_release():
    best = best_by_people(OUTCOMES)
    assert {key: outcome.row.label for key, outcome in best.items()} == {
        ("10", 1.0): "PrivUnit2",
        ("1000", 1.0): "PrivUnit2",
    }


def test_tables_mark_cells_where_the_public_mean_is_better():
    best, errors = people_tables([ComparedCell(each, None) for each in OUTCOMES])
    assert best.rows == [["10", "PrivUnit2: 0.2 \N{DAGGER}"], ["1,000", "PrivUnit2: 0.002"]]
    assert errors.title == "ε = 1"
    assert ["Laplace, optimal reshaping", "30", "0.3"] in errors.rows


def test_the_figure_has_one_panel_per_budget_and_the_rows_by_people():
    cells = [ComparedCell(each, None) for each in OUTCOMES]
    (panel,), _ = by_people(mean_studies()[0], cells)
    drawn = {series.name: (list(series.x), list(series.y)) for series in panel.series}
    assert drawn["PrivUnit2"] == ([10, 1000], [0.2, 0.002])
    assert "public mean" in drawn


def test_the_settings_of_the_studies_match_their_levels():
    for study in mean_studies():
        for row in study.rows:
            assert row.setting.startswith(f"means {row.level} ")
            assert row.epsilons == BUDGETS
        assert {int(row.level) for row in study.rows} == set(PEOPLE)
        labels = [(row.label, row.level) for row in study.rows]
        assert len(set(labels)) == len(labels)


def test_settings_of_means_can_be_opened():
    assert open_source("means 10 plane").metric == "mean error"
