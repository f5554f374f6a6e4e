"""The inverse question: a budget that reaches the wish, and one below which nobody does."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.evaluation.recommend import recommend, smallest_epsilon
from offaxis.geometry import Layers

RNG = np.random.default_rng(21)
PLACES = 3 * np.eye(4)
PUBLIC = PLACES[RNG.integers(0, 4, 1500)] + RNG.standard_normal((1500, 4))
HEAD = Layers.linear(PLACES)


def test_the_smallest_budget_reaches_what_is_wanted():
    found = smallest_epsilon(HEAD, PUBLIC, target=0.6)
    assert found.recommendation.expected.score >= 0.6
    assert found.recommendation.epsilon == found.epsilon
    assert found.least_possible <= found.epsilon
    # Randomized response meets the ceiling here, so little more than the least is needed.
    assert found.epsilon < found.least_possible + 0.35
    assert (found.epsilon * 20) == pytest.approx(round(found.epsilon * 20))
    again = recommend(HEAD, PUBLIC, epsilon=found.epsilon)
    assert again.release == found.recommendation.release
    assert again.expected == found.recommendation.expected
    assert "no report of any kind can" in found.summary


def test_what_cannot_be_reached_is_said_with_the_reason():
    impossible = smallest_epsilon(HEAD, PUBLIC, target=0.99, max_epsilon=2)
    assert impossible.epsilon is None
    assert impossible.least_possible is None
    assert impossible.summary == "No report of a budget up to 2 can reach 0.99."
    # The limit of fidelity is far above what single reports of a filled space keep.
    missed = smallest_epsilon(HEAD, PUBLIC[:300], target=0.35, goal="fidelity", max_epsilon=2)
    assert missed.recommendation is None
    assert 0 < missed.least_possible < 2
    assert "was found to reach 0.35" in missed.summary
