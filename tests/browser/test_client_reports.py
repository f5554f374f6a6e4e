"""The JavaScript client agrees with Python: same files, same bytes, same errors."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

import offaxis
from offaxis.encoding.encoders import ANSWERS
from offaxis.errors import InvalidReport
from offaxis.formats.release_file import to_bytes
from offaxis.geometry import FiniteDifferences
from offaxis.randomizers import PrivUnit2, PrivUnitG
from tests.browser.conftest import FOLDER
from tests.browser.releases import SEEDS, answering
from tests.fuzz import mutation, seeds

DECODED = [i for i in SEEDS if seeds.releases()[i].decoder.kind != "posterior"]


@pytest.mark.parametrize("file", ["recorded.mjs", "contracts.mjs"])
def test_checks_pass_in_node(node, file):
    run = subprocess.run([node, str(FOLDER / "run.mjs"), file], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("ok ") >= 8


@pytest.mark.parametrize("index", DECODED)
def test_both_read_the_reports_of_each_other(client, index):
    release, blob = seeds.releases()[index], seeds.files()[index]
    vectors = np.random.default_rng(index).standard_normal((8, release.input_dim)) * 2
    made = client.run("privatize", file=blob, vectors=vectors.tolist())
    reports = [bytes.fromhex(r) for r in made] + release.privatize(vectors)
    outcomes = client.run("decode", file=blob, reports=[r.hex() for r in reports])
    decoded = [outcome["ok"] for outcome in outcomes]
    assert np.allclose(decoded, release.decode(reports), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("index", SEEDS)
def test_the_same_reports_are_rejected(client, index):
    release, rng = seeds.releases()[index], Random(index)
    reports = [mutation.hostile_report(rng.choice(seeds.reports()[index]), rng) for _ in range(60)]
    outcomes = client.run("observe", file=seeds.files()[index], reports=[r.hex() for r in reports])
    for report, outcome in zip(reports, outcomes, strict=True):
        try:
            observed = release.observe([report])[0]
        except InvalidReport:
            assert outcome.get("error") == "InvalidReport", outcome
        else:
            assert np.allclose(outcome["ok"], observed, rtol=1e-12, atol=1e-12)


def test_a_posterior_decoder_is_not_supported(client):
    index = next(i for i in SEEDS if i not in DECODED)
    reports = [r.hex() for r in seeds.reports()[index]]
    outcomes = client.run("decode", file=seeds.files()[index], reports=reports)
    assert {outcome["error"] for outcome in outcomes} == {"Unsupported"}


@pytest.mark.parametrize("activation", [*ANSWERS, "relu+normalise", "normalise+silu", "elu+tanh"])
def test_networks_give_the_same_answers(client, activation):
    release = answering(activation)
    rng = np.random.default_rng(4)
    vectors = rng.standard_normal((300, 4)) * rng.choice([0.1, 1.0, 30.0], (300, 1))
    vectors = np.concatenate([vectors, [[1e308] * 4, [-1e308, 1e308, 0, 5e-324], [0.0] * 4]])
    made = client.run("privatize", file=to_bytes(release), vectors=vectors.tolist())
    reported = release.randomizer.reported_symbols([bytes.fromhex(r)[12:] for r in made])
    symbols = release.encoder.encode(vectors)
    assert len(set(symbols.tolist())) > 2
    assert (reported == symbols).all()


def test_answers_are_reported_without_a_vector(client):
    """With an ε so large that reports are exact; of a model that the file does not contain."""
    public = np.random.default_rng(0).standard_normal((500, 3))
    release = offaxis.fit(
        FiniteDifferences(lambda Z: np.sin(3 * Z)), public, epsilon=100, mechanism="class-response"
    )
    names = replace(release.answers, names=("left", "right", "neither"))
    content = to_bytes(replace(release, answers=names))
    answers = [0, 1, 2, "neither", "left", 3, -1, 0.5, "up", None]
    outcomes = client.run("answer", file=content, answers=answers)
    made = [bytes.fromhex(outcome["ok"])[12:] for outcome in outcomes[:5]]
    assert release.randomizer.reported_symbols(made).tolist() == [0, 1, 2, 2, 0]
    assert [outcome["error"] for outcome in outcomes[5:]] == ["InvalidInput"] * 5
    of_vectors = to_bytes(offaxis.fit(None, public, epsilon=1, goal="means"))
    (outcome,) = client.run("answer", file=of_vectors, answers=[0])
    assert "this release reports a vector" in outcome["message"]


@pytest.mark.parametrize(
    "index", [i for i in SEEDS if seeds.releases()[i].encoder.kind in ("affine", "shift", "box")]
)
def test_encodings_are_the_same(client, index):
    encoder = seeds.releases()[index].encoder
    rng = np.random.default_rng(index)
    vectors = rng.standard_normal((40, encoder.input_dim)) * 10.0 ** rng.integers(
        -320, 308, (40, 1)
    )
    encoded = client.run(
        "encode", file=seeds.files()[index], kind=encoder.kind, vectors=vectors.tolist()
    )
    expected = encoder.encode(vectors)
    scale = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(np.array(encoded) - expected) <= 1e-12 * scale).all()


@pytest.mark.parametrize("dim", [1, 2, 3, 32, 500])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(6)])
def test_the_mean_component_is_the_same(client, dim, epsilon):
    randomizers = [
        PrivUnit2(dim, 1.0, epsilon),
        PrivUnitG(dim, 1.0, epsilon),
        PrivUnitG(dim, 1.0, epsilon, output="sphere"),
        PrivUnit2(dim, 1.0, epsilon, directions=2, near=1),
        PrivUnitG(dim, 1.0, epsilon, directions=4, near=1, output="sphere"),
    ]
    for randomizer in randomizers:
        law = "angle" if randomizer.kind == "privunit2" else randomizer.output
        pairs = randomizer.directions // 2
        mean = client.run(
            "mean", law=law, dim=dim, pairs=pairs, near=randomizer.near, epsilon=float(epsilon)
        )
        assert math.isclose(mean, randomizer.mean, rel_tol=1e-11), randomizer
