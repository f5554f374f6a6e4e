"""A decoder network trained on simulated reports of public vectors."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.evaluation.candidates import constant_decoder
from offaxis.formats.release_file import from_bytes, tensors_of, to_bytes
from offaxis.simulation import simulate


@pytest.mark.parametrize("name", ["laplace", "response"])
def test_the_trained_decoder_is_better_than_the_public_mean_and_the_inverse_map(head, public, name):
    pytest.importorskip("torch")
    from offaxis.mechanisms.networks import noise_aware

    release = offaxis.fit(head, public, epsilon=8, mechanism=name)
    trained = release.with_decoder(noise_aware(release, head, public, steps=300))
    assert from_bytes(to_bytes(trained)) == trained
    assert trained.guarantee == release.guarantee
    constant = release.with_decoder(constant_decoder(release, public.mean(axis=0)))

    def risk(candidate):
        outputs = head.outputs(simulate(candidate, public, np.random.default_rng(4)))
        return float(((outputs - head.outputs(public)) ** 2).sum(axis=1).mean())

    assert risk(trained) < 0.9 * risk(constant)
    assert risk(trained) < risk(release)
    second = tensors_of(noise_aware(release, head, public, steps=300))
    assert all(
        np.array_equal(second[key], part) for key, part in tensors_of(trained.decoder).items()
    )
