"""Every statement of docs/proofs.md, sections 24 and 25, against enumeration, quadrature or draws.

A check with draws raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp

from offaxis.encoding.pairs import NO_ANSWER, pair_encoder, simplex
from offaxis.randomizers import KaryResponse, PrivUnit2, SubsetSelection, directions, privunit
from offaxis.randomizers.base import Ball
from offaxis.randomizers.caps import angle_moment, sphere_cap
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, mean_p_value

EPSILONS = (0.5, 1, 2, 4)
PAGE = (Path(__file__).parents[2] / "docs/proofs.md").read_text()
SECTIONS = PAGE.split("\n## 24. ")[1].split("\n## 26. ")[0]


def best(dim, epsilon):
    """Return A² of the best cap."""
    return sphere_cap(epsilon, dim).mean ** 2


def limit(epsilon):
    return math.sinh(epsilon / 2) ** 2


def row_of_table(label):
    """Return the numbers of a row of a table on the page."""
    line = next(line for line in SECTIONS.splitlines() if line.startswith(f"| {label} |"))
    return [float(cell) for cell in line.split("|")[2:-1]]


def agrees(label, computed, digits=3):
    """Whether the figures on the page are those computed, rounded."""
    return row_of_table(label) == [float(f"{value:.{digits}g}") for value in computed]


def test_the_page_names_every_test_here_and_no_other():
    named = set(re.findall(r"`(test_\w+)`", SECTIONS))
    here = {name for name, value in globals().items() if name.startswith("test_")}
    assert named == here - {"test_the_page_names_every_test_here_and_no_other"}


# ---- 24.1, 24.2: privacy

vectors = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2)
answers = st.sampled_from([0.0, 1.0, 2.0, 7.0, NO_ANSWER])
rows = st.builds(lambda z, y: np.array([*z, y]), vectors, answers)
MOMENTS = pair_encoder("moments", "relu")([np.eye(2)], [np.ones(2)], [[3, 0, 0, 1]])
CELLS = pair_encoder("cells", "relu")([np.eye(2)], [np.ones(2)], [[2, 0, 0, 1]])


def index_law(randomizer, w, nonce):
    """Pr[index | w, nonce] in closed form, for both targets."""
    law = np.zeros(randomizer.directions)
    kept = 1.0
    if randomizer.target == "vector":
        kept = privunit.keep_probability(w[None], Ball(randomizer.dim, 1.0, 2))[0]
    for share, signed in ((kept, w), (1 - kept, -w)):
        weight = np.ones(randomizer.directions)
        weight[randomizer.nearest(signed[None], nonce[None])[0]] = math.exp(randomizer.epsilon)
        law += share * weight / weight.sum()
    return law


@pytest.mark.parametrize("target", ["direction", "vector"])
@given(rows, rows, st.binary(min_size=12, max_size=12))
def test_reports_of_any_two_rows_are_within_epsilon(target, row, other, key):
    """Zero and long vectors, unknown and missing answers; for every nonce and index."""
    randomizer = PrivUnit2(4, 1.0, Fraction(2), directions=20, near=3, target=target)
    nonce = np.frombuffer(key, dtype=np.uint8)
    first, second = (
        index_law(randomizer, w, nonce) for w in MOMENTS.encode(np.stack([row, other]))
    )
    assert (first / second).max() <= math.exp(2) * (1 + 1e-12)


def set_laws(size, chosen, epsilon):
    """Return all sets as masks, and Pr[set | symbol], exactly (size, sets)."""
    members = list(itertools.combinations(range(size), chosen))
    masks = np.array([[x in member for x in range(size)] for member in members])
    weight = np.where(masks.T, math.exp(epsilon), 1.0)
    return masks, weight / weight.sum(axis=1, keepdims=True)


def test_reports_of_any_two_rows_of_cells_are_within_epsilon():
    table = np.array([[z, -z, y] for z in (-9.0, 0.0, 1e5) for y in (0, 1, 5, NO_ANSWER)])
    symbols = CELLS.encode(table)
    assert set(symbols) == {0, 1, 2, 3, 4, 5}
    _, laws = set_laws(6, 2, 1.5)
    ratios = laws[symbols][:, None] / laws[symbols]
    assert ratios.max() == pytest.approx(math.exp(1.5))


SIGNS = np.array(list(itertools.product([-1, 1], repeat=3)))


def test_a_code_that_is_not_sent_may_look_at_the_pair():
    """x = ±1, three classes, a bit: exact laws. A sent code must have one law for all pairs."""
    epsilon, rng = 1.0, np.random.default_rng(0)
    right = math.exp(epsilon) / (math.exp(epsilon) + 1)
    pairs = [(x, y) for x in (-1, 1) for y in range(3)]

    def joint(code_law):
        """Pr[code, bit] for every pair: (pairs, codes, 2)."""
        hit = np.array([[s[y] * x == 1 for s in SIGNS] for x, y in pairs])
        up = np.where(hit, right, 1 - right)
        return code_law[..., None] * np.stack([up, 1 - up], axis=-1)

    def loss(laws):
        flat = laws.reshape(len(pairs), -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(np.nanmax(flat[:, None] / flat))

    peeking = rng.dirichlet(np.ones(8), len(pairs))
    public = np.tile(rng.dirichlet(np.ones(8)), (len(pairs), 1))
    chosen = np.array([[float(s[y] == 1) for s in SIGNS] for _, y in pairs]) / 4
    for law in (peeking, public, chosen):
        assert loss(joint(law).sum(axis=1)) <= epsilon + 1e-12
    assert loss(joint(public)) == pytest.approx(epsilon)
    # Broken controls: what a code that looks at the pair tells when it is sent.
    spread = np.log((peeking[:, None] / peeking).max())
    assert epsilon < loss(joint(peeking)) <= epsilon + spread + 1e-12
    assert loss(joint(chosen)) == math.inf


def test_a_label_in_the_clear_protects_a_vector_among_those_of_the_label():
    """The odds of z against z' grow by e^ε at most, and by what the label says by itself."""
    label_given = np.array([[0.9, 0.1], [0.5, 0.5], [1.0, 0.0]])  # Pr[y | z]
    _, laws = set_laws(3, 1, 1.0)
    seen = label_given[:, :, None] * laws[:, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        odds, alone = seen[:, None] / seen, (label_given[:, None] / label_given)[..., None]
        assert np.nanmax(odds / alone) == pytest.approx(math.e)
        assert np.nanmax(odds) == math.inf


# ---- 24.3: the sign


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_the_opposite_input_has_the_opposite_directions(values):
    """Integers, coins and, nonce by nonce, near sets: exact for every input but zero."""
    randomizer = PrivUnit2(3, 1.0, Fraction(2), directions=40, near=4)
    w = np.array([values])
    assert (randomizer.integers(-w) == -randomizer.integers(w)).all()
    ball, coins = Ball(3, 1.0, 2), np.arange(0, 1 << 21, 99_991)
    copies = np.tile(w, (coins.size, 1))
    assert (privunit.signs(copies, ball, coins) == privunit.signs(-copies, ball, coins)).all()
    if randomizer.integers(w).any():
        nonces = np.random.default_rng(0).integers(0, 256, (20, 12), dtype=np.uint8)
        near, opposite = (randomizer.nearest(s * np.tile(w, (20, 1)), nonces) for s in (1, -1))
        scores = directions.products(
            nonces, 20, np.repeat(randomizer.integers(w), 20, axis=0), normalise=True
        )
        level = (np.take_along_axis(scores, near >> 1, axis=1) != 0).all(axis=1)
        assert (np.sort(near ^ 1, axis=1) == opposite)[level].all()


def test_a_score_of_zero_is_the_only_exception():
    """A near pair of score 0 keeps its first vector; with mirrored directions nothing is left."""
    score = np.array([[0.0, 3.0, -2.0]])
    assert directions.nearest(score, 3).tolist() == [[0, 2, 5]]
    assert directions.nearest(-score, 3).tolist() == [[0, 3, 4]]
    table = directions.table()
    assert (table[::-1] == -table).all()


def test_reports_of_a_signed_vector_have_the_law_of_signed_reports():
    """Exact reports: y·v(yx) and v(x); the broken control forgets to undo the sign."""
    randomizer = PrivUnit2(3, 1.0, 3, target="vector")
    x, n = np.array([0.5, -0.3, 0.6]), 20_000
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    reports = randomizer.read(randomizer.report(y[:, None] * x, Entropy()))
    signed = y[:, None] * reports
    assert mean_p_value(signed, x) > ALPHA
    for part in (signed[y > 0], signed[y < 0]):
        assert mean_p_value(part[:, :, None] * part[:, None, :], second_of(randomizer, x)) > ALPHA
    assert mean_p_value(reports, x) < ALPHA


# ---- 24.4: second moments


def moments_of_ranks(randomizer):
    """Return A and b of decoded reports, E[vvᵀ | u] = ((1/A² − b)/d)·I + b·uuᵀ, in closed form."""
    dim, ranks = randomizer.dim, randomizer.ranks

    def weighted(tail):
        quantile = randomizer._quantile(tail)
        return (1 - 2 * quantile) * angle_moment(quantile, dim)

    return randomizer.mean, ranks.expectation(weighted) / randomizer.mean**2


def second_of(randomizer, w):
    """Return E[vvᵀ | w] as a flat array."""
    mean, b = moments_of_ranks(randomizer)
    u = w / np.linalg.norm(w)
    noise = (1 / mean**2 - b) / w.size
    return (noise * np.eye(w.size) + b * np.outer(u, u)).ravel()


@pytest.mark.parametrize("dim", [2, 3, 9, 64])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_noise_of_the_best_cap_is_white(dim, epsilon):
    """Var t = (1 − γ²)/d along the input, by quadrature: as much as across it."""
    constant = 1 / integrate.quad(lambda s: math.sin(s) ** (dim - 2), 0, math.pi)[0]

    def component(power, angle):
        def below(s):
            return constant * math.cos(s) ** power * math.sin(s) ** (dim - 2)

        near = integrate.quad(below, 0, angle, epsabs=1e-13)[0]
        return math.expm1(epsilon) * near + integrate.quad(below, 0, math.pi, epsabs=1e-13)[0]

    cap = sphere_cap(epsilon, dim)
    for threshold in (
        cap.threshold,
        0.5 * cap.threshold,
        min(1.5, 0.5 / cap.threshold + 0.5) * cap.threshold,
    ):
        angle = math.acos(threshold)
        mass, mean, square = (component(power, angle) for power in (0, 1, 2))
        mean, square = mean / mass, square / mass
        assert square == pytest.approx((1 + (dim - 1) * threshold * mean) / dim, rel=1e-8)
        white = (square - mean**2) * dim == pytest.approx(1 - mean**2, rel=1e-7)
        assert white == (threshold == cap.threshold)  # broken control: any other cap


@pytest.mark.parametrize(("dim", "epsilon"), [(2, 1), (3, 4), (9, 0.5), (9, 4)])
def test_second_moments_of_the_rank_form_have_the_closed_form(dim, epsilon):
    randomizer = PrivUnit2(dim, 1.0, epsilon)
    rng = np.random.default_rng(1)
    w = rng.standard_normal(dim)
    V = draw_observations(randomizer, np.tile(w, (200_000, 1)), rng)
    products = (V[:, :, None] * V[:, None, :]).reshape(len(V), -1)
    upper = np.triu_indices(dim, 1)
    flat = np.ravel_multi_index(upper, (dim, dim))
    assert np.isclose((V * V).sum(axis=1), 1 / randomizer.mean**2).mean() > 0.999
    along = (V @ w / np.linalg.norm(w)) ** 2
    mean, b = moments_of_ranks(randomizer)
    expected = (1 / mean**2 - b) / dim + b
    assert mean_p_value(along, expected) > ALPHA
    assert mean_p_value(products[:, flat], second_of(randomizer, w)[flat]) > ALPHA
    assert mean_p_value(along * 1.05, expected) < ALPHA


def test_the_page_states_the_coefficients_of_the_rank_form():
    stated = re.search(
        r"For d = 9, b = ([\d., ]+) at ε = 0.5, 1, 2, 4", SECTIONS.replace("\n", " ")
    )
    computed = [moments_of_ranks(PrivUnit2(9, 1.0, e))[1] for e in EPSILONS]
    assert [float(x) for x in stated[1].split(", ")] == [round(b, 3) for b in computed]


def test_the_covariance_of_estimated_moments_is_noise_and_people():
    """Directions and short vectors: cov = aI + b E[uuᵀ] − MMᵀ; sample covariances estimate it."""
    randomizer = PrivUnit2(4, 1.0, 4, target="vector")
    rng = np.random.default_rng(2)
    people = rng.standard_normal((6, 4)) * [[0.9], [0.1], [0.4], [0.3], [0.3], [0.2]] / 3
    n = 300_000
    V = draw_observations(randomizer, people[rng.integers(0, 6, n)], rng)
    M = people.mean(axis=0)
    expected = np.mean([second_of(randomizer, w) for w in people], axis=0)
    centred = ((V[:, :, None] - M[:, None]) * (V[:, None, :] - M)).reshape(n, -1)
    expected -= np.outer(M, M).ravel()
    upper = np.ravel_multi_index(np.triu_indices(4), (4, 4))
    assert mean_p_value(centred[:, upper], expected[upper]) > ALPHA
    # Broken control: lengths count as they would with additive noise.
    second = people.T @ people / 6
    additive = (1 / randomizer.mean**2 - np.trace(second)) / 4 * np.eye(4) + second - np.outer(M, M)
    assert mean_p_value(centred[:, upper], additive.ravel()[upper]) < ALPHA


def test_what_a_second_moment_costs_by_reports_of_the_vector():
    """Against a report of xxᵀ − I/9, a vector of 44 numbers, under the same ε."""
    computed = [best(44, e) / best(9, e) ** 2 for e in EPSILONS]
    assert agrees("second moments by reports of x, relative to reports of xxᵀ", computed)


# ---- 24.5: numbers


def test_a_clipped_normal_number_costs_more_than_its_sign():
    """Against a hypothetical answer of mean square 1 at the same noise; π/2 for the sign."""
    Z = stats.norm

    def cost(t):
        slope = Z.expect(lambda z: z * np.clip(z / t, -1, 1))
        assert slope == pytest.approx((2 * Z.cdf(t) - 1) / t, rel=1e-6)
        return 1 / slope**2

    costs = [cost(t) for t in (0.01, 0.5, 1, 2, 3)]
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(math.pi / 2, rel=1e-4)
    assert costs[2:4] == [pytest.approx(x, abs=0.005) for x in (2.15, 4.39)]
    square = Z.expect(lambda z: np.clip(z / 2, -1, 1) ** 2)
    assert 1 / square == pytest.approx(4.35, abs=0.005)
    for d in (0.5, 1.0):  # a threshold d deviations off the mean
        slope = Z.expect(lambda z, d=d: z * np.sign(z - d))
        assert 1 / slope**2 == pytest.approx(math.pi / 2 * math.exp(d * d), rel=1e-3)


def test_the_length_of_a_report_does_not_depend_on_the_number():
    randomizer = PrivUnit2(3, 1.0, 2, target="vector")
    W = np.outer(np.linspace(-1, 1, 101), [0.6, 0.0, 0.8])
    V = draw_observations(randomizer, W, np.random.default_rng(0))
    assert np.allclose((V * V).sum(axis=1), 1 / randomizer.mean**2, rtol=1e-9)


def test_any_function_of_the_answer_shows_the_direction_of_the_coefficients():
    """x on an ellipse, equally spaced: E[g(y) x] is parallel to Cβ; not for a few points."""
    angle = np.arange(720) * 2 * math.pi / 720
    C = np.array([[2.0, 0.7], [0.7, 0.5]])
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ np.linalg.cholesky(C).T
    beta = np.array([0.3, -1.0])

    def slope(x, g):
        noise = np.linspace(-1, 1, 41)
        y = np.tanh(x @ beta)[:, None] + noise**3
        moment = g(y).mean(axis=1) @ x
        return np.linalg.solve(x.T @ x, moment)

    for g in (lambda y: np.sign(y - 0.4), lambda y: np.clip(y, -1, 1), np.exp):
        found = slope(x, g)
        assert found @ beta / np.linalg.norm(found) / np.linalg.norm(beta) > 1 - 1e-4
    corners = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1], [3, 3], [-3, -3]])
    found = slope(corners, lambda y: np.sign(y - 0.4))
    assert found @ beta / np.linalg.norm(found) / np.linalg.norm(beta) < 0.99


