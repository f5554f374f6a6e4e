"""Releases of pairs in the JavaScript client: the same rows, encodings, bytes and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from offaxis.decoding.pairs import CellsDecoder, MomentsDecoder, RightDecoder
from offaxis.encoding import Classes, Number
from offaxis.encoding.pairs import NO_ANSWER, Asked, PairEncoder, pair_encoder, table_of
from offaxis.errors import InvalidInput, InvalidRelease
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.geometry.layers import ACTIVATIONS
from offaxis.randomizers import KaryResponse, PrivUnit2, SubsetSelection, parameters
from offaxis.release import Release
from tests.browser.releases import KINDS
from tests.fuzz import forgery, mutation, seeds
from tests.tape import Tape
from tests.vectors.make import FOLDER, PAIRS

FORMS = ("moments", "cells", "right")


# ---- Random releases


def random_asked(form: str, rng: Random) -> tuple[Asked, ...]:
    def one(i: int, number: bool, optional: bool) -> Asked:
        name = f"question {i}"
        if number:
            low = rng.uniform(-1, 1) * 10.0 ** rng.randrange(-3, 20)
            return Number(low, low + 10.0 ** rng.uniform(-1, 1) * abs(low), name, optional)
        return Classes(rng.randrange(2, 6), name, optional)

    if form == "right":
        return (one(0, rng.random() < 0.5, False),)
    count = rng.randrange(4)
    return tuple(
        one(i, form == "moments" and rng.random() < 0.4, rng.random() < 0.4) for i in range(count)
    )


def release_of(encoder: PairEncoder, asked: tuple[Asked, ...]) -> Release:
    """Return a release of an encoder, with a randomizer and public facts that fit."""
    d, inner = encoder.features, encoder.output_dim
    randomizer: Any
    decoder: Any
    if encoder.form == "moments":
        randomizer = PrivUnit2(inner, 1.0, Fraction(2), directions=20, near=3, target="vector")
        decoder = MomentsDecoder(np.eye(d) / d, np.zeros(d), np.array([inner / d]))
    elif encoder.form == "cells":
        randomizer = SubsetSelection(inner, Fraction(1))
        decoder = CellsDecoder(np.full(d, 1 / d), np.array([inner / d]))
    else:
        randomizer = KaryResponse(2, Fraction(1))
        decoder = RightDecoder(np.array([2.0]))
    return Release(encoder, randomizer, decoder, seeds.releases()[0].provenance, asked=asked)


def random_release(form: str, seed: int) -> Release:
    rng, entries = Random(seed), np.random.default_rng(seed)
    asked = random_asked(form, rng)
    outputs = rng.randrange(2, 7)
    if form == "right":
        outputs = len(asked[0].names) if isinstance(asked[0], Classes) else 2
    depth = rng.randrange(1, 5)
    sizes = [rng.randrange(1, 8) for _ in range(depth)] + [outputs]
    names = [rng.choice(list(ACTIVATIONS)) for _ in range(max(1, depth - 1))]
    activation = names[0] if len(set(names)) == 1 else "+".join(names)
    encoder = pair_encoder(form, activation)(
        [entries.standard_normal((b, a)) for a, b in pairwise(sizes)],
        [entries.standard_normal(b) for b in sizes[1:]],
        table_of(asked),
    )
    return release_of(encoder, asked)


def random_rows(release: Release, seed: int, count: int = 40) -> np.ndarray:
    """Return rows whose answers are valid, missing, between two classes, or out of range."""
    rng, encoder = np.random.default_rng(seed), release.encoder
    assert isinstance(encoder, PairEncoder)
    size = 10.0 ** rng.choice([-300, -2, 0, 0, 0, 1, 3, 300], (count, 1))
    columns = [size * rng.standard_normal((count, encoder.vector_dim))]
    for part in release.asked:
        odd = [NO_ANSWER, -NO_ANSWER, 9e28, 1e29, 1e308, -0.5, -0.49, 0.5, 5e-324, -0.0]
        if isinstance(part, Classes):
            usual = list(range(len(part.names)))
            odd += [len(part.names) - 0.5, len(part.names) - 0.51, len(part.names)]
        else:
            usual = np.linspace(part.low, part.high, 7).tolist()
            odd += [part.low - 1, part.high * 2]
        columns.append(rng.choice([*usual * 3, *odd], (count, 1)))
    return np.hstack(columns)


@pytest.mark.parametrize("form", FORMS)
def test_encodings_are_the_same(client, form):
    """Of 80 random networks with random answers and rows."""
    seen = set()
    for seed in range(80):
        release = random_release(form, seed)
        encoder: Any = release.encoder
        rows = random_rows(release, seed)
        encoded = np.array(
            client.run("encode", file=to_bytes(release), kind=encoder.kind, vectors=rows.tolist())
        )
        with np.errstate(all="ignore"):
            expected = encoder.encode(rows)
            features, _ = encoder.split(rows)
        if form != "moments":
            assert (encoded == expected).all(), (seed, encoder.kind)
            seen |= set(expected.tolist())
            continue
        scale = np.abs(features).max(axis=1, keepdims=True)
        assert (np.abs(encoded - expected) <= 1e-12 * scale).all(), (seed, encoder.kind)
        randomizer = release.randomizer
        assert isinstance(randomizer, PrivUnit2)
        points = client.run(
            "integers",
            kind="privunit2",
            parameters=parameters(randomizer),
            vectors=encoded.tolist(),
        )
        gaps = np.abs(np.array(points) - randomizer.integers(expected))
        assert gaps.max() <= 1, (seed, encoder.kind)
        assert gaps.mean() < 0.001
    assert form == "moments" or len(seen) > 1


@pytest.mark.parametrize("form", FORMS)
def test_reports_from_tapes_are_the_same(client, monkeypatch, form):
    """Through the public functions of both, from a vector with its answers to the bytes."""
    monkeypatch.setattr("offaxis.randomizers.base.require_entropy", lambda entropy: None)
    for seed in range(25):
        release, rng = random_release(form, 1000 + seed), Random(seed)
        dim = release.input_dim - len(release.asked)
        vectors = np.random.default_rng(seed).standard_normal((6, dim))
        answers = [given(release.asked, rng) for _ in vectors]
        tapes = [rng.randbytes(4096) for _ in vectors]
        pairs = [
            [vector.tolist(), answer, tape.hex()]
            for vector, answer, tape in zip(vectors, answers, tapes, strict=True)
        ]
        made = client.run("taped", file=to_bytes(release), pairs=pairs)
        for i, (one, content) in enumerate(zip(made, tapes, strict=True)):
            tape = Tape(content)
            monkeypatch.setattr("offaxis.release.Entropy", lambda tape=tape: tape)
            row = release.pairs(vectors[i : i + 1], columns_of(release.asked, answers[i]))
            assert release.privatize(row)[0].hex() == one["report"], (seed, i)
            assert tape.used == one["used"]


def given(asked: tuple[Asked, ...], rng: Random) -> Any:
    """Return a person's answers as the JavaScript client takes them."""

    def one(part: Asked) -> Any:
        if part.optional and rng.random() < 0.4:
            return None
        if isinstance(part, Classes):
            index = rng.randrange(len(part.names))
            return rng.choice([index, part.names[index]])
        return part.low + rng.uniform(-0.5, 1.5) * (part.high - part.low)

    if not asked:
        return None
    if len(asked) == 1 and rng.random() < 0.5:
        return one(asked[0])
    return {part.name: one(part) for part in asked}


