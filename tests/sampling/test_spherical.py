"""The rounded spherical Laplace law, and the normal variables that it is made of.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import math
from fractions import Fraction
from math import isqrt

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from offaxis.sampling import spherical
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.spherical import (
    PLACES,
    Digits,
    Normals,
    RefinableNormal,
    RoundedSpherical,
    _length,
    _squares,
)
from tests.checks import ALPHA, counts_p_value, law_p_value
from tests.tape import Tape

COUNT = 40_000


def radii(rows: np.ndarray, log2_scale: int) -> np.ndarray:
    return np.linalg.norm(rows.astype(float), axis=1) / 2**log2_scale


def planar_cells(reach: int) -> np.ndarray:
    """Mass of exp(−‖x‖)/2π on unit squares around (−reach … reach)², by Gauss–Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    # Each square in four quarters, so that the kink at zero is a corner.
    x = np.concatenate([nodes / 4 - 0.25, nodes / 4 + 0.25])
    w = np.concatenate([weights, weights]) / 4
    k = np.arange(-reach, reach + 1)
    a = (k[:, None] + x).ravel()
    w = np.tile(w, k.size)
    mass = np.exp(-np.hypot(a[:, None], a)) / (2 * np.pi) * np.outer(w, w)
    return mass.reshape(k.size, x.size, k.size, x.size).sum(axis=(1, 3))


@pytest.mark.parametrize("log2_scale", [0, 1, 3])
def test_in_one_dimension_it_is_the_rounded_laplace_law(log2_scale):
    """Pr[K = k] = sinh(1/2t) e^{−|k|/t} for k != 0, and the remaining mass at zero."""
    t = 2.0**log2_scale
    reach = int(6 * t)
    k = np.abs(np.arange(-reach, reach + 1))
    law = np.where(k == 0, -np.expm1(-0.5 / t), np.sinh(0.5 / t) * np.exp(-k / t))
    law[[0, -1]] = np.exp(-(reach - 0.5) / t) / 2
    samples = RoundedSpherical(1, log2_scale).draw(COUNT, Entropy())[:, 0]
    counts = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=k.size)
    assert counts_p_value(counts, law) > ALPHA
    truncated = np.random.default_rng(0).laplace(scale=t, size=COUNT).astype(int)
    broken = np.bincount(np.clip(truncated, -reach, reach) + reach, minlength=k.size)
    assert counts_p_value(broken, law) < ALPHA


def test_in_two_dimensions_every_cell_has_its_mass():
    law = planar_cells(4)
    inside = np.append(law.ravel(), 1 - law.sum())
    samples = RoundedSpherical(2, 0).draw(2 * COUNT, Entropy())

    def p_value(rows: np.ndarray) -> float:
        near = (np.abs(rows) <= 4).all(axis=1)
        index = np.where(near, (rows + 4) @ [9, 1], 81)
        return counts_p_value(np.bincount(index, minlength=82), inside)

    assert p_value(samples) > ALPHA
    # Broken controls: independent Laplace coordinates of the same variance; equal coordinates.
    rng = np.random.default_rng(1)
    independent = np.rint(rng.laplace(scale=np.sqrt(1.5), size=samples.shape)).astype(int)
    assert p_value(independent) < ALPHA
    assert p_value(np.stack([samples[:, 0], samples[:, 0]], axis=1)) < ALPHA


@pytest.mark.parametrize("dim", [1, 2, 3, 8, 64])
def test_the_length_has_the_gamma_law(dim):
    """Across chunks too, at the scale of real releases."""
    samples = RoundedSpherical(dim, 16).draw(20_000, Entropy())
    law = stats.gamma(dim).cdf
    assert law_p_value(radii(samples, 16), law) > ALPHA
    assert law_p_value(0.5 * radii(samples, 16), law) < ALPHA


