"""The channel of a scalar answer: its error is as stated, and no small channel is better."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.mechanisms.scalar_channel import (
    AnswerPrior,
    certify,
    least_rmse,
    optimal_channel,
    refined_channel,
)

EPSILONS = (0.1, 0.5, 1, 3, 5, 10)
ANSWERS = np.random.default_rng(3).lognormal(-2, 0.8, 40_000)


def random_prior(rng, most):
    n = int(rng.integers(2, most + 1))
    values = rng.standard_normal(n) ** rng.choice([1, 3])
    return values, rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 5.0])))


def error_of(channel, values, masses, epsilon):
    """Return the error of a channel from its definition: every value, every report."""
    symbols = np.searchsorted(channel.edges, values)
    chances = np.ones((len(values), channel.size))
    chances[np.arange(len(values)), symbols] = math.exp(epsilon)
    chances /= chances.sum(axis=1, keepdims=True)
    return math.sqrt(np.sum(masses[:, None] * chances * (values[:, None] - channel.decoded) ** 2))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_channel_on_few_values_is_better(epsilon):
    rng = np.random.default_rng(int(10 * epsilon))
    for _ in range(40):
        values, masses = random_prior(rng, 10)
        least = certify(values, masses, epsilon)
        assert least_rmse(values, masses, epsilon) == pytest.approx(least, abs=1e-6)


def test_the_certificate_detects_a_worse_channel():
    rng = np.random.default_rng(8)
    values, masses = rng.standard_normal(8), rng.dirichlet(np.ones(8))
    two_cells = optimal_channel(AnswerPrior.of_atoms(values, masses), 5, most=2).rmse
    assert two_cells > certify(values, masses, 5) + 1e-3


@pytest.mark.parametrize("epsilon", [0.5, 2, 6])
def test_the_partition_is_the_best_of_all_interval_partitions(epsilon):
    rng = np.random.default_rng(4)
    values, masses = np.sort(rng.standard_normal(9)), rng.dirichlet(np.ones(9))
    growth, centred = math.expm1(epsilon), masses * (values - masses @ values)
    best = 0.0
    for k in range(1, 10):
        for cuts in itertools.combinations(range(1, 9), k - 1):
            m, s = (np.add.reduceat(a, [0, *cuts]) for a in (masses, centred))
            best = max(best, np.sum((growth * s) ** 2 / (growth * m + 1)) / (growth + k))
    variance = masses @ (values - masses @ values) ** 2
    assert least_rmse(values, masses, epsilon) == pytest.approx(math.sqrt(variance - best))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_stated_error_is_the_error_of_the_channel(epsilon):
    rng = np.random.default_rng(1)
    values, masses = rng.standard_normal(60), rng.dirichlet(np.ones(60))
    channel = optimal_channel(AnswerPrior.of_atoms(values, masses), epsilon)
    assert error_of(channel, values, masses, epsilon) == pytest.approx(channel.rmse)
    assert channel.masses.sum() == pytest.approx(1)


@pytest.mark.parametrize("epsilon", [0.5, 5, 10])
def test_the_stated_error_includes_the_variance_inside_bins(epsilon):
    channel = refined_channel(ANSWERS, epsilon)
    masses = np.full(ANSWERS.size, 1 / ANSWERS.size)
    assert error_of(channel, ANSWERS, masses, epsilon) == pytest.approx(channel.rmse)


def test_the_error_falls_with_the_budget_and_stays_below_that_of_the_mean():
    errors = [refined_channel(ANSWERS, epsilon).rmse for epsilon in (0.01, 0.5, 1, 3, 5, 10)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] < ANSWERS.std()
    assert errors[0] == pytest.approx(ANSWERS.std(), rel=1e-4)


def test_refining_stops_when_more_bins_change_little():
    for epsilon in (1, 10):
        fine = optimal_channel(AnswerPrior.of_answers(ANSWERS, 1000), epsilon).rmse
        assert refined_channel(ANSWERS, epsilon).rmse == pytest.approx(fine, rel=0.01)


def test_the_search_over_cells_does_not_stop_too_early():
    prior = AnswerPrior.of_answers(ANSWERS, 128)
    for epsilon in (0.5, 3, 8, 12):
        fixed = [optimal_channel(prior, epsilon, most=k).rmse for k in range(2, 128, 9)]
        assert optimal_channel(prior, epsilon).rmse <= min(fixed) + 1e-12


def test_a_thousand_bins_take_less_than_a_second():
    prior = AnswerPrior.of_answers(ANSWERS, 1000)
    # The fastest of three, because other work may share the machine.
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        optimal_channel(prior, 10)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1


def test_bins_have_the_stated_masses_and_means():
    rounded = np.round(ANSWERS, 2)
    prior = AnswerPrior.of_answers(rounded, 100)
    bins = np.searchsorted(prior.edges, rounded)
    assert np.bincount(bins) / rounded.size == pytest.approx(prior.masses)
    for index in (0, 5, prior.values.size - 1):
        assert rounded[bins == index].mean() == pytest.approx(prior.values[index])
    assert prior.variance == pytest.approx(rounded.var())


def test_the_channel_follows_an_offset_and_a_scale():
    channel = refined_channel(ANSWERS, 3)
    moved = refined_channel(1e6 + 100 * ANSWERS, 3)
    assert moved.rmse == pytest.approx(100 * channel.rmse, rel=1e-6)
    assert moved.decoded - 1e6 == pytest.approx(100 * channel.decoded, rel=1e-5)


def test_one_answer_needs_no_report():
    assert least_rmse([2.0, 2.0], [0.5, 0.5], 1) == 0
    assert certify([2.0], [1.0], 1) == 0
    assert refined_channel(np.full(50, 7.0), 1).size == 1


@pytest.mark.parametrize("epsilon", [0, -1, 101, math.nan, "much"])
def test_a_bad_budget_is_an_error(epsilon):
    with pytest.raises(InvalidInput, match="epsilon"):
        least_rmse([0.0, 1.0], [0.5, 0.5], epsilon)


def test_bad_priors_are_an_error():
    with pytest.raises(InvalidInput, match="one length"):
        least_rmse([0.0, 1.0], [1.0], 1)
    with pytest.raises(InvalidInput, match="negative"):
        least_rmse([0.0, 1.0], [1.5, -0.5], 1)
    with pytest.raises(InvalidInput, match="two answers"):
        AnswerPrior.of_answers([1.0], 10)
    with pytest.raises(InvalidInput, match="up to 12"):
        certify(np.arange(13.0), np.ones(13), 1)
