"""ProjUnit: pure by counting, unbiased after a random projection, and simulated by its law.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from offaxis.errors import InvalidInput
from offaxis.randomizers import directions, projunit
from offaxis.randomizers.base import LARGEST_DIM
from offaxis.randomizers.privunit import INPUT_BOUND, PrivUnitG, gaussian_log_density
from offaxis.randomizers.projunit import ProjUnit, most_projected
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, counts_p_value, mean_p_value

NONCES = np.frombuffer(hashlib.shake_128(b"proj").digest(12 * 5), dtype=np.uint8).reshape(5, 12)
any_float = st.floats(allow_nan=False, allow_infinity=False, width=64)
vector = st.lists(any_float | st.floats(-2, 2), min_size=5, max_size=5).map(np.array)
target = st.sampled_from(["direction", "vector"])


def small(target="direction", epsilon=2) -> ProjUnit:
    return ProjUnit(5, 1.5, Fraction(epsilon), directions=20, near=3, target=target, projected=3)


def rng(seed) -> np.random.Generator:
    return np.random.default_rng(seed)


def law(randomizer, w, nonce: bytes) -> np.ndarray:
    """Pr[index | w, nonce], from the likelihood of all payloads of the nonce."""
    count, near = randomizer.directions, randomizer.near
    payloads = [nonce + i.to_bytes(4, "little") for i in range(count)]
    weight = np.exp(randomizer.log_likelihood(payloads, np.tile(w, (count, 1))))
    return weight / (near * math.exp(randomizer.epsilon) + count - near)


@given(vector, vector, st.binary(min_size=12, max_size=12), target)
def test_no_pair_of_inputs_is_further_apart_than_e_to_the_epsilon(w, other, nonce, target):
    """In closed form for every index, including tiny, zero and huge vectors."""
    first, second = (law(small(target), x, nonce) for x in (w, other))
    assert first.sum() == pytest.approx(1, rel=1e-12)
    assert second.sum() == pytest.approx(1, rel=1e-12)
    assert max((first / second).max(), (second / first).max()) <= math.exp(2) * (1 + 1e-12)


@pytest.mark.parametrize("target", ["direction", "vector"])
def test_the_worst_pair_attains_the_bound(target):
    randomizer = small(target)
    first, second = (law(randomizer, w, bytes(NONCES[0])) for w in randomizer.worst_pair())
    assert (first / second).max() == pytest.approx(math.exp(2), rel=1e-12)
    assert (second / first).max() == pytest.approx(math.exp(2), rel=1e-12)


@given(st.lists(vector, min_size=1, max_size=5).map(np.stack))
def test_exactly_c_directions_are_near_for_any_vector(W):
    near = small().nearest(W, NONCES[: len(W)])
    assert near.shape == (len(W), 3)
    assert (np.diff(near >> 1, axis=1) > 0).all()
    assert set(near.ravel()) <= set(range(20))


def test_a_wrong_projection_costs_no_privacy(monkeypatch):
    noise = lambda nonces, k, inputs, **_: rng(1).standard_normal((len(inputs), k)) * 1e9  # noqa: E731
    monkeypatch.setattr(projunit, "products", noise)
    near = small().nearest(np.ones((5, 5)), NONCES)
    assert near.shape == (5, 3)
    assert (np.diff(near >> 1, axis=1) > 0).all()


@pytest.mark.parametrize("target", ["direction", "vector"])
def test_reported_indices_follow_the_closed_form(monkeypatch, target):
    randomizer, w = small(target), np.array([0.3, -0.4, 0.2, 0.7, 0.1])
    original = ProjUnit.nearest
    same = lambda self, W, nonces: original(self, W, np.tile(NONCES[0], (len(W), 1)))  # noqa: E731
    expected, broken = (law(randomizer, x, bytes(NONCES[0])) for x in (w, -w))
    monkeypatch.setattr(ProjUnit, "nearest", same)
    payloads = randomizer.report(np.tile(w, (40_000, 1)), Entropy())
    counts = np.bincount([int.from_bytes(p[12:], "little") for p in payloads], minlength=20)
    assert counts_p_value(counts, expected) > ALPHA
    assert counts_p_value(counts, broken) < ALPHA


def plain_rows(key: bytes, nonce: bytes, count: int, dim: int) -> list[list[int]]:
    """A second implementation of the specification: the key stream of one AES counter."""
    blocks = -(-dim // 8)
    stream = Cipher(algorithms.AES(key), modes.CTR(nonce + bytes(4))).encryptor()
    octets = stream.update(bytes(16 * blocks * count))
    starts = range(0, len(octets), 16 * blocks)
    words = [[octets[s + 2 * i] + 256 * octets[s + 2 * i + 1] for i in range(dim)] for s in starts]
    return [[int(directions.table()[word]) for word in row] for row in words]


@pytest.mark.parametrize(("dim", "k"), [(5, 3), (17, 9), (8, 8), (1, 1)])
def test_ranking_and_reading_are_those_of_the_specification(dim, k):
    randomizer = ProjUnit(dim, 1.0, Fraction(2), projected=k, directions=20, near=3)
    W = np.random.default_rng(dim).standard_normal((len(NONCES), dim))
    steps, near = randomizer.integers(W).tolist(), randomizer.nearest(W, NONCES).tolist()
    scale = randomizer.radius / randomizer.mean / directions.spread() ** 2
    for row, nonce in enumerate(map(bytes, NONCES)):
        matrix = plain_rows(b"offaxis proj v1.", nonce, k, dim)
        public = plain_rows(b"offaxis rank v1.", nonce, 10, k)
        image = [sum(a * n for a, n in zip(line, steps[row], strict=True)) for line in matrix]
        length = math.sqrt(sum(x * x for x in image))
        laid = [int(x / length * INPUT_BOUND) for x in image]
        score = [sum(a * n for a, n in zip(g, laid, strict=True)) for g in public]
        order = sorted(range(10), key=lambda j: (-abs(score[j]), j))[:3]
        assert near[row] == sorted(2 * j + (score[j] < 0) for j in order)
        for index in (0, 7, 19):
            side = scale * (-1) ** index
            back = np.array(public[index >> 1]) @ np.array(matrix)
            observation = randomizer.read([nonce + index.to_bytes(4, "little")])[0]
            np.testing.assert_allclose(observation, side * back, rtol=1e-12)


def test_sums_are_exact_in_every_dimension_and_in_any_chunks(monkeypatch):
    largest = int(directions.table().max())
    assert INPUT_BOUND * largest * math.isqrt(LARGEST_DIM) < 2**53
    assert largest**2 * LARGEST_DIM < 2**53
    weights = np.random.default_rng(0).choice(directions.table(), (5, 7))
    whole = directions.combination(NONCES, weights, 9)
    g = directions.expand(NONCES, np.tile(np.arange(7), (5, 1)), 9).astype(np.int64)
    assert (whole == (g * weights.astype(np.int64)[:, :, None]).sum(axis=1)).all()
    monkeypatch.setattr(directions, "_CHUNK_NUMBERS", 20)
    assert (directions.combination(NONCES, weights, 9) == whole).all()


def observed(randomizer, w, count) -> np.ndarray:
    return randomizer.read(randomizer.report(np.tile(w, (count, 1)), Entropy()))


@pytest.mark.parametrize(("dim", "k", "epsilon"), [(6, 3, 4), (12, 8, 2), (1, 1, 1)])
def test_real_reports_are_unbiased_for_the_direction_with_the_stated_error(dim, k, epsilon):
    """On an axis and off it; the broken control uses √k for the mean length of a projection."""
    randomizer = ProjUnit(dim, 2.0, epsilon, projected=k)
    for w in (np.eye(dim)[0], np.random.default_rng(dim).standard_normal(dim)):
        expected = 2.0 * w / np.linalg.norm(w)
        V = observed(randomizer, w, 30_000)
        assert mean_p_value(V, expected) > ALPHA
        assert mean_p_value(V @ expected / 2, 2.0) > ALPHA
        error = ((V - expected) ** 2).sum(axis=1)
        assert mean_p_value(error, randomizer.expected_squared_error()) > ALPHA
        assert mean_p_value(0.75 * error, randomizer.expected_squared_error()) < ALPHA
    if k == 3:
        broken = V @ expected / 2 * (math.sqrt(2) * math.gamma(2) / math.gamma(1.5)) / math.sqrt(3)
        assert mean_p_value(broken, 2.0) < ALPHA


def test_a_projection_from_the_key_stream_of_the_directions_would_be_biased(monkeypatch):
    randomizer, w = ProjUnit(4, 1.0, Fraction(4), projected=2, directions=2, near=1), np.eye(4)[0]
    assert mean_p_value(observed(randomizer, w, 20_000), w) > ALPHA
    monkeypatch.setattr(projunit, "PROJECTION_KEY", directions.PUBLIC_KEY)
    assert mean_p_value(observed(randomizer, w, 20_000), w) < ALPHA


def test_with_the_vector_as_target_reports_are_unbiased_for_the_vector():
    randomizer = ProjUnit(6, 2.0, Fraction(4), projected=4, target="vector")
    assert randomizer.unbiased
    w = 0.5 * np.array([0.6, 0.0, -0.64, 0.48, 0.0, 0.0])
    assert mean_p_value(observed(randomizer, w, 30_000), w) > ALPHA
    assert mean_p_value(observed(randomizer, 4 * w, 30_000), w) < ALPHA
    assert mean_p_value(draw_observations(randomizer, np.tile(w, (60_000, 1)), rng(3)), w) > ALPHA


@pytest.mark.parametrize(("dim", "k", "epsilon"), [(6, 3, 4), (20, 16, 3)])
def test_simulation_has_the_law_of_real_reports(dim, k, epsilon):
    """Component and length; the broken control is PrivUnitG."""
    randomizer = ProjUnit(dim, 1.0, epsilon, projected=k)
    w = rng(dim).standard_normal(dim)
    u = w / np.linalg.norm(w)
    real = observed(randomizer, w, 30_000)

    def p_values(V) -> list[float]:
        pairs = [(V @ u, real @ u), (*(np.linalg.norm(x, axis=1) for x in (V, real)),)]
        return [stats.ks_2samp(*pair).pvalue for pair in pairs]

    W = np.tile(w, (100_000, 1))
    assert min(p_values(draw_observations(randomizer, W, rng(0)))) > ALPHA
    plain = PrivUnitG(dim, 1.0, epsilon, directions=randomizer.directions, near=randomizer.near)
    assert max(p_values(draw_observations(plain, W, rng(2)))) < ALPHA


@pytest.mark.parametrize(("dim", "epsilon"), [(1, 1), (2, 4), (8, 6), (64, 7.5), (400, 3)])
def test_simulation_is_unbiased_with_the_stated_error(dim, epsilon):
    randomizer = ProjUnit(dim, 2.0, epsilon)
    w = rng(17).standard_normal(dim)
    expected = 2.0 * w / np.linalg.norm(w)
    V = draw_observations(randomizer, np.tile(w, (20_000, 1)), rng(dim))
    assert mean_p_value(V, expected) > ALPHA
    error = ((V - expected) ** 2).sum(axis=1)
    assert mean_p_value(error, randomizer.expected_squared_error()) > ALPHA
    assert mean_p_value(0.85 * error, randomizer.expected_squared_error()) < ALPHA


@pytest.mark.parametrize(("dim", "k"), [(6, 3), (9, 9), (3, 1), (40, 12)])
def test_weighting_by_the_inverse_density_removes_the_dependence_on_the_input(monkeypatch, dim, k):
    """Weighted by 1/density, reports have the moments of a public Gᵀg; the control uses ‖Gu‖."""
    randomizer = ProjUnit(dim, 1.0, Fraction(3), projected=k)
    u = np.tile(np.eye(dim)[0], (1000, 1))
    V = draw_observations(randomizer, u, rng(dim))
    x = V * randomizer.mean
    along, square = x[:, 0] ** 2, (x**2).sum(axis=1)
    shape = np.stack([np.ones(len(x)), x[:, 0] > 0, along, square, along * square], axis=1)
    moments = np.array([1, 0.5, k, k * dim, k * (k + 2) * (dim + 2)]) * randomizer.ranks.background

    def p_value() -> float:
        return mean_p_value(shape * np.exp(-randomizer.log_density(V, u))[:, None], moments)

    assert p_value() > ALPHA
    monkeypatch.setattr(
        ProjUnit,
        "_log_density",
        lambda self, V, U: gaussian_log_density(self.ranks, x[:, 0] / math.sqrt(k)),
    )
    assert p_value() < ALPHA


@pytest.mark.parametrize(("dim", "k"), [(6, 3), (9, 9), (60, 2)])
def test_the_density_is_the_integral_over_both_hidden_lengths(dim, k):
    """Against a much finer midpoint rule in log ‖g‖ and in quantiles of χ²."""
    randomizer = ProjUnit(dim, 1.0, Fraction(6), projected=k)
    u = np.eye(dim)[[0, 0]]
    V = np.abs(draw_observations(randomizer, u, rng(k)))
    hidden = stats.chi2.ppf((np.arange(2000) + 0.5) / 2000, k - 1)
    s = np.linspace(-8, 4, 400)[:, None]
    for v, log_density in zip(V * randomizer.mean, randomizer.log_density(V, u), strict=True):
        fall = (dim - k) * s + (np.exp(2 * s) + v @ v * np.exp(-2 * s)) / 2
        weight = np.exp(fall.min() - fall)[:, 0]
        image = np.sqrt(v[0] ** 2 * np.exp(-2 * s) + hidden)
        ratio = np.exp(gaussian_log_density(randomizer.ranks, v[0] / image)).mean(axis=1)
        assert log_density == pytest.approx(math.log(weight @ ratio / weight.sum()), abs=2e-3)


@pytest.mark.parametrize("dim", [1, 2, 5, 64])
def test_the_density_ratio_never_exceeds_e_to_the_epsilon(dim):
    randomizer = ProjUnit(dim, 2.0, Fraction(3))
    W, X = rng(dim).standard_normal((2, 200, dim))
    X[:50] = -W[:50]
    V = draw_observations(randomizer, W, rng(dim))
    ratio = randomizer.log_density(V, W) - randomizer.log_density(V, X)
    assert np.abs(ratio).max() <= 3 * (1 + 1e-12)
    assert ratio.max() > 1


def test_reports_do_not_depend_on_the_length_of_the_input():
    randomizer = ProjUnit(4, 1.0, Fraction(5), projected=3)
    w = np.array([1.0, -2.0, 0.5, 0.0])
    W = np.stack([w * size for size in (1.0, 2.0**-1060, 2.0**900, 2.0**-500)])
    near = randomizer.nearest(W, np.tile(NONCES[0], (4, 1)))
    assert (near == near[0]).all()


def test_zero_tiny_and_huge_vectors_are_reported_like_any_other():
    randomizer = ProjUnit(3, 1.0, Fraction(4), projected=2)
    W = np.vstack([np.zeros(3), np.full(3, 5e-324), np.full(3, -1.7e308)])
    V = randomizer.read(randomizer.report(W, Entropy()))
    assert np.isfinite(V).all()
    assert np.isfinite(draw_observations(randomizer, W, rng(0))).all()
    assert np.isfinite(randomizer.log_density(V, W)).all()
    assert mean_p_value(observed(randomizer, np.zeros(3), 20_000), 0.0) > ALPHA
    assert mean_p_value(observed(randomizer, np.full(3, 5e-324), 20_000), 0.0) < ALPHA


@pytest.mark.parametrize("projected", [0, -2, 9, 2.5, True, 1 << 40])
def test_an_impossible_projection_is_rejected(projected):
    with pytest.raises(InvalidInput, match="projected"):
        ProjUnit(8, 1.0, Fraction(1), projected=projected)


def test_no_file_can_make_a_report_expensive():
    for dim in (1, 9, 5000, 40_000, LARGEST_DIM):
        most = most_projected(dim)
        assert 1 <= most <= dim
        assert most * -(-dim // 8) <= 1 << 22
    with pytest.raises(InvalidInput, match="projected"):
        ProjUnit(LARGEST_DIM, 1.0, Fraction(1), directions=2, near=1, projected=33)
    with pytest.raises(InvalidInput, match="directions"):
        ProjUnit(LARGEST_DIM, 1.0, Fraction(1), directions=1 << 30, near=1, projected=32)


@pytest.mark.parametrize(("dim", "epsilon"), [(768, 4), (4096, 8), (16_384, 12)])
def test_the_chosen_projection_is_small_and_loses_little(dim, epsilon):
    chosen, full = ProjUnit(dim, 1.0, epsilon), PrivUnitG(dim, 1.0, epsilon)
    assert chosen.projected <= dim / 6
    assert chosen.expected_squared_error() <= 1.04 * full.expected_squared_error()
    half = ProjUnit(dim, 1.0, epsilon, projected=chosen.projected // 2)
    assert half.expected_squared_error() > 1.02 * chosen.expected_squared_error()
    # The chosen numbers are stored, so that a copy or a loaded file is equal.
    assert dataclasses.replace(chosen) == chosen
