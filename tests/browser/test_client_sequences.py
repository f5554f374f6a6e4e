"""Sequences made in JavaScript: their schedule, their law, and files that promise another one.

False-alarm rate: 1e-6 per check (tests/checks.py), on unseeded reports. Each check rejects a broken
control.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy import stats

from offaxis.client.sequences import Sequence, first_reports, next_reports
from offaxis.decoding import PosteriorCodewordDecoder
from offaxis.errors import InvalidRelease
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.randomizers import KaryResponse, MemoisedPrivUnit2, MemoisedResponse, PrivUnit2
from tests.browser.maker import release_of
from tests.checks import ALPHA, counts_p_value
from tests.fuzz import forgery

COUNT = 8_000
SURE = Fraction(100)
"""An ε so large that a layer repeats its input."""


def run(client, randomizer, numbers: list[int], vectors: np.ndarray, people: int = 1) -> Any:
    """Return the rounds of each person: reports, and the states after them."""
    person = {"numbers": numbers, "vectors": vectors.tolist()}
    file = to_bytes(release_of(randomizer))
    return client.run("sequences", file=file, people=[person] * people)


def payload_of(made: dict[str, Any]) -> bytes:
    return bytes.fromhex(made["report"])[12:]


# ---- Schedule


@pytest.mark.parametrize("draws", [1, 3, 0])
@pytest.mark.parametrize("period", [1, 5])
def test_draws_keep_the_schedule(client, draws, period):
    """With gaps between the rounds: a draw that is late delays the following ones."""
    rng = Random(10 * draws + period)
    randomizer = MemoisedResponse(12, SURE, SURE, draws, period)
    for _ in range(20):
        numbers = sorted(rng.sample(range(60), 25))
        symbols = [rng.randrange(12) for _ in numbers]
        ((*made,),) = run(client, randomizer, numbers, np.eye(12)[symbols])
        first = made[0]["renew"]
        assert 0 <= first - numbers[0] - (period + 1) // 2 < period
        drew = [0]
        for i, (number, one) in enumerate(zip(numbers, made, strict=True)):
            due = numbers[drew[-1]] + period if drew[1:] else first
            if number >= due and (not draws or len(drew) < draws):
                drew.append(i)
            drawn = drew[-1]
            assert (one["drawn"], one["count"], one["last"]) == (numbers[drawn], len(drew), number)
            assert one["renew"] == (one["drawn"] + period if drew[1:] else first)
            # The report shows the symbol of the round that drew it, and how long ago that was.
            age = number - numbers[drawn]
            assert payload_of(one) == age.to_bytes(2, "little") + bytes([symbols[drawn]])
        assert not draws or len(drew) <= draws
        assert len(drew) > 1 or draws == 1


@pytest.mark.parametrize("draws", [3, 0])
@pytest.mark.parametrize("period", [1, 4, 7])
def test_python_continues_a_sequence_in_the_same_rounds(client, draws, period):
    randomizer = MemoisedResponse(12, SURE, SURE, draws, period)
    release = release_of(randomizer)
    numbers = sorted(Random(period).sample(range(80), 30))
    vectors = np.eye(12)[[n % 12 for n in numbers]]
    states = [
        Sequence(**{name: one[name] for name in ("drawn", "renew", "count", "last")}, held=held)
        for (*made,) in run(client, randomizer, numbers, vectors)
        for one, held in ((one, bytes.fromhex(one["held"])) for one in made)
    ]
    first = states[0].renew - numbers[0] - randomizer.first_wait
    assert 0 <= first < period
    for before, after, vector in zip(states, states[1:], vectors[1:], strict=False):
        _, (continued,) = next_reports(release, [before], after.last, {0: vector})
        assert continued == after


def test_the_first_wait_is_uniform(client):
    randomizer = MemoisedResponse(2, Fraction(1), Fraction(1), 3, 7)
    made = run(client, randomizer, [5], np.eye(2)[:1], people=COUNT)
    waits = np.array([one["renew"] - 5 for (one,) in made]) - 4  # half a period, rounded up
    assert (waits.min(), waits.max()) == (0, 6)
    even = np.full(7, 1 / 7)
    assert counts_p_value(np.bincount(waits, minlength=7), even) > ALPHA
    # The broken control never waits for the longest time.
    broken = np.random.default_rng(0).integers(0, 6, COUNT)
    assert counts_p_value(np.bincount(broken, minlength=7), even) < ALPHA


def test_rounds_are_numbered_upwards(client):
    randomizer = MemoisedResponse(2, Fraction(1), Fraction(1), 3, 7)
    for numbers in ([3, 3], [3, 2], [-1]):
        with pytest.raises(AssertionError, match=r"InvalidInput.*numbered upwards"):
            run(client, randomizer, numbers, np.eye(2)[[0] * len(numbers)])


# ---- Laws


def response_law(k: int, epsilon: float) -> np.ndarray:
    """Return the matrix of Pr[y | x] of k-ary response."""
    weights = np.where(np.eye(k), math.exp(epsilon), 1.0)
    return weights / weights.sum(axis=1)


def test_two_reports_of_one_answer_have_their_joint_law(client):
    k, own = 3, 1
    randomizer = MemoisedResponse(k, Fraction(1), Fraction(3, 2), 1, 9)
    permanent, instant = response_law(k, 1.0), response_law(k, 1.5)
    # Σ_h Pr[h | x] Pr[y | h] Pr[y' | h]
    law = np.einsum("h,ha,hb->ab", permanent[own], instant, instant).ravel()

    def p_value(pairs: list[tuple[int, int]]) -> float:
        cells = np.array([k * a + b for a, b in pairs])
        return counts_p_value(np.bincount(cells, minlength=k * k), law)

    vectors = np.eye(k)[[own, 2]]
    people = run(client, randomizer, [1, 2], vectors, people=COUNT)
    shown = [(payload_of(a)[2], payload_of(b)[2]) for a, b in people]
    assert p_value(shown) > ALPHA
    assert math.isclose(randomizer.own_chance, law.reshape(k, k).sum(axis=1)[own], rel_tol=1e-9)
    # Broken control: the permanent answer is drawn again for every report.
    file = to_bytes(release_of(randomizer))
    again = client.run("privatize", file=file, vectors=[vectors[0].tolist()] * (2 * COUNT))
    symbols = [bytes.fromhex(report)[14] for report in again]
    assert p_value(list(zip(symbols[:COUNT], symbols[COUNT:], strict=True))) < ALPHA
    # Broken control: the instantaneous layer is skipped.
    held = [int(a["held"], 16) for a, _ in people]
    assert p_value([(h, h) for h in held]) < ALPHA
    assert counts_p_value(np.bincount(held, minlength=k), permanent[own]) > ALPHA
    # Broken control: the second report uses the vector of its own round.
    fresh = client.run("privatize", file=file, vectors=[vectors[1].tolist()] * COUNT)
    second = [bytes.fromhex(report)[14] for report in fresh]
    assert p_value([(a, b) for (a, _), b in zip(shown, second, strict=True)]) < ALPHA


def test_both_layers_prefer_their_near_directions(client):
    randomizer = MemoisedPrivUnit2(4, 2.0, Fraction(2), Fraction(1), 1, 9)
    w = np.array([0.6, -0.8, 0.5, 0.1])
    people = run(client, randomizer, [1], w[None], people=COUNT)
    held = [bytes.fromhex(one["held"]) for (one,) in people]
    shown = [payload_of(one)[2:] for (one,) in people]
    permanent, instant = randomizer.layers

    def near(layer: PrivUnit2, payloads: list[bytes], W: np.ndarray) -> int:
        nonces = np.frombuffer(b"".join(p[:12] for p in payloads), dtype=np.uint8).reshape(-1, 12)
        index = np.array([int.from_bytes(p[12:], "little") for p in payloads])
        return int((layer.nearest(W, nonces) == index[:, None]).any(axis=1).sum())

    def chance(layer: PrivUnit2) -> float:
        n, c = layer.directions, layer.near
        return c / (c + (n - c) * math.exp(-float(layer.epsilon)))

    W = np.tile(w, (COUNT, 1))
    named = permanent.read(held)
    assert stats.binomtest(near(permanent, held, W), COUNT, chance(permanent)).pvalue > ALPHA
    assert stats.binomtest(near(instant, shown, named), COUNT, chance(instant)).pvalue > ALPHA
    # Broken control: the first layer is skipped, and the report is one of the vector itself.
    skipped = near(instant, shown, W)
    assert stats.binomtest(skipped, COUNT, chance(instant)).pvalue < ALPHA
    assert len({p[:12] for p in held + shown}) == 2 * COUNT


# ---- Reading


@pytest.mark.parametrize(
    "randomizer",
    [
        MemoisedResponse(300, Fraction(5), Fraction(4), 3, 9),
        MemoisedResponse(2, Fraction(1, 10**6), Fraction(1, 10), 0, 9),
        MemoisedPrivUnit2(5, 2.0, Fraction(3), Fraction(2), 3, 9, target="vector"),
        MemoisedPrivUnit2(1, 0.5, Fraction(3), Fraction(2), 0, 9),
    ],
    ids=["response", "small budget", "privunit2-mean", "one dimension"],
)
def test_both_read_the_reports_of_each_other(client, randomizer):
    release = release_of(randomizer)
    vectors = np.random.default_rng(0).standard_normal((8, release.input_dim))
    made = run(client, randomizer, list(range(0, 80, 10)), vectors)[0]
    reports = [bytes.fromhex(one["report"]) for one in made] + first_reports(release, vectors)[0]
    outcomes = client.run("observe", file=to_bytes(release), reports=[r.hex() for r in reports])
    observed = [outcome["ok"] for outcome in outcomes]
    assert np.allclose(observed, release.observe(reports), rtol=1e-9, atol=1e-12)
    ages = randomizer.ages([payload_of(one) for one in made])
    assert ages.tolist() == [one["last"] - one["drawn"] for one in made]


def test_a_posterior_weighs_symbols_by_the_odds_of_one_report(client):
    """Not by e^ε of the permanent answer, which would trust a report too much."""
    randomizer = MemoisedResponse(2, Fraction(2), Fraction(1), 3, 9)
    prior = np.array([0.75, 0.25])
    decoder = PosteriorCodewordDecoder(np.eye(2), prior)
    release = replace(release_of(randomizer), decoder=decoder)
    (report,), _ = first_reports(release, np.array([0.0, 1.0]))
    (outcome,) = client.run("decode", file=to_bytes(release), reports=[report.hex()])
    symbol = report[-1]
    permanent, instant = response_law(2, 2.0), response_law(2, 1.0)
    posterior = prior * (permanent @ instant)[:, symbol]
    assert np.allclose(outcome["ok"], posterior / posterior.sum(), rtol=1e-12)


# ---- Files


def forged(randomizer, **changes: Any) -> bytes:
    """Return a file of a release with other claims or parameters, with a matching hash."""
    draft = forgery.take_apart(to_bytes(release_of(randomizer)))
    assert draft is not None
    for name, value in changes.items():
        part = "guarantee" if name in ("total", "unit") else "randomizer"
        target = draft.manifest[part] if part == "guarantee" else draft.manifest[part]["parameters"]
        target["epsilon" if name == "total" else name] = value
    return forgery.put_together(draft)


SYMBOLS = MemoisedResponse(4, Fraction(2), Fraction(1), 3, 9)
VECTORS = MemoisedPrivUnit2(3, 1.0, Fraction(2), Fraction(1), 0, 9)


@pytest.mark.parametrize(
    ("randomizer", "changes"),
    [
        (SYMBOLS, {"total": "2"}),
        (SYMBOLS, {"total": "3"}),
        (SYMBOLS, {"unit": "item"}),
        (SYMBOLS, {"unit": "item", "total": "2"}),
        (SYMBOLS, {"draws": 4}),
        (SYMBOLS, {"draws": 0}),
        (SYMBOLS, {"draws": 1001, "total": "2002"}),
        (SYMBOLS, {"period": 0}),
        (SYMBOLS, {"period": 65536}),
        (SYMBOLS, {"instant": "2/2"}),
        (SYMBOLS, {"instant": "101"}),
        (SYMBOLS, {"instant": 1}),
        (SYMBOLS, {"epsilon": "20", "draws": 501, "total": "10020"}),
        (VECTORS, {"unit": "user"}),
        (VECTORS, {"draws": 1}),
        (VECTORS, {"instant_near": 10_000}),
        (VECTORS, {"instant_directions": 3}),
        (VECTORS, {"target": "both"}),
    ],
    ids=str,
)
def test_false_promises_are_rejected(client, randomizer, changes):
    content = forged(randomizer, **changes)
    with pytest.raises(InvalidRelease):
        from_bytes(content)
    good, bad = client.run("load", files=[forged(randomizer), content])
    assert good["ok"]["guarantee"]["epsilon"] == str(randomizer.guarantee.epsilon)
    assert bad.get("error") == "InvalidRelease", bad


def test_an_ordinary_release_keeps_its_unit(client):
    """Both units are valid for single reports."""
    release = release_of(KaryResponse(4, Fraction(2)))
    files = [to_bytes(replace(release, unit=unit)) for unit in ("item", "user")]
    loaded = client.run("load", files=files)
    assert [outcome["ok"]["guarantee"]["unit"] for outcome in loaded] == ["item", "user"]