def test_directions_are_uniform_and_coordinates_have_the_stated_law():
    """In space a coordinate of a uniform direction is uniform (Archimedes)."""
    samples = RoundedSpherical(3, 16).draw(20_000, Entropy()).astype(float)
    cosines = samples / np.linalg.norm(samples, axis=1, keepdims=True)
    axis = np.array([2.0, -1.0, 2.0]) / 3
    uniform = stats.uniform(-1, 2).cdf
    for cosine in (*cosines.T, cosines @ axis):
        assert law_p_value(cosine, uniform) > ALPHA
    x = samples[:, 0] / 2**16

    def law(x: np.ndarray) -> np.ndarray:
        tail = (2 + np.abs(x)) * np.exp(-np.abs(x)) / 4
        return np.where(x < 0, tail, 1 - tail)

    assert law_p_value(x, law) > ALPHA
    assert law_p_value(0.9 * x, law) < ALPHA


def test_a_length_of_one_normal_too_few_is_rejected(monkeypatch):
    """Broken control: h in R^m instead of R^{m+1}."""
    lengths = RoundedSpherical._lengths
    monkeypatch.setattr(RoundedSpherical, "_lengths", lambda self, h: lengths(self, h[:, 1:]))
    samples = RoundedSpherical(8, 16).draw(20_000, Entropy())
    assert law_p_value(radii(samples, 16), stats.gamma(8).cdf) < ALPHA


def test_one_normal_for_all_coordinates_is_rejected(monkeypatch):
    """Broken control: g shared by the coordinates of a row."""
    enclosed = RoundedSpherical._enclosed
    monkeypatch.setattr(
        RoundedSpherical,
        "_enclosed",
        lambda self, h, g: enclosed(self, h, np.repeat(g[:, :1], g.shape[1], axis=1)),
    )
    samples = RoundedSpherical(3, 16).draw(2000, Entropy()).astype(float)
    samples = samples[samples.any(axis=1)]  # the broken control may have a row of zeros
    cosine = samples[:, 0] / np.linalg.norm(samples, axis=1)
    assert law_p_value(cosine, stats.uniform(-1, 2).cdf) < ALPHA


def test_low_digits_are_fair_and_a_stuck_digit_is_rejected():
    samples = RoundedSpherical(4, 16).draw(COUNT, Entropy()).ravel()
    for bit in range(8):
        ones = np.bincount((samples >> bit) & 1, minlength=2)
        assert counts_p_value(ones, np.array([0.5, 0.5])) > ALPHA
    stuck = np.where(np.random.default_rng(0).random(samples.size) < 0.02, samples & ~1, samples)
    assert counts_p_value(np.bincount(stuck & 1, minlength=2), np.array([0.5, 0.5])) < ALPHA


magnitudes = st.one_of(st.integers(0, 2**54), st.integers(0, 2**20), st.integers(0, 2**56 - 1))


@given(st.lists(magnitudes, min_size=1, max_size=20))
@example([2**56 - 1, 2**55 + 2**26 - 1])
def test_squares_are_enclosed(values):
    x = np.array(values)
    for low, value in zip(_squares(x).tolist(), values, strict=True):
        below, above = (Fraction((value + k) ** 2, 1 << PLACES) for k in (0, 1))
        assert low <= below
        assert above <= low + spherical._SQUARE_SLACK


def rounding(h: list[int], g: int, log2_scale: int, up: int) -> int:
    """round(t‖h‖g) of the lower or upper ends, in high precision."""
    with mpmath.workdps(60):
        length = mpmath.sqrt(sum((x + up) ** 2 for x in h))
        x = length * (g + up) * mpmath.mpf(2) ** (log2_scale - 2 * PLACES)
        return int(mpmath.floor(x + mpmath.mpf(1) / 2))


