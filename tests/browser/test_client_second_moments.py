"""Releases of second moments in the JavaScript client: the same encodings, bytes and refusals."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from offaxis.decoding import SecondMomentsDecoder
from offaxis.encoding import SecondMomentsEncoder
from offaxis.errors import InvalidRelease
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.randomizers import PrivUnit2, parameters
from offaxis.release import Release
from tests.browser.test_client_pairs import part_of, set_tensor
from tests.fuzz import forgery, seeds
from tests.tape import Tape
from tests.vectors.make import FOLDER

RECORDED = (FOLDER / "second-moments.release").read_bytes()


def random_release(seed: int) -> Release:
    rng = np.random.default_rng(seed)
    rank, dim = rng.integers(1, 6), rng.integers(1, 8)
    matrix, centre = rng.standard_normal((rank, dim)), rng.standard_normal(dim)
    encoder = SecondMomentsEncoder.of(matrix, centre, 10.0 ** rng.uniform(-2, 2))
    decoder = SecondMomentsDecoder(matrix.T, centre, np.zeros(rank), np.eye(rank))
    randomizer = PrivUnit2(
        encoder.output_dim, encoder.reach, Fraction(2), directions=20, near=3, target="vector"
    )
    return Release(encoder, randomizer, decoder, seeds.releases()[0].provenance)


def test_encodings_are_the_same(client):
    """Of 60 random maps: inside the ball, outside, tiny and huge."""
    for seed in range(60):
        release, rng = random_release(seed), np.random.default_rng(seed)
        size = 10.0 ** rng.choice([-300, -2, 0, 0, 1, 3, 300], (40, 1))
        rows = size * rng.standard_normal((40, release.input_dim))
        encoded = np.array(
            client.run(
                "encode", file=to_bytes(release), kind="second-moments", vectors=rows.tolist()
            )
        )
        with np.errstate(all="ignore"):
            expected = release.encoder.encode(rows)
        randomizer = release.randomizer
        assert isinstance(randomizer, PrivUnit2)
        assert np.abs(encoded - expected).max() <= 1e-12 * randomizer.radius, seed
        points = client.run(
            "integers",
            kind="privunit2",
            parameters=parameters(randomizer),
            vectors=encoded.tolist(),
        )
        gaps = np.abs(np.array(points) - randomizer.integers(expected))
        assert gaps.max() <= 1, seed


def test_reports_from_tapes_are_the_same(client, monkeypatch):
    monkeypatch.setattr("offaxis.randomizers.base.require_entropy", lambda entropy: None)
    for seed in range(20):
        release, rng = random_release(100 + seed), Random(seed)
        vectors = np.random.default_rng(seed).standard_normal((6, release.input_dim))
        tapes = [rng.randbytes(4096) for _ in vectors]
        pairs = [[v.tolist(), None, tape.hex()] for v, tape in zip(vectors, tapes, strict=True)]
        made = client.run("taped", file=to_bytes(release), pairs=pairs)
        for i, (one, content) in enumerate(zip(made, tapes, strict=True)):
            tape = Tape(content)
            monkeypatch.setattr("offaxis.release.Entropy", lambda tape=tape: tape)
            assert release.privatize(vectors[i : i + 1])[0].hex() == one["report"], (seed, i)
            assert tape.used == one["used"]


STRANGE = {
    "two sizes": set_tensor("encoder.sizes", [2], 1.5, 1.0),
    "no radius": set_tensor("encoder.sizes", [3], 0.0, 0.0, 0.0),
    "a huge radius": set_tensor("encoder.sizes", [3], 1e21, 1.0, 1.0),
    "a negative height": set_tensor("encoder.sizes", [3], 1.5, -1.0, 0.5),
    "a large height": set_tensor("encoder.sizes", [3], 1.5, 2.5, 0.5),
    "no weight": set_tensor("encoder.sizes", [3], 1.5, 1.0, 0.0),
    "a large weight": set_tensor("encoder.sizes", [3], 1.5, 1.0, 1.6),
    "an asymmetric matrix": set_tensor("decoder.second", [2, 2], 1, 0.5, 0, 1),
    "a negative square": set_tensor("decoder.second", [2, 2], -1, 0, 0, 1),
    "moments of others": set_tensor("decoder.second", [3, 3], *np.eye(3).ravel().tolist()),
    "a mean of others": set_tensor("decoder.mean", [3], 0, 0, 0),
    "another way back": set_tensor("decoder.back", [2, 3], 0, 0, 0, 0, 0, 0),
    "another kind": lambda draft: part_of(draft, "encoder").update(kind="affine"),
    "another dimension": lambda draft: part_of(draft, "encoder").update(output_dim=4),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_files_are_rejected(client, name):
    draft = forgery.take_apart(RECORDED)
    same = forgery.put_together(draft)
    STRANGE[name](draft)
    strange = forgery.put_together(draft)
    with pytest.raises(InvalidRelease):
        from_bytes(strange)
    good, bad = client.run("load", files=[same, strange])
    assert good["ok"]["hash"] == from_bytes(same).hash
    assert bad.get("error") in ("InvalidRelease", "Unsupported"), bad
