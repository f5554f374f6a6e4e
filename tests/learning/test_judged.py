"""How good is it? Accuracies with known shares, coefficients of constants, and few reports.

People are simulated with fixed seeds; rates of false alarms are stated.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learning import coefficients
from offaxis.errors import InvalidInput
from offaxis.learning import Number, PairSums, cells, fit_pairs, learn, principal
from offaxis.learning.moments import LEAST_JUDGED
from offaxis.simulation import draw_observations

RNG = np.random.default_rng(0)
PUBLIC = RNG.standard_normal((2000, 3))
LINEAR = principal(PUBLIC)


def model_of(release, vectors, answers=None, *, labels=None, kind=None, seed=0):
    """Learn from simulated reports, with public labels if given."""
    rows = vectors if answers is None else release.pairs(vectors, answers)
    observed = draw_observations(
        release.randomizer, release.encoder.encode(rows), np.random.default_rng(seed)
    )
    sums = PairSums(release, kind)
    sums.add_observed(observed, None if labels is None else np.asarray(labels, dtype=float))
    return learn(release, sums)


SLOPES = np.array([[0.075, 0.0, 0.05], [-0.075, 0.05, 0.0], [0.0, -0.05, -0.05]])


@pytest.mark.parametrize("intercept", [True, False])
def test_the_accuracy_with_public_labels_counts_their_shares(intercept):
    """Classes of 60, 30 and 10 %: below 85 % of 100 intervals once in 10⁴.

    The shares are those of the labels, not 1/3 each, which gave 0 % without a constant feature.
    """
    features = principal(PUBLIC, intercept=intercept)
    release = fit_pairs(features, None, epsilon=1)
    x = features.of(PUBLIC)[:, :3]
    chances = np.clip([0.6, 0.3, 0.1] + (x - x.mean(axis=0)) @ SLOPES.T, 0, 1)
    chances /= chances.sum(axis=1, keepdims=True)
    rng, covered, errors = np.random.default_rng(1), [], []
    for seed in range(100):
        who = rng.integers(2000, size=4000)
        labels = np.minimum((rng.random((4000, 1)) > chances[who].cumsum(axis=1)).sum(axis=1), 2)
        model = model_of(release, PUBLIC[who], labels=labels, kind=3, seed=seed)
        found = model.expected_accuracy(PUBLIC)
        reached = chances[np.arange(2000), model.predict(PUBLIC)].mean()
        covered.append(found.low <= reached <= found.high)
        errors.append(found.estimate - reached)
    assert np.mean(covered) > 0.85
    assert abs(np.mean(errors)) < 0.01
    assert "equally common" not in found.assumption


def test_without_a_constant_feature_equal_classes_are_assumed_and_stated():
    features = principal(PUBLIC, intercept=False)
    release = fit_pairs(features, 2, epsilon=4)
    labels = (PUBLIC[:, 0] > 0).astype(int)
    found = model_of(release, PUBLIC, labels).expected_accuracy(PUBLIC)
    assert "all answers are equally common" in found.assumption


@pytest.mark.parametrize("public", [False, True])
def test_the_coefficient_of_the_constant_is_that_of_the_answer(public):
    """The moments are those of numbers less 50; least squares is that of the numbers.

    Five standard errors: 1e-6 for each.
    """
    x = LINEAR.of(PUBLIC)
    numbers = np.clip(60 + 10 * PUBLIC[:, 0], 0, 100)
    truth = np.linalg.lstsq(x, numbers, rcond=None)[0]
    asked = Number(0, 100)
    release = fit_pairs(LINEAR, None if public else asked, epsilon=4)
    people, given = np.tile(PUBLIC, (20, 1)), np.tile(numbers, 20)
    if public:
        model = model_of(release, people, labels=given, kind=asked)
    else:
        model = model_of(release, people, given)
    assert (np.abs(model.estimate_ - truth) < 5 * model.standard_error_).all()
    low, high = model.interval(1 - 1e-6)
    assert ((low < truth) & (truth < high)).all()
    assert abs(truth[-1]) > 50  # otherwise the middle would not show


def test_the_coefficients_of_the_benchmark_are_those_that_intervals_are_for():
    """Of least squares for the numbers themselves: five standard errors, 1e-6 for each."""
    numbers = np.clip(0.6 + 0.1 * PUBLIC[:, 0], 0, 1)
    truth = coefficients(LINEAR, PUBLIC, numbers)
    np.testing.assert_allclose(truth, np.linalg.lstsq(LINEAR.of(PUBLIC), numbers, rcond=None)[0])
    release = fit_pairs(LINEAR, Number(0, 1), epsilon=4)
    model = model_of(release, np.tile(PUBLIC, (20, 1)), np.tile(numbers, 20))
    assert (np.abs(model.estimate_ - truth) < 5 * model.standard_error_).all()


def test_slopes_without_a_constant_do_not_depend_on_the_middle_of_the_range():
    """Public numbers from 0 to 100 and −1,000 to 1,000, about their mean; five standard errors."""
    features = principal(PUBLIC, intercept=False)
    x = features.of(PUBLIC)
    numbers = np.clip(60 + 10 * PUBLIC[:, 0], 0, 100)
    centred = x - x.mean(axis=0)
    truth = np.linalg.lstsq(centred, numbers - numbers.mean(), rcond=None)[0]
    release = fit_pairs(features, None, epsilon=8)
    people, given = np.tile(PUBLIC, (20, 1)), np.tile(numbers, 20)
    for kind in (Number(0, 100), Number(0, 1000)):
        model = model_of(release, people, labels=given, kind=kind)
        assert (np.abs(model.estimate_ - truth) < 5 * model.standard_error_).all()


@pytest.mark.parametrize("count", [10, 12, 20])
def test_few_reports_give_wide_intervals(count):
    """Answers that do not depend on vectors: every model is right for half of the people.

    Intervals of 95 %: fewer than 88 % of 200 once in 10⁴.
    """
    release, rng = fit_pairs(LINEAR, 2, epsilon=1), np.random.default_rng(2)
    covered = []
    for seed in range(200):
        answers = rng.integers(2, size=count)
        model = model_of(release, rng.standard_normal((count, 3)), answers, seed=seed)
        found = model.expected_accuracy(PUBLIC[:300])
        covered.append(found.low <= 0.5 <= found.high)
    assert np.mean(covered) > 0.88


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
def test_intervals_of_coefficients_from_few_reports_are_wide(count):
    """Numbers that do not depend on vectors have coefficients of zero; as above."""
    release, rng = fit_pairs(LINEAR, Number(-1, 1), epsilon=1), np.random.default_rng(3)
    covered = []
    for seed in range(200):
        numbers = rng.uniform(-1, 1, count)
        model = model_of(release, rng.standard_normal((count, 3)), numbers, seed=seed)
        low, high = model.interval()
        covered.append((low <= 0) & (high >= 0))
    assert np.mean(covered) > 0.88


def test_a_model_of_nine_reports_is_not_judged():
    vectors = PUBLIC[:50]
    labels = (vectors[:, 0] > 0).astype(int)
    for features, public in ((LINEAR, PUBLIC), (cells(PUBLIC, 3), None)):
        release = fit_pairs(features, 2, epsilon=4)
        few = LEAST_JUDGED - 1
        with pytest.raises(InvalidInput, match="at least 10"):
            model_of(release, vectors[:few], labels[:few]).expected_accuracy(public)
        model_of(release, vectors, labels).expected_accuracy(public)
