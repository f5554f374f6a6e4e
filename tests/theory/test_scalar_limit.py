"""The proved bound on the error of a number: below every mechanism, at every budget."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.optimize import linprog

import offaxis
from offaxis.errors import InvalidInput
from offaxis.evaluation import evaluate
from offaxis.geometry import Layers
from offaxis.mechanisms.scalar_channel import certify, refined_channel
from offaxis.theory.ceilings import agreement_ceiling, fidelity_ceiling, scalar_ceiling
from offaxis.theory.scalar_limit import Law, least_scalar_error, verified_mean, violations

RNG = np.random.default_rng(5)
PRIORS = {
    "normal": RNG.standard_normal(900),
    "uniform": RNG.random(900),
    "two points": np.where(RNG.random(900) < 0.3, 0.0, 1.0),
    "skewed": RNG.lognormal(size=900),
    "rounded": np.rint(8 * RNG.standard_normal(900)) / 8,
    "many": RNG.standard_normal(6000),
}
EPSILONS = (0.1, 0.5, 1, 2, 3, 5, 8, 10, 12, 15, 18, 20, 25, 30, 35, 40)


def response_error(answers, cells, epsilon):
    """Return the error of k-ary response over these cells, read as the posterior mean.

    An exact sum: answer x is read as its own cell's number with the probability e^ε/(e^ε + k − 1).
    """
    _, cells = np.unique(cells, return_inverse=True)
    k, others = cells.max() + 1, math.exp(-epsilon)
    counts, sums = np.bincount(cells), np.bincount(cells, answers - answers.mean())
    decoded = (1 - others) * sums / ((1 - others) * counts + others * answers.size)
    centred = answers - answers.mean()
    own = np.mean((centred - decoded[cells]) ** 2)
    every = k * np.mean(centred**2) + (decoded**2).sum()
    return math.sqrt(((1 - others) * own + others * every) / (1 + others * (k - 1)))


@cache
def searched(name, epsilon):
    """Return the error of the searched channel, which takes half a second at large budgets."""
    return refined_channel(PRIORS[name], epsilon).rmse


@cache
def achieved(name, epsilon):
    """Return the smallest error of mechanisms that exist, each an exact sum."""
    answers = PRIORS[name]
    ordered = np.sort(answers)
    rank = np.searchsorted(ordered, answers)
    span = np.ptp(answers)
    place = (answers - ordered[0]) / span
    errors = [searched(name, epsilon)]
    for k in np.unique(np.geomspace(2, 1e6, 60).astype(int)):
        errors.append(response_error(answers, rank * k // answers.size, epsilon))
        errors.append(response_error(answers, np.floor(place * k), epsilon))
    # Laplace noise of the scale span/ε, shrunk linearly towards the mean.
    variance, noise = answers.var(), 2 * (span / epsilon) ** 2
    errors.append(math.sqrt(variance * noise / (variance + noise)))
    return min(errors)


@pytest.mark.parametrize("name", PRIORS)
def test_no_mechanism_is_better_than_the_bound_at_any_budget(name):
    answers = PRIORS[name]
    bounds = [least_scalar_error(answers, epsilon) for epsilon in EPSILONS]
    best = [achieved(name, epsilon) for epsilon in EPSILONS]
    assert all(0 < bound <= error for bound, error in zip(bounds, best, strict=True))
    # The bound is of use: close where the best channel is known, and falling.
    close = [b >= 0.97 * e for b, e, eps in zip(bounds, best, EPSILONS, strict=True) if eps <= 10]
    assert all(close)
    assert bounds == sorted(bounds, reverse=True)


@pytest.mark.parametrize("name", ["normal", "uniform", "skewed", "many"])
def test_the_error_of_the_searched_channel_is_not_a_bound(name):
    """Broken control: with at most 256 cells and 2,048 bins, the search ends above other errors."""
    for epsilon, factor in ((20, 1.2), (30, 100), (40, 10_000)):
        assert searched(name, epsilon) > factor * achieved(name, epsilon)


def test_the_bound_is_the_least_error_over_all_channels_on_few_values():
    rng = np.random.default_rng(1)
    for _ in range(25):
        values = rng.standard_normal(rng.integers(2, 7)) ** 3
        counts = rng.integers(1, 30, values.size)
        epsilon = float(rng.choice([0.1, 0.5, 1, 2, 4, 7, 10]))
        least = certify(values, counts, epsilon)
        bound = least_scalar_error(np.repeat(values, counts), epsilon)
        assert 0.985 * least <= bound <= least * (1 + 1e-6) + 1e-9


def test_random_channels_obey_the_bound():
    rng = np.random.default_rng(2)
    values = rng.standard_normal(40)
    for epsilon in (0.5, 2, 6):
        bound = least_scalar_error(values, epsilon)
        for _ in range(200):
            symbols = int(rng.integers(2, 12))
            columns = np.where(rng.random((40, symbols)) < rng.random(), math.exp(epsilon), 1.0)
            # Rows sum to one after a last symbol takes what is left, if that is private, too.
            columns *= rng.random() / columns.sum(axis=1).max()
            rest = 1 - columns.sum(axis=1)
            if rest.max() > math.exp(epsilon) * rest.min():
                continue
            channel = np.column_stack([columns, rest])
            decoded = (values @ channel) / channel.sum(axis=0)
            squares = np.mean((channel * (values[:, None] - decoded) ** 2).sum(axis=1))
            assert math.sqrt(squares) >= bound


def dual_function(values, epsilon):
    """Return the best g on a few values: the multipliers of the program over all channels."""
    n = values.size
    raised = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    columns = np.where(raised, 1.0, math.exp(-epsilon))
    weights, x = columns / n, values - values.mean()
    costs = weights @ x**2 - (weights @ x) ** 2 / weights.sum(axis=1)
    return linprog(costs, A_eq=columns.T, b_eq=np.ones(n), method="highs").eqlin.marginals * n


@pytest.mark.parametrize("epsilon", [0.5, 1.5, 4, 8])
def test_verification_accepts_the_best_function_and_rejects_a_larger_one(epsilon):
    values = np.array([-2.0, -1.5, 0.0, 0.3, 1.0, 4.0])
    law, growth = Law.of_answers(values), math.expm1(epsilon)
    best = dual_function(values, epsilon) / law.unit**2
    found = law.unit * math.sqrt(verified_mean(law, best * (1 - 1e-6), growth))
    assert found == pytest.approx(certify(values, np.ones(6), epsilon), rel=1e-5)
    # Broken control: the same function, raised by 1 % at a single value.
    for place in range(6):
        raised = best * (1 - 1e-6)
        raised[place] *= 1.01
        assert verified_mean(law, raised, growth) == 0


def test_the_left_side_is_exact_for_every_reading():
    rng = np.random.default_rng(3)
    for _ in range(30):
        law = Law.of_answers(rng.standard_normal(60))
        growth = math.expm1(float(rng.choice([0.3, 2, 6, 12])))
        roots = (law.top * rng.random(law.positions.size) * 10.0 ** rng.uniform(-5, 0)).astype(int)
        g = np.where(rng.random(roots.size) < 0.8, roots**2, -roots)
        found = violations(law, g, growth)
        t = np.concatenate([found.readings, np.linspace(0, law.top, 2000)])
        difference = g - (law.positions - t[:, None]) ** 2
        left = growth * difference.clip(0).sum(axis=1) + difference.sum(axis=1)
        scale = np.abs(difference).sum(axis=1).max() * (1 + growth)
        assert left.max() == pytest.approx(found.excess.max(), abs=1e-9 * scale)
        assert left[: found.readings.size] == pytest.approx(found.excess, abs=1e-9 * scale)


@pytest.mark.parametrize("epsilon", [1, 4, 9, 14])
def test_mechanisms_of_the_library_obey_the_bound(epsilon):
    """40,000 reports of each; 6 standard errors: a false alarm once in 10^8 runs."""
    vectors = np.random.default_rng(4).standard_normal((2000, 3))
    task = Layers.linear(np.array([[1.0, 0.5, 0.0]]), np.zeros(1))
    answers = task.outputs(vectors)[:, 0]
    bound = least_scalar_error(answers, epsilon)
    for mechanism in ("scalar-response", "laplace", "response", "privunit2"):
        release = offaxis.fit(task, vectors, epsilon=epsilon, mechanism=mechanism)
        result = evaluate(release, task, vectors, seeds=20)
        runs = np.square(result.runs["output_rmse"])
        error = runs.std(ddof=1) / math.sqrt(runs.size)
        assert runs.mean() + 6 * error >= bound**2


def test_estimates_from_samples_allow_too_much_on_average():
    """Over 400 samples; the population's limit is 10 standard errors and more to the other side."""
    rng = np.random.default_rng(6)
    values, shares = np.array([-2.0, -0.5, 0.0, 1.0, 3.0]), np.array([0.1, 0.3, 0.3, 0.2, 0.1])
    least, ceilings = [], []
    for _ in range(400):
        counts = rng.multinomial(15, shares)
        least.append(certify(values, counts, 4) ** 2)
        ceilings.append(agreement_ceiling(counts, 4).probability)
    assert np.mean(least) < certify(values, shares, 4) ** 2
    assert np.mean(ceilings) > agreement_ceiling(shares, 4).probability


