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
