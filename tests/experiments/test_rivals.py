"""Rivals of the literature: exact laws within e^ε, unbiased reports, and what they cost.

Laws are computed in rationals, with a rational r that agrees with e^ε in 60 digits: every law here
is a rational function of r, whose ratios are at most r for any r > 1. Statistical checks use ALPHA;
only those of exact reports are not seeded.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import offaxis
from experiments.rivals import RIVALS, FastProjUnit, Mvu, RotatedSimplex, Sqkr
from experiments.rivals import kashin as kashin_module
from experiments.rivals import simplex as simplex_module
from experiments.rivals.kashin import Frame, default_level
from experiments.rivals.public import public_places, seeded_nonces, transform
from experiments.rivals.sqkr import COIN
from experiments.rivals.tables import STEP, TOTAL, Table, best_table, table_text, within
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.randomizers import Piecewise, PrivUnit2, ProjUnit
from offaxis.randomizers.privunit import keep_probability
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.probability import exp_minus
from tests.checks import ALPHA, counts_p_value, mean_p_value

SMALL = (
    RotatedSimplex(3, 2.0, "3/2", directions=4),
    FastProjUnit(3, 2.0, "3/2", projected=2, directions=6, near=2),
    # At this level coefficients reach ±1, where the laws differ most.
    Sqkr(3, 2.0, "3/2", sampled=2, level=1.0),
    Mvu(3, 2.0, "3/2", sampled=2, bits=2, level=1.0),
)
IN_FIVE = tuple(cls(5, 1.0, 4) for cls in RIVALS)
W = np.array([0.5, -0.3, 0.0, 0.1, 0.2])
GRID = np.array(
    [*itertools.product((-2.0, 0.0, 0.7), repeat=3), [2e3, 0, 0], [0, 1e-9, 0], [-2.0, 2.0, 0.1]]
)


def named(mechanism):
    return mechanism.kind


def factor(epsilon):
    """Return a rational next to e^ε, from below."""
    _, high = exp_minus(epsilon, 200)
    return Fraction(1 << 200, high)


# ---- Exact laws


def near_law(mechanism, w, nonce):
    """Return the law of the symbol, where a sign encodes the length and a set is near."""
    r, size = factor(mechanism.epsilon), mechanism.directions
    kept = Fraction(float(keep_probability(w[None], mechanism.domain)[0]))
    chance = [Fraction(0)] * size
    for sign, share in ((1, kept), (-1, 1 - kept)):
        for index in mechanism.nearest(sign * w[None], nonce)[0]:
            chance[index] += share
    normaliser = mechanism.near * r + size - mechanism.near
    return [(1 + (r - 1) * q) / normaliser for q in chance]


def pattern_chances(mechanism, w, nonce):
    """Return the chance of every pattern that SQKR's device may name."""
    chances = []
    for pattern in range(mechanism.patterns):
        chance = Fraction(1)
        for place, mean in enumerate(mechanism.means(w[None], nonce)[0].tolist()):
            sign = 1 if pattern >> place & 1 else -1
            chance *= Fraction(COIN + sign * mean, 2 * COIN)
        chances.append(chance)
    return chances


def sqkr_law(mechanism, w, nonce):
    r = factor(mechanism.epsilon)
    chances = pattern_chances(mechanism, w, nonce)
    return [(1 + (r - 1) * q) / (r + mechanism.patterns - 1) for q in chances]


def mvu_law(mechanism, w, nonce, table=None):
    table = table or mechanism.law
    lower, above = (each[0].tolist() for each in table.cells(mechanism.numbers(w[None], nonce)))
    columns = [
        [
            Fraction((STEP - up) * table.weights[row][j] + up * table.weights[row + 1][j])
            / (STEP * TOTAL)
            for j in range(len(table.outputs))
        ]
        for row, up in zip(lower, above, strict=True)
    ]
    return products(columns)


def products(columns):
    """Return the chances of all choices of one column each; the first is in the lowest bits."""
    choices = itertools.product(*reversed(columns))
    return [math.prod(each, start=Fraction(1)) for each in choices]


def law(mechanism, w, nonce):
    if isinstance(mechanism, Sqkr):
        return sqkr_law(mechanism, w, nonce)
    return (mvu_law if isinstance(mechanism, Mvu) else near_law)(mechanism, w, nonce)


