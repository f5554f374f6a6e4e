"""Recommendations: honest estimates, the ceiling, and plain words."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.evaluation.metrics import without_noise
from offaxis.evaluation.recommend import recommend, recommend_range
from offaxis.evaluation.utility import TaskScorer
from offaxis.geometry import Layers, PublicVectors, measure
from offaxis.simulation import simulate

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
    decoded = simulate(found.release, np.tile(PRIVATE, (10, 1)), np.random.default_rng(0))
    truth = (answers(decoded) == np.tile(answers(PRIVATE), 10)).mean()
    low, high = found.expected.interval(4)
    assert low - 0.02 <= truth <= high + 0.02


def test_nothing_passes_the_ceiling_and_the_best_comes_near_it(found):
    assert found.expected.interval(-4)[1] <= found.ceiling
    assert found.expected.score > 0.95 * found.ceiling
    scores = [each.utility.score for each in found.candidates]
    assert scores == sorted(scores, reverse=True)
    assert 12 <= len(found.candidates) <= 40
    assert len(found.screened_out) > 20


def test_it_says_when_sending_the_answer_is_the_better_thing(found):
    assert found.candidate.is_answer
    assert "by randomized response" in found.summary
    assert "release of a vector" in found.summary
    assert f"measured on {found.measured_on:,} held-out vectors" in found.summary


def test_it_is_measured_on_vectors_that_it_was_not_compared_on(found):
    assert found.compared_on == found.measured_on == len(PUBLIC) // 5
    assert found.expected != found.candidates[0].utility


def test_what_is_returned_is_fitted_on_all_public_vectors_and_pure(found):
    assert found.release.provenance.public.count == len(PUBLIC)
    assert found.release.guarantee.pure
    assert found.release.guarantee.epsilon == 3
    report = found.release.privatize(PRIVATE[0])
    assert len(report) == found.release.report_size


def test_a_number_is_told_by_the_optimal_channel():
    found = recommend(NUMBER, PUBLIC, epsilon=4)
    channel = next(each for each in found.candidates if each.candidate.is_answer)
    assert channel.utility.score > found.candidates[0].utility.score - 3 * channel.utility.error
    assert 0.5 < found.expected.score <= found.ceiling + 4 * found.expected.error
    assert "of the variance of the model's answer" in found.summary
    # A number is all there is to tell: answers and fidelity are the same.
    for each in found.candidates:
        assert each.scores.answers.score == pytest.approx(each.scores.fidelity.score, abs=1e-9)
    assert len(found.frontier) == 1


def test_fidelity_prefers_a_richer_report():
    faithful = recommend(HEAD, PUBLIC[:1000], epsilon=6, goal="fidelity")
    assert not faithful.candidate.is_answer
    assert 0.3 < faithful.expected.score < faithful.ceiling
    best_by_answers = next(t for t in faithful.candidates if t.candidate.is_answer)
    assert faithful.candidates[0].utility.score > best_by_answers.utility.score
    # A vector is near the best here, so a network was trained to read the reports of one.
    pytest.importorskip("torch")
    trained = next(t for t in faithful.candidates if t.candidate.decoding == "noise-aware")
    assert trained.utility.score > 0.8 * faithful.candidates[0].utility.score


def test_the_frontier_is_what_nothing_passes_in_both(found):
    both = {id(t): (t.scores.answers.score, t.scores.fidelity.score) for t in found.candidates}
    frontier = {id(t) for t in found.frontier}
    for each, (answers, fidelity) in both.items():
        passed = any(
            a > answers + 1e-9 and f > fidelity + 1e-9
            for other, (a, f) in both.items()
            if other != each
        )
        assert not (passed and each in frontier)
    assert max(f for _, f in both.values()) == pytest.approx(
        found.frontier[-1].scores.fidelity.score, abs=1e-9
    )


@pytest.mark.parametrize(("task", "goal"), [(NUMBER, "answers"), (HEAD, "fidelity")])
def test_at_a_tiny_budget_nothing_chosen_is_worse_than_the_public_mean(task, goal):
    found = recommend(task, PUBLIC, epsilon=0.01, goal=goal)
    silent = next(each for each in found.candidates if each.candidate.decoding == "mean")
    assert silent.utility.score == pytest.approx(0, abs=1e-9)
    assert found.candidates[0].utility.score >= silent.utility.score
    judge = TaskScorer(task, measure(task, PublicVectors(PUBLIC)).gram, PUBLIC.mean(axis=0), goal)
    many = judge(found.release, np.tile(PRIVATE, (20, 1)))
    assert many.score > -0.005


def test_where_one_answer_is_common_it_is_told_without_a_report():
    """At ε = 0.1 response over two answers would be right half of the time; always one is 90 %."""
    rare = Layers.linear(np.array([[1.0, 0, 0, 0, 0, 0], [0.0] * 6]), np.array([0.0, -1.5]))
    share = (rare.outputs(PUBLIC).argmax(axis=1) == 0).mean()
    assert share > 0.7
    found = recommend(rare, PUBLIC, epsilon=0.1)
    assert abs(found.expected.score - share) < 0.1
    assert found.ceiling == pytest.approx(share)


def test_means_are_chosen_by_their_error_over_people():
    found = recommend(HEAD, PUBLIC[:1000], epsilon=2, goal="mean", people=1000)
    assert found.release.supports_mean
    assert -0.05 < found.expected.score < 0
    assert "squared error" in found.summary
    assert any("subset" in t.candidate.title for t in found.candidates)
    assert any(t.candidate.decoding == "affine" for t in found.candidates)
    assert found.frontier == ()


def test_for_many_people_nothing_biased_wins():
    """Of 10^8 people a bias is all that is left; those who differ from the public show it."""
    skewed = np.exp(PUBLIC[:800] / 2)
    found = recommend(HEAD, skewed, epsilon=4, goal="mean", people=10**8)
    shifted = skewed[skewed[:, 0] > np.median(skewed[:, 0])]
    gram = measure(HEAD, PublicVectors(skewed)).gram
    bias = (without_noise(found.release, shifted) - shifted).mean(axis=0)
    assert bias @ gram @ bias < 1e-4 * np.trace(gram @ np.cov(skewed.T))
    assert found.candidate.settings["percentile"] == 100
    # The twin: the map that the same question prefers for ten people is biased on these.
    few = recommend(HEAD, skewed, epsilon=4, goal="mean", people=10)
    bias = (without_noise(few.release, shifted) - shifted).mean(axis=0)
    assert bias @ gram @ bias > 1e-3 * np.trace(gram @ np.cov(skewed.T))


def test_several_tasks_are_served_by_one_release():
    parity = Layers.linear(np.stack([HEAD.weights[0][::2].sum(0), HEAD.weights[0][1::2].sum(0)]))
    tasks = {"place": HEAD, "parity": parity}
    found = recommend(tasks, PUBLIC[:1200], epsilon=5)
    assert set(found.expected_by_task) == set(found.ceiling_by_task) == {"place", "parity"}
    mean = np.mean([each.score for each in found.expected_by_task.values()])
    assert found.expected.score == pytest.approx(mean)
    assert found.expected.error > 0
    joint = next(t for t in found.candidates if t.candidate.title.startswith("all answers"))
    assert joint.utility.score > found.candidates[0].utility.score - 0.05
    decoded = simulate(found.release, np.tile(PRIVATE, (10, 1)), np.random.default_rng(0))
    for name, model in tasks.items():
        clean = np.tile(model.outputs(PRIVATE).argmax(1), 10)
        truth = (model.outputs(decoded).argmax(1) == clean).mean()
        low, high = found.expected_by_task[name].interval(4)
        assert low - 0.02 <= truth <= high + 0.02
    with pytest.raises(InvalidInput, match="name every task"):
        recommend(tasks, PUBLIC, epsilon=5, weights={"place": 1})
    with pytest.raises(InvalidInput, match="several tasks"):
        recommend(HEAD, PUBLIC, epsilon=5, weights={"place": 1})


def test_a_range_says_at_every_budget_what_a_single_question_says(found):
    ranged = recommend_range(HEAD, PUBLIC, epsilons=[1, 3])
    assert [each.epsilon for each in ranged] == [1, 3]
    assert ranged[1].release == found.release
    assert ranged[1].expected == found.expected
    assert ranged[0].ceiling < ranged[1].ceiling
    with pytest.raises(InvalidInput, match="at least one"):
        recommend_range(HEAD, PUBLIC, epsilons=[])


def test_few_public_vectors_are_said_to_be_few():
    assert any(
        "only 120 public vectors" in c for c in recommend(HEAD, PUBLIC[:120], epsilon=3).cautions
    )
    with pytest.raises(InvalidInput, match=r"at least 50 public vectors, got 30.*wide_prior"):
        recommend(HEAD, PUBLIC[:30], epsilon=3)


@pytest.mark.parametrize("change", [{"goal": "speed"}, {"people": 0}, {"epsilon": -1}])
def test_bad_settings_are_refused_by_their_name(change):
    with pytest.raises(InvalidInput, match=next(iter(change))):
        recommend(HEAD, PUBLIC, **{"epsilon": 1} | change)
