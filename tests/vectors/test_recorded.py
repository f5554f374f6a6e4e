"""The code reproduces the recorded vectors, and a reader written from the document agrees."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import offaxis
from offaxis import mechanisms
from offaxis.errors import BiasedDecoder
from offaxis.randomizers import NAMES
from tests.vectors.make import (
    ANSWERS,
    PAIRS,
    SEQUENCE_RANDOMIZERS,
    SEQUENCE_RELEASES,
    SYMBOL_RANDOMIZERS,
    close,
    content,
)

FOLDER = Path(__file__).parent


def recorded(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made() -> dict:
    return json.loads(json.dumps(content()))


@pytest.mark.parametrize(
    "name",
    ["samplers", "directions", "payloads", "sequences", "pairs", "second-moments", "answers"],
)
def test_the_code_reproduces_the_recorded_vectors(made, name):
    """A difference is a change of the format: it needs a new version, not a new recording."""
    assert close(made[name], recorded(name))


@pytest.mark.parametrize("name", [*mechanisms.NAMES, *SEQUENCE_RELEASES])
def test_recorded_releases_and_reports_are_still_read(name):
    release = offaxis.load(FOLDER / f"{name}.release")
    record = recorded("sequence-reports" if name in SEQUENCE_RELEASES else "reports")[name]
    assert release.hash == record["release"]
    decoded = release.decode([bytes.fromhex(r) for r in record["reports"]])
    assert close(decoded.tolist(), record["decoded"])


def plain_observation(
    kind: str, parameters: dict, mean: float | None, payload: bytes
) -> list[float]:
    """docs/report-format.md in plain Python, without any code of the package."""
    if kind in ("response", "subset"):
        return plain_symbols(kind, parameters, payload)
    if kind == "hashing":
        return plain_hashing(parameters, payload)
    dim, radius = parameters["dim"], parameters["radius"]
    if kind in ("laplace", "gaussian", "spherical-laplace"):
        octets = [payload[3 * i : 3 * i + 3] for i in range(dim)]
        numbers = [int.from_bytes(o, "little") - 2**23 for o in octets]
        bound = parameters.get("bound")
        if kind != "gaussian":
            bound = math.floor(Fraction(parameters["epsilon"]) * 2 ** parameters["log2_scale"] / 2)
        return [y * radius / bound for y in numbers]
    if kind in ("duchi", "piecewise", "hybrid"):
        return plain_box(kind, parameters, payload)
    nonce, index = payload[:12], int.from_bytes(payload[12:], "little")
    pair = index // 2
    spread = math.sqrt(sum(gaussian_entry(k) ** 2 for k in range(2**16)) / 2**16)
    if kind == "projunit":
        k = parameters["projected"]
        g = plain_vector(b"offaxis rank v1.", nonce, pair, k)
        rows = [plain_vector(b"offaxis proj v1.", nonce, r, dim) for r in range(k)]
        back = [sum(rows[r][i] * g[r] for r in range(k)) for i in range(dim)]
        return [(-1) ** index * radius / mean * x / spread**2 for x in back]
    g = [(-1) ** index * x for x in plain_vector(b"offaxis rank v1.", nonce, pair, dim)]
    norm = math.sqrt(sum(x * x for x in g))
    if parameters.get("output", "sphere") == "gaussian":
        norm = spread
    return [radius / mean * x / norm for x in g]


def plain_vector(key: bytes, nonce: bytes, pair: int, dim: int) -> list[int]:
    blocks = -(-dim // 8)
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    counters = [(pair * blocks + b).to_bytes(4, "big") for b in range(blocks)]
    stream = b"".join(cipher.update(nonce + counter) for counter in counters)
    words = [int.from_bytes(stream[2 * i : 2 * i + 2], "little") for i in range(dim)]
    return [gaussian_entry(k) for k in words]


def plain_symbols(kind: str, parameters: dict, payload: bytes) -> list[float]:
    k, q = parameters["size"], math.exp(-float(Fraction(parameters["epsilon"])))
    number = int.from_bytes(payload, "little")
    named = {number} if kind == "response" else {j for j in range(k) if number >> j & 1}
    d = parameters.get("chosen", 1)
    assert len(named) == d
    inside = (d + (k - 1 - d) * q) / (d * (1 - q))
    outside = -(d - 1 + (k - d) * q) / ((k - d) * (1 - q))
    return [inside if j in named else outside for j in range(k)]


def plain_hashing(parameters: dict, payload: bytes) -> list[float]:
    k, q = parameters["size"], math.exp(-float(Fraction(parameters["epsilon"])))
    cipher = Cipher(algorithms.AES(b"offaxis hash v1."), modes.ECB()).encryptor()
    counters = [block.to_bytes(4, "big") for block in range(-(-k // 8))]
    stream = b"".join(cipher.update(payload[:12] + counter) for counter in counters)
    point, d, far = int.from_bytes(payload[12:], "little"), parameters["near"], 2**16
    far -= d
    weight = (d + far * q) / (1 - q)
    places = [int.from_bytes(stream[2 * j : 2 * j + 2], "little") for j in range(k)]
    return [weight / d if (point - h) % 2**16 < d else -weight / far for h in places]


def plain_box(kind: str, parameters: dict, payload: bytes) -> list[float]:
    dim, radius = parameters["dim"], parameters["radius"]
    epsilon = float(Fraction(parameters["epsilon"]))
    if kind == "duchi":
        half = (dim - 1) // 2
        size = 2 ** (dim - 1) / math.comb(dim - 1, half) / math.tanh(epsilon / 2)
        bits = int.from_bytes(payload, "little")
        return [radius * size * (1 if bits >> i & 1 else -1) for i in range(dim)]
    share, points = epsilon / parameters["sampled"], 2**16
    near = max(1, min(points // 2, round(points * (1 - math.tanh(share / 4)) / 2)))
    weight = near + (points - near) * math.exp(-share)
    gain = weight / ((1 - math.exp(-share)) * near * (points - near))
    out = [0.0] * dim
    for i in range(0, len(payload), 6):
        coordinate = int.from_bytes(payload[i : i + 4], "little")
        point = int.from_bytes(payload[i + 4 : i + 6], "little")
        if coordinate >= 2**31:
            value = (2 * point - 1) / math.tanh(share / 2)
        else:
            value = (2 * point - (points - 1)) * gain
        out[coordinate % 2**31] = radius * dim / parameters["sampled"] * value
    return out


TABLE: list[int] = []


def gaussian_entry(k: int) -> int:
    if not TABLE:
        upper = [NormalDist().inv_cdf((2 * i + 1) / 2**17) for i in range(2**15, 2**16)]
        right = [2 * math.floor(2048 * x) + 1 for x in upper]
        TABLE.extend([-x for x in reversed(right)] + right)
        packed = b"".join(x.to_bytes(2, "little", signed=True) for x in TABLE)
        assert hashlib.sha256(packed).hexdigest() == recorded("directions")["table_sha256"]
    return TABLE[k]


@pytest.mark.parametrize("name", [*NAMES, *SYMBOL_RANDOMIZERS])
def test_a_reader_written_from_the_document_agrees(name):
    record = recorded("payloads")[name]
    kind = "privunitg" if name.startswith("privunitg") else name.removesuffix("-mean")
    for payload, observation in zip(record["payloads"], record["observations"], strict=True):
        plain = plain_observation(
            kind, record["parameters"], record.get("mean"), bytes.fromhex(payload)
        )
        assert close(plain, observation)


@pytest.mark.parametrize("name", SEQUENCE_RANDOMIZERS)
def test_a_reader_of_sequences_written_from_the_document_agrees(name):
    """The age, and a report of the instantaneous layer, with the odds or the mean of both."""
    record = recorded("sequences")[name]
    parameters = record["parameters"]
    for shown in record["shown"]:
        for payload, observation in zip(shown["payloads"], shown["observations"], strict=True):
            octets = bytes.fromhex(payload)
            assert int.from_bytes(octets[:2], "little") == min(shown["age"], 65535)
            if "size" in parameters:
                k = parameters["size"]
                first, second = (
                    math.exp(Fraction(parameters[layer])) for layer in ("epsilon", "instant")
                )
                odds = (first * second + k - 1) / (first + second + k - 2)
                plain = plain_symbols(
                    "response", {"size": k, "epsilon": math.log(odds)}, octets[2:]
                )
            else:
                plain = plain_observation("privunit2", parameters, record["mean"], octets[2:])
            assert close(plain, observation)


# ---- Pairs


@pytest.mark.parametrize("name", PAIRS)
def test_recorded_releases_of_pairs_are_still_read(name):
    record = recorded("pairs")[name]
    release = offaxis.load(FOLDER / f"{name}.release", expect=record["release"])
    reports = [bytes.fromhex(report) for report in record["reports"]]
    assert close(release.observe(reports).tolist(), record["observations"])
    with pytest.raises(BiasedDecoder, match="decodes to no vector"):
        release.decode(reports)


def plain_tensors(name: str) -> tuple[dict, dict[str, list]]:
    """Return the manifest and the tensors of a release file, read with the document alone."""
    blob = (FOLDER / f"{name}.release").read_bytes()
    (size,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8 : 8 + size])
    manifest = json.loads(header.pop("__metadata__")["offaxis"].partition("\n")[2])
    tensors = {}
    for tensor, entry in header.items():
        begin, end = entry["data_offsets"]
        numbers = struct.unpack_from(f"<{(end - begin) // 8}d", blob, 8 + size + begin)
        *rows, columns = entry["shape"]
        tensors[tensor] = (
            [list(numbers[i * columns : (i + 1) * columns]) for i in range(rows[0])]
            if rows
            else list(numbers)
        )
    return manifest, tensors


PLAIN = {
    "identity": lambda x: x,
    "relu": lambda x: max(0.0, x),
    "tanh": math.tanh,
    "gelu": lambda x: x * NormalDist().cdf(x),
    "silu": lambda x: x / (1 + math.exp(min(-x, 700.0))),
    "elu": lambda x: x if x > 0 else math.expm1(x),
}


def plain_features(activations: list[str], tensors: dict[str, list], x: list[float]) -> list[float]:
    def clipped(values: list[float]) -> list[float]:
        return [max(-1e100, min(1e100, value)) for value in values]

    depth = sum(name.startswith("encoder.weight.") for name in tensors)
    for i in range(depth):
        weight, bias = tensors[f"encoder.weight.{i}"], tensors[f"encoder.bias.{i}"]
        inputs = clipped(x)
        x = [
            sum(w * v for w, v in zip(row, inputs, strict=True)) + b
            for row, b in zip(weight, bias, strict=True)
        ]
        if i == depth - 1:
            continue
        activation = activations[i % len(activations)]
        if activation == "normalise":
            root = math.hypot(*x, math.sqrt(len(x))) / math.sqrt(len(x))
            x = [value / root for value in x]
        else:
            x = [PLAIN[activation](value) for value in x]
    return clipped(x)


def plain_pair(name: str, row: list[float]) -> int | list[float]:
    """docs/release-format.md in plain Python: the encoding of a row."""
    manifest, tensors = plain_tensors(name)
    _, activations, form = manifest["encoder"]["kind"].split("-")
    asked = [] if tensors["encoder.asked"] == [[1, 0, 0, 0]] else tensors["encoder.asked"]
    m = len(row) - len(asked)
    x = plain_features(activations.split("+"), tensors, row[:m])
    best = x.index(max(x))
    own = [
        math.floor(y + 0.5) if -0.5 < y < k - 0.5 else None
        for y, (k, *_) in zip(row[m:], asked, strict=True)
    ]
    if form == "right":
        ((k, *_),) = asked
        return int(own[0] == best if k else x[0] <= row[m] <= x[1])
    if form == "cells":
        symbol = best
        for y, (k, _, _, optional) in zip(own, asked, strict=True):
            symbol = int(symbol * (k + optional) + ((k if optional else 0) if y is None else y))
        return symbol
    codes: list[float] = [] if asked else [1.0]
    for number, y, (k, low, high, _) in zip(row[m:], own, asked, strict=True):
        if k:
            scales = [math.sqrt(k / ((k - 1) * i * (i + 1))) for i in range(1, int(k))]
            codes += [
                0.0 if y is None or y > i else scale if y < i else -i * scale
                for i, scale in enumerate(scales, start=1)
            ]
        else:
            scaled = max(-1.0, min(1.0, 2 * (number - low) / (high - low) - 1))
            codes.append(0.0 if abs(number) >= 1e29 else scaled)
    return [code * feature / math.sqrt(max(1, len(asked))) for code in codes for feature in x]


@pytest.mark.parametrize("name", PAIRS)
def test_an_encoder_of_pairs_written_from_the_document_agrees(name):
    record = recorded("pairs")[name]
    for row, encoding in zip(record["rows"], record["encodings"], strict=True):
        assert close(plain_pair(name, [float.fromhex(x) for x in row]), encoding)


# ---- Answers alone


def plain_answers(asked: list, row: list[float]) -> int:
    """docs/release-format.md in plain Python: the symbol of a row."""
    symbol = 0
    for y, (values, low, high, optional) in zip(row, asked, strict=True):
        own: int | None = None
        if low < high and abs(y) < 1e29:
            clipped = min(max(y, low), high)
            own = min(math.floor((clipped - low) / (high - low) * values), int(values) - 1)
        elif low == high and -0.5 < y < values - 0.5:
            own = math.floor(y + 0.5)
        missing = int(values) if optional else 0
        symbol = symbol * int(values + optional) + (missing if own is None else own)
    return symbol


@pytest.mark.parametrize("name", ANSWERS)
def test_recorded_releases_of_answers_are_read_and_a_reader_of_the_document_agrees(name):
    record = recorded("answers")[name]
    release = offaxis.load(FOLDER / f"{name}.release", expect=record["release"])
    reports = [bytes.fromhex(report) for report in record["reports"]]
    assert close(release.observe(reports).tolist(), record["observations"])
    with pytest.raises(BiasedDecoder, match="answers alone"):
        release.decode(reports)
    manifest, tensors = plain_tensors(name)
    parameters = manifest["randomizer"]["parameters"]
    for row, symbol in zip(record["rows"], record["encodings"], strict=True):
        numbers = [float.fromhex(x) for x in row]
        assert plain_answers(tensors["encoder.asked"], numbers) == symbol
    for report, observation in zip(reports, record["observations"], strict=True):
        kind = manifest["randomizer"]["kind"]
        assert close(plain_observation(kind, parameters, None, report[12:]), observation)


# ---- Second moments


def plain_second_moments(tensors: dict[str, list], z: list[float]) -> list[float]:
    """docs/release-format.md in plain Python: the encoding of a vector."""
    radius, height, weight = tensors["encoder.sizes"]
    peak = max(map(abs, z))
    if peak > 2.0**500:
        z = [x / peak * 2.0**500 for x in z]
    moved = [x - c for x, c in zip(z, tensors["encoder.centre"], strict=True)]
    w = [sum(a * x for a, x in zip(row, moved, strict=True)) for row in tensors["encoder.matrix"]]
    largest = max(map(abs, w))
    if largest > radius:
        w = [x / largest * radius for x in w]
    length = math.hypot(*w)
    if length > radius:
        w = [x * radius / length for x in w]
    out = []
    for i, first in enumerate(w):
        out.append(first * first - height)
        out += [math.sqrt(2) * first * second for second in w[i + 1 :]]
    return [*out, *(weight * x for x in w)]


def test_recorded_second_moments_are_still_read_and_a_reader_of_the_document_agrees():
    record = recorded("second-moments")["second-moments"]
    release = offaxis.load(FOLDER / "second-moments.release", expect=record["release"])
    reports = [bytes.fromhex(report) for report in record["reports"]]
    assert close(release.observe(reports).tolist(), record["observations"])
    with pytest.raises(BiasedDecoder, match="second_moments"):
        release.decode(reports)
    _, tensors = plain_tensors("second-moments")
    for row, encoding in zip(record["rows"], record["encodings"], strict=True):
        assert close(plain_second_moments(tensors, [float.fromhex(x) for x in row]), encoding)
