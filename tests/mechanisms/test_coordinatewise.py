"""Coordinate-wise noise: the published noise in each coordinate, with the guarantee of a ball."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offaxis
from offaxis.encoding import BoxEncoder
from offaxis.errors import InvalidInput
from offaxis.randomizers.gaussian import noise_scale
from tests.checks import ALPHA, mean_p_value

EPSILON = 2


def fitted(public, noise, **settings):
    delta = "1e-5" if noise == "gaussian" else None
    defaults: dict[str, Any] = {"reshaping": "none", "percentile": 80}
    return offaxis.fit(
        None,
        public,
        epsilon=EPSILON,
        mechanism=f"coordinatewise-{noise}",
        delta=delta,
        **defaults | settings,
    )


def published_scales(public, noise):
    spans = 2 * np.quantile(np.abs(public), 0.8, axis=0)
    if noise == "laplace":
        return np.cbrt(spans) * (np.cbrt(spans) ** 2).sum() / EPSILON
    return noise_scale(1.0, EPSILON, 1e-5) * np.sqrt(spans * spans.sum())


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_every_coordinate_gets_the_published_noise(public, noise):
    release = fitted(public, noise)
    scales = np.diag(release.decoder.matrix) * release.randomizer.scale
    # The lattice has whole steps, so it spends slightly less than allowed.
    np.testing.assert_allclose(scales, published_scales(public, noise), rtol=2e-4)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_budgets_of_the_coordinates_add_up_to_the_guarantee(public, noise):
    """Worst-case ratio in closed form: opposite corners of the box, in the decoded units."""
    release = fitted(public, noise)
    widths = release.encoder.limits * np.diag(release.decoder.matrix)
    np.testing.assert_allclose(widths, np.quantile(np.abs(public), 0.8, axis=0))
    noise_of_each = np.diag(release.decoder.matrix) * release.randomizer.scale
    if noise == "laplace":
        assert EPSILON * (1 - 1e-3) <= (2 * widths / noise_of_each).sum() <= EPSILON * (1 + 1e-12)
        assert release.randomizer.realised_epsilon <= EPSILON
    else:
        allowed = 1 / noise_scale(1.0, EPSILON, 1e-5)
        shift = np.linalg.norm(2 * widths / noise_of_each)
        assert allowed * (1 - 1e-3) <= shift <= allowed * (1 + 1e-9)


def test_vectors_are_clipped_coordinate_by_coordinate(public):
    release = fitted(public, "laplace")
    assert isinstance(release.encoder, BoxEncoder)
    far = np.array([[1e9, 0, 0, 0, 0, 0], [1e9, -1e9, 0, 0, 0, 0]])
    encoded = release.encoder.encode(far)
    limits = release.encoder.limits
    np.testing.assert_array_equal(encoded[0], [limits[0], 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(encoded[1], [limits[0], -limits[1], 0, 0, 0, 0])
    # A corner is inside the ball, up to rounding: nothing is clipped a second time.
    corner = release.randomizer.domain.project(limits[None])[0]
    np.testing.assert_allclose(corner, limits, rtol=1e-12)


def test_the_noise_is_better_than_equal_noise(public):
    """Its summed error in the box is least. The broken control gives all coordinates the same."""
    spans = 2 * np.quantile(np.abs(public * [1, 1, 1, 9, 9, 99]), 0.8, axis=0)
    uneven = 2 * published_scales(public * [1, 1, 1, 9, 9, 99], "laplace") ** 2
    equal = np.full(6, 2 * (spans.sum() / EPSILON) ** 2)
    assert uneven.sum() < equal.sum()


def test_means_of_reports_are_unbiased_inside_the_box(public):
    release = fitted(public, "laplace", percentile=100)
    z = public[:1].repeat(20_000, axis=0)
    decoded = release.decode(release.privatize(z))
    assert mean_p_value(decoded, public[0]) > ALPHA
    assert mean_p_value(decoded, 2 * public[0]) < ALPHA


def test_a_constant_coordinate_gets_no_noise(public):
    flat = public.copy()
    flat[:, 2] = 0.0
    release = fitted(flat, "laplace")
    assert release.encoder.output_dim == 5
    assert (release.decode(release.privatize(flat[:50]))[:, 2] == 0).all()


def test_a_percentile_of_zero_in_every_coordinate_is_an_error(public):
    with pytest.raises(InvalidInput, match="percentile of every coordinate is zero"):
        fitted(np.vstack([np.zeros((90, 6)), public[:5]]), "laplace")
