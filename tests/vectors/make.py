"""Record the test vectors again: ``python -m tests.vectors.make``.

They let another implementation check itself byte by byte against docs/report-format.md. Random bits
come from a tape (SHAKE-128 of a name), which a real report can never use: the check that rejects it
is disabled here and in tests only.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import offaxis
from offaxis import mechanisms
from offaxis.auditing.inputs import make_reports
from offaxis.decoding.pairs import CellsDecoder, MomentsDecoder, RightDecoder
from offaxis.decoding.second_moments import SecondMomentsDecoder
from offaxis.encoding import Classes, Number, SecondMomentsEncoder
from offaxis.encoding.pairs import Asked, pair_encoder, table_of
from offaxis.geometry import Layers
from offaxis.geometry.public import PublicIdentity
from offaxis.learning import fit_answers
from offaxis.provenance import Provenance
from offaxis.randomizers import (
    NAMES,
    KaryResponse,
    LocalHashing,
    MemoisedPrivUnit2,
    MemoisedResponse,
    PrivUnit2,
    SubsetSelection,
    base,
    make,
    privunit,
)
from offaxis.randomizers.directions import TABLE_SHA256, expand, table
from offaxis.randomizers.laplace import pack
from offaxis.release import Release
from offaxis.sampling.choices import Response, below, choose_subsets
from offaxis.sampling.gaussian import RoundedGaussian
from offaxis.sampling.laplace import DiscreteLaplace
from offaxis.sampling.probability import Probability
from offaxis.sampling.spherical import RoundedSpherical
from tests.checks import delta_for, task_for
from tests.tape import Tape

FOLDER = Path(__file__).parent
INPUTS = [
    [0.0, 0.0, 0.0],
    [0.25, -0.5, 0.125],
    [3.0, 4.0, -12.0],
    [1e300, -1e300, 1e-300],
    [5e-324, 0.0, -0.0],
]


def samplers() -> dict:
    """The values that each sampler draws from a tape, and the number of bytes it uses."""

    def run(name, draw):
        tape = Tape.named(name, 1 << 16)
        values = draw(tape)
        return {"tape": name, "values": np.asarray(values).astype(int).tolist(), "bytes": tape.used}

    third, epsilon = Fraction(1, 3), Fraction(3, 2)
    return {
        "discrete_laplace": [
            run(f"laplace {b}", lambda t, b=b: DiscreteLaplace(b, 24 if b < 20 else 32).draw(20, t))
            | {"log2_scale": b}
            for b in (0, 3, 17, 25)
        ],
        "rounded_gaussian": [
            run(f"gaussian {b}", lambda t, b=b: RoundedGaussian(b).draw(20, t)) | {"log2_scale": b}
            for b in (0, 3, 9, 17, 20)
        ],
        "uniform": [
            run(f"uniform {n}", lambda t, n=n: below(n, 20, t)) | {"limit": n}
            for n in (1, 10, 3 << 30)
        ],
        "bernoulli": [run("coin", lambda t: Probability.of(third).draw(20, t)) | {"p": str(third)}],
        "rounded_spherical": [
            run(f"spherical {m}", lambda t, m=m: RoundedSpherical(m, 10).draw(5, t))
            | {"dim": m, "log2_scale": 10}
            for m in (1, 3)
        ],
        "subsets": [
            run("subsets", lambda t: choose_subsets(12, 4, 5, t)[0]) | {"columns": 12, "chosen": 4}
        ],
        "response": [
            run("response", lambda t: np.array(Response(12, 2, epsilon).draw(20, t)).T)
            | {"size": 12, "near": 2, "epsilon": str(epsilon)}
        ],
    }


def directions() -> dict:
    """The hash of the table, some of its entries, and some vectors."""
    nonce = bytes(range(12))
    key = np.frombuffer(nonce, dtype=np.uint8)[None]
    entries = [0, 1, 255, 23570, 32767, 32768, 65535]
    return {
        "table_sha256": TABLE_SHA256,
        "table": {str(k): int(table()[k]) for k in entries},
        "nonce": nonce.hex(),
        "vectors": [
            {
                "dim": dim,
                "pair": pair,
                "vector": expand(key, np.array([[pair]]), dim)[0, 0].astype(int).tolist(),
            }
            for dim in (1, 8, 11)
            for pair in (0, 1, 1000)
        ],
    }


def randomizer(name: str):
    """A small randomizer of each kind."""
    delta = Fraction(1, 10**5) if name == "gaussian" else None
    return make(name, dim=3, radius=2.0, epsilon=Fraction(3), delta=delta)


def payloads(name: str) -> dict:
    """Inputs, their integers, and their payloads under a tape."""
    built = randomizer(name)
    inputs = np.array(INPUTS)
    tape = Tape.named(f"payload {name}", 1 << 16)
    with mock.patch.object(base, "require_entropy"):
        made = built.report(inputs, tape)
    record = {
        "parameters": offaxis.randomizers.parameters(built),
        "inputs": [[x.hex() for x in row] for row in INPUTS],
        "integers": built.integers(inputs).tolist(),
        "tape": f"payload {name}",
        "payloads": [p.hex() for p in made],
        "observations": built.read(made).tolist(),
    }
    if isinstance(built, privunit.RankForm):
        nonces = np.frombuffer(b"".join(p[:12] for p in made), dtype=np.uint8).reshape(-1, 12)
        record["near"] = built.nearest(inputs, nonces).tolist()
        record["mean"] = built.mean
        if built.target == "vector":
            assert isinstance(built.domain, base.Ball)
            record["lengths"] = privunit.lengths(inputs, built.domain).tolist()
    return record


SYMBOLS = [0, 1, 5, 11, 11]
SYMBOL_RANDOMIZERS: dict[str, KaryResponse | SubsetSelection | LocalHashing] = {
    "response": KaryResponse(12, Fraction(3)),
    "subset": SubsetSelection(12, Fraction(1)),
    "hashing": LocalHashing(12, Fraction(1)),
}


def symbol_payloads(name: str) -> dict:
    """Symbols and their payloads under a tape."""
    built = SYMBOL_RANDOMIZERS[name]
    tape: Any = Tape.named(f"payload {name}", 1 << 16)
    with mock.patch.object(base, "require_entropy"):
        made = built.report(np.array(SYMBOLS), tape)
    return {
        "parameters": offaxis.randomizers.parameters(built),
        "inputs": SYMBOLS,
        "tape": f"payload {name}",
        "payloads": [p.hex() for p in made],
        "observations": built.read(made).tolist(),
    }


AGES = [0, 1, 89, 300, 65535, 70000]
SEQUENCE_RANDOMIZERS: dict[str, MemoisedResponse | MemoisedPrivUnit2] = {
    "memoised-response": MemoisedResponse(12, Fraction(3), Fraction(2), 4, 90),
    "memoised-privunit2": MemoisedPrivUnit2(3, 2.0, Fraction(3), Fraction(2), 4, 90),
    "memoised-privunit2-mean": MemoisedPrivUnit2(
        3, 2.0, Fraction(3), Fraction(2), 0, 7, target="vector"
    ),
}


def sequence(name: str) -> dict:
    """Permanent answers, and what they show at several ages, all from one tape."""
    built = SEQUENCE_RANDOMIZERS[name]
    of_symbols = isinstance(built, MemoisedResponse)
    tape: Any = Tape.named(f"sequence {name}", 1 << 16)
    with mock.patch.object(base, "require_entropy"):
        held = built.hold(np.array(SYMBOLS if of_symbols else INPUTS), tape)
        shown = [built.show(held, [age] * len(held), tape) for age in AGES]
    record = {
        "parameters": offaxis.randomizers.parameters(built),
        "guarantee": str(built.guarantee.epsilon),
        "inputs": SYMBOLS if of_symbols else [[x.hex() for x in row] for row in INPUTS],
        "tape": f"sequence {name}",
        "held": [p.hex() for p in held],
        "shown": [
            {
                "age": age,
                "payloads": [p.hex() for p in payloads],
                "observations": built.read(payloads).tolist(),
            }
            for age, payloads in zip(AGES, shown, strict=True)
        ],
        "bytes": tape.used,
    }
    return record | ({"mean": built.mean} if isinstance(built, MemoisedPrivUnit2) else {})


def sequence_release(name: str) -> offaxis.Release:
    """A release of sequences, made from a recorded one of single reports."""
    single, draws, period = {
        "memoised-classes": ("class-response", 3, 10),
        "memoised-means": ("privunit2-mean", 3, 10),
        "memoised-directions": ("privunit2", 0, 30),
    }[name]
    recorded = offaxis.load(FOLDER / f"{single}.release")
    return offaxis.memoise(recorded, draws=draws, period=period, instant=2)


SEQUENCE_RELEASES = ("memoised-classes", "memoised-means", "memoised-directions")


def release(name: str) -> offaxis.Release:
    """A small release of each kind, fitted on fixed numbers."""
    k = np.arange(1, 61, dtype=float).reshape(20, 3)
    public = np.sin(k) + np.array([0.5, -0.25, 0.0])
    weights = np.array([[1.0, -0.5, 0.25], [0.0, 0.75, -1.0]])
    task = task_for(name, Layers.linear(weights))
    if name == "class-response":  # both classes must occur
        task = Layers.linear(weights, -np.median(public @ weights.T, axis=0))
    return offaxis.fit(task, public, epsilon=4, mechanism=name, delta=delta_for(name))


PAIR_INPUTS = [*INPUTS[:4], [-1.5, 2.0, 0.75]]
COLOUR = Classes(["red", "green", "blue"], name="colour")
SMOKER = Classes(["no", "yes"], name="smoker", optional=True)
AGE, SCORE = Number(0, 100, name="age"), Number(-1.5, 2.5, name="score", optional=True)
REGION = Classes(["2", "1", "0", "7"], name="region")  # names that an index could be taken for

PAIRS: dict[str, tuple[str, str, tuple[int, ...], tuple[Asked, ...], list[Any]]] = {
    "pairs-moments": (
        *("moments", "relu+normalise", (3, 5, 4, 2), (COLOUR,)),
        ["red", "blue", 1, 2, "green"],
    ),
    "pairs-mixed": (
        *("moments", "normalise", (3, 5, 3), (SMOKER, AGE, REGION)),
        [
            {"smoker": "yes", "age": 41.5, "region": "7"},
            {"smoker": None, "age": 0, "region": "0"},
            {"smoker": 0, "age": 1000, "region": "1"},
            {"smoker": "no", "age": -3, "region": "2"},
            {"smoker": 1, "age": 99.999, "region": "7"},
        ],
    ),
    "pairs-number": ("moments", "tanh", (3, 4, 3), (SCORE,), [0.25, None, -1.5, 7.5, 1.0]),
    "pairs-nothing": ("moments", "silu", (3, 4, 3), (), [None] * 5),
    "pairs-cells": ("cells", "relu", (3, 4, 3), (COLOUR,), ["red", "blue", "green", 2, 0]),
    "pairs-optional": (
        *("cells", "elu+relu", (3, 5, 4, 3), (REGION, SMOKER)),
        [
            {"region": "2", "smoker": "yes"},
            {"region": "1", "smoker": None},
            {"region": "7", "smoker": 0},
            {"region": "0", "smoker": None},
            {"region": "0", "smoker": 1},
        ],
    ),
    "pairs-right": ("right", "gelu", (3, 4, 3), (COLOUR,), ["red", 1, "blue", "green", 0]),
    "pairs-range": ("right", "identity", (3, 2), (AGE,), [0.5, 101, 0, 1e300, 40]),
}
"""Per name: form, activations, sizes of the layers, what is asked, and the answers to it."""


def network(sizes: tuple[int, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return weights and biases whose entries are fractions of 64: the same on every machine."""

    def entries(count: int, start: int) -> np.ndarray:
        k = np.arange(start, start + count)
        return ((37 * k * k + 11 * k) % 101 - 50) / 64

    steps = list(enumerate(pairwise(sizes)))
    weights = [entries(b * a, 7 * i).reshape(b, a) for i, (a, b) in steps]
    return weights, [entries(b, 50 + i) for i, (_, b) in steps]


