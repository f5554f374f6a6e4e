"""Pairs of inputs: the worst pair is reached through every encoder."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import offaxis
from offaxis.audit.inputs import pairs, preimages
from offaxis.encoding import AffineEncoder, ArgmaxEncoder
from offaxis.errors import InvalidInput
from offaxis.randomizers import NAMES


def test_the_worst_pair_is_reached_through_the_encoder(audited):
    for release in (audited[name] for name in NAMES):
        worst = pairs(release)[0]
        reached = np.concatenate(worst.encoded(release))
        expected = np.stack(release.randomizer.worst_pair())
        assert np.abs(reached - expected).max() < 1e-9 * np.abs(expected).max()


def test_the_integers_of_the_worst_pair_are_the_poles(audited):
    randomizer = audited["laplace"].randomizer
    first, second = pairs(audited["laplace"])[0].encoded(audited["laplace"])
    gap = np.abs(randomizer.integers(first) - randomizer.integers(second)).sum()
    assert 2 * randomizer.bound - 12 <= gap <= 2 * randomizer.bound


def test_encoders_of_lower_rank_are_inverted(public):
    matrix = np.random.default_rng(0).standard_normal((3, 6))
    narrow = AffineEncoder(matrix, np.ones(6))
    W = np.eye(3)
    assert np.allclose(narrow.encode(preimages(narrow, W)), W)


def test_a_singular_encoder_is_inverted_as_far_as_possible():
    flat = AffineEncoder(np.diag([1.0, 0.0]), np.zeros(2))
    assert np.allclose(preimages(flat, np.array([[3.0, 4.0]])), [[3.0, 0.0]])


def test_every_symbol_is_reached():
    rng = np.random.default_rng(1)
    words = rng.standard_normal((12, 3))
    encoder = ArgmaxEncoder(words, np.ones(3), -(words**2).sum(axis=1) / 2)
    assert encoder.encode(preimages(encoder, np.arange(12))).tolist() == list(range(12))


def test_an_unreachable_symbol_is_an_error():
    encoder = ArgmaxEncoder(np.zeros((2, 3)), np.zeros(3), np.array([1.0, 0.0]))
    with pytest.raises(InvalidInput, match="symbol 1"):
        preimages(encoder, np.array([1]))


def test_the_worst_pair_of_a_box_is_two_corners(audited):
    release = audited["coordinatewise-laplace"]
    first, second = pairs(release)[0].encoded(release)
    assert np.allclose(first, -second)
    assert np.abs(first).sum() == pytest.approx(release.randomizer.radius)


def test_an_unknown_encoder_is_rejected():
    with pytest.raises(InvalidInput, match="codebook"):
        preimages(SimpleNamespace(kind="codebook"), np.zeros((1, 2)))


def test_plain_releases_have_pairs(public):
    release = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace")
    tried = pairs(release)
    assert [pair.name for pair in tried] == ["worst", "far", "zero", "near", "extreme"]
    assert not tried[2].encoded(release)[0].any()