def worst_ratio(laws):
    return max(
        max(chances) / min(chances) for chances in zip(*laws, strict=True) if max(chances) > 0
    )


NONCES = seeded_nonces(3, np.random.default_rng(0))[:, None]


@pytest.mark.parametrize("mechanism", SMALL, ids=named)
def test_no_two_inputs_are_further_apart_than_e_to_the_epsilon(mechanism):
    bound = 1 / Fraction(exp_minus(mechanism.epsilon, 200)[0], 1 << 200)
    for nonce in NONCES:
        laws = [law(mechanism, w, nonce) for w in GRID]
        assert all(sum(each) == 1 for each in laws)
        ratio = worst_ratio(laws)
        assert 1 < ratio <= bound


def test_signs_reported_one_by_one_at_epsilon_each_exceed_it():
    """The control for SQKR: two signs with ε each are 2ε."""
    mechanism = SMALL[2]
    bound = factor(mechanism.epsilon)

    def each_sign_alone(w, nonce):
        means = [Fraction(n, COIN) for n in mechanism.means(w[None], nonce)[0].tolist()]
        share = (bound - 1) / (bound + 1)
        columns = [[(1 - share * mean) / 2, (1 + share * mean) / 2] for mean in means]
        return products(columns)

    for nonce in NONCES:
        assert worst_ratio([each_sign_alone(w, nonce) for w in GRID]) > bound


def test_a_threshold_in_place_of_a_count_exceeds_epsilon():
    """The control for near sets: the normaliser must not depend on w."""
    r = factor(Fraction(3, 2))
    codebook = np.random.default_rng(1).standard_normal((12, 3))

    def thresholded(w):
        near = codebook @ w > 1.0
        weights = [r if each else Fraction(1) for each in near]
        return [weight / sum(weights) for weight in weights]

    assert worst_ratio([thresholded(w) for w in GRID]) > r


def test_a_table_at_epsilon_for_each_of_two_coefficients_exceeds_it():
    mechanism = SMALL[3]
    table = best_table(mechanism.epsilon, mechanism.bits)
    laws = [mvu_law(mechanism, w, NONCES[0], table) for w in GRID]
    assert worst_ratio(laws) > factor(mechanism.epsilon)


@pytest.mark.parametrize("mechanism", SMALL, ids=named)
def test_reports_follow_the_exact_law(monkeypatch, mechanism):
    """The symbols of exact reports under one nonce; the law of the opposite vector is rejected."""
    nonce = NONCES[0]
    for name in ("near_sets", "sqkr", "mvu"):
        monkeypatch.setattr(
            f"experiments.rivals.{name}.draw_nonces", lambda count, _: np.tile(nonce, (count, 1))
        )
    w = np.array([0.9, -0.8, 0.3])
    payloads = mechanism.report(np.tile(w, (10_000, 1)), Entropy())
    symbols = [int.from_bytes(payload[12:], "little") for payload in payloads]
    expected = np.array([float(chance) for chance in law(mechanism, w, nonce)])
    observed = np.bincount(symbols, minlength=expected.size)
    assert counts_p_value(observed[expected > 0], expected[expected > 0]) > ALPHA
    opposite = np.array([float(chance) for chance in law(mechanism, -w, nonce)])
    assert counts_p_value(observed[expected > 0], opposite[expected > 0]) < ALPHA
    # The likelihood of the bytes is the same law.
    distinct = list(dict.fromkeys(payloads))
    likelihood = mechanism.log_likelihood(distinct, np.tile(w, (len(distinct), 1)))
    logs = np.log(expected[list(dict.fromkeys(symbols))])
    assert np.ptp(likelihood - logs) < 1e-9


# ---- Observations


@pytest.mark.parametrize("mechanism", IN_FIVE, ids=named)
@pytest.mark.parametrize("exact", [False, True], ids=["simulated", "exact"])
def test_observations_are_unbiased(mechanism, exact):
    """Inside the ball and in a dimension that is padded; a mean of 1.5 w is rejected."""
    many = np.tile(W, (12_000, 1))
    if exact:
        V = mechanism.read(mechanism.report(many, Entropy()))
    else:
        V = mechanism.simulate(many, np.random.default_rng(1))
    assert mean_p_value(V, W) > ALPHA
    assert mean_p_value(V, 1.5 * W) < ALPHA


