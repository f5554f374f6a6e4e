"""Real reports are compared with their simulation; gaps are in standard errors."""

import numpy as np

from experiments.demo.result import ExactCheck
from experiments.demo.run import RANDOMIZERS, REAL_REPETITIONS
from offaxis.evaluation import Evaluation


def test_real_reports_of_every_release_agree_with_their_simulation(result):
    """Eight gaps with a standard deviation of at most one: one beyond 5 in 200,000 runs."""
    checks = result.exact
    assert {(check.randomizer, check.reshaping) for check in checks} == {
        (name, shape) for name in RANDOMIZERS for shape in ("none", "jacobian")
    }
    assert len(checks) == 8
    assert {check.epsilon for check in checks} == {1.0}
    assert all(abs(check.gap) < 5 for check in checks)
    for check in checks:
        assert len(check.simulated.runs["accuracy"]) == 2
        repetitions = min(2, REAL_REPETITIONS[check.randomizer])
        assert len(check.exact.runs["accuracy"]) == repetitions


def accuracies(*values):
    return Evaluation({}, {"accuracy": np.array(values)})


def test_the_stated_error_bounds_the_standard_deviation():
    """Probabilities that differ between vectors give a smaller deviation than the stated error."""
    rng = np.random.default_rng(0)
    chances = rng.beta(0.5, 0.5, size=400)
    runs = (rng.random((4000, 400)) < chances).mean(axis=1)
    check = ExactCheck("laplace", "none", 1.0, 400, accuracies(*runs), accuracies(*runs))
    stated = check.error(accuracies(runs[0]))
    assert 0.5 * stated < runs.std() < stated
    assert check.gap == 0


def test_a_wrong_simulation_has_a_large_gap_even_after_one_repetition():
    sides = accuracies(0.50, 0.51, 0.49), accuracies(0.60)
    assert ExactCheck("laplace", "none", 1.0, 5000, *sides).gap > 10
    assert ExactCheck("laplace", "none", 1.0, 5000, *reversed(sides)).gap < -10
    sure = accuracies(1.0), accuracies(1.0)
    assert ExactCheck("laplace", "none", 1.0, 5000, *sure).gap == 0
