"""The gap of the noise risk between public and private vectors, and its bound."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.theory import discrepancy, discrepancy_split, mean_gram, noise_risk, sampling_rate
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


# ---- The split into a shift of the population and a sampling error


def test_the_parts_of_isotropic_gaps_are_exact(release):
    """Ω̂ = I, Ω_pub = 2I, Ω_priv = 5I: parts of 3 and 1 times σ² Tr Λ, and their sum is attained."""
    unit = release.randomizer.expected_squared_error() / 6 * np.sum(release.decoder.matrix**2)
    split = discrepancy_split(release, np.eye(6), 2 * np.eye(6), 5 * np.eye(6))
    assert split.shift.bound == pytest.approx(3 * unit)
    assert split.sampling.bound == pytest.approx(unit)
    assert split.total.bound == pytest.approx(4 * unit)
    assert split.bound == pytest.approx(split.total.bound)


def test_parts_of_opposite_sign_cancel_in_the_total_only(release):
    split = discrepancy_split(release, np.eye(6), 3 * np.eye(6), np.eye(6))
    assert split.total.exact == split.total.bound == 0
    assert split.shift.operator_norm == split.sampling.operator_norm == pytest.approx(2)


@pytest.mark.parametrize("count", [100, 1600])
def test_the_triangle_inequality_holds_and_each_part_is_that_of_its_matrices(
    features, geometry, some, fitted, count
):
    release = fitted(5, 2)
    sample = np.random.default_rng(3).choice(len(features.public), count, replace=False)
    empirical = mean_gram(features.head, features.public[sample])
    private = mean_gram(features.head, some)
    split = discrepancy_split(release, empirical, geometry.gram, private)
    for part, difference in (
        (split.shift, private - geometry.gram),
        (split.sampling, geometry.gram - empirical),
        (split.total, private - empirical),
    ):
        assert part.exact == pytest.approx(abs(noise_risk(release, difference)), rel=1e-8)
        assert part.operator_norm == pytest.approx(np.linalg.norm(difference, 2))
    norms = split.shift.operator_norm + split.sampling.operator_norm
    assert 0 < split.total.operator_norm <= norms
    assert split.total.exact <= split.shift.exact + split.sampling.exact
    assert split.total.exact <= split.total.bound <= split.bound


def test_more_public_vectors_reduce_the_sampling_part_and_leave_the_shift():
    """A population with a known Gram matrix; 16 times the vectors, means over 40 samples.

    T(z) = max(z, 0) per coordinate has JᵀJ = diag(1(z_j > 0)), so Ω_pub = I/2 for centred vectors
    and Ω_priv = Φ(1)·I for vectors around one. The broken control, Ω̂ in place of Ω_pub, calls
    everything a shift: its sampling part is zero.
    """
    rng = np.random.default_rng(10)
    model = Layers([np.eye(4), np.eye(4)], [np.zeros(4), np.zeros(4)])
    release = offaxis.fit(
        None, rng.standard_normal((200, 4)), epsilon=2, reshaping="none", mechanism="laplace"
    )
    public, private = 0.5 * np.eye(4), norm.cdf(1) * np.eye(4)
    sampling = []
    for count in (200, 3200):
        grams = [mean_gram(model, rng.standard_normal((count, 4))) for _ in range(40)]
        splits = [discrepancy_split(release, gram, public, private) for gram in grams]
        assert {split.shift.operator_norm for split in splits} == {norm.cdf(1) - 0.5}
        sampling.append(np.mean([split.sampling.operator_norm for split in splits]))
    # The ratio is 4; its standard error over 40 samples is below 0.4.
    assert 2.5 < sampling[0] / sampling[1] < 6
    broken = discrepancy_split(release, grams[0], grams[0], private)
    assert broken.sampling.bound == 0 != sampling[1]
    assert broken.shift.operator_norm != splits[0].shift.operator_norm