def columns_of(asked: tuple[Asked, ...], answers: Any) -> Any:
    """Return one person's answers as Python takes those of several people."""
    if not asked:
        return answers
    if isinstance(answers, dict):
        return {name: [answer] for name, answer in answers.items()}
    return [answers]


# ---- Answers

COLOUR = Classes(["red", "green", "blue"], name="colour")
LABELS = Classes(["3", "1", "2"], name="label", optional=True)
PRIME = Classes(["__proto__", "constructor"], name="__proto__")
AGE = Number(0, 100, name="age")
SCORE = Number(-1.5, 2.5, name="score", optional=True)

SECRET = "a secret that no message may contain"
TRIED: tuple[Any, ...] = (
    *("red", "blue", "Red", "", "3", "1", " 1", "__proto__", "constructor", "toString"),
    *(0, 1, 2, 3, -1, 2.5, 0.5, 99.5, 100, 101, -7, 1e300, -1e300, 5e-324, 987654321.125),
    *(None, True, False, [], ["red"], [0], {}, SECRET, {SECRET: 0}, {"colour": SECRET}),
    *({"colour": "red"}, {"colour": None}, {"colour": 2}, {"age": 50}, {"age": "50"}, {"score": 1}),
    *({"colour": "red", "age": 50}, {"age": 50, "colour": "red"}, {"colour": "red", "age": None}),
    *({"colour": "red", "score": None}, {"colour": "red", "score": 9.0}, {"colour": 0, "age": []}),
    *({"colour": "red", "age": 50, "more": 1}, {"colour": ["red"], "score": 1}),
    *({"__proto__": "constructor"}, {"__proto__": 0}, {"constructor": 0}),
)


