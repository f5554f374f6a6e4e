"""Memoised reports: the law of one report, and the loss of whole sequences, enumerated exactly."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from offaxis.decoding import PosteriorCodewordDecoder
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.randomizers import MemoisedPrivUnit2, MemoisedResponse, parameters, rebuild
from offaxis.randomizers.base import Ball
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import draw_observations
from tests.checks import counts_p_value

EPSILON, INSTANT = Fraction(2), Fraction(1)


def binomial_p_value(hits: int, count: int, chance: float) -> float:
    return counts_p_value(np.array([hits, count - hits]), np.array([chance, 1 - chance]))


def response(k: int, **changes: object) -> MemoisedResponse:
    settings = {"epsilon": EPSILON, "instant": INSTANT, "draws": 2, "period": 4}
    return MemoisedResponse(size=k, **settings | changes)  # type: ignore[arg-type]


def directions(dim: int, **changes: object) -> MemoisedPrivUnit2:
    settings = {"epsilon": EPSILON, "instant": INSTANT, "draws": 2, "period": 4}
    return MemoisedPrivUnit2(dim=dim, radius=2.0, **settings | changes)  # type: ignore[arg-type]


# ---- Laws of sequences, as exact sums over the permanent answers


def kernel(k: int, epsilon: float) -> np.ndarray:
    """Return the matrix of k-ary response: rows are inputs."""
    odds = math.exp(epsilon)
    return (np.ones((k, k)) + (odds - 1) * np.eye(k)) / (odds + k - 1)


def held_law(k: int, symbols: tuple[int, ...], draws: tuple[int, ...]) -> dict[tuple, float]:
    """Return the law of reports: round t shows the answer drawn in the last of ``draws`` <= t."""
    permanent, instant = kernel(k, float(EPSILON)), kernel(k, float(INSTANT))
    law: dict[tuple, float] = dict.fromkeys(itertools.product(range(k), repeat=len(symbols)), 0.0)
    for answers in itertools.product(range(k), repeat=len(draws)):
        chance = math.prod(permanent[symbols[t], b] for t, b in zip(draws, answers, strict=True))
        shown = [answers[sum(d <= t for d in draws) - 1] for t in range(len(symbols))]
        for reports in law:
            law[reports] += chance * math.prod(
                instant[b, y] for b, y in zip(shown, reports, strict=True)
            )
    return law


def per_value_law(k: int, symbols: tuple[int, ...]) -> dict[tuple, float]:
    """Return the law of reports if every symbol has a permanent answer of its own (RAPPOR)."""
    permanent, instant = kernel(k, float(EPSILON)), kernel(k, float(INSTANT))
    law: dict[tuple, float] = dict.fromkeys(itertools.product(range(k), repeat=len(symbols)), 0.0)
    for answers in itertools.product(range(k), repeat=k):
        chance = math.prod(permanent[x, answers[x]] for x in range(k))
        for reports in law:
            law[reports] += chance * math.prod(
                instant[answers[x], y] for x, y in zip(symbols, reports, strict=True)
            )
    return law


def loss(law: dict[tuple, float], other: dict[tuple, float]) -> float:
    return max(math.log(law[y] / other[y]) for y in law)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("reports", [1, 2, 3, 5])
def test_reports_of_one_answer_lose_what_is_stated_and_less_than_epsilon(k, reports):
    law = held_law(k, (0,) * reports, (0,))
    worst = max(loss(law, held_law(k, (x,) * reports, (0,))) for x in range(1, k))
    stated = response(k).loss_after(reports)
    assert worst <= stated + 1e-12
    assert stated < EPSILON
    if k == 2:
        assert worst == pytest.approx(stated, abs=1e-12)


def test_the_stated_loss_grows_to_epsilon_and_never_beyond():
    losses = [response(2).loss_after(s) for s in (1, 2, 10, 365, 10**6)]
    assert losses == sorted(losses)
    assert losses[-1] == pytest.approx(float(EPSILON), abs=1e-9)
    assert losses[-1] <= EPSILON


@pytest.mark.parametrize(
    ("epsilon", "instant", "reports"),
    [("1e-6", "1e-6", 1), ("1e-9", 40, 1), ("1e-9", "1e-9", 30), (2, 2, 10**6), (40, 40, 365)],
)
def test_the_stated_loss_is_rounded_up_and_never_cancels(epsilon, instant, reports):
    randomizer = response(2, epsilon=epsilon, instant=instant)
    with mpmath.workdps(60):
        a, b = (
            mpmath.mpf(x.numerator) / x.denominator
            for x in (randomizer.epsilon, reports * randomizer.instant)
        )
        exact = mpmath.log((1 + mpmath.exp(a + b)) / (mpmath.exp(a) + mpmath.exp(b)))
        stated = randomizer.loss_after(reports)
        assert exact <= stated or stated == float(a)
        assert stated <= exact * (1 + mpmath.mpf("1e-13"))


def test_any_two_histories_are_within_the_draws_times_epsilon():
    """All pairs of histories of five rounds with draws in rounds 0 and 2."""
    draws = (0, 2)
    laws = {x: held_law(2, x, draws) for x in itertools.product(range(2), repeat=5)}
    worst = max(loss(laws[x], laws[y]) for x in laws for y in laws)
    assert worst <= 2 * EPSILON
    # Histories that agree in the rounds of drawing have the same law: nothing tells them apart.
    for x in laws:
        for y in laws:
            if all(x[t] == y[t] for t in draws):
                assert loss(laws[x], laws[y]) == pytest.approx(0, abs=1e-12)


def test_an_answer_per_value_has_no_limit():
    """The broken control: a constant history against one that alternates."""
    losses = []
    for rounds in (2, 6, 10):
        constant = per_value_law(2, (0,) * rounds)
        alternating = per_value_law(2, (0, 1) * (rounds // 2))
        losses.append(loss(alternating, constant))
    assert losses == sorted(losses)
    assert losses[-1] > losses[0] + 2 * float(INSTANT)


# ---- Reports


@pytest.mark.parametrize("k", [2, 5])
def test_one_report_has_the_law_of_response_with_the_stated_strength(k):
    """Frequencies of the input symbol: a false alarm once in 10^6 runs."""
    randomizer, count = response(k), 60_000
    own = np.full(count, 1)
    named = randomizer.reported_symbols(randomizer.report(own, Entropy())) == 1
    assert binomial_p_value(int(named.sum()), count, randomizer.own_chance) > 1e-6
    one_layer = kernel(k, float(EPSILON))[0, 0]
    assert binomial_p_value(int(named.sum()), count, one_layer) < 1e-6, "broken control"
    composed = kernel(k, float(EPSILON)) @ kernel(k, float(INSTANT))
    assert randomizer.own_chance == pytest.approx(composed[0, 0], abs=1e-14)
    assert randomizer.strength <= randomizer.loss_after(1) + 1e-12


@pytest.mark.parametrize("small", ["1e-5", "1e-8"])
def test_small_budgets_do_not_cancel(small):
    """The strength is ε·ε₁/k to first order."""
    randomizer = response(4, epsilon=small, instant=small)
    assert randomizer.strength == pytest.approx(float(small) ** 2 / 4, rel=1e-4)
    assert np.isfinite(randomizer.levels).all()


def test_a_posterior_uses_the_law_of_one_report():
    """Not that of the permanent answer: a single report says less."""
    codewords = np.array([[0.0], [1.0]])
    decoder = PosteriorCodewordDecoder(codewords, np.array([0.5, 0.5])).bind(response(2))
    observed = response(2).levels_at(np.array([[False, True]]))
    odds = math.exp(response(2).strength)
    assert decoder.decode(observed)[0, 0] == pytest.approx(odds / (odds + 1))


def test_a_held_answer_is_shown_and_not_the_symbol():
    """Reports of a held answer follow the instantaneous layer around that answer."""
    randomizer, count = response(3), 40_000
    held = [bytes([2])] * count
    shown = randomizer.reported_symbols(randomizer.show(held, [5] * count, Entropy()))
    chance = kernel(3, float(INSTANT))[0, 0]
    assert binomial_p_value(int((shown == 2).sum()), count, chance) > 1e-6


@pytest.mark.parametrize("target", ["direction", "vector"])
@pytest.mark.parametrize("dim", [1, 3])
def test_means_of_direction_reports_are_unbiased(dim, target):
    randomizer = directions(dim, target=target)
    w = np.zeros(dim)
    w[0] = 1.0
    count = 30_000
    observed = randomizer.read(randomizer.report(np.tile(w, (count, 1)), Entropy()))
    simulated = draw_observations(randomizer, np.tile(w, (count, 1)), np.random.default_rng(0))
    expected = w if target == "vector" else 2.0 * w
    error = math.sqrt((randomizer.expected_squared_error() + 4) / count)
    # Five standard errors of the longest coordinate: a false alarm less than once in 10^6.
    for values in (observed, simulated):
        assert np.abs(values.mean(axis=0) - expected).max() < 5 * error
    squared = ((observed - expected) ** 2).sum(axis=1).mean()
    inside = 4 - 1 if target == "vector" else 0
    assert squared == pytest.approx(randomizer.expected_squared_error() + inside, rel=0.1)
    # Broken control: one layer's scale is far off.
    assert np.abs(observed.mean(axis=0) * randomizer.layers[1].mean - expected).max() > 5 * error


@pytest.mark.parametrize("dim", [2, 3, 16])
def test_the_density_of_both_layers_is_that_of_reports(dim):
    """Weighting reports of random directions by the density gives the moments of reports."""
    randomizer = directions(dim, epsilon=4, instant=3, target="direction")
    rng = np.random.default_rng(1)
    u = np.zeros((100_000, dim))
    u[:, 0] = 1.0
    from_u = draw_observations(randomizer, u, rng)
    from_all = draw_observations(randomizer, rng.standard_normal(u.shape), rng)
    ratio = np.exp(randomizer.log_density(from_all, u))
    assert ratio.mean() == pytest.approx(1, abs=0.02)
    for power in (1, 2):
        moment = (ratio * from_all[:, 0] ** power).mean()
        assert moment == pytest.approx((from_u[:, 0] ** power).mean(), rel=0.05)
    assert np.ptp(randomizer.log_density(from_all, u)) <= randomizer.loss_after(1) + 0.05
    assert randomizer.log_density(from_all, np.zeros_like(u)).tolist() == [0.0] * len(u)


def test_ages_are_public_and_saturate():
    randomizer = response(4)
    held = randomizer.hold(np.array([0, 1, 2]), Entropy())
    payloads = randomizer.show(held, [0, 300, 10**9], Entropy())
    assert randomizer.ages(payloads).tolist() == [0, 300, 65_535]
    assert {len(payload) for payload in payloads} == {randomizer.payload_size}


def test_an_instantaneous_layer_without_noise_is_named():
    with pytest.raises(InvalidInput, match="instant must be positive, got instant=0"):
        response(3, instant=0)


def test_the_guarantee_is_that_of_all_draws():
    assert response(4).guarantee.epsilon == 4
    assert response(4, draws=0).guarantee.epsilon == 2
    assert directions(3, epsilon="1/3", draws=6).guarantee.epsilon == 2
    assert isinstance(directions(3, target="vector").domain, Ball)


@pytest.mark.parametrize("randomizer", [response(4), directions(3, target="vector")])
def test_parameters_are_read_back_strictly(randomizer):
    values = parameters(randomizer)
    assert rebuild(randomizer.kind, values) == randomizer
    for name, value in (("draws", 1001), ("draws", -1), ("period", 0), ("instant", "101")):
        with pytest.raises(InvalidInput):
            rebuild(randomizer.kind, values | {name: value})


@pytest.mark.parametrize("randomizer", [response(4), directions(3)])
def test_malformed_payloads_are_rejected(randomizer):
    whole = randomizer.report(
        np.zeros((1, 3)) if randomizer.kind != "memoised-response" else np.array([1]), Entropy()
    )[0]
    for payload in (b"", whole[:-1], whole + b"\0", whole[:-4] + b"\xff" * 4):
        with pytest.raises(InvalidReport):
            randomizer.read([payload])


def test_a_report_of_a_tiny_budget_has_the_smallest_budget_that_there_is():
    """Its loss is about ε ε₁ / 2, which is below what a budget may be."""
    tiny = MemoisedResponse(2, Fraction(1, 10**5), Fraction(1, 10**5), draws=1, period=1)
    assert 0 < tiny.loss_after(1) < 1e-9
    assert tiny.single_report_epsilon == Fraction(1, 10**9)
    least = MemoisedResponse(2, Fraction(1, 10**9), Fraction(1, 10**9), draws=1, period=1)
    assert least.single_report_epsilon == least.epsilon
