"""Ceilings of vectors and means: no channel exceeds them, some reach them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from offaxis.encoding.reshaping import active_directions
from offaxis.errors import InvalidInput
from offaxis.randomizers.privunit import PrivUnit2
from offaxis.theory.ceilings import (
    fidelity_ceiling,
    least_mean_error,
    scalar_ceiling,
    sphere_mean_error,
    task_spectrum,
)

EPSILONS = (0.1, 0.5, 1, 2, 4)


def columns_of(n, epsilon):
    """Return all extremal columns p ∈ {1, e^ε}^n, (2^n, n), in units of e^ε."""
    raised = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    return np.where(raised, 1.0, math.exp(-epsilon))


def laws(count, seed):
    """Yield random laws: masses (n,), and vectors (n, d) of mean zero under them."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n, d = int(rng.integers(2, 7)), int(rng.integers(1, 5))
        masses = rng.dirichlet(np.full(n, rng.choice([0.5, 1.0, 10.0])))
        points = rng.standard_normal((n, d)) * rng.gamma(1.0, size=d)
        yield masses, points - masses @ points


def spectrum_of(masses, points):
    return task_spectrum(np.eye(points.shape[1]), points.T @ (masses[:, None] * points))


def variance(masses, points):
    return float(masses @ (points**2).sum(axis=1))


def vertex(costs, columns):
    """Return the cheapest weights θ of extremal columns that form a channel, Σ_p θ_p p(x) = 1."""
    solved = linprog(costs, A_eq=columns.T, b_eq=np.ones(columns.shape[1]), method="highs")
    assert solved.success
    return solved.x


def best_fidelity(masses, points, epsilon):
    """Return the largest share that any ε-LDP channel on the points explains, exactly."""
    columns = columns_of(masses.size, epsilon)
    weights = columns * masses
    explained = ((weights @ points) ** 2).sum(axis=1) / weights.sum(axis=1)
    return float(explained @ vertex(-explained, columns)) / variance(masses, points)


def unbiased_error(theta, masses, points, columns):
    """Return the least error of an unbiased reader of a channel, as a share of the variance.

    None if no reader is unbiased. With M = Σ_p θ_p p pᵀ/Pr[p], the reader of least second moment is
    v(p) = pᵀ M⁺ x / Pr[p] for every coordinate x, and its second moment is xᵀ M⁺ x.
    """
    matrix = (columns * (theta / (columns @ masses))[:, None]).T @ columns
    inverse = np.linalg.pinv(matrix, rcond=1e-10, hermitian=True)
    if not np.allclose(matrix @ inverse @ points, points, atol=1e-7 * np.abs(points).max()):
        return None
    second = np.einsum("nd,nk,kd->", points, inverse, points)
    return float(second / variance(masses, points) - 1)


def best_unbiased(masses, points, epsilon, steps):
    """Return the least error among all channels, by Frank and Wolfe: it is convex in θ.

    Every step has a valid channel, so stopping early only overestimates the error.
    """
    columns = columns_of(masses.size, epsilon)
    probabilities = columns @ masses
    theta = np.full(len(columns), 1 / columns.sum(axis=0)[0])
    for step in range(steps):
        matrix = (columns * (theta / probabilities)[:, None]).T @ columns
        slopes = ((columns @ np.linalg.solve(matrix, points)) ** 2).sum(axis=1) / probabilities
        theta += (vertex(-slopes, columns) - theta) * 2 / (step + 3)
    error = unbiased_error(theta, masses, points, columns)
    assert error is not None
    return error


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_channel_explains_more_than_the_ceiling(epsilon):
    for masses, points in laws(25, seed=1):
        ceiling = fidelity_ceiling(spectrum_of(masses, points), epsilon)
        assert best_fidelity(masses, points, epsilon) <= ceiling + 1e-9


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_unbiased_reader_of_a_random_channel_has_a_smaller_error(epsilon):
    rng, readable = np.random.default_rng(2), 0
    for masses, points in laws(25, seed=2):
        columns = columns_of(masses.size, epsilon)
        # Constant columns are expensive, and a mixture of channels distinguishes all points.
        costs = rng.standard_normal((4, len(columns)))
        costs[:, [0, -1]] = 10.0
        theta = np.mean([vertex(cost, columns) for cost in costs], axis=0)
        error = unbiased_error(theta, masses, points, columns)
        if error is not None:
            readable += 1
            bound = least_mean_error(spectrum_of(masses, points), epsilon)
            assert error >= bound * (1 - 1e-9)
    assert readable >= 20


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_unbiased_reader_of_the_best_channel_has_a_smaller_error(epsilon):
    for masses, points in laws(4, seed=3):
        bound = least_mean_error(spectrum_of(masses, points), epsilon)
        assert best_unbiased(masses, points, epsilon, steps=25) >= bound * (1 - 1e-9)