@pytest.mark.parametrize(
    "asked",
    [(), (COLOUR,), (LABELS,), (PRIME,), (AGE,), (SCORE,), (COLOUR, AGE), (COLOUR, SCORE)],
    ids=str,
)
def test_the_same_answers_are_accepted_and_give_the_same_rows(client, asked):
    encoder = pair_encoder("moments", "relu")([np.eye(3)], [np.zeros(3)], table_of(asked))
    release, vector = release_of(encoder, asked), [0.25, -1.0, 3e300]
    outcomes = client.run("pair", file=to_bytes(release), pairs=[[vector, a] for a in TRIED])
    accepted = 0
    for answers, outcome in zip(TRIED, outcomes, strict=True):
        try:
            (row,) = release.pairs(np.array([vector]), columns_of(asked, answers)).tolist()
        except InvalidInput:
            assert outcome.get("error") == "InvalidInput", (answers, outcome)
            assert SECRET not in outcome["message"]
            assert "987654321" not in outcome["message"]
            continue
        accepted += 1
        assert outcome == {"ok": row}, answers
    assert accepted >= 1


def test_vectors_of_pairs_are_checked(client):
    encoder = pair_encoder("moments", "relu")([np.eye(3)], [np.zeros(3)], table_of((AGE,)))
    release = release_of(encoder, (AGE,))
    wrong = ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [1.0, None, 3.0], [1.0, SECRET, 3.0], None, SECRET)
    outcomes = client.run("pair", file=to_bytes(release), pairs=[[v, 50] for v in wrong])
    assert [outcome.get("error") for outcome in outcomes] == ["InvalidInput"] * len(wrong)
    assert not any(SECRET in outcome["message"] for outcome in outcomes)


# ---- Files


def test_releases_of_pairs_are_loaded(client):
    names = list(PAIRS)
    blobs = [(FOLDER / f"{name}.release").read_bytes() for name in names]
    for name, blob, outcome in zip(names, blobs, client.run("load", files=blobs), strict=True):
        release, facts = from_bytes(blob), outcome["ok"]
        assert facts["hash"] == release.hash
        assert facts["inputDim"] == release.input_dim
        assert facts["reportSize"] == release.report_size
        assert [part["name"] for part in facts["asked"]] == [p.name for p in release.asked], name
        # A zero vector without answers: an encoder of pairs is total.
        answers = len(release.asked)
        blank = [0.0] * (release.input_dim - answers) + [NO_ANSWER] * answers
        assert facts["publicMean"] == blank


MIXED = (FOLDER / "pairs-mixed.release").read_bytes()
"""Asks for an optional class, a number and a class, in this order."""