def pair_release(name: str) -> Release:
    """A small release of pairs, from numbers that every machine computes alike."""
    form, activations, sizes, asked, _ = PAIRS[name]
    encoder: Any = pair_encoder(form, activations)(*network(sizes), table_of(asked))
    d, inner = encoder.features, encoder.output_dim
    randomizer: Any
    decoder: Any
    if form == "moments":
        randomizer = PrivUnit2(inner, 1.0, Fraction(3), target="vector")
        decoder = MomentsDecoder(np.eye(d) / (2 * d), np.full(d, 1 / 16), np.array([inner / d]))
    elif form == "cells":
        subsets = name == "pairs-cells"
        randomizer = (SubsetSelection if subsets else KaryResponse)(inner, Fraction(3, 2))
        decoder = CellsDecoder(np.array([0.5, 0.375, 0.125]), np.array([inner / d]))
    else:
        randomizer = KaryResponse(2, Fraction(1))
        decoder = RightDecoder(np.array([2.0]))
    vectors = np.array(PAIR_INPUTS, dtype="<f8")
    sha256 = hashlib.sha256(vectors.tobytes()).hexdigest()
    provenance = Provenance(None, PublicIdentity(len(vectors), 3, sha256))
    return Release(encoder, randomizer, decoder, provenance, asked=asked)


