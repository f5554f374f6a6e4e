"""Posterior means: the randomizer's likelihood, inside the public hull, with strict checks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import offaxis
from offaxis.decoding import CodewordDecoder, PosteriorCodewordDecoder, PosteriorDecoder
from offaxis.decoding.posterior import likelihood
from offaxis.errors import InvalidInput, InvalidRelease
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.mechanisms import posterior
from offaxis.simulation import draw_observations
from tests.checks import delta_for
from tests.fuzz.forgery import contents, fill, put_together, take_apart

QUICK = ("laplace", "gaussian", "spherical-laplace", "privunit2", "privunitg", "duchi", "piecewise")
MEANS = ("privunit2-mean", "privunitg-mean")


def fitted(head, public, name, epsilon=3):
    delta = delta_for(name)
    return offaxis.fit(head, public, epsilon=epsilon, mechanism=name, delta=delta)


def observed(release, Z, seed=3):
    return draw_observations(
        release.randomizer, release.encoder.encode(Z), np.random.default_rng(seed)
    )


@pytest.mark.parametrize("name", [*QUICK, *MEANS, "hybrid", "privunitg-sphere"])
def test_the_likelihood_is_that_of_the_randomizer(head, public, name):
    release = fitted(head, public, name)
    W = release.encoder.encode(public[:12])
    W[3] = 0.0
    V = observed(release, public[:9])
    computed = likelihood(release.randomizer, W)(V)
    expected = np.array([release.randomizer.log_density(np.tile(v, (12, 1)), W) for v in V])
    gap = (computed - computed[:, :1]) - (expected - expected[:, :1])
    assert np.abs(gap).max() < 1e-3


@pytest.mark.parametrize("name", ["laplace", "privunit2", "privunit2-mean", "duchi"])
def test_the_posterior_mean_has_the_least_error_for_vectors_drawn_from_its_points(
    head, public, name
):
    """The broken control counts the likelihood twice."""
    release = fitted(head, public, name)
    decoder = posterior(release, public, size=50)
    assert isinstance(decoder, PosteriorDecoder)
    Z = np.tile(decoder.points, (200, 1))
    V = observed(release, Z)
    error = ((decoder.decode(V) - Z) ** 2).sum()
    correct = decoder._likelihood
    broken = posterior(release, public, size=50)
    broken.__dict__["_likelihood"] = lambda V: 2 * correct(V)
    assert error < ((broken.decode(V) - Z) ** 2).sum()
    assert error < ((public.mean(axis=0) - Z) ** 2).sum()
    assert error < ((release.decoder.decode(V) - Z) ** 2).sum()


@pytest.mark.parametrize("name", [*QUICK, *MEANS, "response", "subset"])
def test_decoded_vectors_are_in_the_range_of_the_public_ones(head, public, name):
    release = fitted(head, public, name, 8)
    release = replace(release, decoder=posterior(release, public, size=30))
    low, high = public.min(axis=0) - 1e-9, public.max(axis=0) + 1e-9
    for size in (0.0, 1e-200, 1.0, 1e200):
        decoded = release.decode(release.privatize(np.full((5, 6), size)))
        assert ((decoded >= low) & (decoded <= high)).all()


def test_symbols_are_weighted_by_share_and_budget(head, public):
    release = fitted(head, public, "subset", 2)
    decoder = posterior(release, public)
    assert isinstance(decoder, PosteriorCodewordDecoder)
    V = observed(release, public[:20])
    weights = decoder.prior * np.where(V > 0, np.exp(2.0), 1.0)
    expected = weights @ decoder.codewords / weights.sum(axis=1, keepdims=True)
    assert np.allclose(decoder.decode(V), expected)
    assert isinstance(release.decoder, CodewordDecoder)
    assert np.allclose(decoder.codewords, release.decoder.codewords)
    assert np.allclose(decoder.prior, release.decoder.prior)


@pytest.mark.parametrize("name", ["laplace", "privunit2", "response"])
def test_a_release_file_stores_the_decoder_and_loading_binds_it(head, public, name):
    release = fitted(head, public, name)
    saved = replace(release, decoder=posterior(release, public, size=40))
    loaded = from_bytes(to_bytes(saved))
    assert loaded == saved != release
    assert isinstance(loaded.decoder, PosteriorDecoder | PosteriorCodewordDecoder)
    assert loaded.decoder.randomizer == release.randomizer
    report = saved.privatize(public[:7])
    assert np.array_equal(saved.decode(report), loaded.decode(report))
    assert not saved.decoder.unbiased
    assert saved.guarantee == release.guarantee


def test_a_decoder_is_bound_to_the_randomizer_of_its_release(head, public):
    weak, strong = fitted(head, public, "privunit2", 8), fitted(head, public, "privunit2", 0.1)
    decoder = posterior(weak, public, size=40)
    V = observed(weak, public[:50])
    decoder.decode(V)
    rebound = replace(strong, decoder=decoder).decoder
    assert rebound.randomizer is strong.randomizer
    assert decoder.randomizer is weak.randomizer
    assert np.abs(rebound.decode(V)).sum() < np.abs(decoder.decode(V)).sum()


def test_points_are_evenly_spaced_and_distinct(head, public):
    release = fitted(head, public, "laplace")
    five, every = (posterior(release, public, size=size) for size in (5, 4096))
    assert isinstance(five, PosteriorDecoder)
    assert isinstance(every, PosteriorDecoder)
    assert np.array_equal(five.points[[0, -1]], public[[0, -1]])
    assert np.array_equal(every.points, public)
    assert np.array_equal(every.encoded, release.encoder.encode(public))


def test_parts_that_do_not_fit_are_an_error(head, public):
    vectors, symbols = fitted(head, public, "laplace"), fitted(head, public, "response")
    points, encoded, prior = np.ones((3, 6)), np.ones((3, 6)), np.ones(3)
    with pytest.raises(InvalidInput, match="positive"):
        PosteriorDecoder(points, encoded, np.array([1.0, 0.0, 1.0]))
    with pytest.raises(InvalidInput, match="do not fit"):
        PosteriorDecoder(points, np.ones((4, 6)), prior)
    with pytest.raises(InvalidInput, match="at most"):
        PosteriorDecoder(np.ones((4097, 1)), np.ones((4097, 1)), np.ones(4097))
    with pytest.raises(InvalidInput, match="finite"):
        PosteriorDecoder(points, np.full((3, 6), np.nan), prior)
    with pytest.raises(InvalidInput, match="bind"):
        PosteriorDecoder(points, encoded, prior).decode(np.zeros((1, 6)))
    with pytest.raises(InvalidInput, match="symbols"):
        replace(symbols, decoder=PosteriorDecoder(points, np.ones((3, 4)), prior))
    with pytest.raises(InvalidInput, match="symbols"):
        replace(vectors, decoder=PosteriorCodewordDecoder(np.ones((6, 6)), np.ones(6)))
    with pytest.raises(InvalidInput, match="projunit"):
        posterior(fitted(head, public, "projunit"), public)
    for size in (0, 4097, 2.0, True):
        with pytest.raises(InvalidInput, match="size"):
            posterior(vectors, public, size=size)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"decoder.prior": np.zeros(40)}, "positive prior"),
        ({"decoder.prior": np.full(40, np.nan)}, "finite"),
        ({"decoder.encoded": np.full((40, 6), np.inf)}, "finite"),
        ({"decoder.encoded": np.ones((40, 5))}, "other sizes"),
        ({"decoder.points": np.ones((39, 6))}, "do not fit"),
        ({"decoder.randomizer": np.ones(1)}, "unknown tensors"),
    ],
)
def test_a_hostile_file_is_refused(head, public, tensors, message):
    release = fitted(head, public, "privunit2")
    draft = take_apart(to_bytes(replace(release, decoder=posterior(release, public, size=40))))
    assert draft is not None
    forged = {name: (list(array.shape), array.tobytes()) for name, array in tensors.items()}
    fill(draft, contents(draft) | forged)
    with pytest.raises(InvalidRelease, match=message):
        from_bytes(put_together(draft))