def test_units_and_offsets_do_not_matter():
    answers = PRIORS["skewed"]
    for epsilon in (1, 12):
        moved = least_scalar_error(1e6 - 100 * answers, epsilon)
        assert moved == pytest.approx(100 * least_scalar_error(answers, epsilon), rel=0.01)


@pytest.mark.parametrize(
    ("start", "step", "count"), [(1e15, 0.25, 7), (1e6, 1e-9, 5), (1e9, 1e-3, 3)]
)
def test_a_mean_far_above_the_deviation_loses_nothing(start, step, count):
    """Floats are fractions: their deviation is exact here, and no report is worse than none."""
    answers = [start + step * i for i in range(count)]
    exact = [Fraction(x) for x in answers]
    mean = sum(exact) / count
    deviation = math.sqrt(sum((x - mean) ** 2 for x in exact) / count)
    assert deviation * 0.999 < least_scalar_error(answers, 1e-6) <= deviation


@pytest.mark.parametrize("epsilon", [45, 55, 59.9, 63, 80, 99.9, 120])
def test_very_large_budgets(epsilon):
    for answers in ([-1.0, 1.0], PRIORS["normal"], PRIORS["skewed"], np.arange(9.0)):
        deviation = np.std(answers)
        bound = least_scalar_error(answers, epsilon)
        assert bound >= deviation / math.cosh(epsilon / 2) * (1 - 1e-9)
        assert bound <= deviation * math.exp(-epsilon / 4)


def test_answers_of_any_size():
    for size in (1e-200, 1e200, 1e307):
        assert least_scalar_error([-size, size], 2) / size == pytest.approx(1 / math.cosh(1))
    with pytest.raises(InvalidInput, match="range of the answers is too large"):
        least_scalar_error([-1e308, 1e308], 2)


def test_edges():
    for equal in ([0.1] * 3, np.full(1000, 0.1)):  # their mean in floating point is not 0.1
        assert least_scalar_error(equal, 1) == 0
        with pytest.raises(InvalidInput, match="all be equal"):
            scalar_ceiling(equal, 1)
    assert least_scalar_error([3.0, 3.0], 1) == 0
    assert least_scalar_error([0.0, 2.0], 500) == pytest.approx(1 / math.cosh(250))
    assert 0.999999 < scalar_ceiling(PRIORS["normal"], 30) < fidelity_ceiling([1], 30)
    with pytest.raises(InvalidInput, match="empty"):
        least_scalar_error([], 1)
    with pytest.raises(InvalidInput, match="epsilon"):
        least_scalar_error([0.0, 1.0], 0)
