"""Local hashing: its exact law, its assumptions, its counts, strict payloads, and the audit.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.auditing import audit
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.learning import fit_answers
from offaxis.randomizers import KaryResponse, LocalHashing, SubsetSelection, base, hashing, symbols
from offaxis.randomizers.directions import NONCE_BYTES
from offaxis.randomizers.hashing import POINTS, best_near, place_of, places
from offaxis.sampling.choices import response_of
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.probability import exp_minus
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, counts_p_value, mean_p_value
from tests.tape import Tape

ONE = 1 << 256
COUNT = 60_000
budgets = st.fractions(Fraction(1, 1000), 100, max_denominator=1000)


@dataclass(frozen=True)
class NonceThatSuits(LocalHashing):
    """Draws nonces until the symbol is among the first half of the points: a broken control.

    The point is drawn correctly, but the nonce tells the symbol.
    """

    def report(self, W: Any, entropy: Any) -> list[bytes]:
        made = super().report(W, entropy)
        while (wrong := np.flatnonzero(~self._suits(made, W))).size:
            for row, payload in zip(wrong, super().report(W[wrong], entropy), strict=True):
                made[row] = payload
        return made

    def _suits(self, payloads: list[bytes], W: Any) -> np.ndarray:
        nonces, _ = self._parse(payloads)
        suits: np.ndarray = place_of(nonces, np.asarray(W)) < POINTS // 2
        return suits

    def log_likelihood(self, payloads: list[bytes], W: Any) -> Any:
        return np.where(self._suits(payloads, W), super().log_likelihood(payloads, W), -np.inf)


# ---- Law


@pytest.mark.parametrize("near", [1, 18_862, POINTS - 1])
def test_for_every_nonce_and_symbol_the_near_draws_are_the_near_points(near):
    """All 65,536 draws, which are equally likely within near and far, give all points once."""
    randomizer = LocalHashing(20, Fraction(1), near)
    is_near = np.arange(POINTS) < near
    offset = np.where(is_near, np.arange(POINTS), np.arange(POINTS) - near)
    law = mock.Mock(draw=mock.Mock(return_value=(is_near, offset)))
    for own in (0, 7, 19):
        tape: Any = Tape(bytes(NONCE_BYTES) * POINTS)  # the same nonce everywhere
        with (
            mock.patch.object(base, "require_entropy"),
            mock.patch.object(hashing, "response_of", return_value=law) as asked,
        ):
            payloads = randomizer.report(np.full(POINTS, own), tape)
        assert asked.call_args.args == (POINTS, near, Fraction(1))
        assert len(set(payloads)) == POINTS
        named = randomizer.log_likelihood(payloads, np.full(POINTS, own))
        assert np.array_equal(named > 0, is_near)
        assert np.array_equal(randomizer.names_of(payloads[:50])[:, own], is_near[:50])


@given(st.integers(1, POINTS - 1), budgets)
def test_a_near_point_is_exactly_e_to_the_epsilon_as_likely_as_another(near, epsilon):
    """The coin of a group over its size, by enclosures; the draw within a group is uniform."""
    p = response_of(POINTS, near, epsilon)._near_probability.digits(256)
    exp_low, exp_high = (Fraction(side, ONE) for side in exp_minus(epsilon, 256))
    far = Fraction(POINTS - near, near)
    assert (ONE - p - 1) <= far * (p + 1) * exp_high
    assert far * p * exp_low <= ONE - p


def steps_p_value(randomizer: LocalHashing, payloads: list[bytes], own: int) -> float:
    """χ² of y − h(x), in ten cells of near and of far points."""
    nonces, points = randomizer._parse(payloads)
    step = (points - place_of(nonces, np.full(len(points), own))).astype(int)
    d, a = randomizer.near, randomizer.own_chance
    near, far = (np.linspace(low, high, 11).astype(int) for low, high in ((0, d), (d, POINTS)))
    edges = np.concatenate([near, far[1:]])
    chances = np.concatenate([a * np.diff(near) / d, (1 - a) * np.diff(far) / (POINTS - d)])
    return counts_p_value(np.histogram(step, edges)[0], chances)


@pytest.mark.parametrize("own", [0, 9, 10_000])
def test_payloads_follow_the_exact_law(own):
    randomizer = LocalHashing(10_001, Fraction(1))
    payloads = randomizer.report(np.full(COUNT, own), Entropy())
    assert steps_p_value(randomizer, payloads, own) > ALPHA
    # Broken controls: another symbol, and twice the budget.
    assert steps_p_value(randomizer, payloads, (own + 1) % 10_001) < ALPHA
    loud = LocalHashing(10_001, Fraction(2), randomizer.near).report(np.full(COUNT, own), Entropy())
    assert steps_p_value(randomizer, loud, own) < ALPHA


def test_nonces_do_not_depend_on_the_symbol():
    def p_value(randomizer: LocalHashing) -> float:
        nonces, _ = randomizer._parse(randomizer.report(np.full(COUNT, 3), Entropy()))
        cells = np.bincount(place_of(nonces, np.full(COUNT, 3)) // (POINTS // 16), minlength=16)
        return counts_p_value(cells, np.full(16, 1 / 16))

    assert p_value(LocalHashing(10, Fraction(1))) > ALPHA
    assert p_value(NonceThatSuits(10, Fraction(1))) < ALPHA


def test_the_amount_of_entropy_does_not_depend_on_the_symbol():
    randomizer, used = LocalHashing(3000, Fraction(1)), set()
    for own in (0, 7, 8, 2999):
        tape: Any = Tape.named("amount", 1 << 16)
        with mock.patch.object(base, "require_entropy"):
            randomizer.report(np.full(50, own), tape)
        used.add(tape.used)
    assert len(used) == 1


# ---- Counts


def test_places_are_as_independent_and_uniform_as_random_ones():
    """The assumption behind unbiased counts: single symbols, and two of them together."""
    entropy = Entropy()
    nonces = entropy.words(6 * 20_000).view(np.uint8).reshape(-1, NONCE_BYTES)
    cells = places(nonces, 20) // (POINTS // 8)
    assert np.array_equal(places(nonces, 20)[:, 13], place_of(nonces, np.full(20_000, 13)))
    for first, second in ((0, 1), (7, 8), (3, 19)):
        joint = np.bincount(cells[:, first].astype(int) * 8 + cells[:, second], minlength=64)
        assert counts_p_value(joint, np.full(64, 1 / 64)) > ALPHA
    # Broken control: the same place for two symbols.
    same = np.bincount(cells[:, 0].astype(int) * 9, minlength=64)
    assert counts_p_value(same, np.full(64, 1 / 64)) < ALPHA


@pytest.mark.parametrize("source", ["simulate", "report"])
@pytest.mark.parametrize(
    "randomizer", [LocalHashing(2, Fraction(1)), LocalHashing(30, Fraction(3))], ids=str
)
def test_simulation_and_reports_are_unbiased_with_the_stated_error(randomizer, source):
    rng, own = np.random.default_rng(3), randomizer.size - 1
    W = np.full(30_000, own)
    if source == "simulate":
        V = draw_observations(randomizer, W, rng)
    else:
        V = randomizer.read(randomizer.report(W, Entropy()))
    one_hot = np.eye(randomizer.size)[own]
    assert V.shape == (W.size, randomizer.size)
    assert mean_p_value(V, one_hot) > ALPHA
    assert mean_p_value(V + 0.2 * np.abs(V).mean(), one_hot) < ALPHA
    error = ((V - one_hot) ** 2).sum(axis=1)
    assert mean_p_value(error, randomizer.expected_squared_error()) > ALPHA
    assert mean_p_value(0.9 * error, randomizer.expected_squared_error()) < ALPHA
    named = V > 0
    for i, chance in ((0, randomizer.together[0]), (1, randomizer.together[1])):
        if randomizer.size > 2:
            both = 1.0 * (named[:, 3] & named[:, own if i == 0 else 4])
            assert mean_p_value(both, chance) > ALPHA
            assert mean_p_value(both, 2 * chance) < ALPHA


@given(st.integers(2, 1 << 20), st.integers(1, POINTS - 1), budgets)
def test_levels_and_error_are_the_closed_forms(size, near, epsilon):
    """From a and b themselves, in rational arithmetic."""
    randomizer = LocalHashing(size, epsilon, near)
    q = Fraction(math.exp(-float(epsilon)))
    a, b = near / (near + (POINTS - near) * q), Fraction(near, POINTS)
    assert randomizer.own_chance == pytest.approx(float(a), rel=1e-12)
    assert randomizer.other_chance == float(b)
    assert randomizer.levels == pytest.approx(
        (float(-b / (a - b)), float((1 - b) / (a - b))), rel=1e-9
    )
    error = (a * (1 - a) + (size - 1) * b * (1 - b)) / (a - b) ** 2
    assert randomizer.expected_squared_error() == pytest.approx(float(error), rel=1e-9)


@given(st.integers(2, 1 << 20), st.fractions(Fraction(1, 100), 9, max_denominator=100))
def test_the_best_number_of_points_is_near_that_of_the_limit(size, epsilon):
    near = best_near(size, epsilon)
    own = LocalHashing(size, epsilon).expected_squared_error()
    for other in {max(1, near - 1), min(POINTS - 1, near + 1), POINTS // 2}:
        assert own <= LocalHashing(size, epsilon, other).expected_squared_error() * (1 + 1e-12)
    # g-ary hashing with the best whole g is a special case, up to the rounding of G/g.
    for g in (2, math.floor(math.exp(epsilon)) + 1, math.ceil(math.exp(epsilon)) + 1):
        e = math.exp(epsilon)
        p, b = e / (e + g - 1), 1 / g
        usual = (p * (1 - p) + (size - 1) * b * (1 - b)) / (p - b) ** 2
        assert own <= usual * 1.001


def test_for_many_symbols_the_error_is_that_of_the_limit():
    """4 q / (1 − q)² per symbol, which is 1/sinh²(ε/2); g-ary hashing is 3 % off at ε = 0.35."""
    for epsilon in (0.1, 0.35, 0.5, 1, 2, 5):
        error = LocalHashing(1 << 20, Fraction(epsilon)).expected_squared_error() / (1 << 20)
        assert error == pytest.approx(1 / math.sinh(epsilon / 2) ** 2, rel=1e-3)
    e = math.exp(0.35)
    usual = min((e + g - 1) ** 2 / ((e - 1) ** 2 * (g - 1)) for g in (2, 3, 4))
    assert usual * math.sinh(0.175) ** 2 > 1.025


@pytest.mark.parametrize(
    "randomizer",
    [form(300, Fraction(1)) for form in (KaryResponse, SubsetSelection, LocalHashing)],
    ids=lambda randomizer: randomizer.kind,
)
def test_names_are_counted_in_parts(randomizer, monkeypatch):
    payloads = randomizer.report(np.arange(300).repeat(3), Entropy())
    whole = np.count_nonzero(randomizer.read(payloads) > 0, axis=0)
    monkeypatch.setattr(symbols, "_COUNTED", 7 * 300)
    assert np.array_equal(randomizer.count_names(payloads), whole)
    assert randomizer.count_names([]).tolist() == [0] * 300


# ---- Payloads and inputs


@given(st.binary(min_size=12, max_size=16), st.integers(2, 30))
def test_every_payload_of_the_right_length_is_read_and_no_other(payload, size):
    randomizer = LocalHashing(size, Fraction(1))
    if len(payload) != randomizer.payload_size:
        for read in (randomizer.read, randomizer.count_names):
            with pytest.raises(InvalidReport):
                read([payload])
        return
    named = randomizer.read([payload])[0] > 0
    own = np.arange(size)
    assert np.array_equal(named, randomizer.log_likelihood([payload] * size, own) > 0)


@pytest.mark.parametrize("W", [[0.0], [-1], [5], [[1]], [], ["0"]], ids=repr)
def test_anything_but_symbols_is_rejected_before_any_entropy_is_used(W):
    randomizer: Any = LocalHashing(5, Fraction(1))
    with (
        mock.patch.object(base, "require_entropy"),
        pytest.raises(InvalidInput, match="symbols"),
    ):
        randomizer.report(np.array(W), Tape(b""))
    with pytest.raises(TypeError, match="Entropy"):
        randomizer.report(np.array([1]), np.random.default_rng(0))


@pytest.mark.parametrize("near", [0, POINTS, 1.0, True, -2])
def test_impossible_numbers_of_points_are_rejected(near):
    with pytest.raises(InvalidInput, match="near"):
        LocalHashing(5, Fraction(1), near)


# ---- Audit


def violations(release, reports: int) -> set[str]:
    found = audit(release, reports=reports, false_alarm=ALPHA, rng=np.random.default_rng(0))
    assert all(finding.verdict != "not run" for finding in found.findings)
    return {finding.test for finding in found.by_verdict("violation")}


def test_an_audit_finds_nothing_but_a_nonce_that_suits():
    release = fit_answers(8, epsilon=1, mechanism="hashing")
    assert not violations(release, 1_000)
    real: Any = release.randomizer
    broken = NonceThatSuits(real.size, real.epsilon, real.near)
    assert violations(dataclasses.replace(release, randomizer=broken), 1_000)