def set_asked(index: int | None, **changes: Any) -> Callable[[forgery.Draft], None]:
    """Change a part of what is asked, or all of it."""

    def change(draft: forgery.Draft) -> None:
        if index is None:
            draft.manifest["asked"] = changes["to"]
        else:
            draft.manifest["asked"][index].update(changes)

    return change


def drop(field: str, index: int) -> Callable[[forgery.Draft], None]:
    return lambda draft: draft.manifest["asked"][index].pop(field)


def set_table(*rows: tuple[float, ...]) -> Callable[[forgery.Draft], None]:
    """Replace the tensor of what the encoder reads."""

    def change(draft: forgery.Draft) -> None:
        tensors = forgery.contents(draft)
        shape = [len(rows), len(rows[0])]
        tensors["encoder.asked"] = (shape, np.array(rows, dtype="<f8").tobytes())
        forgery.fill(draft, tensors)

    return change


def set_tensor(name: str, shape: list[int], *numbers: float) -> Callable[[forgery.Draft], None]:
    def change(draft: forgery.Draft) -> None:
        tensors = forgery.contents(draft)
        tensors[name] = (shape, np.array(numbers, dtype="<f8").tobytes())
        forgery.fill(draft, tensors)

    return change


def part_of(draft: forgery.Draft, name: str) -> dict:
    part: dict = draft.manifest[name]
    return part


AS_IS = ((2.0, 0.0, 0.0, 1.0), (0.0, 0.0, 100.0, 0.0), (4.0, 0.0, 0.0, 0.0))
NUMBER = {"kind": "number", "name": "x", "low": 0.0, "high": 1.0, "optional": False}