def simplex(n):
    """Return n points at equal distances, equally likely."""
    return np.full(n, 1 / n), np.eye(n) - 1 / n


def test_two_points_reach_the_limit_of_one_direction():
    """Randomized response of ±1 is optimal for both readers."""
    masses, points = np.full(2, 0.5), np.array([[-1.0], [1.0]])
    for epsilon in EPSILONS:
        share = math.tanh(epsilon / 2) ** 2
        assert fidelity_ceiling([1.0], epsilon) == pytest.approx(share)
        assert least_mean_error([1.0], epsilon) == pytest.approx(1 / share - 1)
        assert best_fidelity(masses, points, epsilon) == pytest.approx(share, abs=1e-7)
        columns = columns_of(2, epsilon)
        theta = np.array([0.0, 1.0, 1.0, 0.0]) / columns[1].sum()
        assert unbiased_error(theta, masses, points, columns) == pytest.approx(1 / share - 1)


@pytest.mark.parametrize("corners", [3, 4, 6])
def test_a_simplex_reaches_the_limit_of_all_directions(corners):
    """Response over e^ε + 1 corners is optimal for both readers."""
    masses, points = simplex(corners)
    epsilon = math.log(corners - 1)
    spectrum = spectrum_of(masses, points)
    best = best_fidelity(masses, points, epsilon)
    assert best == pytest.approx(math.sinh(epsilon / 2) ** 2 / (corners - 1), abs=1e-7)
    assert best == pytest.approx(fidelity_ceiling(spectrum, epsilon), abs=1e-7)
    columns = columns_of(corners, epsilon)
    response = (1 << np.arange(corners))[:, None] == np.arange(len(columns))
    theta = response.any(axis=0) / columns[1].sum()
    error = unbiased_error(theta, masses, points, columns)
    assert error == pytest.approx(least_mean_error(spectrum, epsilon))


@pytest.mark.parametrize("corners", [2, 3, 5])
def test_bounds_of_a_smaller_budget_are_exceeded(corners):
    """Broken control: with ε/2 or 0.9 ε instead of ε, a valid channel exceeds both bounds."""
    masses, points = simplex(corners)
    spectrum, epsilon = spectrum_of(masses, points), math.log(max(corners - 1, 2))
    for wrong in (epsilon / 2, 0.9 * epsilon):
        assert best_fidelity(masses, points, epsilon) > 1.02 * fidelity_ceiling(spectrum, wrong)
        error = best_unbiased(masses, points, epsilon, steps=60)
        assert error < 0.98 * least_mean_error(spectrum, wrong)


@pytest.mark.parametrize("dim", [2, 8, 64, 1024])
def test_privunit_is_above_the_bound_and_near_it_at_small_budgets(dim):
    for epsilon in (0.05, 0.3, 1, 3, 7.5):
        error = sphere_mean_error(dim, epsilon)
        bound = least_mean_error(np.ones(dim), epsilon)
        assert error > bound
        if epsilon <= 1:
            assert error < 1.75 * bound


def test_at_small_budgets_privunit_is_above_the_bound_by_half_of_pi():
    error = sphere_mean_error(4096, 0.001)
    assert error / least_mean_error(np.ones(4096), 0.001) == pytest.approx(math.pi / 2, rel=1e-3)


def test_the_errors_on_a_sphere_are_those_of_the_randomizer():
    """Those of the ideal cap: the rank form keeps at least 99.5 % of the component."""
    for epsilon in EPSILONS:
        made = PrivUnit2(dim=8, radius=1.0, epsilon=epsilon).expected_squared_error()
        error = sphere_mean_error(8, epsilon)
        assert error * (1 - 1e-9) <= made <= (error + 1) / 0.995**2 - 1 + 1e-9
        assert sphere_mean_error(1, epsilon) == pytest.approx(least_mean_error([2.0], epsilon))


