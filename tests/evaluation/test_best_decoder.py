"""``best_decoder`` is never worse than the public mean, and leaves means as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.evaluation import best_decoder
from offaxis.evaluation.candidates import constant_decoder
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.mechanisms import posterior, shrink
from offaxis.simulation import simulate


def risk(release, model, vectors, seed):
    outputs = model.outputs(simulate(release, vectors, np.random.default_rng(seed)))
    return float(((outputs - model.outputs(vectors)) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize("name", ["laplace", "privunit2", "response", "projunit"])
@pytest.mark.parametrize("epsilon", [0.05, 4])
def test_the_chosen_decoder_is_not_worse_than_the_public_mean(head, public, name, epsilon):
    release = offaxis.fit(head, public, epsilon=epsilon, mechanism=name)
    best = best_decoder(release, head, public, goal="vectors").release
    fresh = np.random.default_rng(0).permutation(public)
    constant = release.with_decoder(constant_decoder(release, public.mean(axis=0)))
    assert risk(best, head, fresh, 9) < 1.05 * risk(constant, head, fresh, 9)
    assert best.guarantee == release.guarantee
    assert best.encoder is release.encoder
    assert from_bytes(to_bytes(best)) == best


def test_at_a_large_budget_it_beats_the_own_decoder_and_the_mean(head, public):
    release = offaxis.fit(head, public, epsilon=8, mechanism="privunit2")
    best = best_decoder(release, head, public, goal="vectors").release
    constant = release.with_decoder(constant_decoder(release, public.mean(axis=0)))
    others = min(risk(other, head, public[::-1], 1) for other in (release, constant))
    assert best.provenance.settings["decoder"] == best.decoder.kind
    assert risk(best, head, public[::-1], 1) < 0.8 * others


def test_answers_can_be_the_goal(head, public):
    release = offaxis.fit(head, public, epsilon=5, mechanism="response")
    candidates = best_decoder(release, head, public, goal="answers").candidates
    own = next(scored for scored in candidates if scored.candidate.decoding == "own")
    assert candidates[0].utility.score >= own.utility.score
    for goal, message in (("colour", "goal"), ("means", "no decoder to choose")):
        with pytest.raises(InvalidInput, match=message):
            best_decoder(release, head, public, goal=goal)


def test_means_are_decoded_as_before(release, public):
    changed = release.with_decoder(posterior(release, public, size=256))
    assert changed.supports_mean
    reports = changed.privatize(public[:20])
    expected = release.decoder.decode(changed.observe(reports)).mean(axis=0)
    assert np.allclose(changed.decode_mean(reports), expected)
    again = changed.with_decoder(shrink(changed, public))
    assert again.mean_decoder is release.decoder
    biased = offaxis.fit(None, public, epsilon=2, mechanism="privunit2", reshaping="centre")
    assert biased.with_decoder(shrink(biased, public)).mean_decoder is None
    assert replace(changed, mean_decoder=None) != changed
