"""Recommendations: honest estimates, the ceiling, and plain words."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.evaluation.recommend import recommend, smallest_epsilon
from offaxis.geometry import Layers

RNG = np.random.default_rng(21)
PLACES = 3 * np.eye(4)[:, :4]
LABELS = RNG.integers(0, 4, 3000)
CLASSES = np.hstack([PLACES[LABELS], np.zeros((3000, 2))]) + RNG.standard_normal((3000, 6))
PUBLIC, PRIVATE = CLASSES[:2000], CLASSES[2000:]
HEAD = Layers.linear(np.hstack([PLACES, np.zeros((4, 2))]))
NUMBER = Layers.linear(np.array([[1.0, 2.0, 0, 0, 0, 0]]))


def answers(vectors):
    return HEAD.outputs(vectors).argmax(axis=1)


@pytest.fixture(scope="module")
def found():
    return recommend(HEAD, PUBLIC, epsilon=3)


def test_the_estimate_holds_on_people_like_the_public_ones(found):
    decoded = found.release.simulate(np.tile(PRIVATE, (10, 1)), np.random.default_rng(0))
    truth = (answers(decoded) == np.tile(answers(PRIVATE), 10)).mean()
    low, high = found.expected.interval(4)
    assert low - 0.02 <= truth <= high + 0.02


def test_nothing_passes_the_ceiling_and_the_best_comes_near_it(found):
    assert found.expected.interval(-4)[1] <= found.ceiling
    assert found.expected.score > 0.95 * found.ceiling
    scores = [each.utility.score for each in found.tried]
    assert scores == sorted(scores, reverse=True)
    assert len(found.tried) > 20


def test_it_says_when_sending_the_answer_is_the_better_thing(found):
    assert found.candidate.is_answer
    assert "sent by randomized response" in found.sentence
    assert "no report of this budget allows more" in found.sentence


def test_what_is_returned_is_fitted_on_all_public_vectors_and_pure(found):
    assert found.release.provenance.public.count == len(PUBLIC)
    assert found.release.guarantee.pure
    assert found.release.guarantee.epsilon == 3
    report = found.release.privatize(PRIVATE[0])
    assert len(report) == found.release.report_size


def test_a_number_is_told_by_the_optimal_channel():
    found = recommend(NUMBER, PUBLIC, epsilon=4)
    channel = next(each for each in found.tried if each.candidate.is_answer)
    assert channel.utility.score > found.tried[0].utility.score - 3 * channel.utility.error
    assert 0.5 < found.expected.score < 1
    assert "of the variance of the model's answer" in found.sentence


def test_fidelity_prefers_a_richer_report(found):
    faithful = recommend(HEAD, PUBLIC, epsilon=6, goal="fidelity")
    assert not faithful.candidate.is_answer
    assert faithful.expected.score > 0.3
    best_by_answers = next(t for t in faithful.tried if t.candidate.is_answer)
    assert faithful.tried[0].utility.score > best_by_answers.utility.score


def test_means_are_chosen_by_their_error_over_people():
    found = recommend(HEAD, PUBLIC, epsilon=2, goal="mean", people=1000)
    assert found.release.gives_means
    assert -0.05 < found.expected.score < 0
    assert "squared error" in found.sentence


def test_the_smallest_budget_for_a_wanted_utility():
    reached = smallest_epsilon(HEAD, PUBLIC, wanted=0.6, budgets=(0.5, 2, 4))
    assert reached is not None
    epsilon, found = reached
    assert epsilon == 2 or epsilon == 4
    assert found.expected.score >= 0.6
    assert smallest_epsilon(HEAD, PUBLIC, wanted=1.0, budgets=(0.5,)) is None


def test_few_public_vectors_are_said_to_be_few():
    assert any(
        "only 120 public vectors" in c for c in recommend(HEAD, PUBLIC[:120], epsilon=3).cautions
    )
    with pytest.raises(InvalidInput, match="at least 50 public vectors"):
        recommend(HEAD, PUBLIC[:30], epsilon=3)


@pytest.mark.parametrize("change", [{"goal": "speed"}, {"people": 0}, {"epsilon": -1}])
def test_bad_settings_are_refused_by_their_name(change):
    with pytest.raises(InvalidInput, match=next(iter(change))):
        recommend(HEAD, PUBLIC, **{"epsilon": 1} | change)
