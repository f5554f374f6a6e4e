"""The gap of the noise risk between public and private vectors, and its bound."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.theory import discrepancy, mean_gram, noise_risk, sampling_rate
from tests.theory.conftest import BUDGETS, STRETCHES


@pytest.mark.parametrize("lambda_max", STRETCHES)
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_the_gap_is_exact_and_below_its_bound(
    features, geometry, some, fitted, epsilon, lambda_max
):
    release = fitted(epsilon, lambda_max)
    private = mean_gram(features.head, some)
    gap = discrepancy(release, geometry.gram, private)
    expected = noise_risk(release, private) - noise_risk(release, geometry.gram)
    assert gap.exact == pytest.approx(abs(expected), rel=1e-8)
    assert 0 < gap.exact < gap.bound < np.inf


def test_the_bound_is_attained_by_an_isotropic_gap(public):
    """Plain noise, Ω − Ω̂ = 3·I: both sides are 3 σ² m."""
    release = offaxis.fit(None, public, epsilon=4, reshaping="none", mechanism="laplace")
    gap = discrepancy(release, np.eye(6), 4 * np.eye(6))
    variance = release.randomizer.expected_squared_error() / 6
    assert gap.exact == pytest.approx(18 * variance)
    assert gap.bound == pytest.approx(18 * variance)
    assert gap.operator_norm == pytest.approx(3)


def test_the_bound_is_attained_by_an_isotropic_gap_after_reshaping(release):
    """Ω − Ω̂ = I: both sides are σ² Tr Λ."""
    gap = discrepancy(release, np.eye(6), 2 * np.eye(6))
    variance = release.randomizer.expected_squared_error() / 6
    stretch = np.sum(release.decoder.matrix**2, axis=0)
    assert gap.exact == pytest.approx(variance * stretch.sum())
    assert gap.bound == pytest.approx(gap.exact)


def test_equal_gram_matrices_have_no_gap(release, head, public):
    gram = mean_gram(head, public)
    gap = discrepancy(release, gram, gram)
    assert gap.exact == gap.bound == 0


def test_more_vectors_bring_the_gram_closer(features, geometry):
    """Sixteen times the vectors give a quarter of the rate; means over 30 subsets."""
    assert sampling_rate(64, 1600) == sampling_rate(64, 100) / 4
    rng = np.random.default_rng(9)
    gaps = []
    for count in (100, 1600):
        parts = [features.public[rng.choice(8000, count)] for _ in range(30)]
        norms = [np.linalg.norm(mean_gram(features.head, p) - geometry.gram, 2) for p in parts]
        gaps.append(np.mean(norms))
    assert 2.5 < gaps[0] / gaps[1] < 6.5


def test_gram_matrices_that_do_not_fit_are_rejected(release):
    with pytest.raises(InvalidInput, match="public_gram must be symmetric"):
        discrepancy(release, np.eye(5), np.eye(6))
    with pytest.raises(InvalidInput, match="private_gram must be symmetric"):
        discrepancy(release, np.eye(6), np.triu(np.ones((6, 6))))
