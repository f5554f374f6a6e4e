"""The rounded spherical Laplace law: cells, lengths, open roundings, and twins to catch."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from offaxis.sampling import spherical as rounded_spherical
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.spherical import PLACES, Digits, Normals, RoundedSpherical, _length, _squares
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
def test_on_the_line_it_is_the_rounded_laplace_law(log2_scale):
    """Pr[K = k] = sinh(1/2t) e^{−|k|/t}, and the rest at zero."""
    t = 2.0**log2_scale
    reach = int(6 * t)
    k = np.abs(np.arange(-reach, reach + 1))
    law = np.where(k == 0, -np.expm1(-0.5 / t), np.sinh(0.5 / t) * np.exp(-k / t))
    law[[0, -1]] = np.exp(-(reach - 0.5) / t) / 2
    samples = RoundedSpherical(1, log2_scale).draw(COUNT, Entropy())[:, 0]
    counts = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=k.size)
    assert counts_p_value(counts, law) > ALPHA
    truncated = np.random.default_rng(0).laplace(scale=t, size=COUNT).astype(int)
    twin = np.bincount(np.clip(truncated, -reach, reach) + reach, minlength=k.size)
    assert counts_p_value(twin, law) < ALPHA


def test_in_the_plane_every_cell_has_its_mass():
    law = planar_cells(4)
    inside = np.append(law.ravel(), 1 - law.sum())
    samples = RoundedSpherical(2, 0).draw(2 * COUNT, Entropy())

    def p_value(rows: np.ndarray) -> float:
        near = (np.abs(rows) <= 4).all(axis=1)
        index = np.where(near, (rows + 4) @ [9, 1], 81)
        return counts_p_value(np.bincount(index, minlength=82), inside)

    assert p_value(samples) > ALPHA
    # Twins: independent Laplace coordinates of the same variance; a rotation off the lattice.
    rng = np.random.default_rng(1)
    independent = np.rint(rng.laplace(scale=np.sqrt(1.5), size=samples.shape)).astype(int)
    assert p_value(independent) < ALPHA
    assert p_value(np.stack([samples[:, 0], samples[:, 0]], axis=1)) < ALPHA


@pytest.mark.parametrize("dim", [1, 2, 3, 8, 64])
def test_the_length_has_the_gamma_law(dim):
    """Also across chunks, at the scale of real releases."""
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


def test_a_length_of_one_normal_too_few_would_be_caught(monkeypatch):
    """The twin: h in R^m instead of R^{m+1}."""
    lengths = RoundedSpherical._lengths
    monkeypatch.setattr(RoundedSpherical, "_lengths", lambda self, h: lengths(self, h[:, 1:]))
    samples = RoundedSpherical(8, 16).draw(20_000, Entropy())
    assert law_p_value(radii(samples, 16), stats.gamma(8).cdf) < ALPHA


def test_one_normal_for_all_coordinates_would_be_caught(monkeypatch):
    """The twin: g shared by the coordinates of a row."""
    enclosed = RoundedSpherical._enclosed
    monkeypatch.setattr(
        RoundedSpherical,
        "_enclosed",
        lambda self, h, g: enclosed(self, h, np.repeat(g[:, :1], g.shape[1], axis=1)),
    )
    samples = RoundedSpherical(3, 16).draw(2000, Entropy()).astype(float)
    samples = samples[samples.any(axis=1)]  # the twin may well have a row of zeros
    cosine = samples[:, 0] / np.linalg.norm(samples, axis=1)
    assert law_p_value(cosine, stats.uniform(-1, 2).cdf) < ALPHA


def test_low_digits_are_fair_and_a_stuck_one_is_caught():
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
        assert above <= low + rounded_spherical._SQUARE_SLACK


def rounding(h: list[int], g: int, log2_scale: int, up: int) -> int:
    """round(t‖h‖g) of the lower or upper ends, in high precision."""
    with mpmath.workdps(60):
        length = mpmath.sqrt(sum((x + up) ** 2 for x in h))
        x = length * (g + up) * mpmath.mpf(2) ** (log2_scale - 2 * PLACES)
        return int(mpmath.floor(x + mpmath.mpf(1) / 2))


@given(st.data())
def test_what_is_not_left_open_is_rounded_right_at_both_ends(data):
    """Also next to a half, where a careless enclosure would decide too early."""
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
def test_the_length_of_whole_digits_is_enclosed(values, extra):
    """By squares: below² <= Σx² and Σ(x + 1)² <= above², of the digits cut to 52 places."""
    numbers = [Digits((x << extra) + extra, PLACES + extra) for x in values]
    below, above = _length(numbers, PLACES)
    assert below**2 <= sum(x * x for x in values)
    assert sum((x + 1) ** 2 for x in values) <= above**2


def test_few_roundings_stay_open():
    """At the scale of real releases, less than one coordinate in a hundred thousand."""
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
    """Two ways to the same rounding: 64-bit words, and whole numbers of any length."""
    sampler, size = RoundedSpherical(5, 16), 1 << 16
    quick = sampler.draw(100, Tape.named("rows", size))
    monkeypatch.setattr(rounded_spherical, name, 1 if name == "_FAR" else 1 << 61)
    calls = []
    settle = RoundedSpherical._settle
    monkeypatch.setattr(
        RoundedSpherical, "_settle", lambda self, *a: calls.append(1) or settle(self, *a)
    )
    assert np.array_equal(sampler.draw(100, Tape.named("rows", size)), quick)
    assert len(calls) == 100


def settled(tape: Tape, h: list[Digits], g: Digits) -> int:
    """The magnitude of one coordinate on the line, t = 1, decided with digits from the tape."""
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
"""The last number before 3/8: with a length of 4 its product ends just before 3/2."""


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
    """(4 + a)(3/8 − b) against 3/2, a and b from the tape: no guess is right every time."""
    _, undecided = RoundedSpherical(1, 0)._enclosed(
        np.array([[FOUR.value, 0]]), np.array([[BELOW.value]])
    )
    assert undecided.all()
    tape = Tape(b"".join(digits))
    assert settled(tape, [FOUR, ZERO], BELOW) == expected
    assert tape.at_end()


def test_digits_that_a_coin_has_used_are_not_drawn_again():
    """The same three numbers, two of them with the digits that their acceptance took."""
    used = [Digits(((4 << PLACES) << 64) + 2**64 - 1, PLACES + 64), ZERO]
    g = Digits((BELOW.value << 64) + 2**64 - 1, PLACES + 64)
    tape = Tape(ZEROS)
    assert settled(tape, used, g) == 2
    assert tape.at_end()


def test_rows_of_a_batch_keep_to_their_own_numbers(monkeypatch):
    """An open row in the middle of a batch is settled from its own digits."""
    sampler = RoundedSpherical(1, 0)
    magnitudes = np.array([[1, 1, 1], [FOUR.value, 0, BELOW.value], [2, 2, 2]])
    negative = np.array([[False] * 3, [False, False, True], [False] * 3])
    normals = Normals(negative.ravel(), magnitudes.ravel(), {})

    class Fixed:
        def draw(self, count, bits):
            assert count == 9
            return normals

    monkeypatch.setattr(rounded_spherical, "_normal", Fixed())
    assert sampler.draw(3, Tape(ONES + ZEROS + ONES)).tolist() == [[0], [-2], [0]]


def test_scales_and_dimensions_out_of_range_are_refused():
    for dim, log2_scale in ((1, -1), (1, 26), (0, 3), ((1 << 20) + 1, 3)):
        with pytest.raises(ValueError, match="must lie in"):
            RoundedSpherical(dim, log2_scale)
