"""The summary of a recommendation is true to the estimate, to the bound, and to both together."""

from __future__ import annotations

import pytest

from offaxis.evaluation.candidates import Candidate
from offaxis.evaluation.recommendation import summary
from offaxis.evaluation.selection import ScoredCandidate
from offaxis.evaluation.utility import Scores, Utility

BY_CHANCE = "as close to the bound as this many vectors can show"
TOO_FAR = "more than three standard errors"
SPACE = "\N{NO-BREAK SPACE}"


def scored(title, score, **fields):
    return ScoredCandidate(Candidate(title, **fields), Scores(Utility(score, 0.01), {}))


def written(score, ceiling, goal="answers", error=0.01, compared=0.45):
    best = scored("the answer", compared, is_answer=True)
    vector = scored("a vector", 0.2)
    scores = Scores(Utility(score, error), {})
    return summary(goal, {"": 10}, best, [best, vector], scores, ceiling, 1437)


def test_tasks_of_different_kinds_have_no_common_percentage():
    by_task = {"place": Utility(0.8, 0.01), "size": Utility(0.35, 0.01)}
    best = scored("a vector", 0.5)
    outputs = {"place": 10, "size": 1}
    words = summary("answers", outputs, best, [best], Scores(Utility(0.575, 0), by_task), 0.9, 100)
    words = words.replace(SPACE, " ")
    assert "80.0 ± 3.0 % of the answers of place and 35.0 ± 3.0 % of the variance of size" in words
    assert "No report of this budget allows on average, by the weights of the tasks, more" in words
    assert "57.5" not in words


def test_the_summary_states_the_estimate_and_the_held_out_vectors():
    words = written(0.42, 0.45)
    assert "42.0 ± 3.0 %".replace(" ", SPACE) in words
    assert "measured on 1,437 held-out vectors" in words
    assert (
        f"No report of this budget allows more than 45.0{SPACE}%. That limit is a plug-in" in words
    )
    assert "which tends to be too high." in words
    assert BY_CHANCE not in words
    assert TOO_FAR not in words


def test_an_estimate_above_the_bound_is_attributed_to_chance():
    words = written(0.465, 0.451, error=0.017)
    assert f"45.1{SPACE}%: the estimate is above that by chance" in words
    assert BY_CHANCE in words
    assert TOO_FAR not in words


def test_an_estimate_far_above_the_bound_is_not_attributed_to_chance():
    words = written(0.465, 0.451, error=0.004)
    assert TOO_FAR in words
    assert BY_CHANCE not in words


@pytest.mark.parametrize(("score", "below"), [(-0.02, True), (-0.05, False)])
def test_biased_means_may_be_below_the_bound_of_unbiased_reports(score, below):
    words = written(score, -0.03, goal="means")
    assert "No unbiased report of this budget leaves less than 0.03" in words
    assert "That limit is a plug-in estimate" in words
    assert "which tends to be too low." in words
    assert ("slightly biased" in words) is below
    assert "measured on 1,437 held-out vectors" in words


def test_the_best_vector_is_quoted_from_the_comparison():
    words = written(0.42, 0.45)
    assert "Send the answer, not the vector" in words
    assert words.endswith(f"kept 20.0{SPACE}±{SPACE}3.0{SPACE}% where both were compared.")
    assert "A release of the vector does equally well" in written(0.42, 0.45, compared=0.21)


def test_a_number_and_its_percent_sign_are_not_separated():
    for words in (written(0.42, 0.45), written(0.5, 0.45), written(0.46, 0.45)):
        assert "%" in words
        assert " %" not in words
        assert " ±" not in words
