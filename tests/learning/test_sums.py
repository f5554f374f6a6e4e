"""Sums of reports: whatever the order, the cut and the place, and nothing from another release."""

from __future__ import annotations

import io
import itertools
import pickle
import zipfile
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offaxis
from offaxis.encoding.pairs import Classes, Number
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.learning import PairSums, cells, fit_check, fit_pairs, learn, principal
from offaxis.learning.sums import FOLDS, MOST_SQUARES, pair_sums

RNG = np.random.default_rng(0)
PUBLIC = RNG.standard_normal((300, 4))
PEOPLE = RNG.standard_normal((60, 4))
LABELS = (PEOPLE[:, 0] > 0).astype(int)
LINEAR, TABLE = principal(PUBLIC), cells(PUBLIC, 3)

PRIVATE = fit_pairs(LINEAR, 3, epsilon=2)
SEVERAL = fit_pairs(
    LINEAR, [Classes(2, name="a", optional=True), Number(0, 1, name="b")], epsilon=2
)
CELLS = fit_pairs(TABLE, 3, epsilon=2)
OPEN = fit_pairs(LINEAR, epsilon=2)
OPEN_CELLS = fit_pairs(TABLE, epsilon=2)

KINDS = {
    "private": (PRIVATE, None, LABELS),
    "several": (SEVERAL, None, {"a": LABELS, "b": np.abs(PEOPLE[:, 1])}),
    "cells": (CELLS, None, LABELS),
    "public classes": (OPEN, Classes(2), LABELS),
    "public numbers": (OPEN, Number(-1, 1), PEOPLE[:, 1]),
    "public cells": (OPEN_CELLS, Classes(["a", "b"]), LABELS),
}


@pytest.fixture(scope="module")
def collected():
    """Return reports of 60 people by kind, with labels where these are public."""
    found = {}
    for kind, (release, labels, answers) in KINDS.items():
        if labels is None:
            found[kind] = release, None, release.privatize(PEOPLE, answers=answers), None
        else:
            found[kind] = release, labels, release.privatize(PEOPLE), answers.tolist()
    return found


def sums_of(release, labels, reports, named) -> PairSums:
    sums = PairSums(release, labels)
    sums.add(reports, named)
    return sums


