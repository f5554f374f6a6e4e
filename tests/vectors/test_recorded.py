"""The code reproduces the recorded vectors, and a reader written from the document agrees."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import offaxis
from offaxis import mechanisms
from offaxis.randomizers import NAMES
from tests.vectors.make import (
    SEQUENCE_RANDOMIZERS,
    SEQUENCE_RELEASES,
    SYMBOL_RANDOMIZERS,
    content,
)

FOLDER = Path(__file__).parent


def recorded(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made() -> dict:
    return json.loads(json.dumps(content()))


def close(first, second) -> bool:
    """Equal, up to the last digits of floats."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(close(first[k], second[k]) for k in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(close, first, second))
    if isinstance(first, float):
        return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)
    return first == second


@pytest.mark.parametrize("name", ["samplers", "directions", "payloads", "sequences"])
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
