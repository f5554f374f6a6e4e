"""Refinable normals: the law, the digits that stay free, and the coin that is unsure."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from offaxis.sampling.entropy import Entropy
from offaxis.sampling.spherical import PLACES, Digits, Normals, RefinableNormal
from tests.checks import ALPHA, counts_p_value, law_p_value
from tests.tape import Tape


def values(normals: Normals) -> np.ndarray:
    return np.where(normals.negative, -1, 1) * (normals.magnitude / 2.0**PLACES)


def fair(digits: np.ndarray) -> float:
    return counts_p_value(np.bincount(digits, minlength=2), np.array([0.5, 0.5]))


def test_the_law_is_normal():
    z = values(RefinableNormal().draw(200_000, Entropy()))
    assert law_p_value(z, stats.norm.cdf) > ALPHA
    assert law_p_value(0.97 * z, stats.norm.cdf) < ALPHA
    assert law_p_value(np.abs(z), stats.norm.cdf) < ALPHA


def within_cells(normals: Normals, log2_cells: int) -> np.ndarray:
    """Where each lies in its cell, by normal probability: uniform if the law within cells holds."""
    x = np.abs(values(normals))
    j = np.floor(x * 2**log2_cells + 0.5)
    low, high = (np.maximum(j + k, 0.0) / 2**log2_cells for k in (-0.5, 0.5))
    return (stats.norm.sf(low) - stats.norm.sf(x)) / (stats.norm.sf(low) - stats.norm.sf(high))


def test_the_law_holds_within_coarse_cells_too():
    """With cells half a deviation wide every coin is unsure: the slow path is what is tested."""
    normals = RefinableNormal(1).draw(60_000, Entropy())
    assert law_p_value(values(normals), stats.norm.cdf) > ALPHA
    assert law_p_value(within_cells(normals, 1), stats.uniform.cdf) > ALPHA


def test_keeping_every_proposal_would_be_caught(monkeypatch):
    """The twin: uniform within the cell."""

    def keep(self, low, *_):
        return np.ones(low.size, bool), np.empty(0, np.intp)

    monkeypatch.setattr(RefinableNormal, "_decided", keep)
    normals = RefinableNormal(1).draw(60_000, Entropy())
    assert law_p_value(within_cells(normals, 1), stats.uniform.cdf) < ALPHA


def test_losing_whoever_is_unsure_would_be_caught(monkeypatch):
    """The twin: a coin that is clear of neither end loses its point without another digit."""
    monkeypatch.setattr(RefinableNormal, "_settled", lambda *_: (False, None))
    normals = RefinableNormal(1).draw(60_000, Entropy())
    assert law_p_value(within_cells(normals, 1), stats.uniform.cdf) < ALPHA


@pytest.mark.parametrize("log2_cells", [1, 9])
def test_the_last_places_are_fair_and_a_stuck_one_is_caught(log2_cells):
    drawn = RefinableNormal(log2_cells).draw(60_000, Entropy()).magnitude
    for place in (0, 1, 7, 20, 40):
        assert fair((drawn >> place) & 1) > ALPHA
    stuck = np.where(np.random.default_rng(0).random(drawn.size) < 0.05, drawn & ~1, drawn)
    assert fair(stuck & 1) < ALPHA


def test_further_digits_continue_the_first_and_keep_the_law():
    """Those whose coin needed more digits: what was drawn then is neither lost nor drawn twice."""
    normals = RefinableNormal(1).draw(60_000, Entropy())
    for index, known in normals.further.items():
        assert known.places > PLACES
        assert known.floor(PLACES) == normals.magnitude[index]
        assert normals.digits(index) is known
    later = np.array([int(d.floor(PLACES + 1)) & 1 for d in normals.further.values()])
    assert later.size > 1000
    assert fair(later) > ALPHA


def test_the_sign_of_the_cell_around_zero_is_fair():
    normals = RefinableNormal(1).draw(60_000, Entropy())
    central = normals.magnitude < 1 << (PLACES - 2)
    assert fair(normals.negative[central].astype(int)) > ALPHA


def chance(low: int, x: float, log2_cells: int) -> float:
    """1 − exp(−e) at x standard deviations in a cell from ``low`` half cells on."""
    return -math.expm1(-(x**2 - (low / 2 ** (log2_cells + 1)) ** 2) / 2)


@given(
    st.sampled_from([1, 2, 9]),
    st.integers(0, 6000),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**16), 2**16),
)
def test_a_coin_that_decides_decides_as_the_real_comparison_does(log2_cells, cell, word, shift):
    """Coins around the true chance: whoever is not left open is right at both ends of x."""
    sampler = RefinableNormal(log2_cells)
    low = max(2 * (cell >> (9 - log2_cells)) - 1, 0)
    half = PLACES - log2_cells - 1
    position = word & ((1 << half) - 1)
    digits = sampler._coin_bits
    x = ((low << half) + position) / 2.0**PLACES
    p = chance(low, x, log2_cells)
    coin = min(max(0, int(p * 2**digits) + shift), 2**digits - 1)
    kept, undecided = sampler._decided(np.array([low]), np.array([position]), np.array([coin]))
    if not undecided.size and abs(coin / 2**digits - p) > 1e-12 + 2.0**-digits:
        assert kept[0] == (coin / 2**digits > p)


def test_an_unsure_coin_and_its_place_get_more_digits():
    """W between the chances of x and of the next x: the digits after the 52nd decide."""
    sampler, low, position = RefinableNormal(), 2001, 5 << 40
    start = (low << (PLACES - 10)) + position
    known = 37 + 64
    one = 1 << known
    ends = [one - sampler._falls(low, start + k, PLACES, known)[0] for k in (0, 1)]
    middle = (ends[0] + ends[1]) // 2
    coin, more = middle >> 64, (middle & (2**64 - 1)).to_bytes(8, "little")
    for fraction, kept in ((0, True), (2**64 - 1, False)):
        tape = Tape(more + fraction.to_bytes(8, "little"))
        assert sampler._settled(low, position, coin, tape) == (
            kept,
            Digits((start << 64) + fraction, PLACES + 64),
        )
        assert tape.at_end()


def test_a_coin_between_two_neighbours_gets_another_group():
    """Clear of the chance of x but not of the next x: whoever forgets that end would stop here."""
    sampler, low, position = RefinableNormal(), 2001, 5 << 40
    start = ((low << (PLACES - 10)) + position) << 64

    def end(fraction: int) -> int:
        return (1 << 101) - sampler._falls(low, start + fraction, PLACES + 64, 101)[0]

    least, most = 0, 2**64
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if end(middle) == end(0) else (least, middle)
    coin = end(least)
    assert coin < end(most)
    groups = (coin & (2**64 - 1)).to_bytes(8, "little") + least.to_bytes(8, "little")
    tape = Tape(groups + bytes([255] * 8) + (7).to_bytes(8, "little"))
    kept, x = sampler._settled(low, position, coin >> 64, tape)
    assert kept
    assert tape.at_end()
    assert x == Digits(((start + least) << 64) + 7, PLACES + 128)


def test_digits_are_drawn_once():
    tape = Tape(bytes([0xFF] * 8 + [0] * 7 + [1]))
    x = Digits(5, 3).to(67, tape)
    assert x == Digits((5 << 64) + 2**64 - 1, 67)
    assert x.to(60, tape) is x
    assert x.floor(3) == 5
    assert tape.used == 8
    assert x.to(131, tape) == Digits((x.value << 64) + (1 << 56), 131)


def test_the_tail_beyond_the_table_goes_on():
    """A uniform of 95 zeros is 11.3 deviations, where the first look at a coin does not apply."""
    far = (0).to_bytes(4, "little") + bytes(2) + (1).to_bytes(8, "little") + bytes(7) + b"\x80"
    place = (0xFFFF << 48 | 123).to_bytes(8, "little")
    normals = RefinableNormal().draw(1, Tape(far + place + bytes(64)))
    assert 11.2 < values(normals)[0] < 11.5
    assert normals.magnitude[0] & 0xFFFF == 123


def test_cells_without_a_table_are_refused():
    for log2_cells in (0, 10):
        with pytest.raises(ValueError, match="log2_cells"):
            RefinableNormal(log2_cells)