# ---- 24.6, 24.7: classes


def population(rng, k=4, r=3):
    """Return shares (k,), E[x | j] (k, r) and m_j (k, r)."""
    shares, means = rng.dirichlet(np.ones(k)), rng.standard_normal((k, r)) / 3
    return shares, means, shares[:, None] * means


@pytest.mark.parametrize("k", [2, 3, 10])
def test_cross_moments_follow_from_the_simplex(k):
    _, _, m = population(np.random.default_rng(k), k)
    a = simplex(k)
    np.testing.assert_allclose(a.T @ a, k / (k - 1) * np.eye(k - 1), atol=1e-12)
    M = a.T @ m  # Σ a_j ⊗ m_j
    np.testing.assert_allclose((k - 1) / k * a @ M + m.sum(axis=0) / k, m, atol=1e-12)
    # People without an answer: the wrong sum moves all classes alike.
    shifted = (k - 1) / k * a @ M + (m.sum(axis=0) + 1.0) / k
    np.testing.assert_allclose(shifted - m, np.full_like(m, 1 / k), atol=1e-12)
    # Every report v contributes the same to the error over all classes.
    v = np.random.default_rng(0).standard_normal((k - 1, m.shape[1]))
    parts = (k - 1) / k * a @ v
    assert (parts**2).sum() == pytest.approx((k - 1) / k * (v**2).sum())
    # Two answers share the length.
    encoder = pair_encoder("moments", "relu")(
        [np.eye(2)], [np.zeros(2)], [[k, 0, 0, 0], [2, 0, 0, 1]]
    )
    x = np.array([0.6, 0.8])
    encoded = encoder.encode(np.array([[*x, k - 1, 1], [*x, 0, NO_ANSWER]]))
    codes = [[*a[k - 1], *simplex(2)[1]], [*a[0], 0]]
    np.testing.assert_allclose(encoded, [np.kron(code, x) / math.sqrt(2) for code in codes])
    contrast = m - m.mean(axis=0)
    assert (contrast**2).sum() == pytest.approx((k - 1) / k * (M**2).sum())