STRANGE: dict[str, Callable[[forgery.Draft], Any]] = {
    "nothing": lambda draft: draft.manifest.pop("asked"),
    "null": set_asked(None, to=None),
    "an empty list": set_asked(None, to=[]),
    "an object": set_asked(None, to=NUMBER),
    "a text": set_asked(None, to="number"),
    "other questions": set_asked(None, to=[NUMBER]),
    "one too many": lambda draft: draft.manifest["asked"].append(NUMBER),
    "one too few": lambda draft: draft.manifest["asked"].pop(),
    "another order": lambda draft: draft.manifest["asked"].reverse(),
    "an unknown kind": set_asked(0, kind="text"),
    "a number of classes": set_asked(0, kind="number"),
    "no kind": drop("kind", 0),
    "no name": drop("name", 1),
    "no names": drop("names", 0),
    "no end": drop("high", 1),
    "no optional": drop("optional", 2),
    "a further field": set_asked(1, unit="years"),
    "names of a number": set_asked(1, names=["a", "b"]),
    "an empty name": set_asked(0, name=""),
    "a long name": set_asked(0, name="x" * 201),
    "a name that is a number": set_asked(0, name=7),
    "a lone surrogate": set_asked(0, name="\ud800"),
    "one class": set_asked(0, names=["no"]),
    "no class": set_asked(0, names=[]),
    "equal classes": set_asked(0, names=["no", "no"]),
    "an empty class": set_asked(0, names=["no", ""]),
    "a class that is a number": set_asked(0, names=["no", 1]),
    "classes as text": set_asked(0, names="no"),
    "other classes": set_asked(0, names=["no", "yes", "perhaps"]),
    "an optional number": set_asked(0, optional=1),
    "optional as text": set_asked(0, optional="true"),
    "optional null": set_asked(0, optional=None),
    "another optional": set_asked(0, optional=False),
    "an integer range": set_asked(1, low=0, high=100),
    "an empty range": set_asked(1, low=100.0),
    "a reversed range": set_asked(1, low=100.0, high=0.0),
    "another range": set_asked(1, high=100.5),
    "a huge range": set_asked(1, high=1.1e20),
    "a range as text": set_asked(1, high="100"),
    "a range without an end": set_asked(1, high=None),
    "questions twice": set_asked(0, name="age"),
    "no rows": lambda draft: set_table((1.0, 0.0, 0.0, 0.0))(draft),
    "three columns": set_table(*(row[:3] for row in AS_IS)),
    "five columns": set_table(*((*row, 0.0) for row in AS_IS)),
    "half a class": set_table((2.5, 0.0, 0.0, 1.0), *AS_IS[1:]),
    "a negative class": set_table((-2.0, 0.0, 0.0, 1.0), *AS_IS[1:]),
    "a class with a range": set_table((2.0, 0.0, 1.0, 1.0), *AS_IS[1:]),
    "too many classes": set_table((1025.0, 0.0, 0.0, 1.0), *AS_IS[1:]),
    "half optional": set_table((2.0, 0.0, 0.0, 0.5), *AS_IS[1:]),
    "nothing among others": set_table((1.0, 0.0, 0.0, 0.0), *AS_IS[1:]),
    "a table without a range": set_table(AS_IS[0], (0.0, 1.0, 1.0, 0.0), AS_IS[2]),
    "a table with a huge range": set_table(AS_IS[0], (0.0, 0.0, 1e30, 0.0), AS_IS[2]),
    "a table that is a vector": set_tensor("encoder.asked", [4], 2, 0, 0, 1),
    "a table without rows": set_tensor("encoder.asked", [0, 4]),
    "a table that is not finite": set_table((2.0, 0.0, 0.0, np.nan), *AS_IS[1:]),
    "an asymmetric matrix": set_tensor("decoder.second", [3, 3], 0.1, 0.2, 0, 0, 0, 0, 0, 0, 0),
    "a negative moment": set_tensor("decoder.second", [3, 3], -0.1, *[0.0] * 8),
    "moments beyond one": set_tensor("decoder.second", [3, 3], 1.01, *[0.0] * 8),
    "moments of others": set_tensor("decoder.second", [2, 2], 0.1, 0, 0, 0),
    "half a width": set_tensor("decoder.width", [1], 5.5),
    "two widths": set_tensor("decoder.width", [2], 5, 5),
    "no width": set_tensor("decoder.width", [1], 0),
    "another width": set_tensor("decoder.width", [1], 4),
    "another form": lambda draft: part_of(draft, "encoder").update(kind="network-normalise-cells"),
    "an unknown form": lambda draft: part_of(draft, "encoder").update(kind="network-relu-other"),
    "no form": lambda draft: part_of(draft, "encoder").update(kind="network-normalise"),
    "an empty form": lambda draft: part_of(draft, "encoder").update(kind="network-normalise-"),
    "equal activations": lambda draft: part_of(draft, "encoder").update(
        kind="network-normalise+normalise-moments"
    ),
    "another decoder": lambda draft: part_of(draft, "decoder").update(kind="pair-cells"),
    "another decoded dimension": lambda draft: part_of(draft, "decoder").update(output_dim=3),
    "the dimension of a vector": lambda draft: part_of(draft, "encoder").update(input_dim=3),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_files_are_rejected(client, name):
    draft = forgery.take_apart(MIXED)
    same = forgery.put_together(draft)
    STRANGE[name](draft)
    strange = forgery.put_together(draft)
    with pytest.raises(InvalidRelease):
        from_bytes(strange)
    good, bad = client.run("load", files=[same, strange])
    assert good["ok"]["hash"] == from_bytes(same).hash
    assert bad.get("error") in ("InvalidRelease", "Unsupported"), bad


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("pairs-cells", set_tensor("decoder.shares", [3], 0.5, 0.25, 0.2)),
        ("pairs-cells", set_tensor("decoder.shares", [3], 1.0, 0.5, -0.5)),
        ("pairs-cells", set_tensor("decoder.shares", [2], 0.5, 0.5)),
        ("pairs-cells", set_tensor("decoder.values", [1], 4)),
        ("pairs-cells", set_tensor("decoder.values", [1], 1 << 17)),
        ("pairs-cells", set_asked(None, to=[NUMBER])),
        ("pairs-right", set_tensor("decoder.symbols", [1], 3)),
        ("pairs-right", set_tensor("decoder.symbols", [2], 2, 2)),
        ("pairs-right", set_asked(0, optional=True)),
        ("pairs-right", set_asked(0, names=["red", "green"])),
        ("pairs-range", set_asked(0, high=1.0)),
        ("pairs-nothing", set_asked(None, to=[NUMBER])),
        ("pairs-nothing", set_asked(None, to=[])),
        ("class-response", set_asked(None, to=[NUMBER])),
        ("laplace", set_asked(None, to=[NUMBER])),
    ],
)
def test_strange_files_of_other_kinds_are_rejected(client, file, change):
    draft = forgery.take_apart((FOLDER / f"{file}.release").read_bytes())
    change(draft)
    strange = forgery.put_together(draft)
    with pytest.raises(InvalidRelease):
        from_bytes(strange)
    (outcome,) = client.run("load", files=[strange])
    assert outcome.get("error") == "InvalidRelease", outcome


