"""Scalar response: intervals of the answer, decoded to vectors with the decoded answer."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from offaxis.encoding import Frame
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.geometry import FiniteDifferences, Layers, PublicVectors
from offaxis.geometry.public import survey
from offaxis.mechanisms.answers import SCALAR_RESPONSE, affine_answer, interval_encoder
from offaxis.mechanisms.base import PublicInputs
from offaxis.mechanisms.scalar_channel import refined_channel
from offaxis.provenance import Provenance
from offaxis.release import Release
from offaxis.simulation import simulate

RNG = np.random.default_rng(11)
PUBLIC = RNG.lognormal(0, 0.6, (4000, 6)) @ RNG.standard_normal((6, 6)) + 3
TASK = Layers.linear(RNG.standard_normal((1, 6)), np.array([7.0]))
EPSILONS = ("0.5", "3", "10")


def release_of(epsilon, task=TASK, public=PUBLIC):
    vectors = PublicVectors(public)
    surveyed = survey(vectors)
    frame = Frame(np.zeros(surveyed.identity.dim))
    inputs = PublicInputs(frame, vectors, *surveyed, epsilon=Fraction(epsilon), task=task)
    parts = SCALAR_RESPONSE.prepare(inputs)
    provenance = Provenance(task.identity(), surveyed.identity, dict(parts.settings))
    return Release(parts.encoder, parts.randomizer, parts.decoder, provenance)


def answers(vectors, task=TASK):
    return task.outputs(vectors)[:, 0]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_encoder_finds_the_interval_near_and_far(epsilon):
    release = release_of(epsilon)
    edges = refined_channel(answers(PUBLIC), Fraction(epsilon)).edges
    far = np.concatenate([scale * RNG.standard_normal((500, 6)) for scale in (1, 30, 1e4, 1e9)])
    ends = np.outer([-1e200, 1e200], TASK.weights[0][0])
    for vectors in (PUBLIC, far, ends):
        expected = np.searchsorted(edges, answers(vectors))
        assert (release.encoder.encode(vectors) == expected).all()


def test_scores_count_the_edges_below():
    edges = np.array([-2.0, 0.5, 0.75, 40.0])
    encoder = interval_encoder(np.array([2.0]), np.array([0.0]), edges)
    points = np.array([-9, -1.1, -0.9, 0.24, 0.26, 0.37, 0.38, 19, 21, 1e12])
    assert encoder.encode(points[:, None]).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert encoder.encode(edges[:, None] / 2).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_task_on_decoded_vectors_gives_the_decoded_answers_of_the_channel(epsilon):
    release = release_of(epsilon)
    channel = refined_channel(answers(PUBLIC), Fraction(epsilon))
    assert release.randomizer.size == channel.size >= 2
    assert answers(release.decoder.codewords) == pytest.approx(channel.decoded, rel=1e-9)
    assert release.decoder.prior == pytest.approx(channel.masses)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_decoded_vectors_are_posterior_means(epsilon):
    release = release_of(epsilon)
    symbols = release.encoder.encode(PUBLIC)
    for reported in range(release.randomizer.size):
        likelihood = np.where(symbols == reported, math.exp(float(epsilon)), 1.0)
        expected = np.average(PUBLIC, axis=0, weights=likelihood)
        assert release.decoder.codewords[reported] == pytest.approx(expected)


def expected_error(release, vectors, epsilon):
    """Return the error over all reports, in closed form: rare symbols make simulation noisy."""
    symbols, decoded = release.encoder.encode(vectors), answers(release.decoder.codewords)
    chances = np.ones((len(vectors), decoded.size))
    chances[np.arange(len(vectors)), symbols] = math.exp(float(epsilon))
    chances /= chances.sum(axis=1, keepdims=True)
    return math.sqrt(np.mean(np.sum(chances * (answers(vectors)[:, None] - decoded) ** 2, axis=1)))


@pytest.mark.parametrize(("epsilon", "count"), [("0.5", 4000), ("3", 4000), ("10", 200_000)])
def test_the_error_on_held_out_answers_is_nearly_the_least_one(epsilon, count):
    # At ε = 10 cells with a share of e^−10 matter, so many vectors are needed to estimate them.
    rng = np.random.default_rng(12)
    vectors = rng.lognormal(0, 0.6, (count, 6))
    release = release_of(epsilon, public=vectors[::2])
    error = expected_error(release, vectors[1::2], epsilon)
    least = refined_channel(answers(vectors[1::2]), Fraction(epsilon)).rmse
    assert 1 - 1e-3 <= error / least < 1.03
    assert error < answers(vectors[1::2]).std()


def test_simulated_reports_have_the_expected_error():
    release = release_of("3")
    decoded = simulate(release, np.tile(PUBLIC, (10, 1)), np.random.default_rng(0))
    errors = (answers(decoded) - np.tile(answers(PUBLIC), 10)) ** 2
    expected = expected_error(release, PUBLIC, "3") ** 2
    assert abs(errors.mean() - expected) < 5 * errors.std() / math.sqrt(errors.size)


def test_reports_decode_to_the_codewords_after_saving_and_loading(tmp_path):
    release = release_of("3")
    release.save(tmp_path / "scalar.release")
    loaded = Release.load(tmp_path / "scalar.release", expect=release.hash)
    decoded = loaded.decode(release.privatize(PUBLIC[:50]))
    assert all((row == release.decoder.codewords).all(axis=1).any() for row in decoded)
    assert release.guarantee.epsilon == 3
    assert release.guarantee.delta == 0


def test_shares_of_intervals_are_unbiased():
    """Each interval is wrong in one of 30 million runs."""
    release = release_of("2")
    reports = release.privatize(PUBLIC[:2000])
    shares, size = release.shares(reports), release.encoder.output_dim
    true = np.bincount(release.encoder.encode(PUBLIC[:2000]), minlength=size) / 2000
    assert (np.abs(shares.estimate - true) <= 5.5 * shares.standard_error).all()
    with pytest.raises(BiasedDecoder, match=r"shares\(\)"):
        release.aggregate(reports)


def test_layers_without_activations_are_affine():
    deep = Layers(
        [RNG.standard_normal((4, 6)), RNG.standard_normal((1, 4))],
        [RNG.standard_normal(4), np.ones(1)],
        activation="identity",
    )
    weight, bias = affine_answer(deep)
    assert PUBLIC @ weight + bias == pytest.approx(answers(PUBLIC, deep))


def test_the_error_for_other_tasks_suggests_an_alternative():
    with pytest.raises(InvalidInput, match=r"one output, got 2.*'response'"):
        affine_answer(Layers.linear(np.ones((2, 6))))
    nonlinear = Layers([np.ones((4, 6)), np.ones((1, 4))], [np.zeros(4), np.zeros(1)])
    with pytest.raises(InvalidInput, match="affine in the vector"):
        affine_answer(nonlinear)
    with pytest.raises(InvalidInput, match="geometry"):
        affine_answer(None)
    with pytest.raises(InvalidInput, match="weights of its task"):
        affine_answer(FiniteDifferences(lambda Z: Z[:, :1]))


def test_a_task_with_one_answer_is_an_error():
    with pytest.raises(InvalidInput, match="same answer"):
        release_of("1", Layers.linear(np.zeros((1, 6))))
