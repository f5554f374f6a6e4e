"""The rounded Gaussian: certified edges, the exact law, the slow path, and twins to catch."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats

from offaxis.sampling import gaussian as rounded_gaussian
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.gaussian import RoundedGaussian, edge, tail_digits
from offaxis.sampling.probability import digits, normal_tail
from tests.checks import ALPHA, counts_p_value
from tests.tape import Tape

COUNT = 400_000


def cells(scale: int, reach: int) -> np.ndarray:
    """Probabilities of −reach … reach, the tails folded into the ends."""
    edges = (np.arange(-reach, reach) + 0.5) / scale
    return np.diff(np.concatenate([[0.0], stats.norm.cdf(edges), [1.0]]))


def histogram(samples: np.ndarray, reach: int) -> np.ndarray:
    return np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize("log2_scale", [0, 1, 3])
def test_the_law_is_that_of_a_rounded_normal(log2_scale):
    scale = 1 << log2_scale
    reach = 3 * scale
    samples = RoundedGaussian(log2_scale).draw(COUNT, Entropy())
    assert counts_p_value(histogram(samples, reach), cells(scale, reach)) > ALPHA
    # Twins: truncated instead of rounded; a scale three percent too small.
    normal = np.random.default_rng(0).standard_normal(COUNT) * scale
    assert (
        counts_p_value(histogram(np.trunc(normal).astype(int), reach), cells(scale, reach)) < ALPHA
    )
    assert (
        counts_p_value(histogram(np.rint(0.97 * normal).astype(int), reach), cells(scale, reach))
        < ALPHA
    )


def test_the_law_holds_at_the_scale_of_real_releases():
    samples = RoundedGaussian(17).draw(COUNT, Entropy())
    inner = np.array([-4.0, -2, -1, -0.5, -0.1, 0.1, 0.5, 1, 2, 4])
    bins = np.concatenate([[-np.inf], inner * 2**17, [np.inf]])
    law = np.diff(np.concatenate([[0], stats.norm.cdf(inner), [1]]))
    assert counts_p_value(np.histogram(samples, bins)[0], law) > ALPHA
    assert counts_p_value(np.histogram(0.98 * samples, bins)[0], law) < ALPHA


def test_low_digits_are_fair_and_a_stuck_one_is_caught():
    samples = RoundedGaussian(17).draw(COUNT, Entropy())
    for bit in range(8):
        ones = (samples >> bit) & 1
        assert counts_p_value(np.bincount(ones, minlength=2), np.array([0.5, 0.5])) > ALPHA
    stuck = np.where(np.random.default_rng(0).random(COUNT) < 0.02, samples & ~1, samples)
    assert counts_p_value(np.bincount(stuck & 1, minlength=2), np.array([0.5, 0.5])) < ALPHA


@pytest.mark.parametrize("log2_scale", [0, 3, 9])
def test_every_edge_of_the_table_is_the_certified_one(log2_scale):
    table = tail_digits(log2_scale)
    assert table[-1] == 0
    assert (np.diff(table.astype(np.int64)) <= 0).all()
    for j in range(table.size):
        assert table[j] == digits(partial(normal_tail, edge(j, log2_scale)), 32)


def draw_with(head: int, *more: int, log2_scale: int = 9, negative: bool = False) -> int:
    """One draw whose uniform begins with the given 32 bits and goes on with 64-bit groups."""
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


def test_the_tail_beyond_the_table_goes_on():
    """The first 95 digits of V are zero: |Z| is about 11.3, which only the slow path can say."""
    value = draw_with(0, 1, 1 << 63)
    below, above = (digits(partial(normal_tail, edge(value + k, 9)), 160) for k in (-1, 0))
    assert below > (3 << 63) >= above
    assert 11.2 < value / 512 < 11.5


def test_a_cell_beyond_every_report_is_counted_as_the_last(monkeypatch):
    monkeypatch.setattr(rounded_gaussian, "LAST_CELL", 4000)
    assert draw_with(0, 1, 1 << 63) == 4000


def test_an_edge_within_the_slack_falls_back_to_the_series(monkeypatch):
    from offaxis.sampling import gaussian as normal_table

    monkeypatch.setattr(normal_table, "_SLACK", 1 << 127)  # every edge is now in doubt
    assert np.array_equal(normal_table.tail_digits.__wrapped__(3), tail_digits(3))


def test_a_scale_without_a_table_is_refused():
    with pytest.raises(ValueError, match="log2_scale"):
        RoundedGaussian(21)