def test_moments_of_classes_are_unbiased_with_the_stated_variance():
    """Simulated reports of a(y) ⊗ x; the broken control reads the simplex as one-hot blocks."""
    rng = np.random.default_rng(3)
    k, r, n = 3, 2, 200_000
    randomizer, a = PrivUnit2((k - 1) * r, 1.0, 4), simplex(k)
    y = rng.choice(k, n, p=[0.6, 0.3, 0.1])
    angle = rng.choice([0.2, 1.4, 4.0], n) + y
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    u = (a[y][:, :, None] * x[:, None, :]).reshape(n, -1)
    V = draw_observations(randomizer, u, rng)
    centre = x.mean(axis=0) / k
    parts = (k - 1) / k * np.einsum("jc,ncr->njr", a, V.reshape(n, k - 1, r)) + centre
    m = np.stack([x[y == j].sum(axis=0) / n for j in range(k)])
    difference = parts.reshape(n, -1) - (np.eye(k)[y][:, :, None] * x[:, None, :]).reshape(n, -1)
    assert mean_p_value(difference, 0.0) > ALPHA
    assert mean_p_value(difference * 1.5 + 0.5 * m.ravel(), 0.0) < ALPHA
    mean, b = moments_of_ranks(randomizer)
    D = (k - 1) * r
    second = (1 / mean**2 - b) / D * np.eye(D) + b * u.T @ u / n
    sigma = second - np.outer(u.mean(axis=0), u.mean(axis=0))
    for j in range(k):
        block = np.kron(a[j], np.eye(r)) * (k - 1) / k  # (r, D)
        expected = np.diag(block @ sigma @ block.T)
        spread = (parts[:, j] - m[j]) ** 2
        assert mean_p_value(spread, expected) > ALPHA
        assert mean_p_value(spread * 1.1, expected) < ALPHA