def assert_same(one: PairSums, other: PairSums, folds: bool = False):
    """Compare the sums over all folds, or fold by fold."""
    over = (lambda part: part) if folds else (lambda part: part.sum(axis=0))
    np.testing.assert_array_equal(over(one.counts), over(other.counts))
    np.testing.assert_allclose(over(one.totals), over(other.totals), rtol=1e-12, atol=1e-9)
    assert (one.squares is None) == (other.squares is None)
    if one.squares is not None:
        np.testing.assert_allclose(one.squares, other.squares, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_observations(collected, kind):
    release, labels, reports, named = collected[kind]
    observed = release.observe(reports)
    sums = sums_of(release, labels, reports, named)
    if isinstance(labels, Number):
        weights = np.clip(PEOPLE[:, 1], -1, 1)[:, None]
        expected = (weights * observed).sum(axis=0, keepdims=True)
    else:
        member = np.ones((60, 1)) if labels is None else np.eye(2)[LABELS]
        expected = member.T @ ((observed > 0) if "cells" in kind else observed)
    np.testing.assert_allclose(sums.totals.sum(axis=0), expected, atol=1e-9)
    by_label = [60] if not isinstance(labels, Classes) else np.bincount(LABELS).tolist()
    assert sums.counts.sum(axis=0).tolist() == by_label
    assert sums.counts.sum(axis=1).tolist() == [60 // FOLDS] * FOLDS
    assert sums.count == 60
    if "cells" in kind:
        assert sums.squares is None
    elif not isinstance(labels, Number):
        np.testing.assert_allclose(sums.squares, observed.T @ observed, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.integers(0, 60), max_size=6), st.permutations(range(3)))
def test_any_cut_any_order_and_any_merge_give_the_same(collected, kind, cuts, order):
    release, labels, reports, named = collected[kind]
    whole = sums_of(release, labels, reports, named)
    edges = [0, *sorted(cuts), 60]
    ranges = [slice(a, b) for a, b in itertools.pairwise(edges)]
    at_once = PairSums(release, labels)
    parts = []
    for part in ranges:
        own = None if named is None else named[part]
        at_once.add(reports[part], own)
        parts.append(sums_of(release, labels, reports[part], own))
    assert_same(at_once, whole)
    left, right = PairSums(release, labels), PairSums(release, labels)
    for i in sorted(range(len(parts)), key=lambda i: order[i % 3]):
        left.merge(parts[i])
    for part in reversed(parts):  # nested the other way round
        right, nested = deepcopy(part), right
        right.merge(nested)
    assert_same(left, whole)
    assert_same(right, whole)
    assert_same(PairSums.from_bytes(left.to_bytes(), release, labels), left, folds=True)


def test_reports_added_one_by_one_are_in_all_folds(collected):
    release, _, reports, _ = collected["cells"]
    sums = PairSums(release)
    for report in reports:
        sums.add([report])
    assert_same(sums, sums_of(release, None, reports, None), folds=True)


def test_sums_of_single_reports_fill_all_folds(collected):
    """As a job has them that merges one sum per person; they used to be all in the first fold."""
    release, _, reports, _ = collected["cells"]
    whole, pairs = PairSums(release), PairSums(release)
    for report in reports:
        own = PairSums(release)
        own.add([report])
        whole.merge(own)
    assert_same(whole, sums_of(release, None, reports, None), folds=True)
    for i in range(0, 60, 2):
        own = PairSums(release)
        own.add(reports[i : i + 2])
        pairs.merge(PairSums.from_bytes(own.to_bytes(), release))
    assert pairs.counts.min() >= 10
    assert_same(pairs, whole)


def test_folds_are_shifted_by_the_reports_that_were_counted_elsewhere(collected):
    release, _, reports, _ = collected["private"]
    whole, rest = sums_of(release, None, reports, None), PairSums(release)
    rest.first = 7
    rest.add(reports[7:20])
    rest.add(reports[20:])
    first = sums_of(release, None, reports[:7], None)
    first.merge(rest)
    assert_same(first, whole, folds=True)


def test_products_are_dropped_if_one_part_has_none(collected):
    """Otherwise the errors of coefficients would be those of a part of the reports."""
    release, _, reports, _ = collected["private"]
    sums, other = (sums_of(release, None, part, None) for part in (reports[:30], reports[30:]))
    other.squares = None
    sums.merge(other)
    assert sums.squares is None
    assert learn(release, sums).report_count_ == 60


def test_an_iterator_is_read_once_and_in_batches(collected, monkeypatch):
    monkeypatch.setattr("offaxis.learning.sums._ROWS", 7)
    for kind in ("private", "public classes", "public numbers", "cells"):
        release, labels, reports, named = collected[kind]
        sums = PairSums(release, labels)
        sums.add(iter(reports), None if named is None else iter(named))
        monkeypatch.undo()
        assert_same(sums, sums_of(release, labels, reports, named), folds=True)
        monkeypatch.setattr("offaxis.learning.sums._ROWS", 7)


def test_adding_nothing_changes_nothing():
    sums = PairSums(PRIVATE)
    sums.add([])
    assert sums.count == 0
    empty = PairSums(OPEN, 2)
    empty.add([], [])
    empty.merge(PairSums(OPEN, 2))
    assert empty.count == 0
    with pytest.raises(InvalidInput, match="no reports"):
        learn(PRIVATE, sums)


def test_squares_are_kept_for_few_moments_only():
    small = PairSums(PRIVATE).squares
    assert small is not None
    assert small.shape == (10, 10)
    many = fit_pairs(LINEAR, 2 + MOST_SQUARES // 5, epsilon=2)
    assert many.encoder.output_dim > MOST_SQUARES
    sums = PairSums(many)
    sums.add(many.privatize(PEOPLE[:10], answers=range(10)))
    assert sums.squares is None
    assert_same(PairSums.from_bytes(sums.to_bytes(), many), sums, folds=True)
    assert learn(many, sums).report_count_ == 10


# ---- What does not belong


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_call_leaves_the_sums_untouched(collected, kind):
    release, labels, reports, named = collected[kind]
    sums = sums_of(release, labels, reports, named)
    before = pickle.dumps((sums.counts, sums.totals, sums.squares))
    foreign = fit_pairs(LINEAR, 7, epsilon=2).privatize(PEOPLE[:2], answers=[0, 1])
    damaged = [reports[0][:-1], b"", b"\0" * len(reports[0]), reports[0] + b"\0", "text", 5, None]
    for wrong in (*([part] for part in damaged), foreign, [reports]):
        mixed = [*reports[:3], *wrong]
        with pytest.raises(InvalidReport):
            sums.add(mixed, None if named is None else [*named[:3], *named[: len(wrong)]])
    for wrong in (None, 5, np.zeros(3), "text", bytearray(reports[0])):
        with pytest.raises(InvalidReport):
            sums.add(wrong, None if named is None else named)
    if named is not None:
        for wrong in (named[:-1], [*named, named[0]], iter(named[:-1]), [], [object()] * 60):
            with pytest.raises(InvalidInput):
                sums.add(reports, wrong)
        with pytest.raises(InvalidInput, match="or not at all"):
            sums.add(reports)
    else:
        with pytest.raises(InvalidInput, match="or not at all"):
            sums.add(reports, LABELS)
    with pytest.raises(InvalidInput, match="another release"):
        sums.merge(PairSums(fit_pairs(LINEAR, 7, epsilon=2)))
    assert pickle.dumps((sums.counts, sums.totals, sums.squares)) == before


def test_labels_count_exactly(collected):
    release, _, reports, _ = collected["public classes"]
    for few in ([], [0], [0] * 59, iter([0] * 59)):
        with pytest.raises(InvalidInput, match="fewer labels"):
            PairSums(release, 2).add(reports, few)
    for many in ([0] * 61, iter([0] * 1000), itertools.repeat(0)):
        with pytest.raises(InvalidInput, match="more labels than the 60"):
            PairSums(release, 2).add(reports, many)


def test_sums_belong_to_one_release_and_one_kind_of_labels(collected):
    release, _, reports, named = collected["public classes"]
    sums = sums_of(release, Classes(2), reports, named)
    for other in (PairSums(release, 3), PairSums(release, ["a", "b"]), PairSums(release)):
        with pytest.raises(InvalidInput, match="other labels"):
            sums.merge(other)
    for labels in (3, Number(0, 1), None):
        with pytest.raises(InvalidInput, match="other labels"):
            PairSums.from_bytes(sums.to_bytes(), release, labels)
    with pytest.raises(InvalidInput, match="another release"):
        PairSums.from_bytes(sums.to_bytes(), fit_pairs(LINEAR, epsilon=3), 2)
    with pytest.raises(InvalidInput, match="another release"):
        learn(PRIVATE, sums)
    with pytest.raises(InvalidInput, match="include their labels"):
        learn(release, sums, labels=named)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (Classes(["no", "yes"]), Classes(["yes", "no"])),
        (Number(0, 1), Number(0, 100)),
        (Number(0, 1), None),
    ],
)
def test_bytes_with_other_labels_are_refused(written, read):
    """Otherwise a model says "yes" where people said "no"."""
    with pytest.raises(InvalidInput, match="other labels"):
        PairSums.from_bytes(PairSums(OPEN, written).to_bytes(), OPEN, read)


