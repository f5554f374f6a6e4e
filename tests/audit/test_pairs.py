from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import offaxis
from offaxis.audit.pairs import pairs, preimages
from offaxis.encoding import AffineEncoder
from offaxis.errors import InvalidInput


def test_the_worst_pair_is_reached_through_the_encoder(audited):
    for release in audited.values():
        worst = pairs(release)[0]
        found = np.concatenate(worst.encoded(release))
        wanted = np.stack(release.randomizer.worst_pair())
        assert np.abs(found - wanted).max() < 1e-9 * np.abs(wanted).max()


def test_the_integers_of_the_worst_pair_are_the_poles(audited):
    randomizer = audited["laplace"].randomizer
    first, second = pairs(audited["laplace"])[0].encoded(audited["laplace"])
    gap = np.abs(randomizer.integers(first) - randomizer.integers(second)).sum()
    assert 2 * randomizer.bound - 12 <= gap <= 2 * randomizer.bound


def test_narrow_encoders_are_inverted_too(public):
    matrix = np.random.default_rng(0).standard_normal((3, 6))
    narrow = SimpleNamespace(encoder=AffineEncoder(matrix, np.ones(6)))
    W = np.eye(3)
    assert np.allclose(narrow.encoder.encode(preimages(narrow, W)), W)


def test_a_map_without_inverse_is_approached():
    flat = SimpleNamespace(encoder=AffineEncoder(np.diag([1.0, 0.0]), np.zeros(2)))
    assert np.allclose(preimages(flat, np.array([[3.0, 4.0]])), [[3.0, 0.0]])


def test_an_encoder_that_is_no_affine_map_is_refused():
    odd = SimpleNamespace(encoder=SimpleNamespace(kind="codebook", tensors=lambda: {"words": 0}))
    with pytest.raises(InvalidInput, match="codebook"):
        preimages(odd, np.zeros((1, 2)))


def test_plain_releases_have_pairs(public):
    release = offaxis.fit(None, public, epsilon=1, reshaping="none")
    found = pairs(release)
    assert [pair.name for pair in found] == ["worst", "far", "zero", "near", "extreme"]
    assert not found[2].encoded(release)[0].any()
