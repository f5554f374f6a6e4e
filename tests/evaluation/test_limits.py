"""What stands beside a measure is the bound or the line that it is called."""

import numpy as np
import pytest

import offaxis
from offaxis.evaluation import evaluate
from offaxis.evaluation.bounds import MEANINGS, limits
from offaxis.geometry import Layers
from offaxis.mechanisms.scalar_channel import certify
from offaxis.privacy.guarantee import Guarantee
from offaxis.theory.ceilings import reference_line


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(1)
    return Layers.linear(rng.standard_normal((4, 6)), np.array([1.5, 0.5, 0, 0]))


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(2).standard_normal((4000, 6))


def test_response_on_the_answers_reaches_the_bound_and_the_line_and_passes_neither(task, vectors):
    """20 times 4,000 reports: a false alarm at 5 standard errors, once in a million runs."""
    labels = np.where(np.arange(4000) % 5, task.outputs(vectors).argmax(axis=1), 0)
    release = offaxis.fit(task, vectors, epsilon=2, mechanism="class-response")
    result = evaluate(release, task, vectors, labels, seeds=20)
    found = limits(task, vectors, labels, release.guarantee)
    for name, kind in (("agreement", "at most"), ("accuracy", "line")):
        mean = result.mean(name)
        error = np.sqrt(mean * (1 - mean) / 80_000)
        assert found[name].kind == kind
        if name == "agreement":
            assert abs(mean - found[name].value) < 5 * error
    assert found["accuracy"].value == pytest.approx(reference_line(result.clean["accuracy"], 4, 2))
    assert found.keys() == {"agreement", "accuracy"}


def test_one_output_has_the_least_error_over_all_channels():
    values = np.array([-2.0, -1.5, 0.0, 0.3, 1.0, 4.0])
    task = Layers.linear(np.ones((1, 1)), np.zeros(1))
    found = limits(task, values[:, None], None, Guarantee(1.5))
    assert found.keys() == {"output_rmse"}
    least = certify(values, np.ones(6), 1.5)
    assert found["output_rmse"].value == pytest.approx(least)
    assert found["output_rmse"].kind == "at least"


def test_many_answers_are_put_into_bins_without_much_loss():
    answers = np.random.default_rng(3).standard_normal(3000)[:, None]
    task = Layers.linear(np.ones((1, 1)), np.zeros(1))
    many = limits(task, answers, None, Guarantee(3))["output_rmse"].value
    few = limits(task, answers[:1000], None, Guarantee(3))["output_rmse"].value
    assert many == pytest.approx(few, rel=0.05)


def test_bounds_are_for_pure_promises_and_numbers_no_labels(task, vectors):
    impure = Guarantee(2, "1e-5")
    assert limits(task, vectors, np.zeros(4000, dtype=int), impure).keys() == {"accuracy"}
    assert limits(task, vectors, np.zeros((4000, 4)), Guarantee(2)).keys() == {"agreement"}
    one = Layers.linear(np.ones((1, 6)), np.zeros(1))
    assert limits(one, vectors, None, Guarantee(10_000)) == {}


def test_a_line_is_never_called_a_bound():
    assert MEANINGS["line"].startswith("a line, not a bound")
    assert MEANINGS["at most"].startswith("a bound")
    assert MEANINGS["at least"].startswith("a bound")