def sign_codes(k):
    """Return all balanced codes of k signs; for odd k both majorities."""
    codes = np.array(list(itertools.product([-1, 1], repeat=k)))
    return codes[np.abs(codes.sum(axis=1)) <= k % 2]


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6, 7])
def test_what_a_code_of_signs_costs(k):
    """Second moments over contrasts, by enumeration, in units of 1/A²."""
    contrast = np.eye(k) - 1 / k
    in_the_clear = np.trace(contrast) / k  # E‖e_y − 1/k‖², for any shares
    every = np.array(list(itertools.product([-1, 1], repeat=k)))
    expected = {"balanced": k - 1 if k % 2 == 0 else k**2 / (k + 1), "independent": k}
    for name, codes in (("balanced", sign_codes(k)), ("independent", every)):
        second = codes.T @ codes / len(codes)
        c = second[0, 1]
        np.testing.assert_allclose(second, (1 - c) * np.eye(k) + c, atol=1e-12)
        if name == "balanced":
            assert c == pytest.approx(-1 / (k - 1) if k % 2 == 0 else -1 / k)
        # (1/n) Σ s_j s_y x/(1 − c) − c/(1 − c) E x is unbiased for m_j.
        _, _, m = population(np.random.default_rng(k), k)
        found = (second @ m - c * m.sum(axis=0)) / (1 - c)
        np.testing.assert_allclose(found, m, atol=1e-12)
        cost = np.trace(contrast @ second) / (1 - c) ** 2
        assert cost / in_the_clear == pytest.approx(expected[name])
        # Per class, with shares that may differ: (1 − c)⁻² against E(1{y = j} − 1/k)².
        per_class = np.diag(contrast @ second @ contrast) / (1 - c) ** 2
        equal = np.diag(contrast) / k
        np.testing.assert_allclose(per_class / equal, expected[name])


def test_codes_and_reports_have_the_covariance_of_a_product():
    """E[(s ⊗ v)(s ⊗ v)ᵀ] = E[ssᵀ] ⊗ E[vvᵀ]: E[vvᵀ | ±x] is one matrix."""
    rng = np.random.default_rng(4)
    randomizer, n = PrivUnit2(2, 1.0, 4), 200_000
    codes = sign_codes(3)[rng.integers(0, 6, n)]
    y, x = rng.choice(3, n, p=[0.7, 0.2, 0.1]), np.array([0.8, -0.6])
    V = draw_observations(randomizer, codes[np.arange(n), y][:, None] * x, rng)
    joint = (codes[:, :, None] * V[:, None, :]).reshape(n, -1)
    second = (joint[:, :, None] * joint[:, None, :]).reshape(n, -1)
    gram = sign_codes(3).T @ sign_codes(3) / 6
    expected = np.kron(gram, second_of(randomizer, x).reshape(2, 2)).ravel()
    varies = second.std(axis=0) > 1e-9
    assert mean_p_value(second[:, varies], expected[varies]) > ALPHA
    assert mean_p_value(second[:, varies] * 1.05, expected[varies]) < ALPHA


def test_the_simplex_and_balanced_signs_cost_nearly_the_same():
    """k = 10, r = 9. The rank form of the code has the same ratios to half a percent."""
    k, r = 10, 9
    pairs = [(best(r, e), best((k - 1) * r, e)) for e in EPSILONS]
    assert agrees("simplex, relative to balanced signs", [s / (k - 1) / t for s, t in pairs], 4)
    assert agrees("simplex, relative to labels in the clear", [s / t for s, t in pairs])
    for epsilon, (small, large) in zip(EPSILONS, pairs, strict=True):
        made = [PrivUnit2(dim, 1.0, epsilon).mean ** 2 for dim in (r, (k - 1) * r)]
        assert made[0] / made[1] == pytest.approx(small / large, rel=5e-3)


def test_half_of_epsilon_for_each_part_costs_more():
    k, r = 10, 9
    to_simplex, to_signs = [], []
    for epsilon in EPSILONS:
        label = SubsetSelection(k, epsilon / 2).expected_squared_error() + 1 - 1 / k
        split = label / best(r, epsilon / 2)
        to_simplex.append(split / ((k - 1) / k / best((k - 1) * r, epsilon)))
        to_signs.append(split / ((k - 1) ** 2 / k / best(r, epsilon)))
    assert agrees("ε/2 for label and vector each, relative to the simplex", to_simplex)
    assert agrees("ε/2 for label and vector each, relative to balanced signs", to_signs)


# ---- 24.8: cells


def observations(size, chosen, epsilon):
    """Return laws (symbols, sets) and observations (sets, symbols) of subset selection."""
    masks, laws = set_laws(size, chosen, epsilon)
    low, high = SubsetSelection(size, epsilon, chosen=chosen).levels
    return laws, np.where(masks, high, low)


def named_together(size, chosen, a):
    """Return c₁, c₂: that two symbols are named, one of them or none the person's (§19)."""
    one = a * (chosen - 1) / (size - 1)
    none = a * (chosen - 1) * (chosen - 2) + (1 - a) * chosen * (chosen - 1)
    return one, none / ((size - 1) * (size - 2))


@pytest.mark.parametrize(("size", "chosen"), [(4, 1), (6, 2), (7, 3)])
@pytest.mark.parametrize("epsilon", [0.5, 2])
def test_variances_of_shares_and_leads_are_exact(size, chosen, epsilon):
    rng = np.random.default_rng(size)
    f = rng.dirichlet(np.ones(size))
    laws, observed = observations(size, chosen, epsilon)
    law = f @ laws
    np.testing.assert_allclose(law @ observed, f, atol=1e-12)
    covariance = observed.T @ (law[:, None] * observed) - np.outer(f, f)
    q = math.exp(-epsilon)
    a = chosen / (chosen + (size - chosen) * q)
    b = (chosen - a) / (size - 1)
    named = b + (a - b) * f
    np.testing.assert_allclose(np.diag(covariance), named * (1 - named) / (a - b) ** 2)
    one, none = named_together(size, chosen, a)
    both = f[0] + f[1]
    apart = (1 - both) * 2 * (b - none) + both * (a + b - 2 * one)
    lead = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    assert lead == pytest.approx(apart / (a - b) ** 2 - (f[0] - f[1]) ** 2)
    # The total over orthonormal functions of a uniform symbol, and its least value.
    total = size * (1 + SubsetSelection(size, epsilon, chosen=chosen).expected_squared_error()) - 1
    z = chosen + (size - chosen) * q
    assert total == pytest.approx(
        (size - 1) ** 2 * z**2 / (chosen * (size - chosen) * (1 - q) ** 2)
    )
    t = chosen / ((size - chosen) * q)
    excess = (1 + t) ** 2 / (4 * t)
    assert total == pytest.approx((size - 1) ** 2 / limit(epsilon) * excess)