def pairs(name: str) -> dict:
    """Vectors and answers, their rows and encodings, and reports made one by one from a tape."""
    return rows_and_reports(name, pair_release(name), PAIRS[name][4])


def second_moments_release() -> Release:
    """A small release of second moments, from numbers that every machine computes alike."""
    (matrix,), (centre,) = network((3, 2))[0], network((2, 3))[1]
    sizes = np.array([1.5, 1.125, 0.625])
    encoder = SecondMomentsEncoder(matrix, centre, sizes)
    randomizer = PrivUnit2(5, 2.0, Fraction(3), target="vector")
    decoder = SecondMomentsDecoder(matrix.T, centre, np.array([0.125, -0.25]), np.eye(2) / 2)
    vectors = np.array(PAIR_INPUTS, dtype="<f8")
    sha256 = hashlib.sha256(vectors.tobytes()).hexdigest()
    provenance = Provenance(None, PublicIdentity(len(vectors), 3, sha256))
    return Release(encoder, randomizer, decoder, provenance)


def second_moments() -> dict:
    """Vectors, their encodings, and reports made one by one from a tape."""
    return rows_and_reports("second-moments", second_moments_release(), [None] * len(PAIR_INPUTS))


BINNED = Number(-1.5, 2.5, name="score", optional=True, bins=7)
AGE_BINS = Number(0, 100, name="age", bins=20)
MANY = Classes([f"name \u00e9{i}" for i in range(513)], name="many")

