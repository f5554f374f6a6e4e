"""Release files: they are read back exactly, and nothing in a forged file is trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as serialize

import offaxis
from offaxis.decoding import LinearDecoder, ShiftDecoder
from offaxis.encoding import AffineEncoder
from offaxis.errors import InvalidInput, InvalidRelease
from offaxis.formats import release_file
from offaxis.formats.release_file import _hash, from_bytes, manifest_of, parse, to_bytes
from offaxis.formats.strict_json import canonical_json
from offaxis.geometry.public import PublicIdentity
from offaxis.mechanisms import NAMES
from offaxis.privacy import Ledger, Limit
from offaxis.provenance import Provenance
from offaxis.randomizers import Laplace
from offaxis.randomizers.base import VectorParameters
from offaxis.simulation import simulate
from tests.checks import delta_for, effective, task_for
from tests.limits import bounded


def forge(release, change=None, tensors=None, rehash=True, text=None):
    """Write a release file as an attacker with full knowledge of the format would."""
    manifest = json.loads(manifest_of(release).canonical())
    if change:
        change(manifest)
    body = text if text is not None else canonical_json(manifest)
    arrays = {
        "encoder.matrix": np.array(release.encoder.matrix),
        "encoder.centre": np.array(release.encoder.centre),
        "decoder.matrix": np.array(release.decoder.matrix),
        "decoder.offset": np.array(release.decoder.offset),
    }
    arrays |= tensors or {}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    digest = _hash(body, arrays) if rehash else release.hash
    return serialize(arrays, metadata={"offaxis": f"{digest}\n{body}"})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", ["jacobian", "centre", "none"])
def test_every_release_is_read_back_from_its_file(head, public, tmp_path, name, shape):
    delta = delta_for(name)
    release = offaxis.fit(
        task_for(name, head),
        public,
        epsilon=0.1,
        mechanism=name,
        delta=delta,
        unit="user",
        **effective(name, reshaping=shape),
    )
    release.save(tmp_path / "a.release")
    loaded = offaxis.load(tmp_path / "a.release")
    assert loaded == release
    assert loaded.guarantee == release.guarantee
    assert loaded.provenance == release.provenance
    rng = [np.random.default_rng(0) for _ in range(2)]
    assert np.array_equal(simulate(release, public, rng[0]), simulate(loaded, public, rng[1]))


def test_reports_made_before_saving_decode_after_loading(release, public):
    reports = release.privatize(public)
    loaded = from_bytes(to_bytes(release))
    assert np.array_equal(release.decode(reports), loaded.decode(reports))


def test_a_mean_decoder_is_saved(release):
    with_mean = replace(release, mean_decoder=ShiftDecoder(np.zeros(6)))
    assert from_bytes(to_bytes(with_mean)) == with_mean
    assert with_mean != release


def test_saving_is_deterministic_and_leaves_no_temporary_files(release, tmp_path):
    release.save(tmp_path / "a.release")
    first = (tmp_path / "a.release").read_bytes()
    release.save(tmp_path / "a.release")
    assert (tmp_path / "a.release").read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["a.release"]


def test_a_pinned_hash_is_enforced(release, tmp_path):
    release.save(tmp_path / "a.release")
    assert offaxis.load(tmp_path / "a.release", expect=release.hash) == release
    assert offaxis.load(tmp_path / "a.release", expect=f"sha256:{release.hash.upper()}") == release
    with pytest.raises(InvalidRelease, match="expected"):
        offaxis.load(tmp_path / "a.release", expect="0" * 64)


def test_the_forger_can_write_a_valid_file(release):
    """Otherwise the rejections below would prove nothing."""
    assert from_bytes(forge(release)) == release


@given(st.data())
def test_every_truncation_is_refused(release, data):
    blob = to_bytes(release)
    cut = data.draw(st.integers(0, len(blob) - 1))
    with pytest.raises(InvalidRelease):
        from_bytes(blob[:cut])


@given(st.data())
def test_every_flipped_bit_is_refused(release, data):
    blob = bytearray(to_bytes(release))
    index = data.draw(st.integers(0, len(blob) - 1))
    blob[index] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(InvalidRelease):
        from_bytes(bytes(blob))


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_loader(blob):
    with pytest.raises(InvalidRelease):
        from_bytes(blob)


def parameter(name, value):
    return lambda m: m["randomizer"]["parameters"].__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["guarantee"].update(epsilon="1"), "promises ε=1"),
        (lambda m: m["guarantee"].update(delta="1/1000"), "promises"),
        (lambda m: m["guarantee"].update(relation="removal"), "promises"),
        (lambda m: m["guarantee"].update(unit="village"), "guarantee.unit"),
        (parameter("epsilon", "4"), "promises ε=3"),
        (parameter("epsilon", "3.0"), "canonical"),
        (parameter("epsilon", "1/00"), "finite number"),
        (parameter("epsilon", "9" * 5000), "randomizer"),
        (parameter("epsilon", 3), "wrong type"),
        (parameter("log2_scale", 26), "log2_scale"),
        (parameter("log2_scale", -5), "canonical form"),
        (parameter("log2_scale", -1), "canonical form"),
        (parameter("radius", 1e300), "radius"),
        (parameter("radius", 0.0), "radius"),
        (parameter("dim", 7), "do not fit"),
        (parameter("dim", 10**30), "."),
        (parameter("seed", 7), "has parameters"),
        (lambda m: m["randomizer"].update(kind="none"), "unknown randomizer"),
        (lambda m: m["randomizer"].update(kind="gaussian"), "has parameters"),
        (lambda m: m["encoder"].update(kind="pickle"), "unknown encoder"),
        (lambda m: m["decoder"].update(kind="exec"), "unknown decoder"),
        (lambda m: m["encoder"].update(input_dim=7), "other sizes"),
        (lambda m: m["encoder"].update(input_dim=10**12), "encoder.input_dim"),
        (lambda m: m.update(version=2), "version 2"),
        (lambda m: m.update(version="1"), "version '1'"),
        (lambda m: m.update(format="zip"), "not an offaxis release"),
        (lambda m: m.update(extra=1), "extra"),
        (lambda m: m.pop("provenance"), "provenance"),
        (lambda m: m["provenance"]["public"].update(sha256="xyz"), "sha256"),
        (lambda m: m["provenance"].update(statement="x" * 20_000), "statement"),
    ],
)
def test_a_hostile_manifest_is_refused(release, change, message):
    with pytest.raises(InvalidRelease, match=message):
        from_bytes(forge(release, change))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"encoder.matrix": np.full((6, 6), np.nan)}, "finite"),
        ({"encoder.matrix": np.full((6, 6), 1e200)}, "entries up to"),
        ({"encoder.matrix": np.ones((6, 5))}, "do not fit"),
        ({"encoder.matrix": np.ones((6, 6), dtype=np.float32)}, "F32"),
        ({"encoder.matrix": np.ones(36)}, "do not fit"),
        ({"decoder.offset": np.array([np.inf] * 6)}, "finite"),
        ({"decoder.offset": None}, "lacks the tensor"),
        ({"hidden": np.ones(3)}, "unknown tensors"),
    ],
)
def test_hostile_tensors_are_refused(release, tensors, message):
    with pytest.raises(InvalidRelease, match=message):
        from_bytes(forge(release, tensors=tensors))


def test_an_altered_map_without_a_new_hash_is_refused(release):
    altered = {"encoder.centre": np.array(release.encoder.centre) + 1}
    with pytest.raises(InvalidRelease, match="altered"):
        from_bytes(forge(release, tensors=altered, rehash=False))
    assert from_bytes(forge(release, tensors=altered)).hash != release.hash


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace('"version":1', '"version":1,"version":1'),
        lambda text: text.replace(":", ": ", 1),
        lambda text: text.replace('"version":1', '"version":1.0'),
        lambda text: text[:-1],
        lambda text: "[" * 100_000,
        lambda text: "null",
        lambda text: text.replace('"radius":', '"radius":NaN,"x":'),
    ],
)
def test_only_the_canonical_text_is_accepted(release, spoil):
    text = manifest_of(release).canonical()
    with pytest.raises(InvalidRelease):
        from_bytes(forge(release, text=spoil(text)))


def leaves(node, path=()):
    for key, value in node.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["1/0", "1/00", "0/1", "-1", "1e999999999", "1/3", "١", "x" * 300, 10**4000]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@settings(max_examples=400)
@given(st.data())
def test_no_forged_manifest_crashes_the_loader(release, data):
    """Any value in any field: a declared error, or a release with its true guarantee."""
    valid = json.loads(manifest_of(release).canonical())
    path = data.draw(st.sampled_from(list(leaves(valid))))
    value = data.draw(values)

    def change(manifest):
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = value

    try:
        loaded = from_bytes(forge(release, change))
    except InvalidRelease:
        return
    assert isinstance(loaded.randomizer, VectorParameters)
    assert loaded.guarantee.epsilon == loaded.randomizer.epsilon == release.guarantee.epsilon


def test_errors_for_unreadable_paths_are_clear(release, tmp_path):
    with pytest.raises(InvalidRelease, match=r"there is no release file .*; make one with"):
        offaxis.load(tmp_path / "missing.release")
    with pytest.raises(InvalidRelease, match=r"there is no release file"):
        offaxis.load(tmp_path)
    (tmp_path / "bad.release").write_bytes(b"not a release at all")
    with pytest.raises(InvalidRelease, match=r"bad.release: the file is not a release"):
        offaxis.load(tmp_path / "bad.release")
    with pytest.raises(offaxis.OffaxisError, match="cannot write"):
        release.save(tmp_path / "no" / "such" / "folder.release")


def test_a_release_is_read_from_bytes_only():
    things: list[object] = [None, "release", 5, []]
    for thing in things:
        with pytest.raises(InvalidRelease, match="from bytes"):
            from_bytes(thing)  # type: ignore[arg-type]


HOSTILE_TEXT = "\x1b[2J\u202e\n" + "x" * 150


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["guarantee"].update(epsilon=HOSTILE_TEXT),
        lambda m: m["guarantee"].update(relation=HOSTILE_TEXT),
        lambda m: m["encoder"].update(kind=HOSTILE_TEXT),
        lambda m: m["decoder"].update(kind=HOSTILE_TEXT),
        lambda m: m.update(version=HOSTILE_TEXT * 1000),
        lambda m: m.update({HOSTILE_TEXT * 1000: 1}),
        parameter("kind", HOSTILE_TEXT),
    ],
)
def test_a_message_about_hostile_text_is_short_and_printable(release, change):
    with pytest.raises(InvalidRelease) as raised:
        from_bytes(forge(release, change))
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500


def test_loading_a_small_file_takes_little_memory(release, tmp_path):
    release.save(tmp_path / "a.release")
    with bounded(mebibytes=1):
        offaxis.load(tmp_path / "a.release")


def test_loading_a_large_file_takes_a_small_multiple_of_its_size(tmp_path):
    identity = PublicIdentity(10, 1000, "0" * 64)
    matrix, shift = np.eye(1000), np.zeros(1000)
    release = offaxis.Release(
        AffineEncoder(matrix, shift),
        Laplace(1000, 1.0, Fraction(1)),
        LinearDecoder(matrix, shift),
        Provenance(None, identity),
    )
    release.save(tmp_path / "large.release")
    size = (tmp_path / "large.release").stat().st_size / (1 << 20)
    with bounded(mebibytes=1.8 * size):
        offaxis.load(tmp_path / "large.release")


# ---- Manifest

SIZE = 1 << 19


@pytest.fixture
def manifest(release):
    return json.loads(manifest_of(release).canonical())


def test_a_manifest_is_read_back(release):
    manifest = manifest_of(release)
    assert parse(manifest.canonical()) == manifest


@pytest.mark.parametrize(
    "large",
    [
        *("x" * SIZE, "\N{GRINNING FACE}" * (SIZE // 12), [0] * (SIZE // 2), [[]] * (SIZE // 3)),
        {str(i): [] for i in range(SIZE // 10)},
        {"x" * SIZE: 1},
    ],
    ids=["text", "astral text", "list", "lists", "keys", "one long key"],
)
def test_rejecting_a_large_part_in_any_field_costs_little(manifest, large):
    """Half a mebibyte of settings once took seconds, and a hundred times its size in memory."""
    provenance, encoder = manifest["provenance"], manifest["encoder"]
    for node, key in (
        *((manifest, "version"), (manifest, "encoder"), (manifest, "extra"), (encoder, "kind")),
        *((provenance, "settings"), (provenance, "statement")),
        (manifest["randomizer"], "parameters"),
    ):
        before = dict(node)
        node[key] = large
        text = canonical_json(manifest)
        with bounded(mebibytes=12, seconds=1), pytest.raises(InvalidRelease) as raised:
            parse(text)
        assert len(str(raised.value)) < 500
        node.clear()
        node.update(before)


def test_rejecting_many_invalid_settings_costs_little(manifest):
    manifest["provenance"]["settings"] = {str(i): True for i in range(900)}
    text = canonical_json(manifest)
    with bounded(mebibytes=12, seconds=1), pytest.raises(InvalidRelease, match="settings"):
        parse(text)


@pytest.mark.parametrize(
    "claim", ["", "-1", "1.0", "1/", "1/3/5", "1e3", "\N{SUPERSCRIPT TWO}", "1\n"]
)
def test_a_claim_must_be_a_fraction(manifest, claim):
    manifest["guarantee"]["epsilon"] = claim
    with pytest.raises(InvalidRelease, match=r"guarantee\.epsilon"):
        parse(canonical_json(manifest))


def test_a_release_that_no_reader_would_accept_is_not_written(tmp_path, monkeypatch):
    public = np.random.default_rng(0).standard_normal((50, 40))
    release = offaxis.fit(None, public, epsilon=1, mechanism="laplace", reshaping="none")
    monkeypatch.setattr(release_file, "LARGEST_FILE", 100)
    with pytest.raises(InvalidInput, match="GiB of numbers, and a release file at most"):
        release.save(tmp_path / "my.release")
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_is_not_taken_for_a_release(tmp_path):
    path = tmp_path / "my.ledger"
    Ledger(path, Limit(3)).close()
    with pytest.raises(InvalidRelease, match="it looks like a ledger"):
        offaxis.load(path)
