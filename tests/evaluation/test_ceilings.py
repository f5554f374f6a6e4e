"""Ceilings: known cases, and what no release passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.evaluation.bounds import Ceilings
from offaxis.evaluation.utility import PublicSide, Tasks
from offaxis.geometry import Layers

RNG = np.random.default_rng(13)
VECTORS = RNG.standard_normal((600, 4)) * [3, 2, 1, 1]
CLASSES = Layers.linear(RNG.standard_normal((3, 4)))
NUMBER = Layers.linear(np.array([[1.0, 0, 0, 0]]))


def ceilings(model, goal, people=1, weights=None):
    return Ceilings(PublicSide.of(Tasks.of(model, weights), VECTORS, goal), goal, people)


def test_two_opposite_answers_are_told_as_well_as_a_coin_can_be():
    halves = np.repeat([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]], 100, axis=0)
    side = PublicSide.of(Tasks.of(NUMBER, None), halves, "answers")
    for epsilon in (0.5, 2, 6):
        wanted = math.tanh(epsilon / 2) ** 2
        assert Ceilings(side, "answers", 1)(epsilon) == pytest.approx(wanted, rel=1e-6)
        assert Ceilings(side, "fidelity", 1)(epsilon) == pytest.approx(wanted, rel=1e-6)
        error = (1 / wanted - 1) / 50
        assert Ceilings(side, "mean", 50)(epsilon) == pytest.approx(-error, rel=1e-6)


@given(st.sampled_from(["answers", "fidelity", "mean"]), st.floats(0.1, 6), st.floats(0.05, 3))
def test_ceilings_rise_with_the_budget(goal, epsilon, more):
    found = ceilings(CLASSES, goal)
    assert found(epsilon) <= found(epsilon + more) + 1e-12


def test_several_tasks_have_a_ceiling_each_and_one_together():
    models, weights = {"class": CLASSES, "number": NUMBER}, {"class": 3.0, "number": 1.0}
    for goal in ("answers", "fidelity", "mean"):
        found = ceilings(models, goal, weights=weights)
        each = found.each(2)
        alone = {name: ceilings(model, goal)(2) for name, model in models.items()}
        assert each == pytest.approx(alone)
        mean = (3 * each["class"] + each["number"]) / 4
        assert found(2) <= mean + 1e-12
        if goal == "answers":
            assert found(2) == pytest.approx(mean)


def test_the_least_budget_is_where_the_ceiling_is_reached():
    found = ceilings(CLASSES, "answers")
    least = found.least_epsilon(0.8, 10)
    assert found(least - 0.002) < 0.8 <= found(least + 0.002)
    assert found.least_epsilon(1.01, 10) is None
    assert found.least_epsilon(0.0, 10) <= 0.001