@pytest.mark.parametrize("epsilon", [0.5, 1, 2])
def test_many_symbols_have_the_variances_of_the_limit(epsilon):
    size = 1 << 16
    a = SubsetSelection(size, epsilon).own_chance
    chosen = SubsetSelection(size, epsilon).chosen
    b = (chosen - a) / (size - 1)
    one, none = named_together(size, chosen, a)
    for f, g in ((0.0, 0.0), (0.08, 0.01)):
        named = b + (a - b) * f
        share = named * (1 - named) / (a - b) ** 2
        assert share == pytest.approx(1 / limit(epsilon) + 2 * f - f * f, rel=1e-3)
        apart = (1 - f - g) * 2 * (b - none) + (f + g) * (a + b - 2 * one)
        lead = apart / (a - b) ** 2 - (f - g) ** 2
        assert lead == pytest.approx(2 / limit(epsilon) + 2 * (f + g) - (f - g) ** 2, rel=1e-3)


def test_the_largest_count_names_a_cell():
    """The bound on a wrong name, against draws; ten classes from n sinh²(ε/2) = 2,700 on."""
    size, epsilon, n, runs = 20, 1.0, 4_000, 400
    randomizer = SubsetSelection(size, epsilon)
    f = np.array([0.35, 0.20] + [0.45 / 18] * 18)
    rng = np.random.default_rng(5)
    a = randomizer.own_chance
    b = (randomizer.chosen - a) / (size - 1)
    one, none = named_together(size, randomizer.chosen, a)
    wrong = 0
    for _ in range(runs):
        V = draw_observations(randomizer, rng.choice(size, n, p=f), rng)
        counts = (V > 0).sum(axis=0)
        wrong += counts[1] >= counts[0]
    delta, both = (a - b) * (f[0] - f[1]), f[0] + f[1]
    variance = (1 - both) * 2 * (b - none) + both * (a + b - 2 * one) - delta**2
    bound = math.exp(-n * delta**2 / (2 * variance + 4 * delta / 3))
    assert bound < 0.1
    assert stats.binom.sf(wrong - 1, runs, bound) > ALPHA
    deviations = stats.norm.isf(0.05 / 90)  # 10 cells, 9 rivals each, 5 percent in all
    assert 2 * deviations**2 / (0.09 - 0.01 / 9) ** 2 == pytest.approx(2700, rel=0.01)


# ---- 25.1, 25.2: least squares and priors


def spectrum(rng, r=4):
    root = rng.standard_normal((r, r))
    return root @ root.T / (2 * r)


def test_the_posterior_of_coefficients_is_the_stated_map():
    rng = np.random.default_rng(6)
    C, tau, s, r = spectrum(rng), 0.7, 0.3, 4
    joint = tau**2 * C @ C + s**2 * np.eye(r)
    stated = tau**2 * C @ np.linalg.inv(joint)
    gain = tau**2 * C @ np.linalg.inv(C @ (tau**2 * np.eye(r)) @ C + s**2 * np.eye(r))
    np.testing.assert_allclose(stated, gain)
    covariance = tau**2 * np.eye(r) - gain @ C * tau**2
    np.testing.assert_allclose(covariance, tau**2 * s**2 * np.linalg.inv(joint), atol=1e-12)

    # Best of all linear maps, for any laws with these moments: no random map does better.
    def risk(L):
        left = L @ C - np.eye(r)
        return tau**2 * np.trace(left @ left.T) + s**2 * np.trace(L @ L.T)

    assert risk(stated) == pytest.approx(np.trace(covariance))
    assert risk(stated) < tau**2 * r
    for _ in range(50):
        assert risk(stated + 0.1 * rng.standard_normal((r, r))) > risk(stated)
    # The marginal likelihood in the eigenbasis of C.
    values, basis = np.linalg.eigh(C)
    M = rng.standard_normal(r)
    spread = tau**2 * values**2 + s**2
    own = -0.5 * np.sum(np.log(2 * math.pi * spread) + (basis.T @ M) ** 2 / spread)
    assert own == pytest.approx(stats.multivariate_normal(np.zeros(r), joint).logpdf(M))
    flat = np.full(r, 0.25)
    tau2 = max(0.0, (M @ M / r - s**2) / 0.25**2)

    def likelihood(t2):
        return -0.5 * np.sum(np.log(t2 * flat**2 + s**2) + M**2 / (t2 * flat**2 + s**2))

    assert likelihood(tau2) >= max(likelihood(t2) for t2 in np.linspace(0, 4 * tau2 + 1, 999))


def test_a_prior_helps_on_average_and_not_always():
    """Direction by direction: better than the public guess if and only if β² is large enough."""
    tau, s = 0.8, 0.5
    for value in (0.05, 0.3, 1.0):
        kept = tau**2 * value**2 / (tau**2 * value**2 + s**2)
        edge = tau**2 * s**2 / (tau**2 * value**2 + 2 * s**2)
        assert edge <= tau**2 / 2
        for beta2 in (0.0, 0.9 * edge, 1.1 * edge, 3.0):
            risk = (1 - kept) ** 2 * beta2 + kept**2 * s**2 / value**2
            assert (risk < beta2) == (beta2 > edge)
        average = (1 - kept) ** 2 * tau**2 + kept**2 * s**2 / value**2
        assert average == pytest.approx(tau**2 * s**2 / (tau**2 * value**2 + s**2))
        assert average < tau**2


def test_least_squares_is_biased_by_other_second_moments():
    rng = np.random.default_rng(7)
    C, people, B = spectrum(rng), spectrum(rng), rng.standard_normal(4)
    found = np.linalg.solve(C, people @ B)
    np.testing.assert_allclose(found - B, np.linalg.solve(C, (people - C) @ B))
    assert np.linalg.norm(found - B) > 0.1


# ---- 25.3: logistic regression from moments


def logistic(B, X, M, penalty=0.0):
    """Return the objective and its gradient; the constant is the last column of X."""
    k, d = M.shape
    B = B.reshape(k, d)
    scores = X @ B.T
    total = logsumexp(scores, axis=1)
    slope = np.exp(scores - total[:, None]).T @ X / len(X) - M
    weights = np.append(np.ones(d - 1), 0.0) * penalty
    value = total.mean() - (B * M).sum() + (weights * B * B).sum() / 2
    return value, (slope + weights * B).ravel()


def with_constant(rng, n, r=2):
    return np.column_stack([rng.standard_normal((n, r)), np.ones(n)])


def test_the_likelihood_sees_pairs_through_moments_alone():
    rng = np.random.default_rng(8)
    X, k = with_constant(rng, 50), 3
    y = rng.integers(0, k, 50)
    M = np.eye(k)[y].T @ X / 50
    for _ in range(5):
        B = rng.standard_normal((k, 3))
        scores = X @ B.T
        likelihood = np.mean(logsumexp(scores, axis=1) - scores[np.arange(50), y])
        value = logistic(B, X, M)[0]
        assert value == pytest.approx(likelihood)
        step = 1e-6 * rng.standard_normal(B.size)
        ahead, behind = (logistic(B.ravel() + sign * step, X, M, 0.3)[0] for sign in (1, -1))
        assert ahead - behind == pytest.approx(2 * logistic(B, X, M, 0.3)[1] @ step, rel=1e-4)
        other = rng.standard_normal(B.size)
        middle = logistic((B.ravel() + other) / 2, X, M)[0]
        assert middle <= (value + logistic(other, X, M)[0]) / 2


