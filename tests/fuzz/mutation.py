"""Mutations that turn valid files and reports into hostile ones, from one random source.

A mutant of a release has a matching hash, unless it is meant to fail there: the code worth reaching
comes after that check.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from offaxis.mechanisms import NAMES
from tests.fuzz.forgery import Draft, canonical, contents, fill, put_together, take_apart

NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 22, 23, 24, 63, 64, 255, 1 << 16, 1 << 20, (1 << 20) + 1, (1 << 23) - 1),
    *(1 << 31, (1 << 32) - 1, 1 << 32, 1 << 53, 1 << 62, 1 << 63, 1 << 64, 10**15, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1.0, 3.0, 5e-324, 1e-300, 1e-100, 1e-9, 1e99, 1e100, 1e101, 1e308),
    *(math.nan, math.inf, -math.inf, True, False, None),
)
TEXTS = (
    *("", "0", "1", "3", "-1", "+1", " 1", "1 ", "01", "1/3", "2/6", "1/0", "0/1", "1/00", "-1/3"),
    *("0.1", "5.", ".5", "1e3", "1e-9", "1e-90", "1e-91", "1e94", "1e95", "1e999", "1e999999999"),
    *("9" * 94, "9" * 95, "9" * 200, "9" * 95 + "/7", "1/" + "9" * 95, "1_0", "0x1", "nan", "inf"),
    *("10000", "10001", "100", "101", "1/1000000000", "1/10000", "9999999/1000"),
    *("\N{FULLWIDTH DIGIT ONE}", "\N{ARABIC-INDIC DIGIT ONE}", "\ud800", "\udfff\ud800", "\x00"),
    *("\x1b[2J", "\u202e", "\n", "\N{GRINNING FACE}" * 50, "x" * 200, "x" * 201, "item", "user"),
    *("affine", "linear", "shift", "sphere", "F64", "F32", "0" * 64, "A" * 64, *NAMES),
)
FRACTIONS = (
    *("1/1000000000", "1/10000", "1/100", "1/3", "1", "3", "16", "100", "1000", "10000"),
    *("9" * 90 + "/1" + "0" * 87, "9" * 94 + "/1" + "0" * 94, "1/1" + "0" * 90, "1/1" + "0" * 94),
)
INTEGERS = (0, 1, 2, 12, 17, 20, 23, 999, *(1 << b for b in (13, 16, 18, 20, 21, 22, 25, 26, 27)))
DOUBLES = (0.0, -0.0, 1.0, -1.0, 5e-324, 1e-310, 1e99, 1e100, -1e100, 1.1e100, 1e308, math.inf)
FRAGMENTS = (
    *('"', "\\", "{", "}", "[", "]", ",", ":", " ", "NaN", "-Infinity", "1e400", "1.0", "-0", "é"),
    *("\\ud800", "\\u0000", '"version":1,', "null", "true", "9" * 5000, "[" * 2000, '{"a":' * 999),
)


def value(rng: Random) -> Any:
    """Return a value that is valid nowhere."""
    kind = rng.randrange(8)
    if kind == 0:
        tree: Any = rng.choice(NUMBERS)
        for _ in range(rng.choice((1, 2, 3, 99, 101))):
            tree = [tree] if rng.random() < 0.5 else {rng.choice(TEXTS): tree}
        return tree
    if kind == 1:
        return {str(i): rng.choice(NUMBERS) for i in range(rng.choice((0, 1, 50)))}
    return rng.choice(NUMBERS if kind < 5 else TEXTS)


def near(old: Any, rng: Random) -> Any:
    """Return a slightly different value, if possible."""
    if isinstance(old, bool) or old is None:
        return value(rng)
    if isinstance(old, int):
        return rng.choice((old + 1, old - 1, 2 * old, -old, old ^ 1 << rng.randrange(70)))
    if isinstance(old, float):
        return rng.choice((math.nextafter(old, 9e99), old * 2.0 ** rng.randrange(-999, 999), -old))
    if isinstance(old, str):
        index = rng.randrange(len(old) + 1)
        return old[:index] + rng.choice((*TEXTS, "")) + old[index + rng.randrange(2) :]
    return value(rng)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a tree."""
    pairs: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, child in items:
            pairs.append((node, key))
            if isinstance(child, dict | list):
                waiting.append(child)
    return pairs


def alter(tree: Any, rng: Random) -> None:
    """Change, drop, add or swap values in a tree."""
    pairs = places(tree) if isinstance(tree, dict) else []
    if not pairs:
        return
    node, key = rng.choice(pairs)
    kind = rng.randrange(8)
    if kind < 3:
        node[key] = near(node[key], rng)
    elif kind < 5:
        node[key] = value(rng)
    elif kind == 5:
        del node[key]
    elif kind == 6 and isinstance(node, dict):
        node[rng.choice(TEXTS)] = value(rng)
    else:
        other, other_key = rng.choice(pairs)
        node[key], other[other_key] = other[other_key], node[key]


def alter_manifest(draft: Draft, rng: Random) -> None:
    """Change anything in the manifest."""
    alter(draft.manifest, rng)


def alter_parameters(draft: Draft, rng: Random) -> None:
    """Change the randomizer's parameters, which determine the guarantee."""
    alter(draft.manifest["randomizer"]["parameters"], rng)


