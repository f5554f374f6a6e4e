"""Means over people: unbiased releases stay above the limit, and biased ones stop falling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.compare import Line
from experiments.engine import Outcome, Row, measure_row
from experiments.means import BUDGETS, LIMITS, MECHANISMS, PEOPLE, mean_studies, nearest
from experiments.pages.panels import people
from experiments.rows import LINES, PUBLIC_MEAN
from experiments.sources import means, open_source
from experiments.tables import people_tables
from offaxis.theory import least_mean_error, sphere_mean_error, task_spectrum
from tests.experiments.tiny_study import source

UNCLIPPED = replace(MECHANISMS["PrivUnit2"], percentile=100.0)


@pytest.fixture(scope="module")
def tiny():
    return source(count=2000)


def error(setting, mechanism, epsilon, seeds):
    found = measure_row(setting, mechanism, [epsilon], seeds=seeds)
    assert found is not None
    return float(np.mean(found[epsilon]))


def test_every_release_is_pure_and_tells_means(tiny):
    setting = means(tiny, 20)
    for mechanism in MECHANISMS.values():
        (made,) = mechanism.make(setting, [3.0]).values()
        assert made.guarantee.pure
        assert np.isfinite(error(setting, mechanism, 3.0, 2))


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_lines_are_the_limits_over_people(tiny, epsilon):
    spectrum = task_spectrum(tiny.geometry.gram, tiny.geometry.covariance)
    for count in (10, 1000):
        setting = means(tiny, count)
        least = error(setting, LIMITS["least unbiased"], epsilon, 2)
        assert least == pytest.approx(least_mean_error(spectrum, epsilon) / count)
        sphere = error(setting, LIMITS["sphere"], epsilon, 2)
        assert sphere == pytest.approx(sphere_mean_error(spectrum.size, epsilon) / count)


def test_who_is_not_asked_errs_by_the_deviation_of_the_mean(tiny):
    """E‖mean − μ‖² is one share of the variance over the people; 2,000 of them: 5 % of error."""
    found = error(means(tiny, 50), LINES[PUBLIC_MEAN], 1.0, 200)
    assert found == pytest.approx(1 / 50, rel=0.35)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_an_unbiased_release_stays_above_the_limit(tiny, epsilon):
    """Nothing is clipped but what exceeds all public vectors.

    The mean error over 40 seeds of 5 coordinates has a deviation of at most a tenth of itself, and
    the release errs more than 1.5 times the limit: below it falls one run in 10^4 or less.
    """
    setting = means(tiny, 200)
    limit = error(setting, LIMITS["least unbiased"], epsilon, 1)
    assert limit < error(setting, UNCLIPPED, epsilon, 40) < 100 * limit


def test_what_knows_the_public_law_passes_the_limit_with_its_bias(tiny):
    setting = means(tiny, 200)
    limit = error(setting, LIMITS["least unbiased"], 1.0, 1)
    assert error(setting, MECHANISMS["codebook"], 1.0, 40) < limit


def test_errors_fall_with_people_until_only_bias_is_left(tiny):
    vectors = tiny.sample(0).vectors + 3.0
    shifted = replace(tiny, name="shifted", draw=lambda _: (vectors, np.zeros(len(vectors))))
    wide, tight = UNCLIPPED, replace(UNCLIPPED, percentile=1.0)
    few, many = means(shifted, 20), means(shifted, 2000)
    assert error(few, tight, 1.0, 20) < error(few, wide, 1.0, 20)
    assert error(many, wide, 8.0, 20) < error(few, wide, 8.0, 20) / 20
    assert error(many, tight, 8.0, 20) > error(few, tight, 8.0, 20) / 3


def outcome(label, mechanism, people, mean):
    row = Row(label, people, "tiny", mechanism, (1.0,))
    return Outcome(row, 1.0, "mean error", (mean,))


SOME = [
    outcome(PUBLIC_MEAN, LINES[PUBLIC_MEAN], "10", 0.1),
    outcome(PUBLIC_MEAN, LINES[PUBLIC_MEAN], "1000", 0.1),
    outcome("Laplace", MECHANISMS["Laplace"], "10", 30.4),
    outcome("Laplace", MECHANISMS["Laplace"], "1000", 0.304),
    outcome("PrivUnit2", MECHANISMS["PrivUnit2"], "10", 0.2),
    outcome("PrivUnit2", MECHANISMS["PrivUnit2"], "1000", 0.002),
]


def test_the_nearest_is_a_release():
    found = nearest(SOME)
    assert {key: each.row.label for key, each in found.items()} == {
        ("10", 1.0): "PrivUnit2",
        ("1000", 1.0): "PrivUnit2",
    }


def test_tables_say_where_asking_nobody_is_nearer():
    best, errors = people_tables([Line(each, None) for each in SOME])
    assert best.rows == [["10", "PrivUnit2: 0.2 \N{DAGGER}"], ["1,000", "PrivUnit2: 0.002"]]
    assert errors.title == "ε = 1"
    assert ["Laplace, optimal reshaping", "30", "0.3"] in errors.rows


def test_the_figure_has_a_panel_a_budget_and_the_rows_by_people():
    (panel,), _ = people(mean_studies()[0], [Line(each, None) for each in SOME])
    drawn = {series.name: (list(series.x), list(series.y)) for series in panel.series}
    assert drawn["PrivUnit2"] == ([10, 1000], [0.2, 0.002])
    assert "nobody asked" in drawn


def test_the_studies_ask_for_the_means_of_their_levels():
    for study in mean_studies():
        for row in study.rows:
            assert row.setting.startswith(f"means {row.level} ")
            assert row.epsilons == BUDGETS
        assert {int(row.level) for row in study.rows} == set(PEOPLE)
        labels = [(row.label, row.level) for row in study.rows]
        assert len(set(labels)) == len(labels)


def test_settings_of_means_can_be_opened():
    assert open_source("means 10 plane").metric == "mean error"