@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=8),
    st.floats(0.1, 6),
)
def test_no_admissible_shares_beat_water_filling(values, epsilon):
    spectrum = np.array(values)
    each, together = math.tanh(epsilon / 2) ** 2, math.sinh(epsilon / 2) ** 2
    error, fidelity = least_mean_error(spectrum, epsilon), fidelity_ceiling(spectrum, epsilon)
    for shares in np.random.default_rng(0).uniform(0, each, (50, spectrum.size)):
        shares *= min(1, together / shares.sum())
        assert spectrum @ (1 / shares - 1) / spectrum.sum() >= error * (1 - 1e-9)
        assert spectrum @ shares / spectrum.sum() <= fidelity * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 1.5, 3, 5])
def test_an_optimiser_finds_water_filling(epsilon):
    each, together = math.tanh(epsilon / 2) ** 2, math.sinh(epsilon / 2) ** 2
    for seed in range(5):
        spectrum = np.random.default_rng(seed).gamma(0.7, size=6) + 0.01
        # In units of the limit of one direction, for comparable tolerances of the solver.
        solved = minimize(
            lambda s, spectrum=spectrum: spectrum @ (1 / s) / spectrum.sum(),
            np.full(6, 0.99 * min(1, together / each / 6)),
            jac=lambda s, spectrum=spectrum: -spectrum / s**2 / spectrum.sum(),
            bounds=[(1e-3, 1)] * 6,
            constraints={"type": "ineq", "fun": lambda s: together / each - s.sum()},
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        expected = (1 + least_mean_error(spectrum, epsilon)) * each
        assert solved.fun == pytest.approx(expected, rel=1e-5)
        most = linprog(-spectrum, A_ub=np.ones((1, 6)), b_ub=[together], bounds=(0, each))
        assert fidelity_ceiling(spectrum, epsilon) == pytest.approx(-most.fun / spectrum.sum())


def test_the_error_is_that_of_the_optimal_reshaping_while_no_direction_is_at_its_limit(geometry):
    effects = active_directions(geometry).effects
    spectrum = task_spectrum(geometry.gram, geometry.covariance)
    np.testing.assert_allclose(spectrum[: effects.size], effects**2, rtol=1e-6)
    for epsilon in (0.1, 1):
        reshaped = effects.sum() ** 2 / math.sinh(epsilon / 2) ** 2 / (effects**2).sum() - 1
        assert least_mean_error(spectrum, epsilon) == pytest.approx(reshaped, rel=1e-3)


def test_the_spectrum_does_not_depend_on_units():
    rng = np.random.default_rng(0)
    root, spread = rng.standard_normal((2, 4, 4))
    units, gram, covariance = np.diag([1.0, 10.0, 0.1, 3.0]), root @ root.T, spread @ spread.T
    back = np.linalg.inv(units)
    np.testing.assert_allclose(
        task_spectrum(back @ gram @ back, units @ covariance @ units),
        task_spectrum(gram, covariance),
    )


def test_huge_budgets_allow_everything():
    assert fidelity_ceiling(np.ones(1000), 10_000) == pytest.approx(1)
    assert least_mean_error(np.ones(1000), 10_000) == pytest.approx(0)


def test_the_ceiling_of_a_number_is_at_most_that_of_one_direction():
    rng = np.random.default_rng(0)
    for epsilon in EPSILONS:
        for answers in (rng.standard_normal(2000), rng.exponential(size=2000)):
            assert 0 < scalar_ceiling(answers, epsilon) <= fidelity_ceiling([1], epsilon)
        assert scalar_ceiling([1, 1, -1, -1], epsilon) == pytest.approx(
            fidelity_ceiling([1], epsilon)
        )


def test_errors_name_the_bad_argument():
    with pytest.raises(InvalidInput, match="spectrum"):
        fidelity_ceiling([1, -1], 1)
    with pytest.raises(InvalidInput, match="spectrum"):
        least_mean_error([0, 0], 1)
    with pytest.raises(InvalidInput, match="epsilon"):
        least_mean_error([1], 0)
    with pytest.raises(InvalidInput, match="gram and covariance"):
        task_spectrum(np.eye(2), np.eye(3))
    with pytest.raises(InvalidInput, match="affects"):
        task_spectrum(np.diag([1.0, 0.0]), np.diag([0.0, 1.0]))
    with pytest.raises(InvalidInput, match="dim"):
        sphere_mean_error(0, 1)
    with pytest.raises(InvalidInput, match="equal"):
        scalar_ceiling([2, 2], 1)