def test_encoders_that_do_not_fit_what_they_ask_are_rejected(client):
    """A table and a manifest that agree, with an encoder that cannot read them."""
    number = [(0.0, 0.0, 1.0, 0.0)]
    cases = {
        "cells of a number": ("pairs-cells", number, [NUMBER]),
        "right about an optional answer": (
            *("pairs-right", [(3.0, 0.0, 0.0, 1.0)]),
            [{"kind": "classes", "name": "c", "names": ["a", "b", "c"], "optional": True}],
        ),
        "right about another number of classes": (
            *("pairs-right", [(2.0, 0.0, 0.0, 0.0)]),
            [{"kind": "classes", "name": "c", "names": ["a", "b"], "optional": False}],
        ),
        "right about nothing": ("pairs-right", [(1.0, 0.0, 0.0, 0.0)], None),
        "right about two answers": (
            *("pairs-range", number * 2),
            [NUMBER, {**NUMBER, "name": "y"}],
        ),
    }
    for name, (file, table, asked) in cases.items():
        draft = forgery.take_apart((FOLDER / f"{file}.release").read_bytes())
        set_table(*table)(draft)
        del draft.manifest["asked"]
        if asked:
            draft.manifest["asked"] = asked
        draft.manifest["encoder"]["input_dim"] = 3 + len(asked or [])
        strange = forgery.put_together(draft)
        with pytest.raises(InvalidRelease):
            from_bytes(strange)
        (outcome,) = client.run("load", files=[strange])
        assert outcome.get("error") == "InvalidRelease", (name, outcome)


def test_the_same_mutants_are_rejected(client):
    rng = Random(77)
    originals = [(FOLDER / f"{name}.release").read_bytes() for name in PAIRS]
    blobs = []
    for _ in range(1000):
        blob = rng.choice(originals)
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
            assert "ok" not in outcome, json.dumps(outcome)
            continue
        if release.randomizer.kind in KINDS:
            assert outcome.get("ok", {}).get("hash") == release.hash, outcome
            accepted += 1
    assert 50 < accepted < 950


# ---- Reports


@pytest.mark.parametrize("name", PAIRS)
def test_both_read_the_reports_of_each_other(client, name):
    release = Release.load(FOLDER / f"{name}.release")
    rows = random_rows(release, 5, count=6)
    file = to_bytes(release)
    made = client.run("privatize", file=file, vectors=rows.tolist())
    reports = [bytes.fromhex(report) for report in made] + release.privatize(rows)
    texts = [report.hex() for report in reports]
    observed = [outcome["ok"] for outcome in client.run("observe", file=file, reports=texts)]
    assert np.allclose(observed, release.observe(reports), rtol=1e-9, atol=1e-12)
    outcomes = client.run("decode", file=file, reports=texts)
    assert {outcome["error"] for outcome in outcomes} == {"BiasedDecoder"}
    assert "decodes to no vector" in outcomes[0]["message"]
