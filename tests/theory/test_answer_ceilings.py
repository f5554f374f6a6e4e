"""Ceilings of answers: randomized response reaches them, and no channel exceeds them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.theory.ceilings import (
    agreement_ceiling,
    answer_prior,
    label_accuracy_bound,
    reference_line,
)

EPSILONS = (0.1, 0.5, 1, 3, 7.5)


def priors(count, most, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(2, most + 1))
        yield rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 10.0])))


def best_guess_over_extremal_channels(joint, epsilon):
    """Return max Σ_p θ_p max_j Σ_z joint[z, j] p(z), exact, over all columns p ∈ {1, e^ε}^n."""
    n = len(joint)
    raised = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    columns = np.where(raised, 1.0, math.exp(-epsilon))
    solved = linprog(-(columns @ joint).max(axis=1), A_eq=columns.T, b_eq=np.ones(n))
    return -solved.fun


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_agreement_ceiling_is_the_best_of_all_channels(epsilon):
    for prior in priors(25, 8):
        best = best_guess_over_extremal_channels(np.diag(prior), epsilon)
        assert agreement_ceiling(prior, epsilon).probability == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_response_over_the_likeliest_answers_reaches_the_ceiling(epsilon):
    for prior in priors(25, 12, seed=1):
        ceiling = agreement_ceiling(prior, epsilon)
        likeliest = np.argsort(prior)[::-1][: ceiling.answers]
        channel = np.full((len(prior), ceiling.answers), 1.0)
        # An answer that is not among them is reported as the first.
        place = np.zeros(len(prior), dtype=int)
        place[likeliest] = np.arange(ceiling.answers)
        channel[np.arange(len(prior)), place] = math.exp(epsilon)
        channel /= channel.sum(axis=1, keepdims=True)
        reached = sum(prior[answer] * channel[answer, j] for j, answer in enumerate(likeliest))
        assert reached == pytest.approx(ceiling.probability)


def test_for_uniform_answers_the_ceiling_is_the_probability_of_the_truth():
    for k, epsilon in ((2, 1), (10, 3), (100, 7.5)):
        ceiling = agreement_ceiling(np.ones(k), epsilon)
        assert ceiling.probability == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + k - 1))
        assert ceiling.answers == k


def test_at_a_small_budget_the_likeliest_answer_is_the_best_guess():
    assert agreement_ceiling([0.9, 0.05, 0.05], 0.5).answers == 1
    assert agreement_ceiling([0.9, 0.05, 0.05], 0.5).probability == pytest.approx(0.9)
    assert agreement_ceiling([90, 5, 5], 5000).probability == 1


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_label_bound_is_the_best_of_all_channels(epsilon):
    rng = np.random.default_rng(2)
    for _ in range(8):
        n, k = int(rng.integers(2, 8)), int(rng.integers(2, 5))
        eta, weights = rng.dirichlet(np.full(k, 0.5), size=n), rng.dirichlet(np.ones(n))
        best = best_guess_over_extremal_channels(weights[:, None] * eta, epsilon)
        assert label_accuracy_bound(eta, weights, epsilon) == pytest.approx(best, abs=1e-6)


def test_certain_labels_give_the_agreement_ceiling():
    for prior in priors(10, 9, seed=3):
        bound = label_accuracy_bound(np.eye(len(prior)), prior, 2)
        assert bound == pytest.approx(agreement_ceiling(prior, 2).probability, abs=1e-6)


def test_the_label_bound_is_between_guessing_and_knowing():
    eta = np.random.default_rng(4).dirichlet(np.full(5, 0.2), size=60)
    bounds = [label_accuracy_bound(eta, np.ones(60), epsilon) for epsilon in (0.01, 1, 3, 10, 50)]
    assert bounds == sorted(bounds)
    assert bounds[0] == pytest.approx(eta.mean(axis=0).max(), abs=0.02)
    assert bounds[-1] == pytest.approx(eta.max(axis=1).mean(), abs=1e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_reference_line_is_the_accuracy_of_response_on_the_answer(epsilon):
    k, accuracy = 6, 0.7
    confusion = np.full((k, k), (1 - accuracy) / (k - 1))
    np.fill_diagonal(confusion, accuracy)
    channel = np.ones((k, k))
    np.fill_diagonal(channel, math.exp(epsilon))
    expected = np.diag(confusion @ (channel / channel.sum(axis=1))).mean()
    assert reference_line(accuracy, k, epsilon) == pytest.approx(expected)


def test_the_reference_line_is_not_a_bound():
    # A model that swaps two labels is always wrong, but a reader can swap them back.
    assert reference_line(0.0, 2, 3) < label_accuracy_bound(np.eye(2), [1, 1], 3)


def test_answers_are_counted_over_batches():
    rng = np.random.default_rng(6)
    task, public = Layers.linear(rng.standard_normal((4, 3))), rng.standard_normal((20_000, 3))
    shares = np.bincount(task.outputs(public).argmax(axis=1), minlength=4) / len(public)
    assert answer_prior(task, public) == pytest.approx(shares)
    assert answer_prior(task.weights[0], lambda: iter(np.split(public, 5))) == pytest.approx(shares)
    with pytest.raises(InvalidInput, match="one output"):
        answer_prior(np.ones((1, 3)), public)


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, "much"])
def test_errors_name_a_bad_budget(epsilon):
    with pytest.raises(InvalidInput, match="epsilon"):
        agreement_ceiling([0.5, 0.5], epsilon)


def test_errors_name_the_bad_argument():
    with pytest.raises(InvalidInput, match="prior"):
        agreement_ceiling([0.5, -0.5], 1)
    with pytest.raises(InvalidInput, match="accuracy"):
        reference_line(1.2, 10, 1)
    with pytest.raises(InvalidInput, match="classes"):
        reference_line(0.5, 1, 1)
    with pytest.raises(InvalidInput, match="each row"):
        label_accuracy_bound([[0.5, 0.6]], [1], 1)
    with pytest.raises(InvalidInput, match=r"\(n, k\)"):
        label_accuracy_bound([[0.5, 0.5]], [1, 1], 1)
    with pytest.raises(InvalidInput, match="fewer vectors"):
        label_accuracy_bound(np.full((60_000, 2), 0.5), np.ones(60_000), 1)