def depth(X, M):
    """Return the largest t for which conditional shares of at least t each have the moments M.

    It is positive exactly in the relative interior of the polytope, 0 on its boundary; −∞ outside.
    """
    n, k = len(X), len(M)
    moments = np.kron(np.eye(k), X.T / n)  # of the unknown shares p[j, i], class by class
    each = np.tile(np.eye(n), k)
    equal = np.vstack([moments, each])
    solved = linprog(
        np.append(np.zeros(n * k), -1.0),
        A_eq=np.column_stack([equal, np.zeros(len(equal))]),
        b_eq=np.append(M.ravel(), np.ones(n)),
        A_ub=np.column_stack([-np.eye(n * k), np.ones(n * k)]),
        b_ub=np.zeros(n * k),
        method="highs",
    )
    return -solved.fun if solved.success else -math.inf


def test_a_minimum_exists_exactly_inside_the_moment_polytope():
    """Without a penalty: inside, on the boundary (separable answers), outside; then with one."""
    rng = np.random.default_rng(9)
    X, k, n = with_constant(rng, 12), 3, 12
    mixed = rng.dirichlet(np.ones(k), n)
    rule = np.column_stack([rng.standard_normal((k, 2)), np.zeros(k)])
    separable = np.eye(k)[(X @ rule.T).argmax(axis=1)]
    assert (separable.sum(axis=0) > 0).all()
    inside, boundary = (p.T @ X / n for p in (mixed, separable))
    outside = boundary + 0.2 * (boundary - np.full((k, n), 1 / k) @ X / n)
    assert depth(X, inside) > 1e-4
    assert depth(X, boundary) == pytest.approx(0, abs=1e-9)
    assert depth(X, outside) == -math.inf

    def minimise(M, penalty=0.0):
        return minimize(logistic, np.zeros(9), (X, M, penalty), jac=True, method="BFGS")

    found = minimise(inside)
    assert np.abs(found.jac).max() < 1e-4
    assert np.linalg.norm(found.x) < 50
    # On the boundary the objective falls for ever along the rule; outside it has no lower bound.
    on, off = (
        [logistic(t * rule, X, M)[0] for t in (1, 10, 100, 1000)] for M in (boundary, outside)
    )
    assert on == sorted(on, reverse=True)
    assert 0 <= on[-1] < 1e-3
    assert off[-1] < 9 * off[-2] < 0
    for M in (inside, boundary, outside):
        assert np.abs(minimise(M, 0.1).jac).max() < 1e-4


def test_a_penalty_needs_shares_that_are_positive_and_sum_to_one():
    """With λ > 0 the constants are free: a share of 0 sends one to −∞, another sum all of them."""
    rng = np.random.default_rng(10)
    X = with_constant(rng, 30)
    M = rng.dirichlet(np.ones(3), 30).T @ X / 30
    for shares, falls in (
        ([0.5, 0.5, 0.0], [0, 0, -1]),
        ([0.7, 0.5, -0.2], [0, 0, -1]),
        ([0.5, 0.3, 0.1], [-1, -1, -1]),
    ):
        broken = M.copy()
        broken[:, 2] = shares
        along = np.column_stack([np.zeros((3, 2)), falls])
        values = [logistic(t * along, X, broken, 0.5)[0] for t in (0, 1, 10, 30)]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) == 4


def test_the_logistic_model_is_consistent_for_people_with_the_public_law_only():
    """One feature, a true logistic model: exact moments give it back, unless the law of x moved."""
    X = np.column_stack([np.linspace(-2, 2, 41), np.ones(41)])
    truth = np.array([[0.0, 0.0], [1.0, 0.3]])
    chance = 1 / (1 + np.exp(-(X @ truth[1])))

    def learnt(weights):
        M = (np.stack([1 - chance, chance]) * weights) @ X
        M += (X.mean(axis=0) - M.sum(axis=0)) / 2  # as recovered with the public E x
        found = minimize(logistic, np.zeros(4), (X, M), jac=True, method="BFGS")
        B = found.x.reshape(2, 2)
        return B[1] - B[0]

    same = np.full(41, 1 / 41)
    np.testing.assert_allclose(learnt(same), truth[1], atol=1e-3)
    moved = same * (1 + 0.5 * np.sign(X[:, 0]))
    assert np.abs(learnt(moved / moved.sum()) - truth[1]).max() > 0.1


# ---- 25.4: intervals of coefficients


def test_sandwich_intervals_cover_as_stated():
    """Squared standardised errors have mean one; for the people who took part it is below one."""
    rng = np.random.default_rng(11)
    randomizer, runs, n = PrivUnit2(2, 1.0, 5), 4_000, 400
    C = np.array([[0.6, 0.2], [0.2, 0.4]])
    inverse = np.linalg.inv(C)
    angle = rng.choice([0.3, 2.0, 2.2], runs * n, p=[0.6, 0.2, 0.2])
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    V = draw_observations(randomizer, x, rng).reshape(runs, n, 2)
    M = np.array([0.6, 0.2, 0.2]) @ [[math.cos(t), math.sin(t)] for t in (0.3, 2.0, 2.2)]
    estimate = V.mean(axis=1) @ inverse
    centred = V - V.mean(axis=1, keepdims=True)
    sigma = np.einsum("rni,rnj->rij", centred, centred) / (n - 1)
    variance = np.einsum("ij,rjk,ki->ri", inverse, sigma, inverse) / n
    z = (estimate - inverse @ M) / np.sqrt(variance)
    assert mean_p_value(z * z, 1.0) > ALPHA
    covered = (np.abs(z) < 1.96).mean()
    assert 0.93 < covered < 0.97
    unscaled = np.einsum("rii->ri", sigma) / n
    assert mean_p_value((estimate - inverse @ M) ** 2 / unscaled, 1.0) < ALPHA
    present = x.reshape(runs, n, 2).mean(axis=1) @ inverse
    z = (estimate - present) / np.sqrt(variance)
    assert ((z * z).mean(axis=0) < 1).all()