def test_what_cannot_be_summed_is_an_error():
    with pytest.raises(InvalidInput, match="releases of pairs"):
        PairSums(offaxis.fit(None, PUBLIC, epsilon=1, goal="means"))
    with pytest.raises(InvalidInput, match=r"accuracy\(\)"):
        PairSums(fit_check(np.eye(2, 4), PUBLIC, epsilon=1))
    with pytest.raises(InvalidInput, match="private answers"):
        PairSums(PRIVATE, 3)
    with pytest.raises(InvalidInput, match="cells take classes"):
        PairSums(OPEN_CELLS, Number(0, 1))
    with pytest.raises(InvalidInput, match="one public label"):
        PairSums(OPEN, [Classes(2, name="a"), Classes(2, name="b")])
    with pytest.raises(InvalidInput, match="at most 512"):
        PairSums(OPEN, 513)
    for labels in (1, "ab", object(), ["a", "a"]):
        with pytest.raises(InvalidInput):
            PairSums(OPEN, labels)


# ---- Bytes


def forged(sums: PairSums, **changed) -> bytes:
    """Return bytes with other arrays."""
    stream = io.BytesIO()
    with np.load(io.BytesIO(sums.to_bytes())) as stored:
        np.savez(stream, **dict(stored) | changed)
    return stream.getvalue()