ANSWERS: dict[str, tuple[tuple[Asked, ...], str, list[Any]]] = {
    "answers-classes": ((SMOKER,), "response", ["yes", None, 0, "no", 1]),
    "answers-number": ((AGE_BINS,), "subset", [0, 100, 41.5, -7, 1e300]),
    "answers-joint": (
        (REGION, BINNED),
        "hashing",
        [
            {"region": "2", "score": 2.5},
            {"region": "1", "score": None},
            {"region": "7", "score": -1.5},
            {"region": "0", "score": 0.1},
        ],
    ),
    "answers-many": ((MANY,), "hashing", ["name \u00e9512", 0]),
}
"""Per name: what is asked, the mechanism, and the answers to it."""


def answers_release(name: str) -> Release:
    """A small release of answers alone."""
    asked, mechanism, _ = ANSWERS[name]
    return fit_answers(list(asked), epsilon=Fraction(3, 2), mechanism=mechanism)


def answers(name: str) -> dict:
    """Answers, their rows and symbols, and reports made one by one from a tape."""
    given = ANSWERS[name][2]
    return rows_and_reports(name, answers_release(name), given, [[] for _ in given])


def rows_and_reports(
    name: str, built: Release, answers: list[Any], vectors: Any = PAIR_INPUTS
) -> dict:
    """Vectors and answers, their rows and encodings, and reports made one by one from a tape."""
    columns: Any = answers
    if len(built.asked) != 1:
        columns = {part.name: [one[part.name] for one in answers] for part in built.asked} or None
    rows = built.pairs(np.array(vectors) if vectors[0] else None, columns)
    encoded = built.encode_private(rows)
    tape: Any = Tape.named(f"pairs {name}", 1 << 16)
    with (
        mock.patch.object(base, "require_entropy"),
        mock.patch("offaxis.release.Entropy", return_value=tape),
    ):
        made: list[Any] = [built.privatize(row) for row in rows]
    randomizer: Any = built.randomizer
    lattice = encoded.dtype.kind == "f"
    return {
        "release": built.hash,
        "asked": [
            {"name": part.name, "optional": part.optional}
            | (
                {"kind": "classes", "names": list(part.names)}
                if isinstance(part, Classes)
                else {"kind": "number", "low": part.low, "high": part.high}
                | ({"bins": part.bins} if part.bins else {})
            )
            for part in built.asked
        ],
        "encoder": built.encoder.kind,
        "vectors": [[x.hex() for x in row] for row in vectors],
        "answers": answers,
        "rows": [[x.hex() for x in row] for row in rows.tolist()],
        "encodings": encoded.tolist(),
        **({"parameters": offaxis.randomizers.parameters(randomizer)} if lattice else {}),
        **({"integers": randomizer.integers(encoded).tolist()} if lattice else {}),
        "tape": f"pairs {name}",
        "reports": [report.hex() for report in made],
        "bytes": tape.used,
        "observations": built.observe(made).tolist(),
    }


