"""Scores of releases: known cases, and the error they are stated with."""

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


def judge(goal, people=1, task=HEAD):
    geometry = measure(task, PublicVectors(PUBLIC))
    return TaskScorer(task, geometry.gram, geometry.mean, goal, people)


def constant(release):
    """Return the release with a decoder that always answers the public mean."""
    decoder = LinearDecoder(np.zeros_like(release.decoder.matrix), GEOMETRY.mean)
    return replace(release, decoder=decoder, mean_decoder=release.decoder)


@pytest.fixture(scope="module")
def strong():
    return offaxis.fit(HEAD, PUBLIC, epsilon=5000, percentile=100)


def test_without_noise_everything_is_kept(strong):
    assert judge("answers")(strong, PUBLIC[:500]).score > 0.99
    assert judge("fidelity")(strong, PUBLIC[:500]).score > 0.99
    assert judge("mean", 10)(strong, PUBLIC[:500]).score > -0.01


def test_always_the_public_mean_explains_nothing(strong):
    flat = constant(strong)
    assert judge("fidelity")(flat, PUBLIC).score == pytest.approx(0, abs=1e-9)
    one = Layers.linear(HEAD.weights[0][:1])
    assert judge("answers", task=one)(flat, PUBLIC).score == pytest.approx(0, abs=1e-9)


def test_noise_beyond_the_spread_is_worse_than_the_mean():
    weak = offaxis.fit(HEAD, PUBLIC, epsilon=0.5)
    assert judge("fidelity")(weak, PUBLIC[:500]).score < -1


def test_agreement_is_that_of_the_answers():
    release = offaxis.fit(HEAD, PUBLIC, epsilon=8)
    found = judge("answers")(release, PUBLIC)
    repeated = simulate(release, np.tile(PUBLIC, (20, 1)), np.random.default_rng(0))
    clean = np.tile(HEAD.outputs(PUBLIC).argmax(1), 20)
    truth = (HEAD.outputs(repeated).argmax(1) == clean).mean()
    assert abs(found.score - truth) < 5 * found.error + 0.005
    low, high = found.interval()
    assert low < found.score < high


def test_the_error_of_a_mean_falls_with_the_people_and_bias_stays():
    release = offaxis.fit(HEAD, PUBLIC, epsilon=4, percentile=100)
    ten, thousand = (judge("mean", people)(release, PUBLIC).score for people in (10, 1000))
    assert thousand == pytest.approx(ten / 100, rel=0.15)
    skewed = np.exp(PUBLIC / 2)
    clipped = offaxis.fit(HEAD, skewed, epsilon=4, percentile=20)
    biased = judge("mean", 10**9)(clipped, skewed).score
    assert biased < -0.002


def test_a_mean_is_scored_by_the_decoder_of_means(strong):
    assert judge("mean", 10)(constant(strong), PUBLIC[:500]).score > -0.01
