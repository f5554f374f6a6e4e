"""Propositions 1 and 2: no feasible allocation and no rotation improves on water-filling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from offaxis.errors import InvalidInput
from offaxis.geometry import gap_rank, spectrum, water_filling

seeds = st.integers(0, 2**32 - 1)
orders = st.sampled_from([1, 1.5, 2, 3])
caps = st.floats(1.01, 1e5)
sizes = st.integers(1, 12)


def random_spectrum(rng: np.random.Generator, m: int) -> np.ndarray:
    """Return a spectrum over many decades, some with ties, some with zeros."""
    values = 10.0 ** rng.uniform(-6, 4, m)
    values[rng.random(m) < 0.3] = 0.0
    if rng.random() < 0.3:
        values[:] = values[0]
    if not values.any():
        values[0] = 1.0
    return values


def random_feasible(rng: np.random.Generator, m: int, cap: float, order: float, n: int):
    """Return n allocations with Σ t^p = m and t >= t_min, spread over the feasible set."""
    t_min = cap**-0.5
    share = rng.dirichlet(np.full(m, 10.0 ** rng.uniform(-1.5, 1)), size=n)
    return (t_min**order + share * m * (1 - t_min**order)) ** (1 / order)


@given(seeds, sizes, caps, orders)
def test_water_filling_meets_its_constraints(seed, m, cap, order):
    values = random_spectrum(np.random.default_rng(seed), m)
    stretch = water_filling(values, lambda_max=cap, order=order)
    assert (stretch <= cap * (1 + 1e-12)).all()
    assert (stretch ** (-order / 2)).sum() == pytest.approx(m, rel=1e-12)


@given(seeds, sizes, caps, orders)
def test_no_random_allocation_is_better(seed, m, cap, order):
    rng = np.random.default_rng(seed)
    values = random_spectrum(rng, m)
    best = values @ water_filling(values, lambda_max=cap, order=order)
    others = random_feasible(rng, m, cap, order, 1000) ** -2.0 @ values
    assert best <= others.min() * (1 + 1e-12)


@given(seeds, st.integers(2, 8), caps)
def test_no_random_rotation_is_better(seed, m, cap):
    """Tr(Λ Uᵀ Ω U) over rotations U and allocations Λ is smallest in the eigenbasis."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((m, m)) * 10.0 ** rng.uniform(-2, 1, m)
    gram = root @ root.T
    eigen = spectrum(gram)
    stretch = water_filling(eigen.values, lambda_max=cap)
    best = float(np.trace((eigen.basis * stretch).T @ gram @ eigen.basis))
    assert best == pytest.approx(eigen.values @ stretch, rel=1e-9)
    rotations = ortho_group.rvs(m, size=1000, random_state=rng)
    diagonals = np.einsum("nji,jk,nki->ni", rotations, gram, rotations)
    same_stretch = (diagonals * stretch).sum(axis=1)
    random_stretch = (diagonals * random_feasible(rng, m, cap, 1, 1000) ** -2.0).sum(axis=1)
    assert best <= min(same_stretch.min(), random_stretch.min()) * (1 + 1e-9)
    for diagonal in diagonals[:20]:
        assert best <= diagonal @ water_filling(diagonal, lambda_max=cap) * (1 + 1e-9)


def test_a_wrong_exponent_is_worse():
    """The broken control: t ∝ γ^{1/2} meets the volume constraint but is not optimal."""
    values = np.array([100.0, 1.0, 0.01])
    t = values**0.5
    t *= 3 / t.sum()
    assert values @ water_filling(values, lambda_max=1e9) < values @ t**-2.0 * 0.99


def test_equal_directions_are_not_stretched():
    assert np.allclose(water_filling(np.full(5, 3.0)), 1.0)


def test_ignored_directions_get_the_cap_exactly():
    stretch = water_filling(np.array([1.0, 0.0, 0.0]), lambda_max=100.0)
    assert np.allclose(stretch[1:], 100.0)
    assert stretch[0] == pytest.approx((3 - 0.2) ** -2)


@given(seeds, sizes)
def test_scaling_the_spectrum_changes_nothing(seed, m):
    values = random_spectrum(np.random.default_rng(seed), m)
    assert np.allclose(water_filling(values), water_filling(values * 1e-150), rtol=1e-12)


def test_gap_rank_splits_at_one_percent_of_the_largest_singular_value():
    values = np.array([1.0, 0.25, 2e-4, 0.5e-4, 0.0])
    stretch = gap_rank(values, lambda_max=1000.0)
    t = stretch**-0.5
    assert np.allclose(stretch[3:], 1000.0)
    assert t.sum() == pytest.approx(5)
    assert np.allclose(t[:3] / t[0], values[:3] ** (1 / 3))


@pytest.mark.parametrize("rule", [water_filling, gap_rank])
@pytest.mark.parametrize(
    ("values", "settings"),
    [
        (np.zeros(3), {}),
        (np.array([1.0, -1.0]), {}),
        (np.array([1.0, np.nan]), {}),
        (np.ones(3), {"lambda_max": 1.0}),
        (np.ones(3), {"lambda_max": np.inf}),
        (np.ones(3), {"lambda_max": np.nan}),
        (np.ones(3), {"order": 0.0}),
    ],
)
def test_bad_settings_are_an_error(rule, values, settings):
    with pytest.raises(InvalidInput):
        rule(values, **settings)


def test_the_error_for_an_all_zero_jacobian_states_the_fix():
    with pytest.raises(InvalidInput, match="reshaping='none'"):
        spectrum(np.zeros((3, 3)))


def test_the_spectrum_is_sorted_and_reproducible():
    root = np.random.default_rng(0).standard_normal((6, 3))
    gram = root @ root.T
    eigen = spectrum(gram)
    assert (np.diff(eigen.values) <= 0).all()
    assert (eigen.values >= 0).all()
    assert np.allclose(eigen.basis * eigen.values @ eigen.basis.T, gram)
    assert np.array_equal(eigen.basis, spectrum(gram.copy()).basis)


def test_the_ignored_directions_follow_the_public_vectors():
    """Among directions that the task ignores, the data choose the basis, not rounding."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((2, 6))
    axes = ortho_group.rvs(6, random_state=rng)
    covariance = (axes * [6.0, 5, 4, 3, 2, 1]) @ axes.T
    guided = spectrum(W.T @ W, covariance)
    assert (guided.values[2:] == 0).all()
    assert np.allclose(guided.basis.T @ guided.basis, np.eye(6))
    rest = guided.basis[:, 2:]
    spread = rest.T @ covariance @ rest
    assert np.allclose(spread, np.diag(np.diag(spread)))
    assert (np.diff(np.diag(spread)) <= 0).all()
    nudged = spectrum(W.T @ W + 1e-15 * rng.standard_normal((6, 6)), covariance)
    assert np.allclose(guided.basis, nudged.basis, atol=1e-9)
    unguided = spectrum(W.T @ W + 1e-15 * rng.standard_normal((6, 6)))
    assert not np.allclose(spectrum(W.T @ W).basis, unguided.basis, atol=1e-3)
