"""Between a float and the wire: the same lattice points, and the same draws from hostile tapes."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.randomizers import Laplace, PrivUnit2, parameters
from offaxis.sampling.choices import Response, below
from offaxis.sampling.laplace import DiscreteLaplace
from tests.tape import Tape


def boundary(dim: int) -> np.ndarray:
    """Vectors of every size, many of them on the boundary, where floats leave the ball."""
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
    found = np.array(
        client.ask(
            "integers",
            kind=kind.kind,
            parameters=parameters(randomizer),
            vectors=vectors.tolist(),
        ),
        dtype=np.int64,
    )
    if kind is Laplace:
        assert (np.abs(found).sum(axis=1) <= randomizer.bound).all()
    else:
        assert ((found * found).sum(axis=1) <= 1 << 40).all()
    # NumPy adds long rows in another order: the last bit of a norm may move an entry by a step.
    gaps = np.abs(found - randomizer.integers(vectors))
    assert gaps.max() <= (0 if dim < 4 else 1)
    assert gaps.mean() < 0.01


def test_lattices_and_widths_are_the_same(client):
    """At every scale, also where the bytes just suffice: (ε/2 + 44) 2**b around a power of two."""
    edges = [Fraction(2**23 - 1, 2**b) * 2 - 88 for b in range(1, 18)]
    edges += [Fraction(2**31 - 1, 2**b) * 2 - 88 for b in range(17, 26)]
    near = [e + d for e in edges for d in (Fraction(-1, 10**6), Fraction(0), Fraction(1, 10**6))]
    budgets = [str(e) for e in near if 0 < e <= 10_000] + ["1/1000000000", "1/3", "5", "10000"]
    asked = [(epsilon, b) for epsilon in budgets for b in range(28)]
    for (epsilon, b), found in zip(asked, client.ask("lattices", epsilons=asked), strict=True):
        try:
            built = Laplace(3, 1.0, Fraction(epsilon), b)
        except InvalidInput:
            assert found.get("error") == "InvalidInput", (epsilon, b)
        else:
            assert found == {"ok": [built.bound, built.width]}, (epsilon, b)


def tapes(rng: Random, patterns: list[bytes]) -> list[bytes]:
    """Tapes with long runs of zeros and of given patterns: digits that tie, draws that overflow."""
    made = []
    for _ in range(60):
        parts = [
            rng.choice([bytes(rng.randrange(1, 40)), rng.randbytes(rng.randrange(1, 9)), *patterns])
            for _ in range(200)
        ]
        made.append(b"".join(parts) + rng.randbytes(8000))
    return made


def agree(client, sampler: str, settings: dict, count: int, written: list[bytes], draw) -> None:
    answers = client.ask(
        "draw", sampler=sampler, settings=settings, count=count, tapes=[t.hex() for t in written]
    )
    for content, found in zip(written, answers, strict=True):
        tape = Tape(content)
        assert np.array_equal(np.array(found["values"]), draw(tape)), content[:200].hex()
        assert found["used"] == tape.used


@pytest.mark.parametrize(("b", "digits"), [(0, 24), (3, 24), (17, 24), (20, 24), (25, 32)])
def test_noise_of_hostile_tapes_is_the_same(client, b, digits):
    sampler = DiscreteLaplace(b, digits)
    heads = [p.digits(16).to_bytes(2, "little") for p in sampler._digit_probabilities[-6:]]
    deep = [(p.digits(80) % 2**64).to_bytes(8, "little") for p in sampler._digit_probabilities]
    whole = [b"".join(p.digits(16).to_bytes(2, "little") for p in sampler._digit_probabilities)]
    written = tapes(Random(b), [*heads, *deep, *whole * 9, b"\x00\x80", bytes(8)])
    agree(client, "laplace", {"b": b, "digits": digits}, 6, written, lambda t: sampler.draw(6, t))


@pytest.mark.parametrize(
    ("size", "near", "epsilon"), [(12, 2, "3/2"), (554, 19, "5"), (2, 1, "100")]
)
def test_responses_of_hostile_tapes_are_the_same(client, size, near, epsilon):
    response = Response(size, near, Fraction(epsilon))
    coin = response._near_probability
    tie = coin.digits(32).to_bytes(4, "little")
    deep = [(coin.digits(32 + 64 * i) % 2**64).to_bytes(8, "little") for i in (1, 2)]
    # Coins first: ties in some of them, and digits that go on tying.
    rng = Random(size)
    written = [
        b"".join(rng.choice([tie, rng.randbytes(4)]) for _ in range(5))
        + b"".join(rng.choice([*deep, b"".join(deep), rng.randbytes(8)]) for _ in range(6))
        + rng.randbytes(4000)
        for _ in range(60)
    ]
    settings = {"size": size, "near": near, "epsilon": epsilon}
    agree(client, "response", settings, 5, written, lambda t: np.array(response.draw(5, t)).T)


@pytest.mark.parametrize("limit", [1, 3, 10, 3 << 30, (1 << 32) - 1, 1 << 32])
def test_choices_of_hostile_tapes_are_the_same(client, limit):
    written = tapes(Random(limit), [b"\xff" * 4, (limit - 1).to_bytes(4, "little")])
    agree(client, "below", {"limit": limit}, 20, written, lambda t: below(limit, 20, t))
