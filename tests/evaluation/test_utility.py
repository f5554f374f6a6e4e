"""Scores of releases: known cases, and their standard errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import offaxis
from offaxis.decoding import LinearDecoder
from offaxis.evaluation.utility import TaskScorer
from offaxis.geometry import Layers, PublicVectors, measure
from offaxis.simulation import simulate

RNG = np.random.default_rng(8)
PUBLIC = RNG.standard_normal((4000, 5)) * [3, 2, 1, 1, 1]
HEAD = Layers([RNG.standard_normal((3, 5))], [np.zeros(3)])
GEOMETRY = measure(HEAD, PublicVectors(PUBLIC))


def scorer(goal, people=1, task=HEAD):
    geometry = measure(task, PublicVectors(PUBLIC))
    return TaskScorer(task, geometry.gram, geometry.mean, goal, people)


def constant(release):
    """Return the release with a decoder that always answers the public mean."""
    decoder = LinearDecoder(np.zeros_like(release.decoder.matrix), GEOMETRY.mean)
    return replace(release, decoder=decoder, mean_decoder=release.decoder)


@pytest.fixture(scope="module")
def strong():
    return offaxis.fit(HEAD, PUBLIC, epsilon=5000, percentile=100, mechanism="laplace")


def test_without_noise_all_utility_is_kept(strong):
    assert scorer("answers")(strong, PUBLIC[:500]).score > 0.99
    assert scorer("vectors")(strong, PUBLIC[:500]).score > 0.99
    assert scorer("means", 10)(strong, PUBLIC[:500]).score > -0.01


def test_a_constant_decoder_explains_nothing(strong):
    flat = constant(strong)
    assert scorer("vectors")(flat, PUBLIC).score == pytest.approx(0, abs=1e-9)
    one = Layers.linear(HEAD.weights[0][:1])
    assert scorer("answers", task=one)(flat, PUBLIC).score == pytest.approx(0, abs=1e-9)


def test_large_noise_is_worse_than_the_public_mean():
    weak = offaxis.fit(HEAD, PUBLIC, epsilon=0.5, mechanism="laplace")
    assert scorer("vectors")(weak, PUBLIC[:500]).score < -1


def test_agreement_is_the_share_of_equal_answers():
    release = offaxis.fit(HEAD, PUBLIC, epsilon=8, mechanism="laplace")
    utility = scorer("answers")(release, PUBLIC)
    repeated = simulate(release, np.tile(PUBLIC, (20, 1)), np.random.default_rng(0))
    clean = np.tile(HEAD.outputs(PUBLIC).argmax(1), 20)
    truth = (HEAD.outputs(repeated).argmax(1) == clean).mean()
    assert abs(utility.score - truth) < 5 * utility.error + 0.005
    low, high = utility.interval()
    assert low < utility.score < high


def test_more_people_reduce_the_error_of_a_mean_but_not_its_bias():
    release = offaxis.fit(HEAD, PUBLIC, epsilon=4, percentile=100, mechanism="laplace")
    ten, thousand = (scorer("means", people)(release, PUBLIC).score for people in (10, 1000))
    assert thousand == pytest.approx(ten / 100, rel=0.15)
    skewed = np.exp(PUBLIC / 2)
    clipped = offaxis.fit(HEAD, skewed, epsilon=4, percentile=20, mechanism="laplace")
    biased = scorer("means", 10**9)(clipped, skewed).score
    assert biased < -0.002


def test_a_mean_is_scored_with_the_unbiased_decoder(strong):
    assert scorer("means", 10)(constant(strong), PUBLIC[:500]).score > -0.01
