"""The JavaScript client loads and rejects the same release files as Python."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from offaxis.errors import InvalidRelease
from offaxis.formats.release_file import from_bytes, to_bytes
from tests.browser.releases import KINDS, SEEDS, answering
from tests.fuzz import forgery, mutation, seeds


def test_the_same_files_are_loaded(client):
    blobs = seeds.files()
    for release, outcome in zip(
        seeds.releases(), client.run("load", files=list(blobs)), strict=True
    ):
        if release.randomizer.kind not in KINDS:
            assert outcome["error"] == "Unsupported"
            continue
        facts = outcome["ok"]
        assert facts["hash"] == release.hash
        assert facts["guarantee"]["epsilon"] == str(release.guarantee.epsilon)
        assert facts["guarantee"]["unit"] == release.unit
        assert facts["inputDim"] == release.input_dim
        assert facts["reportSize"] == release.report_size
        assert np.allclose(facts["publicMean"], release.public_mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_the_same_mutants_are_rejected(client, seed):
    """A file that either side accepts, the other accepts with the same hash."""
    rng = Random(1000 + seed)
    blobs = []
    for _ in range(1000):
        blob = seeds.files()[rng.choice(SEEDS)]
        for _ in range(rng.choice((1, 1, 2))):
            blob = mutation.mutant(blob, rng)
        blobs.append(blob)
    accepted = 0
    for blob, outcome in zip(blobs, client.run("load", files=blobs), strict=True):
        assert outcome.get("error", "ok" in outcome) in (True, "InvalidRelease", "Unsupported"), (
            outcome
        )
        try:
            release = from_bytes(blob)
        except InvalidRelease:
            assert "ok" not in outcome
            continue
        if release.randomizer.kind in KINDS:
            assert outcome.get("ok", {}).get("hash") == release.hash, outcome
            accepted += 1
    assert 50 < accepted < 950


def forgeries() -> dict[str, bytes]:
    """Return files with a matching hash, each with one fault that mutants seldom have."""
    blob = next(seeds.files()[i] for i in SEEDS if seeds.releases()[i].encoder.kind == "affine")
    draft = forgery.take_apart(blob)
    made = {
        "spaces": forgery.put_together(draft, json.dumps(draft.manifest, sort_keys=True)),
        "order": forgery.put_together(
            draft,
            json.dumps(dict(reversed(draft.manifest.items())), separators=(",", ":")),
        ),
        "beyond ASCII": forgery.put_together(
            draft,
            json.dumps(draft.manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
        ),
    }
    for text in ("6/2", "03", "3.0", "3/1"):
        forged = forgery.take_apart(blob)
        forged.manifest["randomizer"]["parameters"]["epsilon"] = text
        made[f"epsilon {text}"] = forgery.put_together(forged)
    gap = forgery.take_apart(blob)
    last = max(gap.tensors.values(), key=lambda entry: entry["data_offsets"])
    last["data_offsets"] = [offset + 8 for offset in last["data_offsets"]]
    gap.data += bytes(8)
    made["gap"] = forgery.put_together(gap)
    shared = forgery.take_apart(blob)
    shared.tensors["encoder.centre"]["data_offsets"] = shared.tensors["decoder.offset"][
        "data_offsets"
    ]
    made["shared offsets"] = forgery.put_together(shared)
    return made


@pytest.mark.parametrize("name", forgeries())
def test_forgeries_are_rejected(client, name):
    blob = forgeries()[name]
    with pytest.raises(InvalidRelease):
        from_bytes(blob)
    (outcome,) = client.run("load", files=[blob])
    assert outcome.get("error") == "InvalidRelease", outcome


@pytest.mark.parametrize(
    "activations",
    [
        *("relu+relu", "relu+tanh+relu", "relu+swish", "relu+", "+relu", "RELU", "", "relu,tanh"),
        "+".join(["relu"] * 7 + ["tanh"]),
    ],
)
def test_other_lists_of_activations_are_rejected(client, activations):
    """A kind has one spelling: equal activations once, else one per hidden layer."""
    draft = forgery.take_apart(to_bytes(answering("relu+tanh")))
    same = forgery.put_together(draft)
    draft.manifest["encoder"]["kind"] = f"network-{activations}-argmax"
    forged = forgery.put_together(draft)
    with pytest.raises(InvalidRelease):
        from_bytes(forged)
    good, bad = client.run("load", files=[same, forged])
    assert good["ok"]["hash"] == from_bytes(same).hash
    assert bad.get("error") in ("InvalidRelease", "Unsupported"), bad


def test_bytes_that_are_not_a_release_are_rejected(client):
    whole = seeds.files()[0]
    blobs = [b"", b"x", bytes(8), b"\xff" * 64, *(whole[:n] for n in range(0, len(whole), 37))]
    assert all(f.get("error") == "InvalidRelease" for f in client.run("load", files=blobs))


def test_an_encoder_of_symbols_needs_a_randomizer_of_symbols(client):
    """Python raises at the first report; the client rejects the release when it is loaded."""
    affine = next(r for r in seeds.releases() if r.encoder.kind == "affine")
    mixed = replace(answering("relu"), randomizer=affine.randomizer.__class__(5, 1.0, Fraction(1)))
    (outcome,) = client.run("load", files=[to_bytes(mixed)])
    assert outcome["error"] == "InvalidRelease"
