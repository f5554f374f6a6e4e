"""The stretch of encoders."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.theory import Amplification, amplification
from tests.theory.conftest import BUDGETS, STRETCHES


@pytest.mark.parametrize("lambda_max", STRETCHES)
def test_the_constraint_implies_a_stretch_of_at_least_one(features, geometry, fitted, lambda_max):
    assert amplification(fitted(BUDGETS[0], lambda_max)).l1 >= 1
    gaussian = offaxis.fit(
        geometry,
        features.public,
        epsilon=3,
        delta=1e-5,
        mechanism="gaussian",
        reshaping=offaxis.Jacobian(lambda_max=lambda_max),
    )
    assert amplification(gaussian).l2 >= 1


def test_the_stretch_is_attained_and_never_exceeded(release):
    stretch = amplification(release)
    matrix = release.encoder.matrix
    x = np.random.default_rng(2).standard_normal((2000, 6))
    for order, factor in ((1, stretch.l1), (2, stretch.l2)):
        ratio = np.linalg.norm(x @ matrix.T, order, axis=1) / np.linalg.norm(x, order, axis=1)
        assert ratio.max() <= factor * (1 + 1e-12)
    assert np.abs(matrix).sum(0).max() == pytest.approx(stretch.l1)
    top = np.linalg.svd(matrix)[2][0]
    assert np.linalg.norm(matrix @ top) == pytest.approx(stretch.l2)


@pytest.mark.parametrize("mechanism", ["laplace", "privunit2"])
def test_a_plain_release_stretches_nothing(public, mechanism):
    release = offaxis.fit(None, public, epsilon=2, reshaping="centre", mechanism=mechanism)
    assert amplification(release) == Amplification(1.0, 1.0)


# ---- The statement of the paper, for any map L = U Λ^{1/2}


def _map(rng: np.random.Generator, stretch: np.ndarray) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((len(stretch), len(stretch))))[0] * np.sqrt(stretch)


def test_in_l2_a_scale_below_one_amplifies_and_only_then():
    """‖L⁻¹‖₂ = 1/√λ_min."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        stretch = 10.0 ** rng.uniform(-2, 2, 5)
        factor = np.linalg.norm(np.linalg.inv(_map(rng, stretch)), 2)
        assert factor == pytest.approx(1 / np.sqrt(stretch.min()))
        assert (factor > 1) == (stretch.min() < 1)


def test_in_l1_a_map_of_norm_below_one_amplifies_and_a_rotation_never_reduces():
    rng = np.random.default_rng(4)
    amplified = 0
    for _ in range(500):
        matrix = _map(rng, 10.0 ** rng.uniform(-2, 0.5, 4))
        inverse = np.linalg.norm(np.linalg.inv(matrix), 1)
        assert inverse >= 1 / np.linalg.norm(matrix, 1) * (1 - 1e-12)
        if np.linalg.norm(matrix, 1) < 1:
            amplified += 1
            assert inverse > 1
        assert np.linalg.norm(_map(rng, np.ones(4)).T, 1) >= 1
    assert amplified > 20


def test_in_l1_one_scale_below_one_does_not_suffice():
    """The paper states it for both norms; its proof needs ‖L‖₁ < 1. Counterexample: 45 degrees."""
    rotation = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
    matrix = rotation * np.sqrt([0.9, 100.0])
    assert np.linalg.norm(matrix, 1) > 1
    assert np.linalg.norm(np.linalg.inv(matrix), 1) < 0.82
    assert np.linalg.norm(np.linalg.inv(matrix), 2) > 1


@pytest.mark.parametrize("order", [1, 2])
def test_under_the_constraint_no_basis_avoids_a_stretch_of_one(order):
    """Σ λ^{−p/2} = m: the mean of the column sums, or of the squared scales, is at least one."""
    rng = np.random.default_rng(5)
    for _ in range(2000):
        dim = int(rng.integers(2, 6))
        t = (dim * rng.dirichlet(np.full(dim, 0.3)) + 1e-12) ** (1 / order)
        inverse = (_map(rng, np.ones(dim)) * t).T
        assert np.linalg.norm(inverse, order) >= 1 - 1e-9