def test_arrays_that_cannot_be_sums_are_refused(collected):
    release, _, reports, _ = collected["private"]
    sums = sums_of(release, None, reports, None)
    assert_same(PairSums.from_bytes(forged(sums), release), sums, folds=True)
    for changed in (
        {"counts": -sums.counts},
        {"counts": sums.counts[:, 0]},
        {"counts": sums.counts * np.nan},
        {"totals": sums.totals * np.nan},
        {"totals": sums.totals[:1]},
        {"totals": sums.totals.astype(object)},
        {"squares": sums.squares * np.inf},
        {"squares": sums.squares[:1]},
        {"magic": np.array(["offaxis sums of pairs 2", release.hash])},
        {"magic": np.array([1, 2])},
        {"magic": np.array("x")},
    ):
        with pytest.raises(InvalidInput):
            PairSums.from_bytes(forged(sums, **changed), release)


@pytest.mark.parametrize("name", ["text", "complex", "fractions", "counts of text", "too large"])
def test_arrays_that_no_reports_have_are_refused(collected, name):
    release, _, reports, _ = collected["private"]
    sums = sums_of(release, None, reports, None)
    changed = {
        "text": {"totals": sums.totals.astype(str)},
        "complex": {"totals": sums.totals * 1j},
        "fractions": {"counts": sums.counts * 1.5},
        "counts of text": {"counts": sums.counts.astype(str)},
        "too large": {"totals": sums.totals * 1e6},
    }[name]
    with pytest.raises(InvalidInput):
        PairSums.from_bytes(forged(sums, **changed), release)


def test_damaged_bytes_are_refused(collected):
    """Every cut, and a changed byte in every place; a change of the directory may not matter."""
    release, _, reports, _ = collected["private"]
    data = sums_of(release, None, reports, None).to_bytes()
    assert isinstance(data, bytes)
    for wrong in (b"", b"PK", b"garbage" * 30, data[:500], data[:-1], data[1:], "text", None):
        with pytest.raises(InvalidInput):
            PairSums.from_bytes(wrong, release)
    for place in range(0, len(data), 11):
        changed = data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
        try:
            PairSums.from_bytes(changed, release)
        except InvalidInput:
            continue


def bomb(data: bytes, name: str, kind: str) -> bytes:
    """Return the bytes with one array of 2³⁰ numbers, 8 GB, in place of that of a name."""
    header = io.BytesIO()
    described = {"descr": "<f8", "fortran_order": False, "shape": (1 << 30,)}
    np.lib.format.write_array_header_1_0(header, described)
    stream = io.BytesIO()
    compression = zipfile.ZIP_DEFLATED if kind == "compressed" else zipfile.ZIP_STORED
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(stream, "w", compression) as new,
    ):
        for info in old.infolist():
            if info.filename != f"{name}.npy":
                new.writestr(info.filename, old.read(info))
        if kind == "another array":
            new.writestr(f"{name}.npy", old.read(f"{name}.npy"))
            new.writestr("more.npy", header.getvalue())
        else:
            zeros = b"" if kind == "header alone" else bytes(1 << 24)
            new.writestr(f"{name}.npy", header.getvalue() + zeros)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["magic", "totals"])
