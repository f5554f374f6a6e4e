"""People without an answer: what models say about those who have one, and what plans assume.

Seeds are fixed; rates of false alarms are stated.
"""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.learning import Classes, PairSums, cells, fit_pairs, learn, plan_learning, principal
from offaxis.simulation import draw_observations

CENTRES = 8 * np.eye(3)
RNG = np.random.default_rng(0)
PUBLIC = CENTRES[RNG.integers(3, size=600)] + 0.3 * RNG.standard_normal((600, 3))
PLACES = cells(PUBLIC, 3)


def model_of(release, vectors, answers, seed=0):
    """Learn from simulated reports."""
    encoded = release.encoder.encode(release.pairs(vectors, answers))
    sums = PairSums(release)
    sums.add_observed(draw_observations(release.randomizer, encoded, np.random.default_rng(seed)))
    return learn(release, sums)


def some(answers, has):
    return [int(a) if h else None for a, h in zip(answers, has, strict=True)]


def test_chances_of_cells_are_those_of_people_with_an_answer():
    """Three of ten people answer, 90 % of them alike in a cell; the deviation is about 0.01."""
    rng = np.random.default_rng(1)
    release = fit_pairs(PLACES, Classes(2, optional=True), epsilon=4)
    group = rng.integers(3, size=40_000)
    answers = (group == 0) ^ (rng.random(40_000) < 0.1)
    model = model_of(release, CENTRES[group], some(answers, rng.random(40_000) < 0.3))
    chances = model.predict_proba(CENTRES)
    np.testing.assert_allclose(chances[[0, 1, 2], [1, 0, 0]], 0.9, atol=0.06)
    assert model.expected_accuracy().estimate == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize("share", [0.5, 0.15])
def test_intervals_of_the_accuracy_cover_where_few_answer(share):
    """The share with an answer is estimated, too: fewer than 88 % of 150 once in 10³."""
    rng = np.random.default_rng(2)
    release = fit_pairs(PLACES, Classes(10, optional=True), epsilon=4)
    covered, errors = [], []
    for seed in range(150):
        group = rng.integers(3, size=8_000)
        other = (group + 1 + rng.integers(9, size=8_000)) % 10
        answers = np.where(rng.random(8_000) < 0.95, group, other)
        model = model_of(release, CENTRES[group], some(answers, rng.random(8_000) < share), seed)
        found = model.expected_accuracy()
        covered.append(found.low <= 0.95 <= found.high)
        errors.append(found.estimate - 0.95)
    assert np.mean(covered) > 0.88
    assert abs(np.mean(errors)) < 0.03


def test_moments_of_optional_answers_give_neither_chances_nor_an_accuracy():
    """They do not tell how many people answered. The order of the classes is right all the same."""
    rng = np.random.default_rng(3)
    people = rng.standard_normal((30_000, 4))
    labels = (people[:, 0] > 0).astype(int)
    release = fit_pairs(principal(people[:2000]), Classes(2, optional=True), epsilon=4)
    model = model_of(release, people, some(labels, rng.random(30_000) < 0.4))
    assert model.score(people, labels) > 0.95
    with pytest.raises(InvalidInput, match="how many people had no answer"):
        model.predict_proba(people[:5])
    with pytest.raises(InvalidInput, match="how many people had no answer"):
        model.expected_accuracy(people[:2000])


@pytest.mark.parametrize("features", [PLACES, principal(PUBLIC)], ids=["cells", "moments"])
def test_a_plan_says_that_it_assumes_that_everybody_answers(features):
    for optional in (True, False):
        plan = plan_learning(
            PUBLIC, answers=Classes(2, optional=optional), epsilon=1, features=features
        )
        assert ("everybody has an answer" in plan.assumption) == optional
        assert ("everybody has an answer" in str(plan)) == optional


def test_as_many_answers_take_more_people_where_few_have_one():
    """What a plan says: a share r of answers takes about 1/r² times the people."""
    plan = plan_learning(PUBLIC, answers=Classes(3, optional=True), epsilon=1, features=PLACES)
    rng, right = np.random.default_rng(4), []
    for seed in range(60):
        group = rng.integers(3, size=2_500)
        answers = np.where(rng.random(2_500) < 0.8, group, (group + 1 + rng.integers(2)) % 3)
        model = model_of(plan.release, CENTRES[group], some(answers, rng.random(2_500) < 0.2), seed)
        right.append(np.where(model.predict(CENTRES) == np.arange(3), 0.8, 0.1).mean())
    # A twenty-fifth of the people, give or take; and not as good as if all of them answered.
    assert plan.expected(50).accuracy < np.mean(right) < plan.expected(200).accuracy
    assert np.mean(right) < plan.expected(2_500).accuracy - 0.05
