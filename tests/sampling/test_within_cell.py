"""Where in its cell a magnitude lies: the law, the coin that is unsure, and what is redrawn."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from offaxis.sampling import gaussian as rounded_gaussian
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.gaussian import RoundedGaussian, WithinCell
from tests.checks import ALPHA, counts_p_value
from tests.tape import Tape


@pytest.mark.parametrize(("log2_cells", "finer"), [(2, 2), (3, 1), (5, 2)])
def test_finer_magnitudes_have_the_rounded_law(monkeypatch, log2_cells, finer):
    """With cells this coarse nearly every coin is unsure: the slow path is what is tested."""
    monkeypatch.setattr(rounded_gaussian, "LOG2_CELLS", log2_cells)
    scale = 1 << (log2_cells + finer)
    reach = 2 * scale
    count = 30_000
    samples = RoundedGaussian(log2_cells + finer).draw(count, Entropy())
    edges = (np.arange(-reach, reach) + 0.5) / scale
    law = np.diff(np.concatenate([[0.0], stats.norm.cdf(edges), [1.0]]))
    counts = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1)
    assert counts_p_value(counts, law) > ALPHA


def test_keeping_every_proposal_would_be_caught(monkeypatch):
    """The twin: uniform within the cell. In coarse cells that is no Gaussian."""
    monkeypatch.setattr(rounded_gaussian, "LOG2_CELLS", 1)
    monkeypatch.setattr(WithinCell, "_decided", lambda self, low, *_: np.ones(low.size, bool))
    samples = RoundedGaussian(3).draw(100_000, Entropy())
    edges = (np.arange(-16, 16) + 0.5) / 8
    law = np.diff(np.concatenate([[0.0], stats.norm.cdf(edges), [1.0]]))
    counts = np.bincount(np.clip(samples, -16, 16) + 16, minlength=33)
    assert counts_p_value(counts, law) < ALPHA


def chance(low: int, step: int, f: float, s: int) -> float:
    """1 − exp(−e) at the point L + i + f."""
    return -math.expm1(-((low + step + f) ** 2 - low**2) / (8 * s * s))


@pytest.mark.parametrize("cell", [1, 700, 3000])
@pytest.mark.parametrize("step", [0, 100, 511])
def test_coins_decide_as_the_real_comparison_does(cell, step):
    """Around both ends of what the unknown fraction can change, and far from them."""
    within = WithinCell(9, 8)
    s = 1 << 17
    low = np.array([(2 * cell - 1) << 8])
    ends = [chance(int(low[0]), step, f, s) for f in (0.0, 1.0)]
    for end in ends:
        for shift in (-(2**12), 2**12):
            coin = np.array([min(max(0, int(end * 2**32) + shift), 2**32 - 1)])
            tape = Tape.named("settle", 1 << 12)
            kept = within._decided(low, np.array([step]), coin, tape)[0]
            if coin[0] > (ends[1] * 2**32) + 2:
                assert kept
            elif coin[0] < ends[0] * 2**32 - 4096:
                assert not kept


def test_an_unsure_coin_and_its_fraction_get_more_digits():
    """W in the middle of what f can change: f decides, digit by digit."""
    within, low, step, s = WithinCell(9, 8), 1001 << 8, 300, 1 << 17
    middle = chance(low, step, 0.5, s)
    coin = int(middle * 2**32)
    half = (int(middle * 2**52) & (2**20 - 1)) << 44
    for fraction, kept in ((0, True), (2**64 - 1, False)):
        tape = Tape(half.to_bytes(8, "little") + fraction.to_bytes(8, "little"))
        assert within._settled(low, step, coin, tape) is kept
        assert tape.at_end()


def test_the_enclosed_factor_is_that_of_the_normal_density():
    within, s = WithinCell(9, 8), 1 << 17
    low, high = within._falls(5001 << 8, 17 + Fraction(1, 3), 200)
    exact = math.exp(-(((5001 * 256 + 17 + 1 / 3) ** 2) - (5001 * 256) ** 2) / (8 * s * s))
    assert low / 2**200 == pytest.approx(exact, rel=1e-12)
    assert 0 < high - low <= 2
    assert within._falls(0, Fraction(0), 10) == (1024, 1024)


def test_the_cell_of_zero_has_half_as_many_places():
    cells = np.zeros(20_000, dtype=np.int64)
    drawn = WithinCell(9, 3).draw(cells, Entropy())
    # Places 0 … 4 of half steps 0 … 7: the ends get one half step, the others two.
    assert counts_p_value(np.bincount(drawn), np.array([1, 2, 2, 2, 1]) / 8) > ALPHA


def test_rejected_proposals_are_drawn_again_in_the_same_cell():
    cells = np.full(50_000, 3500)
    drawn = WithinCell(9, 8).draw(cells, Entropy())
    assert drawn.min() >= (3500 << 8) - 128
    assert drawn.max() <= (3500 << 8) + 128