@given(st.data())
def test_a_decided_rounding_is_right_at_both_ends(data):
    """Next to a half too, where too narrow an enclosure would decide too early."""
    dim = data.draw(st.integers(1, 6))
    log2_scale = data.draw(st.integers(0, 25))
    h = data.draw(st.lists(magnitudes, min_size=dim + 1, max_size=dim + 1))
    length = isqrt(sum(x * x for x in h))
    g = data.draw(st.lists(magnitudes, min_size=dim, max_size=dim))
    if length and data.draw(st.booleans()):
        steps = 2 * PLACES - log2_scale
        halves = [2 * ((x * length) >> steps) + 1 for x in g]
        g = [
            min((half << (steps - 1)) // length + data.draw(st.integers(-40, 40)), 2**56 - 1)
            for half in halves
        ]
        g = [max(0, x) for x in g]
    sampler = RoundedSpherical(dim, log2_scale)
    rounded, undecided = sampler._enclosed(np.array([h]), np.array([g]))
    for i in range(dim):
        if not undecided[0, i]:
            assert rounding(h, g[i], log2_scale, 0) == rounded[0, i]
            assert rounding(h, g[i], log2_scale, 1) == rounded[0, i]


@given(st.lists(magnitudes, min_size=2, max_size=9), st.integers(0, 64))
def test_the_length_of_truncated_digits_is_enclosed(values, extra):
    """By squares: below² <= Σx² and Σ(x + 1)² <= above² for digits truncated to 52 places."""
    numbers = [Digits((x << extra) + extra, PLACES + extra) for x in values]
    below, above = _length(numbers, PLACES)
    assert below**2 <= sum(x * x for x in values)
    assert sum((x + 1) ** 2 for x in values) <= above**2


def test_few_roundings_remain_open():
    """At the scale of real releases, fewer than one coordinate in a hundred thousand."""
    rng = np.random.default_rng(3)
    for dim, log2_scale in ((1, 17), (64, 24), (768, 22)):
        rows = 400_000 // dim
        h, g = (
            (np.abs(rng.standard_normal((rows, n))) * 2**PLACES).astype(np.int64)
            for n in (dim + 1, dim)
        )
        _, undecided = RoundedSpherical(dim, log2_scale)._enclosed(h, g)
        assert undecided.sum() <= 20


@pytest.mark.parametrize("name", ["_FAR", "_PRODUCT_SLACK"])
def test_settling_every_row_gives_the_same_numbers(monkeypatch, name):
    """Two ways to the same rounding: 64-bit words, and integers of any length."""
    sampler, size = RoundedSpherical(5, 16), 1 << 16
    quick = sampler.draw(100, Tape.named("rows", size))
    monkeypatch.setattr(spherical, name, 1 if name == "_FAR" else 1 << 61)
    calls = []
    settle = RoundedSpherical._settle

    def counted(self, *arguments):
        calls.append(1)
        return settle(self, *arguments)

    monkeypatch.setattr(RoundedSpherical, "_settle", counted)
    assert np.array_equal(sampler.draw(100, Tape.named("rows", size)), quick)
    assert len(calls) == 100


def settled(tape: Tape, h: list[Digits], g: Digits) -> int:
    """The magnitude of one coordinate, m = 1 and t = 1, decided with digits from the tape."""
    numbers = [*h, g]
    first = np.array([x.floor(PLACES) for x in numbers])
    further = {i: x for i, x in enumerate(numbers) if x.places > PLACES}
    out = np.array([-1])
    normals = Normals(np.zeros(3, bool), first, further)
    RoundedSpherical(1, 0)._settle(normals, 0, np.array([0]), out, tape)
    return int(out[0])


ONES, ZEROS = bytes([255] * 8), bytes(8)
FOUR, ZERO = Digits(4 << PLACES, PLACES), Digits(0, PLACES)
BELOW = Digits((3 << (PLACES - 3)) - 1, PLACES)
"""The last number below 3/8: times a length of 4 it ends just below 3/2."""


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        ([ZEROS, ZEROS, ZEROS], 1),
        ([ONES, ZEROS, ZEROS], 1),
        ([ONES, ZEROS, ONES], 2),
        ([ZEROS, ZEROS, ONES, ONES, ZEROS, ONES], 2),
        ([ZEROS, ZEROS, ONES, ZEROS, ZEROS, ZEROS], 1),
    ],
)
def test_an_open_rounding_is_decided_by_more_digits(digits, expected):
    """(4 + a)(3/8 − b) against 3/2, a and b from the tape: no fixed guess is always right."""
    _, undecided = RoundedSpherical(1, 0)._enclosed(
        np.array([[FOUR.value, 0]]), np.array([[BELOW.value]])
    )
    assert undecided.all()
    tape = Tape(b"".join(digits))
    assert settled(tape, [FOUR, ZERO], BELOW) == expected
    assert tape.at_end()


