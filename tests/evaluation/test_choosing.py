"""The decoder of least risk: never worse than the public mean, and means stay possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.evaluation.choosing import best_decoder, decoders, risks, with_decoder
from offaxis.formats.artifact import from_bytes, to_bytes


@pytest.mark.parametrize("name", ["laplace", "privunit2", "response", "projunit"])
@pytest.mark.parametrize("epsilon", [0.05, 4])
def test_nothing_chosen_is_worse_than_the_public_mean(head, public, name, epsilon):
    release = offaxis.fit(head, public, epsilon=epsilon, randomizer=name)
    best = best_decoder(release, head, public)
    fresh = np.random.default_rng(0).permutation(public)
    tried = {"best": best.decoder, "constant": decoders(release, public)["constant"]}
    found = risks(release, head, tried, fresh, seed=9)
    assert found["best"] < 1.05 * found["constant"]
    assert best.guarantee == release.guarantee
    assert best.encoder is release.encoder
    assert from_bytes(to_bytes(best)) == best


def test_at_a_good_budget_it_beats_the_linear_decoder_and_the_mean(head, public):
    release = offaxis.fit(head, public, epsilon=8, randomizer="privunit2")
    best = best_decoder(release, head, public)
    tried = {**decoders(release, public), "best": best.decoder}
    found = risks(release, head, tried, public[::-1], seed=1)
    assert best.provenance.settings["decoder"] == best.decoder.kind
    assert found["best"] < 0.8 * min(found["own"], found["constant"])


def test_answers_can_be_what_counts(head, public):
    release = offaxis.fit(head, public, epsilon=5, randomizer="response")
    best = best_decoder(release, head, public, "answers")
    found = risks(release, head, {"best": best.decoder, "own": release.decoder}, public, "answers")
    assert 0 <= found["best"] <= found["own"] + 0.05
    for task, metric in ((head, "colour"), (np.ones((1, 6)), "answers")):
        with pytest.raises(InvalidInput, match="metric"):
            best_decoder(release, task, public, metric)


def test_means_are_decoded_as_before(release, public):
    changed = with_decoder(release, decoders(release, public)["posterior-256"])
    assert changed.gives_means
    reports = changed.privatize(public[:20])
    expected = release.decoder.decode(changed.observe(reports)).mean(axis=0)
    assert np.allclose(changed.decode_mean(reports), expected)
    again = with_decoder(changed, decoders(changed, public)["shrinkage"])
    assert again.mean_decoder is release.decoder
    biased = offaxis.fit(None, public, epsilon=2, randomizer="privunit2", reshaping="centre")
    assert with_decoder(biased, decoders(biased, public)["shrinkage"]).mean_decoder is None
    assert replace(changed, mean_decoder=None) != changed
