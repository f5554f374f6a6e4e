"""Posterior means: the randomizer's own law, inside the public hull, strict about its parts."""

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


def made(head, public, name, epsilon=3):
    delta = delta_for(name)
    return offaxis.fit(head, public, epsilon=epsilon, mechanism=name, delta=delta)


def observed(release, Z, seed=3):
    return draw_observations(
        release.randomizer, release.encoder.encode(Z), np.random.default_rng(seed)
    )


@pytest.mark.parametrize("name", [*QUICK, *MEANS, "hybrid", "privunitg-sphere"])
def test_the_likelihood_is_the_randomizers_own(head, public, name):
    release = made(head, public, name)
    W = release.encoder.encode(public[:12])
    W[3] = 0.0
    V = observed(release, public[:9])
    ours = likelihood(release.randomizer, W)(V)
    theirs = np.array([release.randomizer.log_density(np.tile(v, (12, 1)), W) for v in V])
    gap = (ours - ours[:, :1]) - (theirs - theirs[:, :1])
    assert np.abs(gap).max() < 1e-3


@pytest.mark.parametrize("name", ["laplace", "privunit2", "privunit2-mean", "duchi"])
def test_it_has_the_least_error_among_decoders_of_its_points(head, public, name):
    """With vectors drawn from the points; the twin believes a report twice as much."""
    release = made(head, public, name)
    decoder = posterior(release, public, size=50)
    Z = np.tile(decoder.points, (200, 1))
    V = observed(release, Z)
    ours = ((decoder.decode(V) - Z) ** 2).sum()
    trusting = decoder._likelihood
    twin = posterior(release, public, size=50)
    twin.__dict__["_likelihood"] = lambda V: 2 * trusting(V)
    assert ours < ((twin.decode(V) - Z) ** 2).sum()
    assert ours < ((public.mean(axis=0) - Z) ** 2).sum()
    assert ours < ((release.decoder.decode(V) - Z) ** 2).sum()


@pytest.mark.parametrize("name", [*QUICK, *MEANS, "response", "subset"])
def test_what_is_decoded_lies_among_the_public_vectors(head, public, name):
    release = made(head, public, name, 8)
    release = replace(release, decoder=posterior(release, public, size=30))
    low, high = public.min(axis=0) - 1e-9, public.max(axis=0) + 1e-9
    for size in (0.0, 1e-200, 1.0, 1e200):
        decoded = release.decode(release.privatize(np.full((5, 6), size)))
        assert ((decoded >= low) & (decoded <= high)).all()


def test_symbols_are_weighed_by_share_and_budget(head, public):
    release = made(head, public, "subset", 2)
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
def test_a_release_keeps_it_in_its_file_and_binds_it_again(head, public, name):
    release = made(head, public, name)
    both = replace(release, decoder=posterior(release, public, size=40))
    again = from_bytes(to_bytes(both))
    assert again == both != release
    assert again.decoder.randomizer == release.randomizer
    report = both.privatize(public[:7])
    assert np.array_equal(both.decode(report), again.decode(report))
    assert not both.decoder.unbiased
    assert both.guarantee == release.guarantee


def test_another_randomizer_brings_its_own_law(head, public):
    near, far = made(head, public, "privunit2", 8), made(head, public, "privunit2", 0.1)
    decoder = posterior(near, public, size=40)
    V = observed(near, public[:50])
    decoder.decode(V)
    rebound = replace(far, decoder=decoder).decoder
    assert rebound.randomizer is far.randomizer
    assert decoder.randomizer is near.randomizer
    assert np.abs(rebound.decode(V)).sum() < np.abs(decoder.decode(V)).sum()


def test_points_are_taken_evenly_and_never_twice(head, public):
    release = made(head, public, "laplace")
    assert np.array_equal(posterior(release, public, size=5).points[[0, -1]], public[[0, -1]])
    every = posterior(release, public, size=4096)
    assert np.array_equal(every.points, public)
    assert np.array_equal(every.encoded, release.encoder.encode(public))


def test_what_does_not_fit_is_refused(head, public):
    vectors, symbols = made(head, public, "laplace"), made(head, public, "response")
    over = np.ones((3, 6)), np.ones((3, 6)), np.ones(3)
    with pytest.raises(InvalidInput, match="positive"):
        PosteriorDecoder(over[0], over[1], np.array([1.0, 0.0, 1.0]))
    with pytest.raises(InvalidInput, match="do not fit"):
        PosteriorDecoder(over[0], np.ones((4, 6)), over[2])
    with pytest.raises(InvalidInput, match="at most"):
        PosteriorDecoder(np.ones((4097, 1)), np.ones((4097, 1)), np.ones(4097))
    with pytest.raises(InvalidInput, match="finite"):
        PosteriorDecoder(over[0], np.full((3, 6), np.nan), over[2])
    with pytest.raises(InvalidInput, match="bind"):
        PosteriorDecoder(*over).decode(np.zeros((1, 6)))
    with pytest.raises(InvalidInput, match="symbols"):
        replace(symbols, decoder=PosteriorDecoder(over[0], np.ones((3, 4)), over[2]))
    with pytest.raises(InvalidInput, match="symbols"):
        replace(vectors, decoder=PosteriorCodewordDecoder(np.ones((6, 6)), np.ones(6)))
    with pytest.raises(InvalidInput, match="projunit"):
        posterior(made(head, public, "projunit"), public)
    for size in (0, 4097, 2.0, True):
        with pytest.raises(InvalidInput, match="size"):
            posterior(vectors, public, size=size)


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
    release = made(head, public, "privunit2")
    draft = take_apart(to_bytes(replace(release, decoder=posterior(release, public, size=40))))
    forged = {name: (list(array.shape), array.tobytes()) for name, array in tensors.items()}
    fill(draft, contents(draft) | forged)
    with pytest.raises(InvalidRelease, match=message):
        from_bytes(put_together(draft))
