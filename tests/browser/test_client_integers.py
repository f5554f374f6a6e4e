"""JavaScript and Python agree on lattice points, and on draws from adversarial tapes."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.randomizers import Laplace, PrivUnit2, SubsetSelection, parameters
from offaxis.randomizers.symbols import own_coin
from offaxis.sampling.choices import Response, below, choose_subsets
from offaxis.sampling.laplace import DiscreteLaplace
from tests.tape import Tape


def boundary(dim: int) -> np.ndarray:
    """Return vectors of every size, many on the boundary, where float rounding leaves the ball."""
    rng = np.random.default_rng(dim)
    vectors = rng.standard_normal((400, dim)) * 10.0 ** rng.integers(-3, 4, (400, 1))
    steps = rng.integers(-9, 10, (400, dim)) / 9
    huge = rng.standard_normal((40, dim)) * 10.0 ** rng.integers(-320, 308, (40, 1))
    return np.concatenate([vectors, steps, huge, np.zeros((1, dim))])


@pytest.mark.parametrize("dim", [1, 3, 7, 200])
@pytest.mark.parametrize("kind", [Laplace, PrivUnit2], ids=lambda kind: kind.kind)
def test_lattice_points_are_the_same_and_inside(client, kind, dim):
    randomizer = kind(dim, 0.3, Fraction(7, 3))
    vectors = boundary(dim)
    points = np.array(
        client.run(
            "integers",
            kind=kind.kind,
            parameters=parameters(randomizer),
            vectors=vectors.tolist(),
        ),
        dtype=np.int64,
    )
    if kind is Laplace:
        assert (np.abs(points).sum(axis=1) <= randomizer.bound).all()
    else:
        assert ((points * points).sum(axis=1) <= 1 << 40).all()
    # NumPy adds long rows in another order: the last bit of a norm may move an entry by a step.
    gaps = np.abs(points - randomizer.integers(vectors))
    assert gaps.max() <= (0 if dim < 4 else 1)
    assert gaps.mean() < 0.01


def test_lattices_and_widths_are_the_same(client):
    """At every scale, also at the limit of the width: (ε/2 + 44) 2**b near a power of two."""
    edges = [Fraction(2**23 - 1, 2**b) * 2 - 88 for b in range(1, 18)]
    edges += [Fraction(2**31 - 1, 2**b) * 2 - 88 for b in range(17, 26)]
    near = [e + d for e in edges for d in (Fraction(-1, 10**6), Fraction(0), Fraction(1, 10**6))]
    budgets = [str(e) for e in near if 0 < e <= 10_000] + ["1/1000000000", "1/3", "5", "10000"]
    cases = [(epsilon, b) for epsilon in budgets for b in range(28)]
    for (epsilon, b), outcome in zip(cases, client.run("lattices", epsilons=cases), strict=True):
        try:
            randomizer = Laplace(3, 1.0, Fraction(epsilon), b)
        except InvalidInput:
            assert outcome.get("error") == "InvalidInput", (epsilon, b)
        else:
            assert outcome == {"ok": [randomizer.bound, randomizer.width]}, (epsilon, b)


def make_tapes(rng: Random, patterns: list[bytes]) -> list[bytes]:
    """Return tapes with long runs of zeros and patterns: digits that tie, draws that overflow."""
    tapes = []
    for _ in range(60):
        parts = [
            rng.choice([bytes(rng.randrange(1, 40)), rng.randbytes(rng.randrange(1, 9)), *patterns])
            for _ in range(200)
        ]
        tapes.append(b"".join(parts) + rng.randbytes(8000))
    return tapes


def check_draws(client, sampler: str, settings: dict, count: int, tapes: list[bytes], draw) -> None:
    draws = client.run(
        "draw", sampler=sampler, settings=settings, count=count, tapes=[t.hex() for t in tapes]
    )
    for content, drawn in zip(tapes, draws, strict=True):
        tape = Tape(content)
        assert np.array_equal(np.array(drawn["values"]), draw(tape)), content[:200].hex()
        assert drawn["used"] == tape.used


@pytest.mark.parametrize(("b", "digits"), [(0, 24), (3, 24), (17, 24), (20, 24), (25, 32)])
def test_noise_from_adversarial_tapes_is_the_same(client, b, digits):
    sampler = DiscreteLaplace(b, digits)
    heads = [p.digits(16).to_bytes(2, "little") for p in sampler._digit_probabilities[-6:]]
    deep = [(p.digits(80) % 2**64).to_bytes(8, "little") for p in sampler._digit_probabilities]
    whole = [b"".join(p.digits(16).to_bytes(2, "little") for p in sampler._digit_probabilities)]
    tapes = make_tapes(Random(b), [*heads, *deep, *whole * 9, b"\x00\x80", bytes(8)])
    settings = {"b": b, "digits": digits}
    check_draws(client, "laplace", settings, 6, tapes, lambda t: sampler.draw(6, t))


@pytest.mark.parametrize(
    ("size", "near", "epsilon"), [(12, 2, "3/2"), (554, 19, "5"), (2, 1, "100")]
)
def test_responses_from_adversarial_tapes_are_the_same(client, size, near, epsilon):
    response = Response(size, near, Fraction(epsilon))
    coin = response._near_probability
    tie = coin.digits(32).to_bytes(4, "little")
    deep = [(coin.digits(32 + 64 * i) % 2**64).to_bytes(8, "little") for i in (1, 2)]
    # Coins first: ties in some of them, and digits that continue to tie.
    rng = Random(size)
    tapes = [
        b"".join(rng.choice([tie, rng.randbytes(4)]) for _ in range(5))
        + b"".join(rng.choice([*deep, b"".join(deep), rng.randbytes(8)]) for _ in range(6))
        + rng.randbytes(4000)
        for _ in range(60)
    ]
    settings = {"size": size, "near": near, "epsilon": epsilon}
    check_draws(client, "response", settings, 5, tapes, lambda t: np.array(response.draw(5, t)).T)


@pytest.mark.parametrize("limit", [1, 3, 10, 3 << 30, (1 << 32) - 1, 1 << 32])
def test_choices_from_adversarial_tapes_are_the_same(client, limit):
    tapes = make_tapes(Random(limit), [b"\xff" * 4, (limit - 1).to_bytes(4, "little")])
    check_draws(client, "below", {"limit": limit}, 20, tapes, lambda t: below(limit, 20, t))


@pytest.mark.parametrize(("columns", "chosen"), [(1, 1), (2, 1), (5, 2), (9, 9), (300, 40)])
def test_subsets_from_adversarial_tapes_are_the_same(client, columns, chosen):
    """With equal keys, also at the edge of a set, where a row is drawn again."""
    rng = Random(columns)
    keys = [rng.randbytes(4) for _ in range(3)] + [bytes(4), b"\xff" * 4]
    tapes = [
        b"".join(
            rng.choice(keys) if rng.random() < share else rng.randbytes(4)
            for _ in range(4 * columns)
        )
        + rng.randbytes(80 * columns)
        for share in (0.05, 0.3, 0.8)
        for _ in range(20)
    ]

    def draw(tape: Tape) -> np.ndarray:
        member, last = choose_subsets(columns, chosen, 4, tape)
        return np.column_stack([member, last])

    check_draws(client, "subsets", {"columns": columns, "chosen": chosen}, 4, tapes, draw)


@pytest.mark.parametrize(
    ("size", "chosen", "epsilon"),
    [(2, 1, "1/3"), (5, 2, "1"), (8, 7, "2"), (9, 1, "100"), (70_000 // 2, 17, "9")],
)
def test_payloads_of_subsets_are_the_same(client, monkeypatch, size, chosen, epsilon):
    """Coins that tie, every symbol of a small set, and more reports than one part holds."""
    monkeypatch.setattr("offaxis.randomizers.base.require_entropy", lambda entropy: None)
    randomizer = SubsetSelection(size, Fraction(epsilon), chosen)
    coin, rng = own_coin(size, chosen, Fraction(epsilon)), Random(size)
    tie = coin.digits(32).to_bytes(4, "little")
    deep = [(coin.digits(32 + 64 * i) % 2**64).to_bytes(8, "little") for i in (1, 2)]
    symbols = list(range(size)) if size < 10 else [0, size - 1, *rng.sample(range(size), 30)]
    tapes = [
        b"".join(rng.choice([tie, rng.randbytes(4)]) for _ in symbols)
        + b"".join(rng.choice([*deep, rng.randbytes(8)]) for _ in range(3))
        + rng.randbytes(8 * size * len(symbols) + 1000)
        for _ in range(20 if size < 10 else 1)
    ]
    made = client.run(
        "subsetPayloads",
        parameters=parameters(randomizer),
        symbols=symbols,
        tapes=[content.hex() for content in tapes],
    )
    for content, one in zip(tapes, made, strict=True):
        tape = Tape(content)
        payloads = randomizer.report(np.array(symbols), tape)
        assert [payload.hex() for payload in payloads] == one["payloads"]
        assert tape.used == one["used"]