@pytest.mark.parametrize("kind", ["compressed", "header alone", "short", "another array"])
def test_bytes_that_grow_when_they_are_read_are_refused(collected, name, kind, monkeypatch):
    """Before an array is read: a megabyte must not become gigabytes."""
    release, _, reports, _ = collected["private"]
    data = bomb(sums_of(release, None, reports, None).to_bytes(), name, kind)
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(InvalidInput, match=r"no sums of pairs: (compressed|an array|they do not)"):
        PairSums.from_bytes(data, release)


@pytest.mark.parametrize("dtype", ["<f8", "<U0", "<U100000000"])
def test_no_array_is_larger_than_its_file(collected, dtype):
    """Also of many entries without a size, or of few large ones."""
    release, _, reports, _ = collected["private"]
    stored = sums_of(release, None, reports, None).to_bytes()
    header, stream = io.BytesIO(), io.BytesIO()
    described = {"descr": dtype, "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(header, described)
    with zipfile.ZipFile(io.BytesIO(stored)) as old, zipfile.ZipFile(stream, "w") as new:
        for info in old.infolist():
            own = header.getvalue() if info.filename == "magic.npy" else old.read(info)
            new.writestr(info.filename, own)
    with pytest.raises(InvalidInput, match="larger than the file"):
        PairSums.from_bytes(stream.getvalue(), release)


# ---- Public labels of any kind


def test_labels_are_recognised(collected):
    release, _, reports, _ = collected["public classes"]
    pandas, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")
    names = np.array(["no", "yes"])[LABELS]
    for labels in (names, names.tolist(), pandas.Series(names), pandas.Categorical(names)):
        sums = pair_sums(release, reports, labels)
        assert sums.labels == Classes(["no", "yes"])
        assert sums.counts.sum(axis=0).tolist() == np.bincount(LABELS).tolist()
    for labels in (LABELS, LABELS.tolist(), torch.tensor(LABELS), LABELS.astype(np.uint8)):
        assert pair_sums(release, reports, labels).labels == Classes(2)
    assert pair_sums(release, reports, LABELS, answers=5).counts.shape == (FOLDS, 5)
    numbers = pair_sums(release, reports, PEOPLE[:, 1], answers=Number(-1, 1))
    assert numbers.labels == Number(-1, 1)


def test_labels_that_are_not_recognised_are_an_error(collected):
    release, _, reports, _ = collected["public classes"]
    numbers = PEOPLE[:, 1].tolist()
    for labels, answers in [
        (numbers, None),
        (LABELS - 1, None),
        ([None, *LABELS[1:].tolist()], None),
        (["a", *LABELS[1:].tolist()], None),
        ([], None),
        (LABELS + 5, 2),
        ([None, *LABELS[1:].tolist()], 2),
        ([np.nan, *numbers[1:]], Number(-1, 1)),
        ([None, *numbers[1:]], Number(-1, 1)),
        (np.stack([LABELS, LABELS], axis=1), 2),
        (np.arange(60) * 1000, None),
    ]:
        with pytest.raises(InvalidInput):
            pair_sums(release, reports, labels, answers)
    with pytest.raises(InvalidInput, match="pass labels"):
        pair_sums(release, reports, None, 2)


def test_labels_of_numpy_are_recognised(collected):
    release, _, reports, _ = collected["public classes"]
    assert pair_sums(release, reports, list(LABELS)).labels == Classes(2)
    with pytest.raises(InvalidInput, match="names or indices"):
        pair_sums(release, reports, LABELS > 0)


def test_a_label_alone_is_an_error(collected):
    release, _, reports, _ = collected["public classes"]
    with pytest.raises(InvalidInput):
        pair_sums(release, reports, 1)


@pytest.mark.parametrize("asked", [Classes(2, optional=True), Number(-1, 1, optional=True)])
def test_a_missing_public_label_is_left_out_or_refused(collected, asked):
    release, _, reports, _ = collected["public classes"]
    labels = [None, *LABELS[1:].tolist()]
    try:
        with np.errstate(all="ignore"):
            sums = pair_sums(release, reports, labels, asked)
    except InvalidInput:
        return
    expected = pair_sums(release, reports[1:], labels[1:], asked)
    np.testing.assert_allclose(sums.totals.sum(axis=0), expected.totals.sum(axis=0))
