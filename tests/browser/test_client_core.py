"""The browser's client is the Python one again: same files, same bytes, same refusals."""

from __future__ import annotations

import json
import math
import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

import offaxis
from offaxis.decoding import CodewordDecoder
from offaxis.encoding.network import ANSWERS
from offaxis.errors import InvalidDocument, InvalidInput, InvalidRelease, InvalidReport
from offaxis.formats.artifact import from_bytes, to_bytes
from offaxis.formats.documents import Round, new_key, sign_release, sign_round
from offaxis.formats.strict_json import canonical_json, parse_json
from offaxis.privacy.guarantee import exact
from offaxis.randomizers import KaryResponse, PrivUnit2, PrivUnitG
from tests.browser.conftest import FOLDER
from tests.fuzz import forgery, mutation, seeds

PACKAGE = Path(offaxis.__file__).parent / "browser" / "client"
KINDS = ("laplace", "privunit2", "privunitg", "response")
SEEDS = [i for i, r in enumerate(seeds.releases()) if r.randomizer.kind in KINDS]
DECODED = [i for i in SEEDS if seeds.releases()[i].decoder.kind != "posterior"]


@pytest.mark.parametrize("file", ["recorded.mjs", "contracts.mjs"])
def test_checks_that_run_in_a_page_too(node, file):
    run = subprocess.run([node, str(FOLDER / "run.mjs"), file], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("ok ") >= 8


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
        assert facts["givesMeans"] == release.gives_means
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


@pytest.mark.parametrize("index", DECODED)
def test_python_reads_its_reports_and_it_reads_pythons(client, index):
    release, blob = seeds.releases()[index], seeds.files()[index]
    vectors = np.random.default_rng(index).standard_normal((8, release.input_dim)) * 2
    made = client.ask("privatize", file=blob, vectors=vectors.tolist())
    reports = [bytes.fromhex(r) for r in made] + release.privatize(vectors)
    found = client.ask("decode", file=blob, reports=[r.hex() for r in reports])
    assert np.allclose([f["ok"] for f in found], release.decode(reports), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("index", SEEDS)
def test_the_same_reports_are_refused(client, index):
    release, rng = seeds.releases()[index], Random(index)
    reports = [mutation.hostile_report(rng.choice(seeds.reports()[index]), rng) for _ in range(60)]
    found = client.ask("observe", file=seeds.files()[index], reports=[r.hex() for r in reports])
    for report, verdict in zip(reports, found, strict=True):
        try:
            observed = release.observe([report])[0]
        except InvalidReport:
            assert verdict.get("error") == "InvalidReport", verdict
        else:
            assert np.allclose(verdict["ok"], observed, rtol=1e-12, atol=1e-12)


def test_a_posterior_decoder_is_left_to_servers(client):
    index = next(i for i in SEEDS if i not in DECODED)
    reports = [r.hex() for r in seeds.reports()[index]]
    found = client.ask("decode", file=seeds.files()[index], reports=reports)
    assert {f["error"] for f in found} == {"Unsupported"}


def answering(activation: str) -> offaxis.Release:
    """A release whose encoder is a classifier, at a budget that all but tells its answer."""
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal(shape) for shape in ((9, 4), (7, 9), (5, 7))]
    biases = [rng.standard_normal(9), rng.standard_normal(7), np.zeros(5)]
    # Centred, so that several answers occur.
    usual = ANSWERS[activation](weights, biases).apply(rng.standard_normal((500, 4)))
    encoder = ANSWERS[activation](weights, [*biases[:2], -np.median(usual, axis=0)])
    decoder = CodewordDecoder(rng.standard_normal((5, 4)), np.full(5, 0.2))
    origin = seeds.releases()[0].provenance
    return offaxis.Release(encoder, KaryResponse(5, Fraction(100)), decoder, origin)


@pytest.mark.parametrize("activation", ANSWERS)
def test_networks_give_the_same_answers(client, activation):
    release = answering(activation)
    rng = np.random.default_rng(4)
    vectors = rng.standard_normal((300, 4)) * rng.choice([0.1, 1.0, 30.0], (300, 1))
    vectors = np.concatenate([vectors, [[1e308] * 4, [-1e308, 1e308, 0, 5e-324], [0.0] * 4]])
    made = client.ask("privatize", file=to_bytes(release), vectors=vectors.tolist())
    told = release.randomizer.told([bytes.fromhex(r)[12:] for r in made])
    symbols = release.encoder.encode(vectors)
    assert len(set(symbols.tolist())) > 2
    assert (told == symbols).all()


@pytest.mark.parametrize(
    "index", [i for i in SEEDS if seeds.releases()[i].encoder.kind in ("affine", "shift", "box")]
)
def test_encodings_are_the_same(client, index):
    encoder = seeds.releases()[index].encoder
    rng = np.random.default_rng(index)
    vectors = rng.standard_normal((40, encoder.input_dim)) * 10.0 ** rng.integers(
        -320, 308, (40, 1)
    )
    found = client.ask(
        "encode", file=seeds.files()[index], kind=encoder.kind, vectors=vectors.tolist()
    )
    wanted = encoder.encode(vectors)
    scale = np.abs(wanted).max(axis=1, keepdims=True)
    assert (np.abs(np.array(found) - wanted) <= 1e-12 * scale).all()


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
    for built in randomizers:
        law = "angle" if built.kind == "privunit2" else built.output
        pairs = built.directions // 2
        found = client.ask(
            "mean", law=law, dim=dim, pairs=pairs, near=built.near, epsilon=float(epsilon)
        )
        assert math.isclose(found, built.mean, rel_tol=1e-11), built


def test_numbers_are_read_the_same(client):
    rng = Random(5)
    floats = [repr(rng.gauss(0, 1) * 10.0 ** rng.randrange(-30, 30)) for _ in range(200)]
    texts = [*mutation.TEXTS, *mutation.FRACTIONS, *floats]
    for text, found in zip(texts, client.ask("exact", texts=texts), strict=True):
        try:
            assert found == {"ok": str(exact(text, "it"))}
        except InvalidInput:
            assert found.get("error") == "InvalidInput", text


def test_json_is_read_and_written_the_same(client):
    rng = Random(6)
    manifests = [b[8:].decode(errors="ignore") for b in seeds.files()[:1]]
    texts = [mutation.scribble_text(rng.choice(manifests), rng) for _ in range(50)]
    floats = [rng.gauss(0, 1) * 10.0 ** rng.randrange(-320, 300) for _ in range(300)]
    floats += [1e16, 1e15, 9999999999999998.0, 1e-4, 1e-5, 0.0, -0.0, 5e-324, 1.5e300, 123456.0]
    strings = [*mutation.TEXTS, "\x7f\x80\u2028\uffff\U0001f600", '"\\/\b\f\n\r\t']
    trees = [
        {"b": strings[i % len(strings)], "\U0001f600": x, "\uffff": [x, None, True, {}]}
        for i, x in enumerate(floats)
    ]
    texts += [json.dumps(tree, ensure_ascii=rng.random() < 0.5) for tree in trees]
    texts += ["", " ", "1", "-0", "01", "1.", ".5", "1e5", "+1", "NaN", "[1,]", '{"a":1,"a":2}']
    texts += ['"\\x"', '"\\u12"', '"\n"', "[1] x", "\ufeff1", "9" * 40, "9" * 41, "[" * 101]
    texts += ["[" * 100 + "]" * 100, "[" + ",".join(["1"] * 1999) + "]", "tru", "nulll"]
    for text, found in zip(texts, client.ask("json", texts=texts), strict=True):
        try:
            wanted = canonical_json(parse_json(text))
        except (ValueError, RecursionError):
            wanted = None
        assert found == wanted, text[:200]


def test_rounds_are_read_and_their_signatures_verified(client):
    rng, key, other = Random(7), new_key(), new_key()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rounds = [
        Round(
            name=f"r{i}", study="s-1", number=rng.choice((0, i, 2**53)), release="0af1" * 16,
            opens=start + timedelta(seconds=rng.randrange(10**9)),
            closes=start + timedelta(seconds=2 * 10**9),
            groups=tuple(f"g {j}~\"\\" for j in range(i % 4)), keep_days=i,
        )
        for i in range(40)
    ]  # fmt: skip
    documents = [r.to_bytes() for r in rounds]
    for round_, found in zip(rounds, client.ask("rounds", documents=documents), strict=True):
        facts = found["ok"]
        assert facts["document"].encode() == round_.to_bytes()
        assert (facts["number"], facts["keepDays"]) == (round_.number, round_.keep_days)
        assert datetime.fromisoformat(facts["opens"]) == round_.opens
        assert tuple(facts["groups"]) == round_.groups
    mutants = [mutation.scribble(rng.choice(documents), rng) for _ in range(600)]
    for mutant, found in zip(mutants, client.ask("rounds", documents=mutants), strict=True):
        try:
            Round.from_bytes(mutant)
        except InvalidDocument:
            assert found.get("error") == "InvalidDocument", (mutant, found)
        else:
            assert "ok" in found, (mutant, found)

    def verdict(signer, signature: bytes, round_: Round = rounds[0]) -> str:
        public = signer.public_key().public_bytes_raw().hex()
        (found,) = client.ask(
            "signedRound", publisher=public, document=round_.to_bytes(), signature=signature.hex()
        )
        return found.get("error", "ok")

    signature = sign_round(key, rounds[0])
    assert verdict(key, signature) == "ok"
    assert verdict(other, signature) == "InvalidDocument"
    assert verdict(key, signature, rounds[1]) == "InvalidDocument"
    assert verdict(key, signature[:-1]) == "InvalidDocument"
    assert verdict(key, sign_release(key, rounds[0].digest.hex())) == "InvalidDocument"
    public = key.public_key().public_bytes_raw().hex()
    release_hash = "0af1" * 16
    for made, wanted in (
        (sign_release(key, release_hash), None),
        (sign_release(other, release_hash), "InvalidDocument"),
    ):
        (found,) = client.ask(
            "signedRelease", publisher=public, hash=release_hash, signature=made.hex()
        )
        assert found.get("error") == wanted


def test_the_package_is_whole():
    package = json.loads((PACKAGE / "package.json").read_text())
    assert (package["name"], package["license"]) == ("offaxis", "Apache-2.0")
    assert package["version"] == offaxis.__version__
    assert not {"dependencies", "devDependencies", "peerDependencies", "scripts"} & set(package)
    for file in PACKAGE.glob("*.js"):
        imported = re.findall(r"from \"([^\"]+)\"|import\(", file.read_text())
        assert all(name.startswith("./") and (PACKAGE / name).exists() for name in imported), file
    public = (PACKAGE / "index.js").read_text()
    names = set(re.findall(r"\b[A-Za-z]\w+", re.sub(r"/\*.*?\*/|from \".*?\"|export", "", public)))
    typed = set(
        re.findall(r"^export (?:class|function) (\w+)", (PACKAGE / "index.d.ts").read_text(), re.M)
    )
    assert names == typed


def test_only_one_module_touches_randomness():
    users = [f.name for f in PACKAGE.glob("*.js") if "getRandomValues" in f.read_text()]
    assert users == ["entropy.js"]
    assert not [f for f in PACKAGE.glob("*.js") if "Math.random" in f.read_text()]


def test_a_release_that_gives_symbols_needs_a_randomizer_of_symbols(client):
    """Python would find out at the first report; a page should at once."""
    affine = next(r for r in seeds.releases() if r.encoder.kind == "affine")
    mixed = replace(answering("relu"), randomizer=affine.randomizer.__class__(5, 1.0, Fraction(1)))
    (found,) = client.ask("load", files=[to_bytes(mixed)])
    assert found["error"] == "InvalidRelease"
