from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.theory import Amplification, amplification
from tests.theory.conftest import BUDGETS, STRETCHES


@pytest.mark.parametrize("lambda_max", STRETCHES)
def test_the_constraint_forces_at_least_one(features, geometry, fitted, lambda_max):
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


def test_no_difference_is_stretched_further_and_one_is_as_far(release):
    found = amplification(release)
    matrix = release.encoder.matrix
    x = np.random.default_rng(2).standard_normal((2000, 6))
    for order, factor in ((1, found.l1), (2, found.l2)):
        ratio = np.linalg.norm(x @ matrix.T, order, axis=1) / np.linalg.norm(x, order, axis=1)
        assert ratio.max() <= factor * (1 + 1e-12)
    assert np.abs(matrix).sum(0).max() == pytest.approx(found.l1)
    top = np.linalg.svd(matrix)[2][0]
    assert np.linalg.norm(matrix @ top) == pytest.approx(found.l2)


@pytest.mark.parametrize("randomizer", ["laplace", "privunit2"])
def test_a_plain_release_stretches_nothing(public, randomizer):
    release = offaxis.fit(None, public, epsilon=2, reshaping="centre", mechanism=randomizer)
    assert amplification(release) == Amplification(1.0, 1.0)
