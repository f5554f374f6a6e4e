"""The rounded Gaussian: certified edges, the exact law, the slow path, and broken controls.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy import stats

from offaxis.sampling import gaussian
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.gaussian import RoundedGaussian, WithinCell, edge, tail_digits
from offaxis.sampling.probability import digits, normal_tail
from tests.checks import ALPHA, counts_p_value
from tests.tape import Tape

COUNT = 400_000


def cells(scale: int, reach: int) -> np.ndarray:
    """Probabilities of −reach … reach, with the tails added to the ends."""
    edges = (np.arange(-reach, reach) + 0.5) / scale
    return np.diff(np.concatenate([[0.0], stats.norm.cdf(edges), [1.0]]))


def histogram(samples: np.ndarray, reach: int) -> np.ndarray:
    return np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize("log2_scale", [0, 1, 3])
def test_the_law_is_that_of_a_rounded_normal(log2_scale):
    scale = 1 << log2_scale
    reach = 3 * scale
    law = cells(scale, reach)
    samples = RoundedGaussian(log2_scale).draw(COUNT, Entropy())
    assert counts_p_value(histogram(samples, reach), law) > ALPHA
    # Broken controls: truncated instead of rounded; a scale that is three percent too small.
    normal = np.random.default_rng(0).standard_normal(COUNT) * scale
    assert counts_p_value(histogram(np.trunc(normal).astype(int), reach), law) < ALPHA
    assert counts_p_value(histogram(np.rint(0.97 * normal).astype(int), reach), law) < ALPHA


def test_the_law_holds_at_the_scale_of_real_releases():
    samples = RoundedGaussian(17).draw(COUNT, Entropy())
    inner = np.array([-4.0, -2, -1, -0.5, -0.1, 0.1, 0.5, 1, 2, 4])
    bins = np.concatenate([[-np.inf], inner * 2**17, [np.inf]])
    law = np.diff(np.concatenate([[0], stats.norm.cdf(inner), [1]]))
    assert counts_p_value(np.histogram(samples, bins)[0], law) > ALPHA
    assert counts_p_value(np.histogram(0.98 * samples, bins)[0], law) < ALPHA


def test_low_digits_are_fair_and_a_stuck_digit_is_rejected():
    samples = RoundedGaussian(17).draw(COUNT, Entropy())
    for bit in range(8):
        ones = (samples >> bit) & 1
        assert counts_p_value(np.bincount(ones, minlength=2), np.array([0.5, 0.5])) > ALPHA
    stuck = np.where(np.random.default_rng(0).random(COUNT) < 0.02, samples & ~1, samples)
    assert counts_p_value(np.bincount(stuck & 1, minlength=2), np.array([0.5, 0.5])) < ALPHA


@pytest.mark.parametrize("log2_scale", [0, 3, 9])
def test_every_edge_of_the_table_is_certified(log2_scale):
    table = tail_digits(log2_scale)
    assert table[-1] == 0
    assert (np.diff(table.astype(np.int64)) <= 0).all()
    for j in range(table.size):
        assert table[j] == digits(partial(normal_tail, edge(j, log2_scale)), 32)


def draw_with(head: int, *more: int, log2_scale: int = 9, negative: bool = False) -> int:
    """One draw whose uniform starts with the given 32 bits and continues with 64-bit groups."""
    sign = b"\x80\x00" if negative else b"\x00\x00"
    tape = Tape(head.to_bytes(4, "little") + sign + b"".join(m.to_bytes(8, "little") for m in more))
    value = int(RoundedGaussian(log2_scale).draw(1, tape)[0])
    assert tape.at_end()
    return value


@pytest.mark.parametrize("j", [0, 1, 512, 2500])
def test_a_tie_with_an_edge_is_decided_by_more_digits(j):
    """V just below T_j is one cell further out than V just above it."""
    known = digits(partial(normal_tail, edge(j, 9)), 160)
    head, first, second = known >> 128, (known >> 64) & (2**64 - 1), known & (2**64 - 1)
    assert draw_with(head, first - 1) == j + 1
    assert draw_with(head, first + 1) == j
    assert draw_with(head, first, second - 1) == j + 1
    assert draw_with(head, first, second + 1, negative=True) == -j


def test_the_tail_continues_beyond_the_table():
    """The first 95 digits of V are zero: |Z| is about 11.3, which only the slow path resolves."""
    value = draw_with(0, 1, 1 << 63)
    below, above = (digits(partial(normal_tail, edge(value + k, 9)), 160) for k in (-1, 0))
    assert below > (3 << 63) >= above
    assert 11.2 < value / 512 < 11.5


def test_a_cell_beyond_every_report_counts_as_the_last(monkeypatch):
    monkeypatch.setattr(gaussian, "LAST_CELL", 4000)
    assert draw_with(0, 1, 1 << 63) == 4000


def test_an_edge_within_the_slack_falls_back_to_the_series(monkeypatch):
    monkeypatch.setattr(gaussian, "_SLACK", 1 << 127)  # every edge is now in doubt
    assert np.array_equal(gaussian.tail_digits.__wrapped__(3), tail_digits(3))


def test_a_scale_without_a_table_is_rejected():
    with pytest.raises(ValueError, match="log2_scale"):
        RoundedGaussian(21)


# ---- Position within a cell


@pytest.mark.parametrize(("log2_cells", "finer"), [(2, 2), (3, 1), (5, 2)])
def test_finer_magnitudes_have_the_rounded_law(monkeypatch, log2_cells, finer):
    """With cells this coarse nearly every coin is undecided, so this tests the slow path."""
    monkeypatch.setattr(gaussian, "LOG2_CELLS", log2_cells)
    scale = 1 << (log2_cells + finer)
    reach = 2 * scale
    samples = RoundedGaussian(log2_cells + finer).draw(30_000, Entropy())
    assert counts_p_value(histogram(samples, reach), cells(scale, reach)) > ALPHA


def test_keeping_every_proposal_is_rejected(monkeypatch):
    """Broken control: uniform within the cell, which in coarse cells is not Gaussian."""
    monkeypatch.setattr(gaussian, "LOG2_CELLS", 1)
    monkeypatch.setattr(WithinCell, "_decide", lambda self, low, *_: np.ones(low.size, bool))
    samples = RoundedGaussian(3).draw(100_000, Entropy())
    assert counts_p_value(histogram(samples, 16), cells(8, 16)) < ALPHA


def chance(low: int, step: int, f: float, s: int) -> float:
    """1 − exp(−e) at the point L + i + f."""
    return -math.expm1(-((low + step + f) ** 2 - low**2) / (8 * s * s))


@pytest.mark.parametrize("cell", [1, 700, 3000])
@pytest.mark.parametrize("step", [0, 100, 511])
def test_coins_decide_as_the_real_comparison_does(cell, step):
    """Around both ends of the range that the unknown fraction can affect, and far from them."""
    within = WithinCell(9, 8)
    s = 1 << 17
    low = np.array([(2 * cell - 1) << 8])
    ends = [chance(int(low[0]), step, f, s) for f in (0.0, 1.0)]
    for end in ends:
        for shift in (-(2**12), 2**12):
            coin = np.array([min(max(0, int(end * 2**32) + shift), 2**32 - 1)])
            tape = Tape.named("settle", 1 << 12)
            kept = within._decide(low, np.array([step]), coin, tape)[0]
            if coin[0] > (ends[1] * 2**32) + 2:
                assert kept
            elif coin[0] < ends[0] * 2**32 - 4096:
                assert not kept


def test_an_undecided_coin_and_its_fraction_get_more_digits():
    """W in the middle of the range that f can affect: f decides, digit by digit."""
    within, low, step, s = WithinCell(9, 8), 1001 << 8, 300, 1 << 17
    middle = chance(low, step, 0.5, s)
    coin = int(middle * 2**32)
    half = (int(middle * 2**52) & (2**20 - 1)) << 44
    for fraction, kept in ((0, True), (2**64 - 1, False)):
        tape = Tape(half.to_bytes(8, "little") + fraction.to_bytes(8, "little"))
        assert within._settle(low, step, coin, tape) is kept
        assert tape.at_end()


def test_the_enclosed_factor_is_that_of_the_normal_density():
    within, s = WithinCell(9, 8), 1 << 17
    low, high = within._density_ratio(5001 << 8, 17 + Fraction(1, 3), 200)
    exact = math.exp(-(((5001 * 256 + 17 + 1 / 3) ** 2) - (5001 * 256) ** 2) / (8 * s * s))
    assert low / 2**200 == pytest.approx(exact, rel=1e-12)
    assert 0 < high - low <= 2
    assert within._density_ratio(0, Fraction(0), 10) == (1024, 1024)


def test_the_cell_of_zero_has_half_as_many_positions():
    zeros = np.zeros(20_000, dtype=np.int64)
    drawn = WithinCell(9, 3).draw(zeros, Entropy())
    # Positions 0 … 4 of half steps 0 … 7: the ends get one half step, the others two.
    assert counts_p_value(np.bincount(drawn), np.array([1, 2, 2, 2, 1]) / 8) > ALPHA


def test_rejected_proposals_are_redrawn_in_the_same_cell():
    drawn = WithinCell(9, 8).draw(np.full(50_000, 3500), Entropy())
    assert drawn.min() >= (3500 << 8) - 128
    assert drawn.max() <= (3500 << 8) + 128
