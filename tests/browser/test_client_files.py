"""The browser's client reads the same release files as Python, and refuses the same."""

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
    for release, found in zip(seeds.releases(), client.ask("load", files=list(blobs)), strict=True):
        if release.randomizer.kind not in KINDS:
            assert found["error"] == "Unsupported"
            continue
        facts = found["ok"]
        assert facts["hash"] == release.hash
        assert facts["guarantee"]["epsilon"] == str(release.guarantee.epsilon)
        assert facts["guarantee"]["unit"] == release.unit
        assert facts["inputDim"] == release.input_dim
        assert facts["reportSize"] == release.report_size
        assert facts["givesMeans"] == release.supports_mean
        assert np.allclose(facts["publicMean"], release.public_mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_the_same_mutants_are_refused(client, seed):
    """Whatever either side accepts, the other accepts with the same hash."""
    rng = Random(1000 + seed)
    blobs = []
    for _ in range(1000):
        blob = seeds.files()[rng.choice(SEEDS)]
        for _ in range(rng.choice((1, 1, 2))):
            blob = mutation.mutant(blob, rng)
        blobs.append(blob)
    accepted = 0
    for blob, found in zip(blobs, client.ask("load", files=blobs), strict=True):
        assert found.get("error", "ok" in found) in (True, "InvalidRelease", "Unsupported"), found
        try:
            release = from_bytes(blob)
        except InvalidRelease:
            assert "ok" not in found
            continue
        if release.randomizer.kind in KINDS:
            assert found.get("ok", {}).get("hash") == release.hash, found
            accepted += 1
    assert 50 < accepted < 950


def forgeries() -> dict[str, bytes]:
    """Files with a hash that fits, each wrong in one way that mutants seldom find."""
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
    last["data_offsets"] = [place + 8 for place in last["data_offsets"]]
    gap.data += bytes(8)
    made["gap"] = forgery.put_together(gap)
    shared = forgery.take_apart(blob)
    shared.tensors["encoder.centre"]["data_offsets"] = shared.tensors["decoder.offset"][
        "data_offsets"
    ]
    made["shared place"] = forgery.put_together(shared)
    return made


@pytest.mark.parametrize("name", forgeries())
def test_forgeries_are_refused(client, name):
    blob = forgeries()[name]
    with pytest.raises(InvalidRelease):
        from_bytes(blob)
    (found,) = client.ask("load", files=[blob])
    assert found.get("error") == "InvalidRelease", found


def test_what_is_no_file_is_refused(client):
    whole = seeds.files()[0]
    blobs = [b"", b"x", bytes(8), b"\xff" * 64, *(whole[:n] for n in range(0, len(whole), 37))]
    assert all(f.get("error") == "InvalidRelease" for f in client.ask("load", files=blobs))


def test_a_release_that_gives_symbols_needs_a_randomizer_of_symbols(client):
    """Python would find out at the first report; a page should at once."""
    affine = next(r for r in seeds.releases() if r.encoder.kind == "affine")
    mixed = replace(answering("relu"), randomizer=affine.randomizer.__class__(5, 1.0, Fraction(1)))
    (found,) = client.ask("load", files=[to_bytes(mixed)])
    assert found["error"] == "InvalidRelease"