def test_the_logistic_model_moves_by_the_inverse_hessian():
    """The derivative of the minimum in M, which the delta method takes."""
    rng = np.random.default_rng(16)
    X, k, penalty = with_constant(rng, 40), 3, 0.05
    p = rng.dirichlet(np.ones(k), 40)
    step = 1e-4 * (rng.dirichlet(np.ones(k), 40) - p).T @ X / 40  # sums of classes stay the same

    def minimum(M):
        options = {"gtol": 1e-10}
        return minimize(
            logistic, np.zeros(9), (X, M, penalty), jac=True, method="BFGS", options=options
        ).x

    M = p.T @ X / 40
    found = minimum(M)
    scores = X @ found.reshape(k, 3).T
    q = np.exp(scores - logsumexp(scores, axis=1)[:, None])
    spread = q[:, :, None] * np.eye(k) - q[:, :, None] * q[:, None, :]
    hessian = np.einsum("njl,na,nb->jalb", spread, X, X).reshape(9, 9) / 40
    hessian += penalty * np.diag(np.tile([1.0, 1.0, 0.0], k))
    moved = minimum(M + step) - minimum(M - step)
    moved = moved.reshape(k, 3)
    moved[:, 2] -= moved[:, 2].mean()  # up to one number common to all constants
    expected = (np.linalg.pinv(hessian) @ (2 * step).ravel()).reshape(k, 3)
    expected[:, 2] -= expected[:, 2].mean()
    np.testing.assert_allclose(moved, expected, atol=2e-2 * np.abs(expected).max())


# ---- 25.5: how good a model is


def score_variance(cells, size, chosen, epsilon, accuracy):
    """Return the variance per report of the accuracy of a table with one symbol per cell."""
    a = chosen / (chosen + (size - chosen) * math.exp(-epsilon))
    b = (chosen - a) / (size - 1)
    one, none = named_together(size, chosen, a)
    right = a + (cells - 1) * b + 2 * (cells - 1) * one + (cells - 1) * (cells - 2) * none
    wrong = cells * b + cells * (cells - 1) * none
    mean = cells * b + (a - b) * accuracy
    return (accuracy * right + (1 - accuracy) * wrong - mean**2) / (a - b) ** 2


@pytest.mark.parametrize(("cells", "labels", "chosen"), [(2, 2, 1), (2, 3, 2), (3, 2, 3)])
def test_the_accuracy_of_a_table_is_unbiased_with_the_stated_variance(cells, labels, chosen):
    size, epsilon = cells * labels, 1.3
    f = np.random.default_rng(size).dirichlet(np.ones(size))
    laws, observed = observations(size, chosen, epsilon)
    law = f @ laws
    names = np.arange(cells) * labels + np.arange(cells) % labels
    score = observed[:, names].sum(axis=1)
    accuracy = f[names].sum()
    assert law @ score == pytest.approx(accuracy)
    variance = law @ score**2 - accuracy**2
    assert variance == pytest.approx(score_variance(cells, size, chosen, epsilon, accuracy))


def test_cross_fitting_is_unbiased_and_plugging_in_is_not():
    """Two cells, two labels, four reports: all outcomes, exactly. Fold k names, the rest scores."""
    epsilon, folds = 1.5, 2
    f = np.array([0.3, 0.2, 0.1, 0.4])
    laws, observed = observations(4, 2, epsilon)
    law = f @ laws
    n = 4
    parts = np.array(list(itertools.product(range(law.size), repeat=n)))
    probability = law[parts].prod(axis=1)
    V = observed[parts]  # (outcomes, n, symbols)

    def named(mean):
        table = mean.reshape(-1, 2, 2)
        return table.argmax(axis=2) + np.array([0, 2])

    def score(mean, names):
        return np.take_along_axis(mean, names, axis=1).sum(axis=1)

    whole = V.mean(axis=1)
    names = named(whole)
    everyone = np.broadcast_to(f, whole.shape)
    assert probability @ (score(whole, names) - score(everyone, names)) > 0.1
    estimates, truths = [], []
    for k in range(folds):
        own = np.arange(n) % folds == k
        names = named(V[:, own].mean(axis=1))
        estimates.append(score(V[:, ~own].mean(axis=1), names))
        truths.append(score(everyone, names))
    error = np.mean(estimates, axis=0) - np.mean(truths, axis=0)
    assert probability @ error == pytest.approx(0, abs=1e-12)
    worst = max(score_variance(2, 4, 2, epsilon, f[[i, j]].sum()) for i in (0, 1) for j in (2, 3))
    assert probability @ error**2 <= worst / (n * (1 - 1 / folds)) + 1e-12


def test_one_private_bit_is_within_the_stated_deviation():
    for epsilon in EPSILONS:
        laws, observed = observations(2, 1, epsilon)
        for accuracy in np.linspace(0, 1, 21):
            law = np.array([1 - accuracy, accuracy]) @ laws
            assert law @ observed[:, 1] == pytest.approx(accuracy)
            variance = law @ observed[:, 1] ** 2 - accuracy**2
            named = 0.5 + math.tanh(epsilon / 2) * (accuracy - 0.5)
            assert variance == pytest.approx(named * (1 - named) / math.tanh(epsilon / 2) ** 2)
            assert variance <= 1 / (2 * math.tanh(epsilon / 2)) ** 2 + 1e-12
        assert KaryResponse(2, epsilon).own_chance == pytest.approx(
            0.5 + math.tanh(epsilon / 2) / 2
        )


def test_the_gain_of_a_regression_is_unbiased_on_other_reports():
    """G(B) = 2⟨B, M⟩ − BᵀCB over all outcomes of two reports; in-sample 2Tr(LΣ)/n too large."""
    rng = np.random.default_rng(12)
    points, law = rng.standard_normal((5, 3)), rng.dirichlet(np.ones(5))
    M = law @ points
    sigma = points.T @ (law[:, None] * points) - np.outer(M, M)
    C = spectrum(rng, 3)
    L = np.linalg.inv(C + 0.2 * np.eye(3))
    both = np.array(list(itertools.product(range(5), repeat=2)))
    probability = law[both].prod(axis=1)

    def gain(B, moment):
        return 2 * (B * moment).sum(axis=1) - np.einsum("ni,ij,nj->n", B, C, B)

    B = points[both[:, 0]] @ L
    error = gain(B, points[both[:, 1]]) - gain(B, M)
    assert probability @ error == pytest.approx(0, abs=1e-12)
    spread = 4 * np.einsum("ni,ij,nj->n", B, sigma, B)
    assert probability @ error**2 == pytest.approx(probability @ spread)
    whole = points[both].mean(axis=1)
    optimism = probability @ (gain(whole @ L, whole) - gain(whole @ L, M))
    assert optimism == pytest.approx(2 * np.trace(L @ sigma) / 2)
    # It is what the model explains, if people have the public second moments.
    x, y = rng.standard_normal((7, 3)), rng.standard_normal(7)
    b = rng.standard_normal((1, 3))
    second, moment = x.T @ x / 7, (y @ x / 7)[None]
    explained = np.mean(y**2) - np.mean((y - x @ b[0]) ** 2)
    assert 2 * (b * moment).sum() - b[0] @ second @ b[0] == pytest.approx(explained)
    # Equal moments of (x, y), other accuracies of sign(x).
    x, likely = np.array([1.0, 0.5]), np.array([[0.5, 0.0], [0.0, 1.0]])
    assert likely @ x == pytest.approx([0.5, 0.5])
    assert ((1 + likely) / 2).mean(axis=1).tolist() == [0.625, 0.75]