@pytest.mark.parametrize("mechanism", IN_FIVE, ids=named)
def test_a_zero_vector_has_mean_zero(mechanism):
    V = mechanism.simulate(np.zeros((12_000, 5)), np.random.default_rng(2))
    assert mean_p_value(V, 0.0) > ALPHA
    assert mean_p_value(V, 0.3) < ALPHA


@pytest.mark.parametrize("mechanism", IN_FIVE, ids=named)
def test_exact_reports_agree_with_the_simulation(mechanism):
    """Components along the input and squared lengths; the opposite input is rejected."""
    many = np.tile(W, (8_000, 1))
    exact = mechanism.read(mechanism.report(many, Entropy()))
    seeded = mechanism.simulate(many, np.random.default_rng(3))
    for statistic in (lambda V: V @ W, lambda V: (V**2).sum(axis=1)):
        # Equal up to rounding counts as equal: lengths of some are constant.
        pair = [np.round(statistic(V), 9) for V in (exact, seeded)]
        assert stats.ks_2samp(*pair).pvalue > ALPHA
    assert stats.ks_2samp(np.round(exact @ W, 9), np.round(-seeded @ W, 9)).pvalue < ALPHA


@pytest.mark.parametrize("cls", RIVALS, ids=named)
@pytest.mark.parametrize("dim", [12, 64])
def test_expected_errors_are_those_of_draws(cls, dim):
    mechanism = cls(dim, 2.0, 4)
    pole = np.zeros((2_000, dim))
    pole[:, -1] = 2.0
    errors = ((mechanism.simulate(pole, np.random.default_rng(4)) - pole) ** 2).sum(axis=1)
    expected = mechanism.expected_squared_error()
    # Some expectations are averages over 64 frames, which leave up to a percent.
    allowed = 5 * errors.std() / math.sqrt(len(errors)) + 0.01 * expected
    assert abs(errors.mean() - expected) < allowed < 0.2 * expected


# ---- Closed forms


def test_a_simplex_of_two_vertices_is_a_pair_of_opposite_directions():
    for dim in (1, 4, 50):
        simplex = RotatedSimplex(dim, 1.0, 2, directions=2)
        pair = PrivUnit2(dim, 1.0, 2, directions=2, near=1)
        assert simplex.expected_squared_error() == pytest.approx(pair.expected_squared_error())


def test_a_projection_to_all_dimensions_is_privunit2():
    whole, ours = FastProjUnit(64, 1.0, 5, projected=64), PrivUnit2(64, 1.0, 5)
    assert whole.expected_squared_error() == pytest.approx(ours.expected_squared_error())


def best_of_ours(bits, epsilon):
    return min(
        PrivUnit2(256, 1.0, epsilon, 1 << bits, near).expected_squared_error()
        for near in range(1, 1 + (1 << bits - 1))
    )


@pytest.mark.parametrize(("bits", "epsilon"), [(3, 1), (6, 1), (2, 5), (6, 5)])
def test_a_simplex_errs_less_than_pairs_of_directions(bits, epsilon):
    """At the same number of bits it is better than ours."""
    simplex = RotatedSimplex(256, 1.0, epsilon, directions=1 << bits)
    assert simplex.expected_squared_error() < best_of_ours(bits, epsilon)


def test_at_two_bits_and_a_small_budget_pairs_are_better_than_a_simplex():
    """With half of the vertices near, two orthogonal pairs add up to more than a simplex."""
    simplex = RotatedSimplex(256, 1.0, 1, directions=4)
    assert best_of_ours(2, 1) < 0.95 * simplex.expected_squared_error()


def test_a_structured_projection_errs_less_than_a_gaussian_one():
    for dim in (64, 256, 1024):
        fast, ours = FastProjUnit(dim, 1.0, 5), ProjUnit(dim, 1.0, 5)
        assert fast.expected_squared_error() < ours.expected_squared_error()


def test_the_sum_of_the_largest_normal_numbers():
    rng = np.random.default_rng(5)
    largest = -np.sort(-rng.standard_normal((40_000, 16)), axis=1)
    for near in (1, 3, 8):
        sums = largest[:, :near].sum(axis=1)
        assert mean_p_value(sums, simplex_module._near_sum(16, near)) > ALPHA
        assert mean_p_value(sums, 1.05 * simplex_module._near_sum(16, near)) < ALPHA


# ---- Parts