def test_digits_that_a_coin_has_used_are_not_redrawn():
    """The same three numbers, two of them with digits that their acceptance has drawn."""
    used = [Digits(((4 << PLACES) << 64) + 2**64 - 1, PLACES + 64), ZERO]
    g = Digits((BELOW.value << 64) + 2**64 - 1, PLACES + 64)
    tape = Tape(ZEROS)
    assert settled(tape, used, g) == 2
    assert tape.at_end()


def test_rows_of_a_batch_use_only_their_numbers(monkeypatch):
    """An open row in the middle of a batch is settled from the digits of that row."""
    sampler = RoundedSpherical(1, 0)
    magnitudes = np.array([[1, 1, 1], [FOUR.value, 0, BELOW.value], [2, 2, 2]])
    negative = np.array([[False] * 3, [False, False, True], [False] * 3])
    normals = Normals(negative.ravel(), magnitudes.ravel(), {})

    class Fixed:
        def draw(self, count, bits):
            assert count == 9
            return normals

    monkeypatch.setattr(spherical, "_normal", Fixed())
    assert sampler.draw(3, Tape(ONES + ZEROS + ONES)).tolist() == [[0], [-2], [0]]


def test_scales_and_dimensions_out_of_range_are_rejected():
    for dim, log2_scale in ((1, -1), (1, 26), (0, 3), ((1 << 20) + 1, 3)):
        with pytest.raises(ValueError, match="must be in"):
            RoundedSpherical(dim, log2_scale)


# ---- Standard normal variables whose digits can be extended


def values(normals: Normals) -> np.ndarray:
    return np.where(normals.negative, -1, 1) * (normals.magnitude / 2.0**PLACES)


def fair(digits: np.ndarray) -> float:
    return counts_p_value(np.bincount(digits, minlength=2), np.array([0.5, 0.5]))


def test_refinable_normals_have_the_normal_law():
    z = values(RefinableNormal().draw(200_000, Entropy()))
    assert law_p_value(z, stats.norm.cdf) > ALPHA
    assert law_p_value(0.97 * z, stats.norm.cdf) < ALPHA
    assert law_p_value(np.abs(z), stats.norm.cdf) < ALPHA


def within_cells(normals: Normals, log2_cells: int) -> np.ndarray:
    """The position in the cell, by normal probability: uniform if the law within cells holds."""
    x = np.abs(values(normals))
    j = np.floor(x * 2**log2_cells + 0.5)
    low, high = (np.maximum(j + k, 0.0) / 2**log2_cells for k in (-0.5, 0.5))
    return (stats.norm.sf(low) - stats.norm.sf(x)) / (stats.norm.sf(low) - stats.norm.sf(high))


def test_the_normal_law_holds_within_coarse_cells():
    """With cells half a deviation wide every coin is undecided, so this tests the slow path."""
    normals = RefinableNormal(1).draw(60_000, Entropy())
    assert law_p_value(values(normals), stats.norm.cdf) > ALPHA
    assert law_p_value(within_cells(normals, 1), stats.uniform.cdf) > ALPHA


def test_keeping_every_proposal_is_rejected(monkeypatch):
    """Broken control: uniform within the cell."""

    def keep(self, low, *_):
        return np.ones(low.size, bool), np.empty(0, np.intp)

    monkeypatch.setattr(RefinableNormal, "_decide", keep)
    normals = RefinableNormal(1).draw(60_000, Entropy())
    assert law_p_value(within_cells(normals, 1), stats.uniform.cdf) < ALPHA


def test_dropping_every_undecided_proposal_is_rejected(monkeypatch):
    """Broken control: an undecided coin loses its point without another digit."""
    monkeypatch.setattr(RefinableNormal, "_settle", lambda *_: (False, None))
    normals = RefinableNormal(1).draw(60_000, Entropy())
    assert law_p_value(within_cells(normals, 1), stats.uniform.cdf) < ALPHA


