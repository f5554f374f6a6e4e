"""What ε allows: known cases, bounds that hold, and a line that is never called a bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offaxis
from offaxis.evaluation import evaluate
from offaxis.evaluation.bounds import MEANINGS, Ceilings, limits
from offaxis.evaluation.utility import MeasuredTasks, Tasks
from offaxis.geometry import Layers
from offaxis.mechanisms.scalar_channel import certify
from offaxis.privacy.guarantee import Guarantee
from offaxis.theory.ceilings import reference_line

RNG = np.random.default_rng(13)
VECTORS = RNG.standard_normal((600, 4)) * [3, 2, 1, 1]
CLASSES = Layers.linear(RNG.standard_normal((3, 4)))
NUMBER = Layers.linear(np.array([[1.0, 0, 0, 0]]))


def ceilings(model, goal, people=1, weights=None):
    return Ceilings(MeasuredTasks.of(Tasks.of(model, weights), VECTORS, goal), goal, people)


def test_two_opposite_answers_have_the_ceiling_of_a_coin():
    halves = np.repeat([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]], 100, axis=0)
    measured = MeasuredTasks.of(Tasks.of(NUMBER, None), halves, "answers")
    for epsilon in (0.5, 2, 6):
        expected = math.tanh(epsilon / 2) ** 2
        assert Ceilings(measured, "answers", 1)(epsilon) == pytest.approx(expected, rel=1e-6)
        assert Ceilings(measured, "vectors", 1)(epsilon) == pytest.approx(expected, rel=1e-6)
        error = (1 / expected - 1) / 50
        assert Ceilings(measured, "means", 50)(epsilon) == pytest.approx(-error, rel=1e-6)


@given(st.sampled_from(["answers", "vectors", "means"]), st.floats(0.1, 6), st.floats(0.05, 3))
def test_ceilings_rise_with_the_budget(goal, epsilon, more):
    ceiling = ceilings(CLASSES, goal)
    assert ceiling(epsilon) <= ceiling(epsilon + more) + 1e-12


def test_several_tasks_have_a_ceiling_each_and_a_joint_one():
    models, weights = {"class": CLASSES, "number": NUMBER}, {"class": 3.0, "number": 1.0}
    for goal in ("answers", "vectors", "means"):
        ceiling = ceilings(models, goal, weights=weights)
        by_task = ceiling.by_task(2)
        alone = {name: ceilings(model, goal)(2) for name, model in models.items()}
        assert by_task == pytest.approx(alone)
        mean = (3 * by_task["class"] + by_task["number"]) / 4
        assert ceiling(2) <= mean + 1e-12
        if goal == "answers":
            assert ceiling(2) == pytest.approx(mean)


def test_the_least_budget_is_where_the_ceiling_is_reached():
    ceiling = ceilings(CLASSES, "answers")
    least = ceiling.least_epsilon(0.8, 10)
    assert ceiling(least - 0.002) < 0.8 <= ceiling(least + 0.002)
    assert ceiling.least_epsilon(1.01, 10) is None
    assert ceiling.least_epsilon(0.0, 10) <= 0.001


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(1)
    return Layers.linear(rng.standard_normal((4, 6)), np.array([1.5, 0.5, 0, 0]))


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(2).standard_normal((4000, 6))


def test_randomized_response_on_the_answers_meets_the_bound(task, vectors):
    """20 times 4,000 reports, 5 standard errors: a false alarm in one of a million runs."""
    labels = np.where(np.arange(4000) % 5, task.outputs(vectors).argmax(axis=1), 0)
    release = offaxis.fit(task, vectors, epsilon=2, mechanism="class-response")
    result = evaluate(release, task, vectors, labels, seeds=20)
    values = limits(task, vectors, labels, release.guarantee)
    assert values["agreement"].kind == "at most"
    assert values["accuracy"].kind == "line"
    mean = result.mean("agreement")
    assert abs(mean - values["agreement"].value) < 5 * np.sqrt(mean * (1 - mean) / 80_000)
    assert values["accuracy"].value == pytest.approx(reference_line(result.clean["accuracy"], 4, 2))
    assert values.keys() == {"agreement", "accuracy"}


def test_one_output_is_bounded_by_the_least_error_over_all_channels():
    values = np.array([-2.0, -1.5, 0.0, 0.3, 1.0, 4.0])
    task = Layers.linear(np.ones((1, 1)), np.zeros(1))
    least_error = limits(task, values[:, None], None, Guarantee(1.5))
    assert least_error.keys() == {"output_rmse"}
    certified = certify(values, np.ones(6), 1.5)
    assert 0.99 * certified <= least_error["output_rmse"].value <= certified
    assert least_error["output_rmse"].kind == "at least"


def test_many_answers_have_nearly_the_bound_of_fewer():
    answers = np.random.default_rng(3).standard_normal(3000)[:, None]
    task = Layers.linear(np.ones((1, 1)), np.zeros(1))
    many = limits(task, answers, None, Guarantee(3))["output_rmse"].value
    few = limits(task, answers[:1000], None, Guarantee(3))["output_rmse"].value
    assert many == pytest.approx(few, rel=0.05)


def test_bounds_need_a_pure_guarantee_and_lines_need_labels(task, vectors):
    impure = Guarantee(2, "1e-5")
    assert limits(task, vectors, np.zeros(4000, dtype=int), impure).keys() == {"accuracy"}
    assert limits(task, vectors, np.zeros((4000, 4)), Guarantee(2)).keys() == {"agreement"}
    one = Layers.linear(np.ones((1, 6)), np.zeros(1))
    assert limits(one, vectors, None, Guarantee(10_000)) == {}


def test_a_line_is_never_called_a_bound():
    assert MEANINGS["line"].startswith("a line, not a bound")
    assert MEANINGS["at most"].startswith("a bound")
    assert MEANINGS["at least"].startswith("a bound")