@pytest.mark.parametrize("vertices", [2, 3, 4, 8])
def test_the_codebook_is_a_regular_simplex(vertices):
    codebook = RotatedSimplex(7, 1.0, 1, directions=vertices).codebook(NONCES[:, 0])
    gram = codebook @ np.swapaxes(codebook, 1, 2)
    expected = (vertices * np.eye(vertices) - 1) / (vertices - 1)
    np.testing.assert_allclose(gram, np.broadcast_to(expected, gram.shape), atol=1e-12)
    assert not np.allclose(codebook[0], codebook[1])


def test_the_transform_is_the_hadamard_matrix():
    for size in (1, 2, 8, 64):
        H = transform(np.eye(size))
        np.testing.assert_allclose(H @ H, np.eye(size), atol=1e-12)
        np.testing.assert_allclose(np.abs(H), 1 / math.sqrt(size))


def test_public_places_are_distinct_and_uniform():
    places = public_places(
        seeded_nonces(8_000, np.random.default_rng(6)), 8, 3, b"a test of places"
    )
    assert all(len(set(row)) == 3 for row in places.tolist())
    assert counts_p_value(np.bincount(places.ravel(), minlength=8), np.full(8, 1 / 8)) > ALPHA


@pytest.mark.parametrize("dim", [3, 16, 100])
def test_kashin_coefficients_are_bounded_and_nearly_complete(dim):
    frame = Frame(dim, default_level(dim))
    rng = np.random.default_rng(7)
    nonces = seeded_nonces(400, rng)
    for vectors in (rng.standard_normal((400, dim)), np.eye(dim)[np.zeros(400, dtype=int)]):
        U = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        assert np.abs(frame.coefficients(U, nonces)).max() <= 1
        lacking = frame.lacking(U, nonces)
        assert (lacking > 1e-6).mean() < 0.01
        assert lacking.mean() < 1e-3
    # A control: with the least level of any frame, most coefficients are clipped.
    tight = Frame(dim, 1.26).lacking(rng.standard_normal((400, dim)) / math.sqrt(dim), nonces)
    assert dim == 3 or (tight > 1e-6).mean() > 0.1


def test_the_number_of_steps_does_not_depend_on_the_vector(monkeypatch):
    steps = []
    synthesised = kashin_module._Expanded.synthesised
    monkeypatch.setattr(
        kashin_module._Expanded,
        "synthesised",
        lambda self, a: (steps.append(1), synthesised(self, a))[1],
    )
    for row in (np.zeros((1, 4)), np.eye(4)[:1], np.full((1, 4), 0.5)):
        steps.clear()
        Frame(4, 2.5).coefficients(row, NONCES[0])
        assert len(steps) == kashin_module._STEPS


# ---- Tables


def test_a_table_of_one_bit_is_randomized_response():
    table = best_table(Fraction(2), 1)
    largest = (math.exp(2) + 1) / (math.exp(2) - 1)
    np.testing.assert_allclose(table.outputs, [-largest, largest], rtol=1e-5)


@pytest.mark.parametrize("epsilon", ["1", "3"])
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_tables_are_unbiased_and_never_exceed_epsilon(epsilon, bits):
    table = best_table(Fraction(epsilon), bits)
    assert within(table.weights, Fraction(epsilon))
    assert not within(table.weights, Fraction(epsilon) * Fraction(999, 1000))
    np.testing.assert_allclose(table.means(), np.linspace(-1, 1, 1 << bits), atol=3e-6)


def test_more_bits_have_less_variance_and_less_than_the_piecewise_randomizer():
    """One finding of the benchmark: the worst variance of a number at ε = 3."""
    x = np.linspace(-1, 1, 101)
    worst = [(best_table(Fraction(3), bits).second_moment(x) - x**2).max() for bits in (1, 2, 3)]
    assert worst[0] > worst[1] > worst[2]
    assert worst[2] < 0.8 * Piecewise(1, 1.0, 3).expected_squared_error()


def test_a_table_that_exceeds_epsilon_cannot_exist():
    good = best_table(Fraction(1), 2)
    weights = [list(row) for row in good.weights]
    used = [j for j in range(4) if weights[0][j]]
    low, high = used[0], used[-1]
    weights[0][low] += weights[0][high] // 10
    weights[0][high] -= weights[0][high] // 10
    with pytest.raises(InvalidInput, match="exceed"):
        Table(table_text(weights, good.integers), Fraction(1))
    with pytest.raises(InvalidInput, match="exceed"):
        Table(good.text, Fraction(99, 100))
    with pytest.raises(InvalidInput, match="exceed"):  # an output that only one row uses
        Table(table_text([[TOTAL - 1, 1], [TOTAL, 0]], [-STEP, STEP]), Fraction(50))


