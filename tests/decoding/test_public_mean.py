"""The public mean of a release, which a device without a usable vector reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import offaxis
from offaxis.decoding import NetworkDecoder, ShrinkageDecoder
from offaxis.encoding import NetworkEncoder
from offaxis.mechanisms import posterior, shrink

FITTED = [
    {},
    {"reshaping": "optimal"},
    {"reshaping": "centre"},
    {"mechanism": "privunit2"},
    {"mechanism": "piecewise"},
    {"mechanism": "response"},
    {"mechanism": "subset"},
    {"mechanism": "class-response"},
    {"mechanism": "coordinatewise-laplace"},
    {"mechanism": "task-aware"},
    {"mechanism": "plan", "delta": 1e-6},
]


@pytest.mark.parametrize("options", FITTED, ids=lambda o: "-".join(map(str, o.values())) or "plain")
def test_every_fitted_release_knows_the_public_mean(head, public, options):
    release = offaxis.fit(head, public, epsilon=3, **{"mechanism": "laplace"} | options)
    # A codeword has the answer that it stands for, which the mean of its class may not have.
    near = options.get("mechanism") == "class-response"
    tolerance = public.std(axis=0).min() if near else 1e-8
    assert release.public_mean == pytest.approx(public.mean(axis=0), abs=tolerance)
    assert len(release.privatize(release.public_mean)) == release.report_size


def test_a_posterior_decoder_knows_the_public_mean(head, public):
    plain = offaxis.fit(None, public, epsilon=3, reshaping="none", mechanism="laplace")
    assert not plain.public_mean.any()
    with_posterior = replace(plain, decoder=posterior(plain, public, size=500))
    assert with_posterior.public_mean == pytest.approx(public.mean(axis=0))
    symbols = offaxis.fit(head, public, epsilon=3, mechanism="response")
    with_posterior = replace(symbols, decoder=posterior(symbols, public))
    assert with_posterior.public_mean == pytest.approx(public.mean(axis=0))


def test_the_centre_of_the_encoder_takes_precedence_over_a_shrinkage_decoder(release, public):
    shrinking = replace(release, decoder=shrink(release, public))
    assert np.array_equal(shrinking.public_mean, release.encoder.centre)


def test_the_public_mean_of_a_trained_pair_is_its_decoded_zero(release):
    rng = np.random.default_rng(1)
    maps = [[rng.standard_normal((6, 6))], [rng.standard_normal(6)]]
    trained = replace(release, encoder=NetworkEncoder(*maps), decoder=NetworkDecoder(*maps))
    assert trained.public_mean == pytest.approx(maps[1][0])


def test_the_public_mean_is_zero_for_a_decoder_of_another_dimension(release):
    rng = np.random.default_rng(1)
    encoder = NetworkEncoder([rng.standard_normal((6, 4))], [rng.standard_normal(6)])
    decoder = ShrinkageDecoder(np.ones((2, 6)), np.ones(2))
    answering = replace(release, encoder=encoder, decoder=decoder)
    assert answering.public_mean.shape == (4,)
    assert not answering.public_mean.any()
