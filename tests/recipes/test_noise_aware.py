"""A decoder network trained on simulated reports of public vectors."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.evaluation.choosing import decoders, risks, with_decoder
from offaxis.formats.artifact import from_bytes, tensors_of, to_bytes


@pytest.mark.parametrize("name", ["laplace", "response"])
def test_it_answers_better_than_the_public_mean_and_than_the_map_undone(head, public, name):
    pytest.importorskip("torch")
    from offaxis.recipes.noise_aware import noise_aware

    release = offaxis.fit(head, public, epsilon=8, randomizer=name)
    trained = with_decoder(release, noise_aware(release, head, public, steps=300))
    assert from_bytes(to_bytes(trained)) == trained
    assert trained.guarantee == release.guarantee
    tried = {**decoders(release, public), "network": trained.decoder}
    found = risks(release, head, tried, public, seed=4)
    assert found["network"] < 0.9 * found["constant"]
    assert found["network"] < found["own"]
    again = tensors_of(noise_aware(release, head, public, steps=300))
    assert all(
        np.array_equal(again[key], part) for key, part in tensors_of(trained.decoder).items()
    )