@pytest.mark.parametrize(
    "text", ["", "1=1", f"{TOTAL},0=1,2", "a/b=c", f"{TOTAL}/0=1", f"{TOTAL}/{TOTAL}=1,2"]
)
def test_malformed_tables_are_rejected(text):
    with pytest.raises(InvalidInput):
        Table(text, Fraction(1))
    spaced = best_table(Fraction(1), 1).text.replace(",", ", ")
    with pytest.raises(InvalidInput, match="canonical"):
        Table(spaced, Fraction(1))


# ---- Payloads and releases


@pytest.mark.parametrize(
    ("mechanism", "size", "bits"),
    [
        (RotatedSimplex(300, 1.0, 5, directions=256), 13, 8.0),
        (RotatedSimplex(300, 1.0, 5, directions=301), 14, math.log2(301)),
        (FastProjUnit(64, 1.0, 5, 572, 19, 16), 14, math.log2(572)),
        (Sqkr(64, 1.0, 5, sampled=8), 13, 8.0),
        (Sqkr(64, 1.0, 5, sampled=9), 14, 9.0),
        (Mvu(64, 1.0, 5, sampled=3, bits=3), 14, 9.0),
    ],
    ids=str,
)
def test_payloads_have_the_stated_size(mechanism, size, bits):
    points = np.eye(mechanism.dim)[:2]
    payloads = mechanism.report(points, Entropy())
    assert mechanism.payload_size == size == len(payloads[0])
    assert mechanism.information_bits == bits
    assert mechanism.read(payloads).shape == points.shape


@pytest.mark.parametrize("mechanism", IN_FIVE, ids=named)
def test_payloads_that_no_device_sends_are_rejected(mechanism):
    (good,) = mechanism.report(W[None], Entropy())
    for bad in (good[:-1], good + b"\0", good[:-1] + b"\xff"):
        with pytest.raises(InvalidReport):
            mechanism.read([good, bad])


@pytest.mark.parametrize("mechanism", IN_FIVE, ids=named)
def test_only_real_randomness_makes_reports(mechanism):
    with pytest.raises(TypeError, match="Entropy"):
        mechanism.report(W[None], np.random.default_rng(0))


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (RotatedSimplex, {"directions": 7}),
        (RotatedSimplex, {"directions": 4, "near": 4}),
        (FastProjUnit, {"projected": 9}),
        (FastProjUnit, {"projected": 4, "directions": 7, "near": 1}),
        (Sqkr, {"sampled": 0}),
        (Sqkr, {"sampled": 25}),
        (Mvu, {"bits": 4}),
        (Mvu, {"sampled": 2, "bits": 2, "table": "1,1=1,1"}),
        (Mvu, {"sampled": 2, "bits": 1, "table": best_table(Fraction(4), 1).text}),
    ],
)
def test_impossible_parameters_are_rejected(cls, settings):
    with pytest.raises(InvalidInput):
        cls(5, 1.0, 4, **settings)


@pytest.mark.parametrize("cls", RIVALS, ids=named)
def test_releases_hold_them(cls, tmp_path):
    public = np.random.default_rng(8).standard_normal((400, 6))
    release = offaxis.fit(None, public, epsilon=4, mechanism=cls.kind, reshaping="none")
    assert "not part of offaxis" in repr(release)
    release.save(tmp_path / "rival.release")
    assert offaxis.load(tmp_path / "rival.release") == release
    reports = release.privatize(public)
    assert release.decode(reports[0]).shape == (6,)
    low, high = release.aggregate(reports).interval(0.999, largest=5.0)
    assert np.all(low < public.mean(axis=0))
    assert np.all(public.mean(axis=0) < high)


@pytest.mark.parametrize("mechanism", IN_FIVE, ids=named)
@pytest.mark.parametrize("size", [1e300, 1e-310, 1e5])
def test_vectors_of_any_size_are_reported(mechanism, size):
    payloads = mechanism.report(size * np.array([[1.0, -1.0, 0.5, 0.0, 1e-3]]), Entropy())
    assert np.isfinite(mechanism.read(payloads)).all()
