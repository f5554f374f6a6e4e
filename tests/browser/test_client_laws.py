"""Reports made in JavaScript have the law of the proofs; each test rejects a broken control.

False-alarm rate: 1e-6 per check (tests/checks.py), on unseeded reports.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import offaxis
from offaxis.formats.release_file import to_bytes
from offaxis.randomizers import KaryResponse, Laplace, PrivUnit2, PrivUnitG, SubsetSelection
from tests.browser.maker import release_of
from tests.checks import ALPHA, counts_p_value

COUNT = 8_000


def payloads(client, release: offaxis.Release, vector: np.ndarray) -> list[bytes]:
    made = client.run("privatize", file=to_bytes(release), vectors=[vector.tolist()] * COUNT)
    return [bytes.fromhex(report)[12:] for report in made]


def laplace_cells(scale: int, edge: int) -> np.ndarray:
    """Return Pr[K <= −edge], Pr[K = k] and Pr[K >= edge] of the discrete Laplace law."""
    k = np.arange(1 - edge, edge)
    inner = math.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)
    tail = math.exp(-edge / scale) / (1 + math.exp(-1 / scale))
    return np.concatenate([[tail], inner, [tail]])


def count_cells(noise: np.ndarray, edge: int) -> np.ndarray:
    return np.bincount(np.clip(noise, -edge, edge).astype(int) + edge, minlength=2 * edge + 1)


@pytest.mark.parametrize("log2_scale", [0, 2])
def test_discrete_laplace_noise_has_its_law(client, log2_scale):
    scale = 1 << log2_scale
    edge = 4 * scale
    noise = np.array(client.run("noise", log2Scale=log2_scale, count=50_000))
    law = laplace_cells(scale, edge)
    assert math.isclose(law.sum(), 1, rel_tol=1e-12)
    assert counts_p_value(count_cells(noise, edge), law) > ALPHA
    # The broken control keeps minus zero, so that zero occurs twice as often.
    rng = np.random.default_rng(0)
    broken = rng.choice([-1, 1], 50_000) * (rng.geometric(-math.expm1(-1 / scale), 50_000) - 1)
    assert counts_p_value(count_cells(broken, edge), law) < ALPHA


def test_laplace_reports_have_the_promised_noise(client):
    randomizer = Laplace(3, 2.0, Fraction(3))
    w = np.array([0.25, -0.5, 0.125])
    gaps = randomizer.gaps(payloads(client, release_of(randomizer), w), np.tile(w, (COUNT, 1)))
    # The scale is at least 2**17 steps: the continuous law, to a relative error of 1e-5.
    cells = np.linspace(0, 1, 41)[1:-1]
    edges = stats.laplace.ppf(cells)
    even = np.full(40, 1 / 40)
    for column in gaps.T:
        assert (
            counts_p_value(np.bincount(np.searchsorted(edges, column), minlength=40), even) > ALPHA
        )
    # The broken control divides the budget among the coordinates.
    assert (
        counts_p_value(np.bincount(np.searchsorted(edges, 3 * gaps[:, 0]), minlength=40), even)
        < ALPHA
    )


def test_responses_have_their_law(client):
    randomizer = KaryResponse(5, Fraction(1))
    reported = randomizer.reported_symbols(payloads(client, release_of(randomizer), np.eye(5)[3]))
    weights = np.where(np.arange(5) == 3, math.e, 1.0)
    observed = np.bincount(reported, minlength=5)
    assert counts_p_value(observed, weights / weights.sum()) > ALPHA
    # The broken control counts one symbol too few, and reports the true one too often.
    truth = math.e / (math.e + 3)
    broken = np.where(np.arange(5) == 3, truth, (1 - truth) / 4)
    drawn = np.random.default_rng(0).multinomial(COUNT, broken)
    assert counts_p_value(drawn, weights / weights.sum()) < ALPHA


@pytest.mark.parametrize("own", [0, 3, 4])
def test_subsets_have_their_law(client, own):
    """Each of the ten sets of two: weight e^ε with the true symbol, 1 without."""
    randomizer = SubsetSelection(5, Fraction(1), chosen=2)
    release = release_of(randomizer)
    sets = list(combinations(range(5), 2))

    def law(odds: float) -> np.ndarray:
        weights = np.array([odds if own in named else 1.0 for named in sets])
        return weights / weights.sum()

    named = randomizer.sets(payloads(client, release, np.eye(5)[own]))
    found = [sets.index((i, j)) for i, j in map(np.flatnonzero, named)]
    assert counts_p_value(np.bincount(found, minlength=10), law(math.e)) > ALPHA
    # Broken control: heads with probability e^ε/(e^ε + 1), whatever the size of the sets.
    broken = np.random.default_rng(0).multinomial(COUNT, law(1.5 * math.e))
    assert counts_p_value(broken, law(math.e)) < ALPHA
    # Broken control: the member that the true symbol replaces is the first one, not a uniform one.
    others = [symbol for symbol in range(5) if symbol != own]
    rng, first = np.random.default_rng(1), np.zeros(10, dtype=int)
    for heads in rng.random(COUNT) < 2 * math.e / (2 * math.e + 3):
        drawn = sorted(rng.choice(others, 2, replace=False).tolist())
        i, j = sorted([own, drawn[1]] if heads else drawn)
        first[sets.index((i, j))] += 1
    assert counts_p_value(first, law(math.e)) < ALPHA


@pytest.mark.parametrize(
    "randomizer",
    [
        PrivUnit2(4, 2.0, Fraction(2)),
        PrivUnitG(4, 2.0, Fraction(2)),
        PrivUnitG(4, 2.0, Fraction(2), target="vector"),
    ],
    ids=["privunit2", "privunitg", "privunitg-mean"],
)
def test_near_directions_have_their_probability(client, randomizer):
    w = np.array([0.6, -0.8, 0.5, 0.1])
    made = payloads(client, release_of(randomizer), w)
    nonces = np.frombuffer(b"".join(p[:12] for p in made), dtype=np.uint8).reshape(-1, 12)
    index = np.array([int.from_bytes(p[12:], "little") for p in made])
    nearest = randomizer.nearest(np.tile(w, (COUNT, 1)), nonces)
    near = int((nearest == index[:, None]).any(axis=1).sum())
    n, c, q = randomizer.directions, randomizer.near, math.exp(-2)
    near_probability = c / (c + (n - c) * q)
    kept_sign = 1.0
    if randomizer.target == "vector":
        kept_sign = (1 + math.floor(float(np.linalg.norm(w)) / 2 * 2**20) / 2**20) / 2
    # With the sign flipped, the near directions of w are some of the far ones.
    flipped = (1 - kept_sign) * (1 - near_probability) * c / (n - c)
    chance = kept_sign * near_probability + flipped
    assert stats.binomtest(near, COUNT, chance).pvalue > ALPHA
    # The broken control ignores the number of directions in each group.
    broken = np.random.default_rng(0).binomial(COUNT, math.exp(2) / (math.exp(2) + 1))
    assert stats.binomtest(int(broken), COUNT, chance).pvalue < ALPHA
    nonce_bytes = np.bincount(nonces.ravel(), minlength=256)
    assert counts_p_value(nonce_bytes, np.full(256, 1 / 256)) > ALPHA
    assert len({p[:12] for p in made}) == COUNT