# ---- 25.6: limits


def random_channel(rng, epsilon, inputs):
    """Return a random ε-LDP channel, (inputs, outputs), with extremal columns (§15)."""
    raised = (np.arange(1 << inputs)[:, None] >> np.arange(inputs)) & 1
    columns = np.where(raised, 1.0, math.exp(-epsilon))
    weights = np.zeros(len(columns))
    for _ in range(2):  # a mixture of two vertices
        costs = rng.standard_normal(len(columns))
        costs[[0, -1]] = 10.0  # constant columns tell nothing
        weights += linprog(costs, A_eq=columns.T, b_eq=np.ones(inputs)).x / 2
    return (columns[weights > 0] * weights[weights > 0, None]).T


def shown(p, scores, channel):
    """Return I_Y for a law p of inputs and scores (inputs, D)."""
    out = p @ channel
    mean = (p[:, None] * channel).T @ scores / out[:, None]
    return mean.T @ (out[:, None] * mean)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_information_of_reports_is_limited(epsilon):
    """Tr(I_X⁻¹ I_Y) ≤ sinh²(ε/2), also for a second report whose channel depends on the first."""
    rng = np.random.default_rng(13)
    for _ in range(12):
        inputs = int(rng.integers(3, 7))
        p = rng.dirichlet(np.ones(inputs))
        scores = rng.standard_normal((inputs, int(rng.integers(1, 3))))
        scores -= p @ scores
        inverse = np.linalg.inv(scores.T @ (p[:, None] * scores))
        first = random_channel(rng, epsilon, inputs)
        one = shown(p, scores, first)
        assert np.trace(inverse @ one) <= limit(epsilon) * (1 + 1e-9)
        assert np.linalg.eigvals(inverse @ one).real.max() <= math.tanh(epsilon / 2) ** 2 + 1e-9
        second = [random_channel(rng, epsilon, inputs) for _ in range(first.shape[1])]
        joint = np.zeros_like(one)
        for y, channel in enumerate(second):
            chance = p @ first[:, y]
            posterior = p * first[:, y] / chance
            own = posterior @ scores
            out = p @ channel
            mean = (p[:, None] * channel).T @ scores / out[:, None] + own
            joint += chance * mean.T @ (out[:, None] * mean)
        assert np.trace(inverse @ joint) <= 2 * limit(epsilon) * (1 + 1e-9)


def test_response_meets_the_limit_of_information_and_a_smaller_one_fails():
    for corners in (3, 5):
        epsilon = math.log(corners - 1)
        p, scores = np.full(corners, 1 / corners), simplex(corners)
        inverse = np.linalg.inv(scores.T @ (p[:, None] * scores))
        channel = np.ones((corners, corners)) + (math.exp(epsilon) - 1) * np.eye(corners)
        channel /= channel.sum(axis=1, keepdims=True)
        share = np.trace(inverse @ shown(p, scores, channel))
        assert share == pytest.approx(limit(epsilon))
        assert share > limit(0.95 * epsilon)


def test_no_locally_unbiased_estimate_errs_less():
    """For the law p(1 + θu): Cov ≥ I_Y⁻¹/n, and its trace is at least D²/(n sinh²(ε/2))."""
    rng = np.random.default_rng(14)
    for epsilon in EPSILONS:
        for _ in range(25):
            inputs = int(rng.integers(3, 7))
            p = rng.dirichlet(np.full(inputs, 3.0))
            basis = np.linalg.qr(np.column_stack([np.sqrt(p), rng.standard_normal((inputs, 2))]))[0]
            u = basis[:, 1:] / np.sqrt(p)[:, None]
            np.testing.assert_allclose(u.T @ (p[:, None] * u), np.eye(2), atol=1e-9)
            information = shown(p, u, random_channel(rng, epsilon, inputs))
            if np.linalg.eigvalsh(information)[0] > 1e-9:
                least = np.trace(np.linalg.inv(information))
                assert least >= 4 / limit(epsilon) * (1 - 1e-9)
                assert least >= 2 / math.tanh(epsilon / 2) ** 2 * (1 - 1e-9)


def test_biased_estimates_are_limited_too():
    """Van Trees: the least mean error over a prior, exactly, for 40 reports of three values."""
    n, edge = 40, 0.75
    p, u = np.full(3, 1 / 3), np.array([1.0, 0.0, -1.0]) * math.sqrt(1.5)
    theta = np.linspace(-edge, edge, 2001)
    prior = np.cos(math.pi * theta / (2 * edge)) ** 2
    prior /= prior.sum()
    of_prior = (math.pi / edge) ** 2  # ∫ (λ')²/λ
    tilted = p * (1 + theta[:, None] * u)
    largest = ((p * u) ** 2 / tilted).sum(axis=1).max()
    counts = [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]
    for epsilon in (0.5, 1, 2):
        channel = np.ones((3, 3)) + math.expm1(epsilon) * np.eye(3)
        law = tilted @ channel / channel.sum(axis=1)
        chances = np.exp(stats.multinomial.logpmf(np.array(counts), n, law[:, None]))
        joint = prior[:, None] * chances
        mean = theta @ joint / joint.sum(axis=0)
        error = (joint * (theta[:, None] - mean) ** 2).sum()

        def bound(epsilon):
            return 1 / (largest * n * limit(epsilon) + of_prior)

        assert bound(epsilon) <= error < prior @ theta**2
    assert error < bound(0.4)  # broken control: the bound of a smaller budget


def test_what_the_mechanisms_need_relative_to_the_limit():
    r, k = 9, 10
    D = (k - 1) * r
    signs = [limit(e) / (r * best(r, e)) for e in EPSILONS]
    corners = [limit(e) / (D * best(D, e)) for e in EPSILONS]
    assert agrees("PrivUnit2, balanced signs", signs)
    assert agrees("PrivUnit2, simplex", corners)
    for size in (20, 100):
        ratios = []
        for epsilon in EPSILONS:
            chosen = SubsetSelection(size, epsilon).chosen
            t = chosen * math.exp(epsilon) / (size - chosen)
            ratios.append((1 + t) ** 2 / (4 * t))
        assert row_of_table(f"`subset`, {size} symbols") == [round(ratio, 3) for ratio in ratios]
        assert max(ratios[:3]) <= 1.02


# ---- 25.7: sums


def test_sums_of_parts_are_sums_of_all():
    rng = np.random.default_rng(15)
    V = np.round(rng.standard_normal((60, 3)) * 2**20) / 2**20  # sums of these are exact

    def sums(part):
        return len(part), part.sum(axis=0), part.T @ part

    merged = [sum(parts) for parts in zip(*(sums(V[i::4]) for i in range(4)), strict=True)]
    for own, whole in zip(merged, sums(V), strict=True):
        np.testing.assert_array_equal(own, whole)
