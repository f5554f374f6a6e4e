"""The clipping bias is the error of a mean after the noise has been averaged away."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.evaluation import clipping_bias, metrics
from tests.checks import ALPHA, mean_p_value

RNG = np.random.default_rng(0)
PUBLIC = RNG.standard_normal((2000, 4)) * 0.5 + np.array([2.0, 0.0, -1.0, 0.0])
PUBLIC[::4] *= 3  # a quarter is three times as long


def plain(name: str = "laplace", percentile: float = 75.0, **settings):
    return offaxis.fit(None, PUBLIC, epsilon=8, mechanism=name, percentile=percentile, **settings)


@pytest.mark.parametrize("name", ["laplace", "gaussian", "privunit2-mean", "privunitg-mean"])
def test_means_of_reports_are_off_by_the_bias(name):
    """Exact reports against the mean plus the bias; the broken control ignores the bias.

    A false alarm has probability ALPHA.
    """
    delta = 1e-5 if name == "gaussian" else None
    release = plain(name, delta=delta, reshaping="none")
    clipping = clipping_bias(release, PUBLIC)
    # Directions are slow to draw, and a few show the bias beyond doubt.
    Z = np.tile(PUBLIC, (5 if name.startswith("privunit") else 15, 1))
    decoded = release.decode(release.privatize(Z))
    assert mean_p_value(decoded, PUBLIC.mean(axis=0) + clipping.bias) > ALPHA
    assert mean_p_value(decoded, PUBLIC.mean(axis=0)) < ALPHA**4
    assert clipping.share == pytest.approx(0.25, abs=0.01)
    assert clipping.count == 2000


def test_the_bias_is_the_mean_change_by_clipping(monkeypatch):
    release = plain(reshaping="none")
    radius = release.randomizer.radius
    length = np.abs(PUBLIC).sum(axis=1)
    moved = PUBLIC * np.minimum(1, radius / length)[:, None] - PUBLIC
    clipping = clipping_bias(release, PUBLIC)
    np.testing.assert_allclose(clipping.bias, moved.mean(axis=0), atol=1e-12)
    error = moved.std(axis=0, ddof=1) / np.sqrt(len(moved))
    np.testing.assert_allclose(clipping.standard_error, error)
    assert clipping.share == (length > radius).mean()
    monkeypatch.setattr(metrics, "_NUMBERS", 28)
    parts = clipping_bias(release, PUBLIC)
    np.testing.assert_allclose(parts.bias, clipping.bias)
    assert parts.share == clipping.share


@pytest.mark.parametrize("reshaping", ["none", "centre", offaxis.Jacobian(lambda_max=10)])
def test_without_clipping_there_is_no_bias(reshaping):
    release = offaxis.fit(
        np.eye(4)[:2], PUBLIC, epsilon=1, percentile=100, reshaping=reshaping, mechanism="laplace"
    )
    clipping = clipping_bias(release, PUBLIC)
    np.testing.assert_allclose(clipping.bias, 0, atol=1e-9)
    assert clipping.share <= 1 / 2000  # the longest may be an ulp outside


def test_a_release_without_means_has_no_clipping_bias():
    with pytest.raises(BiasedDecoder):
        clipping_bias(plain("privunit2", reshaping="none"), PUBLIC)


def test_vectors_of_another_dimension_are_rejected():
    with pytest.raises(InvalidInput, match="dimension"):
        clipping_bias(plain(reshaping="none"), PUBLIC[:, :2])


def test_a_codebook_has_no_clipping_bias(head, public):
    with pytest.raises(BiasedDecoder, match=r"shares\(\)"):
        clipping_bias(offaxis.fit(head, public, epsilon=2, mechanism="response"), public)
