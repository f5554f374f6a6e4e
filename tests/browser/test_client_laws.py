"""Reports made in JavaScript have the law of the proofs, each test against a broken twin.

False alarms: 1e-6 a check (tests/checks.py), on unseeded reports.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import offaxis
from offaxis.formats.release_file import to_bytes
from offaxis.randomizers import KaryResponse, Laplace, PrivUnit2, PrivUnitG
from tests.browser.maker import release_of
from tests.checks import ALPHA, counts_p_value

COUNT = 8_000


def payloads(client, release: offaxis.Release, vector: np.ndarray) -> list[bytes]:
    made = client.ask("privatize", file=to_bytes(release), vectors=[vector.tolist()] * COUNT)
    return [bytes.fromhex(report)[12:] for report in made]


def laplace_cells(scale: int, edge: int) -> np.ndarray:
    """Pr[K <= −edge], Pr[K = k] between, Pr[K >= edge] of the discrete Laplace law."""
    k = np.arange(1 - edge, edge)
    inner = math.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)
    tail = math.exp(-edge / scale) / (1 + math.exp(-1 / scale))
    return np.concatenate([[tail], inner, [tail]])


def counted(noise: np.ndarray, edge: int) -> np.ndarray:
    return np.bincount(np.clip(noise, -edge, edge).astype(int) + edge, minlength=2 * edge + 1)


@pytest.mark.parametrize("log2_scale", [0, 2])
def test_discrete_laplace_noise_has_its_law(client, log2_scale):
    scale = 1 << log2_scale
    edge = 4 * scale
    noise = np.array(client.ask("noise", log2Scale=log2_scale, count=50_000))
    law = laplace_cells(scale, edge)
    assert math.isclose(law.sum(), 1, rel_tol=1e-12)
    assert counts_p_value(counted(noise, edge), law) > ALPHA
    # The twin keeps minus zero, so that zero comes twice as often.
    rng = np.random.default_rng(0)
    twin = rng.choice([-1, 1], 50_000) * (rng.geometric(-math.expm1(-1 / scale), 50_000) - 1)
    assert counts_p_value(counted(twin, edge), law) < ALPHA


def test_laplace_reports_carry_the_noise_they_promise(client):
    randomizer = Laplace(3, 2.0, Fraction(3))
    w = np.array([0.25, -0.5, 0.125])
    gaps = randomizer.gaps(payloads(client, release_of(randomizer), w), np.tile(w, (COUNT, 1)))
    # Of scale 2**17 and more steps: the continuous law, to a part in 10^5.
    cells = np.linspace(0, 1, 41)[1:-1]
    edges = stats.laplace.ppf(cells)
    even = np.full(40, 1 / 40)
    for column in gaps.T:
        assert (
            counts_p_value(np.bincount(np.searchsorted(edges, column), minlength=40), even) > ALPHA
        )
    # The twin shares the budget among the coordinates.
    assert (
        counts_p_value(np.bincount(np.searchsorted(edges, 3 * gaps[:, 0]), minlength=40), even)
        < ALPHA
    )


def test_responses_have_their_law(client):
    randomizer = KaryResponse(5, Fraction(1))
    told = randomizer.told(payloads(client, release_of(randomizer), np.eye(5)[3]))
    weights = np.where(np.arange(5) == 3, math.e, 1.0)
    observed = np.bincount(told, minlength=5)
    assert counts_p_value(observed, weights / weights.sum()) > ALPHA
    # The twin counts one symbol too few, and tells the truth too often.
    truth = math.e / (math.e + 3)
    twin = np.where(np.arange(5) == 3, truth, (1 - truth) / 4)
    drawn = np.random.default_rng(0).multinomial(COUNT, twin)
    assert counts_p_value(drawn, weights / weights.sum()) < ALPHA


@pytest.mark.parametrize(
    "randomizer",
    [
        PrivUnit2(4, 2.0, Fraction(2)),
        PrivUnitG(4, 2.0, Fraction(2)),
        PrivUnitG(4, 2.0, Fraction(2), target="vector"),
    ],
    ids=["privunit2", "privunitg", "privunitg-mean"],
)
def test_near_directions_are_named_as_often_as_they_must(client, randomizer):
    w = np.array([0.6, -0.8, 0.5, 0.1])
    made = payloads(client, release_of(randomizer), w)
    nonces = np.frombuffer(b"".join(p[:12] for p in made), dtype=np.uint8).reshape(-1, 12)
    index = np.array([int.from_bytes(p[12:], "little") for p in made])
    found = randomizer.nearest(np.tile(w, (COUNT, 1)), nonces)
    near = int((found == index[:, None]).any(axis=1).sum())
    n, c, q = randomizer.directions, randomizer.near, math.exp(-2)
    told = c / (c + (n - c) * q)
    kept = 1.0
    if randomizer.target == "vector":
        kept = (1 + math.floor(float(np.linalg.norm(w)) / 2 * 2**20) / 2**20) / 2
    # With the sign turned round, the near ones of w are some of the far ones.
    chance = kept * told + (1 - kept) * (1 - told) * c / (n - c)
    assert stats.binomtest(near, COUNT, chance).pvalue > ALPHA
    # The twin forgets how many directions there are in each group.
    twin = np.random.default_rng(0).binomial(COUNT, math.exp(2) / (math.exp(2) + 1))
    assert stats.binomtest(int(twin), COUNT, chance).pvalue < ALPHA
    octets = np.bincount(nonces.ravel(), minlength=256)
    assert counts_p_value(octets, np.full(256, 1 / 256)) > ALPHA
    assert len({p[:12] for p in made}) == COUNT
