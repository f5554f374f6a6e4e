"""What ε allows is attained by the best channel and by nothing more; limits hold at every size."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from offaxis.errors import InvalidInput
from offaxis.leakage import guess_bound
from offaxis.leakage.bounds import mean_limits, share_limits
from offaxis.randomizers import KaryResponse


@pytest.mark.parametrize("size", [2, 3, 10, 1000])
@pytest.mark.parametrize("epsilon", ["1/10", 1, 7])
def test_response_attains_the_bound(size, epsilon):
    assert guess_bound(size, epsilon) == pytest.approx(KaryResponse(size, epsilon).own_chance)


def best_guess(size: int, epsilon: float, delta: float) -> float:
    """Return the largest success over all (ε, δ) channels of guesses, by linear programming.

    Unknown are T(i|j) and the excess s(i, j, l) ≥ T(i|j) − e^ε T(i|l): its sum over i is ≤ δ.
    """
    pairs = [(j, other) for j in range(size) for other in range(size) if other != j]
    count, excess = size * size, size * len(pairs)
    limits, right = [], []
    for index, (j, other) in enumerate(pairs):
        for i in range(size):
            row = np.zeros(count + excess)
            row[i * size + j], row[i * size + other] = 1.0, -math.exp(epsilon)
            row[count + index * size + i] = -1.0
            limits.append(row)
            right.append(0.0)
        row = np.zeros(count + excess)
        row[count + index * size : count + (index + 1) * size] = 1.0
        limits.append(row)
        right.append(delta)
    sums = np.zeros((size, count + excess))
    for j in range(size):
        sums[j, j:count:size] = 1.0
    gain = np.zeros(count + excess)
    gain[: count : size + 1] = -1 / size
    solved = linprog(gain, limits, right, sums, np.ones(size), bounds=(0, 1))
    assert solved.success
    return float(-solved.fun)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("delta", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("epsilon", [0.3, 1.5])
def test_no_channel_exceeds_the_bound_and_one_attains_it(size, delta, epsilon):
    assert best_guess(size, epsilon, delta) == pytest.approx(guess_bound(size, epsilon, delta))


def test_extreme_budgets_stay_probabilities():
    assert guess_bound(2, 10_000) == 1.0
    assert guess_bound(2, "1e-9") == pytest.approx(0.5)
    assert guess_bound(100, 1, 0.999) <= 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 1), "candidates must be an integer of at least 2"),
        ((2, 0), "epsilon must be positive"),
        ((2, 1, 1), "delta must be at least 0 and below 1"),
        ((2, 1, -0.1), "delta must be at least 0 and below 1"),
    ],
)
def test_invalid_parameters_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        guess_bound(*arguments)


@pytest.mark.parametrize("alpha", [0.05, 1e-4])
@pytest.mark.parametrize("p", [0.01, 0.5, 0.93])
def test_limits_on_shares_are_wrong_as_rarely_as_stated(alpha, p):
    """Exact: the probability of every count is known."""
    trials = 60
    low, high = np.array([share_limits(k, trials, alpha) for k in range(trials + 1)]).T
    chances = binom.pmf(np.arange(trials + 1), trials, p)
    assert chances[low > p].sum() <= alpha
    assert chances[high < p].sum() <= alpha


@pytest.mark.parametrize("alpha", [0.05, 1e-3])
@pytest.mark.parametrize("p", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("largest", [1.0, 7.0])
def test_limits_on_means_are_wrong_as_rarely_as_stated(alpha, p, largest):
    """Exact for values 0 and the largest, the law with the largest spread."""
    trials = 60
    chances, wrong_low, wrong_high = binom.pmf(np.arange(trials + 1), trials, p), 0.0, 0.0
    for k in range(trials + 1):
        values = np.repeat([largest, 0.0], [k, trials - k])
        low, high = mean_limits(values, largest, alpha)
        assert 0 <= low <= k / trials * largest <= high <= largest
        wrong_low += chances[k] * (low > p * largest)
        wrong_high += chances[k] * (high < p * largest)
    assert wrong_low <= alpha
    assert wrong_high <= alpha


def test_limits_on_means_shrink_with_the_spread():
    rng = np.random.default_rng(0)
    narrow = mean_limits(rng.uniform(0.4, 0.41, 4000), 1.0, 1e-3)
    wide = mean_limits(rng.integers(0, 2, 4000) * 1.0, 1.0, 1e-3)
    assert narrow[1] - narrow[0] < 0.02 < wide[1] - wide[0] < 0.2
