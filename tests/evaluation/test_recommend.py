"""Recommendations: estimates without optimism, ceilings, summaries, and the smallest budget."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.evaluation.metrics import without_noise
from offaxis.evaluation.recommend import recommend, recommend_range
from offaxis.evaluation.smallest import smallest_epsilon
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

FOUR = Layers.linear(3 * np.eye(4))
FOUR_RNG = np.random.default_rng(21)
AROUND_FOUR = 3 * np.eye(4)[FOUR_RNG.integers(0, 4, 1500)] + FOUR_RNG.standard_normal((1500, 4))


def answers(vectors):
    return HEAD.outputs(vectors).argmax(axis=1)


@pytest.fixture(scope="module")
def recommendation():
    return recommend(HEAD, PUBLIC, epsilon=3, effort="full")


def test_the_estimate_holds_for_people_like_the_public_vectors(recommendation):
    decoded = simulate(recommendation.release, np.tile(PRIVATE, (10, 1)), np.random.default_rng(0))
    truth = (answers(decoded) == np.tile(answers(PRIVATE), 10)).mean()
    low, high = recommendation.expected.interval(4)
    assert low - 0.02 <= truth <= high + 0.02


def test_nothing_exceeds_the_ceiling_and_the_best_is_close_to_it(recommendation):
    assert recommendation.expected.interval(-4)[1] <= recommendation.ceiling
    assert recommendation.expected.score > 0.95 * recommendation.ceiling
    scores = [scored.utility.score for scored in recommendation.candidates]
    assert scores == sorted(scores, reverse=True)
    assert 12 <= len(recommendation.candidates) <= 40
    assert len(recommendation.screened_out) > 20


def test_the_summary_states_that_sending_the_answer_is_better(recommendation):
    assert recommendation.candidate.is_answer
    assert "by randomized response" in recommendation.summary
    assert "release of a vector" in recommendation.summary
    assert f"measured on {recommendation.measured_on:,} held-out vectors" in recommendation.summary


def test_utility_is_estimated_on_held_out_vectors(recommendation):
    assert recommendation.compared_on == recommendation.measured_on == len(PUBLIC) // 5
    assert recommendation.expected != recommendation.candidates[0].utility


def test_the_release_is_fitted_to_all_public_vectors_and_pure(recommendation):
    assert recommendation.release.provenance.public.count == len(PUBLIC)
    assert recommendation.release.guarantee.pure
    assert recommendation.release.guarantee.epsilon == 3
    report = recommendation.release.privatize(PRIVATE[0])
    assert len(report) == recommendation.release.report_size


def test_a_number_is_reported_by_the_optimal_channel():
    recommendation = recommend(NUMBER, PUBLIC, epsilon=4)
    channel = next(scored for scored in recommendation.candidates if scored.candidate.is_answer)
    assert (
        channel.utility.score
        > recommendation.candidates[0].utility.score - 3 * channel.utility.error
    )
    assert (
        0.5
        < recommendation.expected.score
        <= recommendation.ceiling + 4 * recommendation.expected.error
    )
    assert "of the variance of the model's answer" in recommendation.summary
    # For a linear task of one output, answers and fidelity are the same.
    for scored in recommendation.candidates:
        assert scored.scores.answers.score == pytest.approx(scored.scores.fidelity.score, abs=1e-9)
    assert len(recommendation.frontier) == 1


def test_fidelity_prefers_a_richer_report():
    faithful = recommend(HEAD, PUBLIC[:1000], epsilon=6, goal="vectors", effort="full")
    assert not faithful.candidate.is_answer
    assert 0.3 < faithful.expected.score < faithful.ceiling
    best_by_answers = next(t for t in faithful.candidates if t.candidate.is_answer)
    assert faithful.candidates[0].utility.score > best_by_answers.utility.score
    # A release of the vector is close to the best one, so a decoder network was trained for it.
    pytest.importorskip("torch")
    trained = next(t for t in faithful.candidates if t.candidate.decoding == "noise-aware")
    assert trained.utility.score > 0.8 * faithful.candidates[0].utility.score


def test_no_candidate_of_the_frontier_is_beaten_in_both_goals(recommendation):
    both = {
        id(t): (t.scores.answers.score, t.scores.fidelity.score) for t in recommendation.candidates
    }
    frontier = {id(t) for t in recommendation.frontier}
    for candidate, (answers, fidelity) in both.items():
        beaten = any(
            a > answers + 1e-9 and f > fidelity + 1e-9
            for other, (a, f) in both.items()
            if other != candidate
        )
        assert not (beaten and candidate in frontier)
    assert max(f for _, f in both.values()) == pytest.approx(
        recommendation.frontier[-1].scores.fidelity.score, abs=1e-9
    )


@pytest.mark.parametrize(("task", "goal"), [(NUMBER, "answers"), (HEAD, "vectors")])
def test_at_a_tiny_budget_the_choice_is_not_worse_than_the_public_mean(task, goal):
    recommendation = recommend(task, PUBLIC, epsilon=0.01, goal=goal)
    silent = next(
        scored for scored in recommendation.candidates if scored.candidate.decoding == "mean"
    )
    assert silent.utility.score == pytest.approx(0, abs=1e-9)
    assert recommendation.candidates[0].utility.score >= silent.utility.score
    scorer = TaskScorer(task, measure(task, PublicVectors(PUBLIC)).gram, PUBLIC.mean(axis=0), goal)
    utility = scorer(recommendation.release, np.tile(PRIVATE, (20, 1)))
    assert utility.score > -0.005


def test_a_common_answer_is_given_without_reading_the_report():
    """At ε = 0.1, response over both answers is right half the time; a constant one more often."""
    rare = Layers.linear(np.array([[1.0, 0, 0, 0, 0, 0], [0.0] * 6]), np.array([0.0, -1.5]))
    share = (rare.outputs(PUBLIC).argmax(axis=1) == 0).mean()
    assert share > 0.7
    recommendation = recommend(rare, PUBLIC, epsilon=0.1)
    assert abs(recommendation.expected.score - share) < 0.1
    assert recommendation.ceiling == pytest.approx(share)


def test_means_are_chosen_by_their_error_over_people():
    recommendation = recommend(HEAD, PUBLIC[:1000], epsilon=2, goal="means", people=1000)
    assert recommendation.release.supports_mean
    assert -0.05 < recommendation.expected.score < 0
    assert "squared error" in recommendation.summary
    assert all(t.candidate.settings["mechanism"] != "response" for t in recommendation.candidates)
    assert recommend(HEAD, PUBLIC[:1000], epsilon=2, goal="means").epsilon == 2
    assert recommendation.frontier == ()


def test_for_many_people_the_release_is_unbiased():
    """For 10^8 people the bias is the whole error; people unlike the public vectors show it."""
    skewed = np.exp(PUBLIC[:800] / 2)
    recommendation = recommend(HEAD, skewed, epsilon=4, goal="means", people=10**8)
    shifted = skewed[skewed[:, 0] > np.median(skewed[:, 0])]
    gram = measure(HEAD, PublicVectors(skewed)).gram
    bias = (without_noise(recommendation.release, shifted) - shifted).mean(axis=0)
    assert bias @ gram @ bias < 1e-6 * np.trace(gram @ np.cov(skewed.T))
    assert recommendation.candidate.settings["percentile"] == 100
    # Broken control: a release that is recommended for few people may clip, and is biased.
    few = recommend(HEAD, skewed, epsilon=4, goal="means", people=1)
    bias = (without_noise(few.release, shifted) - shifted).mean(axis=0)
    assert bias @ gram @ bias > 1e-4 * np.trace(gram @ np.cov(skewed.T))


def test_several_tasks_are_served_by_one_release():
    parity = Layers.linear(np.stack([HEAD.weights[0][::2].sum(0), HEAD.weights[0][1::2].sum(0)]))
    tasks = {"place": HEAD, "parity": parity}
    recommendation = recommend(tasks, PUBLIC[:1200], epsilon=5)
    assert (
        set(recommendation.expected_by_task)
        == set(recommendation.ceiling_by_task)
        == {"place", "parity"}
    )
    mean = np.mean([utility.score for utility in recommendation.expected_by_task.values()])
    assert recommendation.expected.score == pytest.approx(mean)
    assert recommendation.expected.error > 0
    joint = next(
        t for t in recommendation.candidates if t.candidate.title.startswith("all answers")
    )
    assert joint.utility.score > recommendation.candidates[0].utility.score - 0.05
    decoded = simulate(recommendation.release, np.tile(PRIVATE, (10, 1)), np.random.default_rng(0))
    for name, model in tasks.items():
        clean = np.tile(model.outputs(PRIVATE).argmax(1), 10)
        truth = (model.outputs(decoded).argmax(1) == clean).mean()
        low, high = recommendation.expected_by_task[name].interval(4)
        assert low - 0.02 <= truth <= high + 0.02
    with pytest.raises(InvalidInput, match="name every task"):
        recommend(tasks, PUBLIC, epsilon=5, weights={"place": 1})
    with pytest.raises(InvalidInput, match="several tasks"):
        recommend(HEAD, PUBLIC, epsilon=5, weights={"place": 1})


def test_a_range_gives_the_same_as_single_budgets(recommendation):
    ranged = recommend_range(HEAD, PUBLIC, epsilons=[1, 3])
    assert [recommendation.epsilon for recommendation in ranged] == [1, 3]
    assert ranged[1].release == recommendation.release
    assert ranged[1].expected == recommendation.expected
    assert ranged[0].ceiling < ranged[1].ceiling
    with pytest.raises(InvalidInput, match="at least one"):
        recommend_range(HEAD, PUBLIC, epsilons=[])


def test_few_public_vectors_get_a_caution_and_very_few_are_rejected():
    assert any(
        "only 120 public vectors" in c for c in recommend(HEAD, PUBLIC[:120], epsilon=3).cautions
    )
    with pytest.raises(InvalidInput, match=r"at least 50 public vectors, got 30.*wide_prior"):
        recommend(HEAD, PUBLIC[:30], epsilon=3)


@pytest.mark.parametrize("change", [{"goal": "speed"}, {"people": 0}, {"epsilon": -1}])
def test_errors_name_the_bad_setting(change):
    with pytest.raises(InvalidInput, match=next(iter(change))):
        recommend(HEAD, PUBLIC, **{"epsilon": 1} | change)


def test_the_smallest_budget_reaches_the_target():
    smallest = smallest_epsilon(FOUR, AROUND_FOUR, target=0.6)
    assert smallest.recommendation.expected.score >= 0.6
    assert smallest.recommendation.epsilon == smallest.epsilon
    assert smallest.least_possible <= smallest.epsilon
    # Randomized response meets the ceiling here, so little more than the least is needed.
    assert smallest.epsilon < smallest.least_possible + 0.35
    assert (smallest.epsilon * 20) == pytest.approx(round(smallest.epsilon * 20))
    again = recommend(FOUR, AROUND_FOUR, epsilon=smallest.epsilon)
    assert again.release == smallest.recommendation.release
    assert again.expected == smallest.recommendation.expected
    assert "no report of any kind can" in smallest.summary


def test_an_unreachable_target_is_reported_with_the_reason():
    impossible = smallest_epsilon(FOUR, AROUND_FOUR, target=0.99, max_epsilon=2)
    assert impossible.epsilon is None
    assert impossible.least_possible is None
    assert impossible.summary.startswith(
        "No report of a budget up to 2 can reach 0.99, by a plug-in"
    )
    # The ceiling of fidelity is far above what single reports of a filled space keep.
    missed = smallest_epsilon(FOUR, AROUND_FOUR[:300], target=0.35, goal="vectors", max_epsilon=2)
    assert missed.recommendation is None
    assert 0 < missed.least_possible < 2
    assert "was found to reach 0.35" in missed.summary
