"""The reshaping minimises the noise risk under its constraint: no other map has a smaller one."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.encoding import reshape
from offaxis.geometry import spectrum, water_filling

_TRIES = 200


def _cost(gram: np.ndarray, basis: np.ndarray, stretch: np.ndarray) -> float:
    return float(np.sum(stretch * np.einsum("ij,ik,kj->j", basis, gram, basis)))


def _stretches(rng: np.random.Generator, dim: int, order: float, cap: float) -> np.ndarray:
    """Return random λ ≤ cap with Σ λ^{−p/2} = m."""
    floor = cap ** (-order / 2)
    share = rng.dirichlet(np.full(dim, rng.uniform(0.2, 5)))
    return (floor + share * dim * (1 - floor)) ** (-2 / order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("cap", [2.0, 1000.0])
def test_no_random_map_has_a_smaller_risk(geometry, order, cap):
    best = reshape(geometry, order=order, lambda_max=cap)
    lowest = _cost(geometry.gram, best.basis, best.stretch)
    assert np.sum(best.stretch ** (-order / 2)) == pytest.approx(64)
    rng = np.random.default_rng(7)
    for _ in range(_TRIES):
        other = _stretches(rng, 64, order, cap)
        assert other.max() <= cap * (1 + 1e-9)
        basis = np.linalg.qr(rng.standard_normal((64, 64)))[0]
        assert _cost(geometry.gram, best.basis, other) >= lowest * (1 - 1e-9)
        assert _cost(geometry.gram, basis, best.stretch) >= lowest * (1 - 1e-9)
        assert _cost(geometry.gram, basis, other) >= lowest * (1 - 1e-9)


# ---- The propositions, each by itself


def _gram(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """Return a matrix with these eigenvalues and random eigenvectors."""
    basis = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    return (basis * values) @ basis.T


def test_for_any_fixed_scales_the_jacobian_basis_is_optimal_and_reaches_the_sum():
    """min Tr(ΛUᵀΩ̂U) = Σ λ_i γ_i. The broken control pairs large with large."""
    rng = np.random.default_rng(8)
    for _ in range(50):
        values = np.sort(10.0 ** rng.uniform(-3, 2, 5))[::-1]
        scales = np.sort(10.0 ** rng.uniform(-1, 2, 5))
        gram = _gram(rng, values)
        basis = spectrum(gram).basis
        lowest = _cost(gram, basis, scales)
        assert lowest == pytest.approx(scales @ values, rel=1e-9)
        assert _cost(gram, basis, scales[::-1]) > lowest
        for _ in range(40):
            other = np.linalg.qr(rng.standard_normal((5, 5)))[0]
            assert _cost(gram, other, scales) >= lowest * (1 - 1e-9)


def test_the_scales_have_the_closed_form_and_meet_the_conditions_of_optimality():
    """t = max(t_min, αγ^{1/3}) with the stated α; the multipliers of capped scales are ≥ 0."""
    rng = np.random.default_rng(9)
    some_capped, none_capped = 0, 0
    for _ in range(200):
        values = np.sort(10.0 ** rng.uniform(-4, 2, 6))[::-1]
        values[rng.random(6) < 0.2] = 0
        values[0], cap = 100.0, 10.0 ** rng.uniform(0.1, 4)
        t = water_filling(values, lambda_max=cap, order=1) ** -0.5
        floor = cap**-0.5
        capped = t <= floor * (1 + 1e-12)
        alpha = (6 - capped.sum() * floor) / np.cbrt(values[~capped]).sum()
        np.testing.assert_allclose(t, np.maximum(floor, alpha * np.cbrt(values)), rtol=1e-9)
        price = 2 * values[0] / t[0] ** 3
        np.testing.assert_allclose(2 * values[~capped] / t[~capped] ** 3, price, rtol=1e-8)
        assert (price - 2 * values[capped] / floor**3 >= -1e-8 * price).all()
        some_capped += capped.any()
        none_capped += not capped.any()
    assert min(some_capped, none_capped) > 5


def test_an_ignored_direction_has_no_finite_optimum_without_the_cap():
    """γ = (1, 0): the risk falls with every larger cap, toward 1/4, and the cap is used in full."""
    values, risks = np.array([1.0, 0.0]), []
    for cap in (2.0, 10.0, 1e3, 1e9):
        stretch = water_filling(values, lambda_max=cap, order=1)
        assert stretch[1] == pytest.approx(cap)
        risks.append(float(values @ stretch))
    assert (np.diff(risks) < 0).all()
    assert risks[-1] == pytest.approx(0.25, rel=1e-4)
    assert risks[-1] > 0.25
