"""Partitions for randomized response: the risk is as stated, and every round lowers it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from offaxis.geometry.partition import (
    Cells,
    cells_of,
    improve,
    nearest,
    partition,
    risk,
    spread_out,
)
from offaxis.randomizers.symbols import KaryResponse
from offaxis.simulation import draw_observations

RNG = np.random.default_rng(8)
CENTRES = RNG.standard_normal((7, 3)) * 3
X = CENTRES[RNG.integers(0, 7, 3000)] + RNG.standard_normal((3000, 3))
X -= X.mean(axis=0)
VARIANCE = (X**2).sum(axis=1).mean()


def kept_by_enumeration(cells: Cells, epsilon: float) -> float:
    """Apply Bayes' rule to every symbol, without the closed form."""
    k = len(cells.masses)
    chances = np.where(np.eye(k, dtype=bool), np.exp(epsilon), 1.0) / (np.exp(epsilon) + k - 1)
    reported = chances.T @ cells.masses
    means = chances.T @ cells.sums / reported[:, None]
    return float(reported @ (means**2).sum(axis=1))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 50.0])
def test_the_closed_form_is_bayes_rule(epsilon):
    cells = cells_of(X, nearest(X, X[:6]))
    assert cells.kept(epsilon) == pytest.approx(kept_by_enumeration(cells, epsilon), rel=1e-9)
    assert risk(X, X[:6], epsilon) > VARIANCE - cells.kept(epsilon)  # other points, more risk


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_risk_is_the_error_of_simulated_reports(epsilon):
    points = partition(X, epsilon, 5, seed=1)
    symbols = nearest(X, points)
    cells = cells_of(X, symbols)
    rows = np.repeat(np.arange(len(X)), 40)
    reported = draw_observations(
        KaryResponse(5, epsilon), symbols[rows], np.random.default_rng(2)
    ).argmax(axis=1)
    for decoded, exact in (
        (cells.decoded(epsilon), VARIANCE - cells.kept(epsilon)),
        (points, risk(X, points, epsilon)),
    ):
        errors = ((X[rows] - decoded[reported]) ** 2).sum(axis=1)
        assert errors.mean() == pytest.approx(exact, abs=5 * errors.std() / np.sqrt(errors.size))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0, 8.0])
def test_no_round_keeps_less_than_the_one_before(epsilon):
    points = spread_out(X, 12, np.random.default_rng(3))
    kept, risks = [], []
    for _ in range(25):
        cells = cells_of(X, nearest(X, points))
        points = cells.decoded(epsilon)
        kept.append(cells.kept(epsilon))
        risks.append(risk(X, points, epsilon))
    assert (np.diff(kept) >= -1e-12).all()
    assert (np.diff(risks) <= 1e-12).all()
    assert kept[-1] > kept[0]
    # Half a round further: a new assignment can only lower the risk of the cells.
    assert risks[-1] <= VARIANCE - kept[-1] + 1e-12


def test_reporting_the_nearest_point_is_best_for_a_client():
    epsilon, points = 1.0, partition(X, 1.0, 4, seed=4)
    distances = ((X[:50, None] - points) ** 2).sum(axis=2)
    expected = np.stack(
        [
            (distances.sum(axis=1) + np.expm1(epsilon) * distances[:, j]) / (np.e + 3)
            for j in range(4)
        ]
    )
    np.testing.assert_array_equal(expected.argmin(axis=0), nearest(X[:50], points))


def test_a_few_points_are_partitioned_as_well_as_by_exhaustive_search():
    """All partitions of eight points, on a line and in the plane, into at most three cells."""
    assignments = np.array([(0, *rest) for rest in product(range(3), repeat=7)])
    for dim in (1, 2):
        few = np.random.default_rng(dim).standard_normal((8, dim))
        few -= few.mean(axis=0)
        candidates = [cells_of(few, symbols) for symbols in assignments]
        for epsilon in (0.5, 2.0, 4.0):
            best = max(cells.kept(epsilon) for cells in candidates)
            kept = max(
                improve(few, partition(few, epsilon, size, seed=0), epsilon, 50)[1]
                for size in (2, 3)
            )
            assert kept == pytest.approx(best, rel=1e-9)


def test_at_small_budgets_the_partition_is_better_than_k_means():
    rng = np.random.default_rng(6)
    skewed = rng.exponential(1.0, (3000, 1)) ** 2
    skewed -= skewed.mean()
    aware, _ = improve(skewed, partition(skewed, 1.0, 4, seed=0), 1.0, 50)
    means, _ = improve(skewed, spread_out(skewed, 4, rng), 60.0, 100)  # ε = 60 is k-means
    kept = [cells_of(skewed, nearest(skewed, points)).kept(1.0) for points in (aware, means)]
    assert kept[0] > 1.2 * kept[1]


def test_more_budget_keeps_more_with_more_cells():
    sizes, risks = [], []
    for epsilon in (0.5, 2.0, 5.0, 9.0):
        points = partition(X, epsilon, None, seed=0)
        sizes.append(len(points))
        risks.append(risk(X, points, epsilon))
    assert sizes == sorted(sizes)
    assert sizes[0] < 4 < 7 <= sizes[-1]
    assert (np.diff(risks) < 0).all()
    assert risks[0] < VARIANCE


def test_the_chosen_size_is_about_the_best():
    for epsilon in (1.0, 4.0):
        risks = [risk(X, partition(X, epsilon, size, seed=0), epsilon) for size in (2, 3, 4, 6, 8)]
        assert risk(X, partition(X, epsilon, None, seed=0), epsilon) <= 1.02 * min(risks)


@pytest.mark.parametrize("size", [2, 5, None])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 90.0])
def test_a_single_outlier_gets_a_cell(size, epsilon):
    vectors = np.zeros((400, 2))
    vectors[7] = [3.0, 4.0]
    points = partition(vectors, epsilon, size, seed=0)
    assert len(points) == 2
    assert np.bincount(nearest(vectors, points)).tolist() in ([399, 1], [1, 399])
    assert len(partition(np.ones((30, 2)), epsilon, size, seed=0)) == 1


def test_an_offset_shifts_the_points_only():
    moved = partition(X + 100.0, 2.0, 5, seed=9)
    np.testing.assert_allclose(moved - 100.0, partition(X, 2.0, 5, seed=9), atol=1e-6)


def test_there_may_be_fewer_distinct_vectors_than_cells():
    same = np.repeat(np.eye(3), 5, axis=0)
    points = partition(same, 5.0, 10, seed=0)
    assert 2 <= len(points) <= 3
    assert len(set(nearest(same, points))) == len(points)