@pytest.mark.parametrize("log2_cells", [1, 9])
def test_the_last_places_are_fair_and_a_stuck_one_is_rejected(log2_cells):
    drawn = RefinableNormal(log2_cells).draw(60_000, Entropy()).magnitude
    for place in (0, 1, 7, 20, 40):
        assert fair((drawn >> place) & 1) > ALPHA
    stuck = np.where(np.random.default_rng(0).random(drawn.size) < 0.05, drawn & ~1, drawn)
    assert fair(stuck & 1) < ALPHA


def test_further_digits_extend_the_first_and_are_fair():
    """Digits that a coin required are neither lost nor redrawn."""
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
def test_a_decided_coin_agrees_with_the_real_comparison(log2_cells, cell, word, shift):
    """Coins around the true probability: every decision is right at both ends of x."""
    sampler = RefinableNormal(log2_cells)
    low = max(2 * (cell >> (9 - log2_cells)) - 1, 0)
    half = PLACES - log2_cells - 1
    position = word & ((1 << half) - 1)
    digits = sampler._coin_bits
    x = ((low << half) + position) / 2.0**PLACES
    p = chance(low, x, log2_cells)
    coin = min(max(0, int(p * 2**digits) + shift), 2**digits - 1)
    kept, undecided = sampler._decide(np.array([low]), np.array([position]), np.array([coin]))
    if not undecided.size and abs(coin / 2**digits - p) > 1e-12 + 2.0**-digits:
        assert kept[0] == (coin / 2**digits > p)


def test_an_undecided_coin_and_its_position_get_more_digits():
    """W between the probabilities of x and of the next x: the digits after the 52nd decide."""
    sampler, low, position = RefinableNormal(), 2001, 5 << 40
    start = (low << (PLACES - 10)) + position
    known = 37 + 64
    one = 1 << known
    ends = [one - sampler._density_ratio(low, start + k, PLACES, known)[0] for k in (0, 1)]
    middle = (ends[0] + ends[1]) // 2
    coin, more = middle >> 64, (middle & (2**64 - 1)).to_bytes(8, "little")
    for fraction, kept in ((0, True), (2**64 - 1, False)):
        tape = Tape(more + fraction.to_bytes(8, "little"))
        assert sampler._settle(low, position, coin, tape) == (
            kept,
            Digits((start << 64) + fraction, PLACES + 64),
        )
        assert tape.at_end()


def test_a_coin_between_two_neighbours_gets_another_group():
    """Above the probability of x but not of the next x: both ends must be checked."""
    sampler, low, position = RefinableNormal(), 2001, 5 << 40
    start = ((low << (PLACES - 10)) + position) << 64

    def end(fraction: int) -> int:
        return (1 << 101) - sampler._density_ratio(low, start + fraction, PLACES + 64, 101)[0]

    least, most = 0, 2**64
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if end(middle) == end(0) else (least, middle)
    coin = end(least)
    assert coin < end(most)
    groups = (coin & (2**64 - 1)).to_bytes(8, "little") + least.to_bytes(8, "little")
    tape = Tape(groups + bytes([255] * 8) + (7).to_bytes(8, "little"))
    kept, x = sampler._settle(low, position, coin >> 64, tape)
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


def test_the_tail_continues_beyond_the_table():
    """A uniform of 95 zeros is 11.3 deviations, where the first check of a coin does not apply."""
    far = (0).to_bytes(4, "little") + bytes(2) + (1).to_bytes(8, "little") + bytes(7) + b"\x80"
    place = (0xFFFF << 48 | 123).to_bytes(8, "little")
    normals = RefinableNormal().draw(1, Tape(far + place + bytes(64)))
    assert 11.2 < values(normals)[0] < 11.5
    assert normals.magnitude[0] & 0xFFFF == 123


def test_cells_without_a_table_are_rejected():
    for log2_cells in (0, 10):
        with pytest.raises(ValueError, match="log2_cells"):
            RefinableNormal(log2_cells)