def promise(draft: Draft, rng: Random) -> None:
    """Change ε or δ, and claim the same value."""
    name = rng.choice(("epsilon", "epsilon", "delta"))
    parameters = draft.manifest["randomizer"]["parameters"]
    claim = rng.choice(TEXTS) if rng.random() < 0.5 else near(parameters[name], rng)
    parameters[name] = draft.manifest["guarantee"][name] = claim


def extremes(draft: Draft, rng: Random) -> None:
    """Set several parameters to values of the right type at the limits of a randomizer."""
    parameters = draft.manifest["randomizer"]["parameters"]
    for name in rng.sample(sorted(parameters), k=rng.randint(1, len(parameters))):
        if isinstance(parameters[name], int):
            parameters[name] = rng.choice(INTEGERS)
        elif isinstance(parameters[name], float):
            parameters[name] = rng.choice((1e-100, 1.0, 1e100))
        elif name in draft.manifest["guarantee"]:
            parameters[name] = draft.manifest["guarantee"][name] = rng.choice(FRACTIONS)


def alter_header(draft: Draft, rng: Random) -> None:
    """Change types, shapes, offsets and names of tensors."""
    alter(draft.tensors, rng)


def resize(draft: Draft, rng: Random) -> None:
    """Add, drop or replace tensors with correct offsets, so that only their sizes are wrong."""
    tensors = contents(draft)
    others = ("mean_decoder.offset", "mean_decoder.matrix", rng.choice(TEXTS))
    name = rng.choice((*tensors, *others))
    if name in tensors and rng.random() < 0.3:
        del tensors[name]
    else:
        shape = [rng.choice((0, 1, 2, 3, 3, 4)) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3)))]
        tensors[name] = (shape, bytes(8 * math.prod(shape)))
    fill(draft, tensors)


def poke(draft: Draft, rng: Random) -> None:
    """Overwrite a number of a map, or some of its bytes."""
    if len(draft.data) >= 8:
        offset = rng.randrange(len(draft.data) // 8) * 8
        number = rng.choice((math.nan, rng.gauss(0, 1), *DOUBLES))
        new = struct.pack("<d", number) if rng.random() < 0.7 else rng.randbytes(8)
        draft.data = draft.data[:offset] + new + draft.data[offset + 8 :]


def cut(draft: Draft, rng: Random) -> None:
    """Make the tensors end too early or too late."""
    size = rng.randrange(len(draft.data) + 1)
    draft.data = draft.data[:size] if rng.random() < 0.5 else draft.data + bytes(size)


def swell(draft: Draft, rng: Random) -> None:
    """Put a very large value anywhere, to make reading expensive."""
    node, key = rng.choice(places(draft.manifest) + places(draft.tensors))
    size = rng.choice((100, 1000, 20_000))
    shapes = (
        lambda: rng.choice(TEXTS) * size,
        lambda: [[] for _ in range(size)],
        lambda: {str(i): [] for i in range(size)},
        lambda: dict.fromkeys(map(str, range(size)), rng.choice(TEXTS)),
        lambda: [rng.choice(NUMBERS)] * size,
    )
    node[key] = rng.choice(shapes)()


CHANGES: tuple[Callable[[Draft, Random], None], ...] = (
    *(alter_manifest, alter_parameters, alter_parameters, promise, promise, extremes, extremes),
    *(alter_header, resize, poke, poke, cut),
)


def scribble(blob: bytes, rng: Random) -> bytes:
    """Flip, drop, repeat or insert bytes anywhere."""
    index = rng.randrange(len(blob) + 1)
    length = rng.choice((1, 1, 2, 8, 64))
    new = rng.choice((rng.randbytes(length), b"", bytes(length), blob[:length], b"\xff" * length))
    return blob[:index] + new + blob[index + rng.choice((0, length, len(new))) :]


def scribble_text(text: str, rng: Random) -> str:
    """Insert or replace a fragment of JSON anywhere."""
    index = rng.randrange(len(text) + 1)
    return text[:index] + rng.choice(FRAGMENTS) + text[index + rng.choice((0, 0, 1, 5)) :]


def mutant(blob: bytes, rng: Random) -> bytes:
    """Return a hostile mutant of a release file, usually with a matching hash."""
    draft = take_apart(blob)
    if draft is None or rng.random() < 0.1:
        return scribble(blob, rng)
    text = digest = None
    try:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            rng.choice(CHANGES)(draft, rng)
        if rng.random() < 0.01:
            swell(draft, rng)
        if rng.random() < 0.1:
            text = scribble_text(canonical(draft.manifest), rng)
        if rng.random() < 0.02:
            digest = rng.choice(TEXTS)
        return put_together(draft, text, digest=digest)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        # An earlier change left nothing for this one to change, or values that JSON cannot hold.
        return scribble(blob, rng)


def hostile_report(report: bytes, rng: Random) -> bytes:
    """Return a hostile mutant of a report, usually with the right header and length."""
    head, payload = report[:12], report[12:]
    for _ in range(rng.choice((1, 1, 2))):
        index = rng.randrange(len(payload) + 1)
        new = rng.choice((rng.randbytes(1), b"\0\0\0", b"\xff\xff\xff", rng.randbytes(4)))
        payload = payload[:index] + new + payload[index + len(new) :]
    if rng.random() < 0.8:
        payload = payload[: len(report) - 12].ljust(len(report) - 12, b"\0")
    if rng.random() < 0.2:
        head = scribble(head, rng)
    return head + payload