def content() -> dict[str, dict]:
    """Everything that is recorded as JSON and can be reproduced exactly."""
    wide = np.array([[0, 1, -1, (1 << 23) - 1, -(1 << 23), 1 << 24, -(1 << 40)]])
    return {
        "samplers": samplers(),
        "directions": directions(),
        "payloads": {
            "integers": [
                {"values": wide[0].tolist(), "width": w, "payload": pack(wide, w)[0].hex()}
                for w in (3, 4)
            ],
            **{name: payloads(name) for name in NAMES},
            **{name: symbol_payloads(name) for name in SYMBOL_RANDOMIZERS},
        },
        "sequences": {name: sequence(name) for name in SEQUENCE_RANDOMIZERS},
        "pairs": {name: pairs(name) for name in PAIRS},
        "second-moments": {"second-moments": second_moments()},
        "answers": {name: answers(name) for name in ANSWERS},
    }


def close(first: Any, second: Any) -> bool:
    """Equal, up to the last digits of floats."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(close(first[k], second[k]) for k in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(close, first, second))
    if isinstance(first, float):
        return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)
    return bool(first == second)


def main() -> None:
    """Write all files; one that agrees with what is recorded keeps its bytes."""
    for name, record in content().items():
        path, text = FOLDER / f"{name}.json", json.dumps(record, indent=1)
        if path.exists() and close(json.loads(text), json.loads(path.read_text(encoding="utf-8"))):
            continue
        path.write_text(text + "\n", encoding="utf-8")
    record_reports("reports.json", mechanisms.NAMES, release)
    record_reports("sequence-reports.json", SEQUENCE_RELEASES, sequence_release)
    for name in PAIRS:
        if not (FOLDER / f"{name}.release").exists():
            pair_release(name).save(FOLDER / f"{name}.release")
    for name in ANSWERS:
        if not (FOLDER / f"{name}.release").exists():
            answers_release(name).save(FOLDER / f"{name}.release")
    if not (FOLDER / "second-moments.release").exists():
        second_moments_release().save(FOLDER / "second-moments.release")


def record_reports(file: str, names: Iterable[str], build: Callable[[str], Release]) -> None:
    """Record releases and reports that are not recorded yet: those must stay readable."""
    path = FOLDER / file
    reports = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in names:
        if name in reports:
            continue
        built = build(name)
        built.save(FOLDER / f"{name}.release")
        made = make_reports(built, np.array(INPUTS[:3]))
        decoded = built.decode(made).tolist()
        reports[name] = {
            "release": built.hash,
            "reports": [r.hex() for r in made],
            "decoded": decoded,
        }
    path.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
