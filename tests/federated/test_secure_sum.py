"""The opened sum is exact, and its noise is as stated, for any set of survivors."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from offaxis.federated import Roster, SecureAggregationClient, SecureAggregationRound, masks
from tests.checks import ALPHA
from tests.federated.rounds import Watched, clients_of, roster_of, run, steps_of


@st.composite
def rounds(draw):
    """Draw weights, drop-outs, and updates inside and outside the ball, zero and tiny ones."""
    size, dim = draw(st.integers(2, 7)), draw(st.integers(1, 9))
    fractions = st.fractions(Fraction(1, 50), 50, max_denominator=50)
    weights = draw(st.lists(fractions, min_size=size, max_size=size))
    threshold = draw(st.integers(1, size))
    dropped = draw(st.sets(st.integers(0, size - 1), max_size=size - threshold))
    entries = st.floats(-3, 3) | st.sampled_from([0.0, 1e-300, -1e300])
    updates = [draw(st.lists(entries, min_size=dim, max_size=dim)) for _ in range(size)]
    return weights, dim, threshold, dropped, updates


@settings(max_examples=25)
@given(rounds())
def test_the_sum_is_exact_in_lattice_steps_and_close_to_the_sum_of_the_updates(case):
    weights, dim, threshold, dropped, rows = case
    roster = roster_of(weights, dim, threshold)
    updates = dict(zip(roster.names, map(np.array, rows), strict=True))
    clients = clients_of(roster)
    result, *_ = run(roster, clients, updates, [roster.names[i] for i in dropped])
    steps = {name: steps_of(roster, name, updates[name]) for name in result.survivors}
    noise = sum(clients[name].noise for name in result.survivors)
    np.testing.assert_array_equal(result.integers, sum(steps.values()) + noise)
    # Each client's error is below two steps: truncation, and the rounding of R_k.
    norms = {k: math.hypot(*u) for k, u in updates.items()}
    clipped = {k: u * min(1, 2 / norms[k]) if norms[k] else u for k, u in updates.items()}
    expected = sum(
        float(roster.members[roster.place(k)].weight) * clipped[k] for k in result.survivors
    )
    total = result.total - noise * roster.step
    assert np.abs(total - expected).max() <= 2.0001 * roster.step * len(result.survivors)
    np.testing.assert_allclose(result.mean * result.weight, result.total)


def test_every_encoded_update_is_inside_the_ball_of_its_client():
    roster = roster_of([1, Fraction(1, 3), 7], dim=40, threshold=2)
    rng = np.random.default_rng(1)
    for name, bound in zip(roster.names, roster.bounds, strict=True):
        for row in rng.standard_normal((50, 40)) * 10.0 ** rng.integers(-3, 6, (50, 1)):
            steps = steps_of(roster, name, row)
            assert int((steps.astype(object) ** 2).sum()) <= bound**2
    assert max(roster.bounds) * 2 == roster.plan.sensitivity


def variance_p_value(noise: np.ndarray, variance: float) -> float:
    """Two-sided χ² test of a variance; at this size it cannot tell discrete from normal."""
    ratio = float((noise.astype(float) ** 2).sum() / variance)
    return 2 * min(stats.chi2.cdf(ratio, noise.size), stats.chi2.sf(ratio, noise.size))


@pytest.mark.parametrize("dropped", ["", "e", "bd"])
def test_the_noise_of_the_survivors_has_the_stated_variance(dropped):
    """False alarm: ALPHA per check. Four per cent less noise is rejected."""
    roster = roster_of([1, 2, 1, 5, 1], dim=40_000, threshold=3, colluders=1)
    zero = dict.fromkeys(roster.names, np.zeros(40_000))
    clients = clients_of(roster)
    result, *_ = run(roster, clients, zero, dropped)
    share = roster.plan.share_variance
    assert variance_p_value(result.integers, len(result.survivors) * share) > ALPHA
    assert variance_p_value(result.integers * 0.96, len(result.survivors) * share) < ALPHA
    assert result.noise_std == pytest.approx(
        roster.step * np.sqrt(len(result.survivors) * share), rel=1e-12
    )
    # A colluder removes its own share: the rest is still as much as the guarantee needs.
    rest = result.integers - clients["a"].noise
    remaining = (len(result.survivors) - 1) * share
    assert variance_p_value(rest, remaining) > ALPHA
    least = roster.plan.honest_shares * share
    assert remaining >= least
    rho = roster.plan.rounds * Fraction(roster.plan.sensitivity**2, 2 * least)
    assert rho == roster.plan.rho


class Noiseless(SecureAggregationClient):
    """A broken control that adds no noise."""

    def _noise(self, entropy):
        return np.zeros_like(super()._noise(entropy))


def test_a_client_that_adds_no_noise_is_rejected_by_the_same_check():
    roster = roster_of([1, 1, 1], dim=40_000, threshold=2)
    clients = clients_of(roster) | {"b": clients_of(roster, Noiseless)["b"]}
    result, *_ = run(roster, clients, dict.fromkeys("abc", np.zeros(40_000)))
    assert variance_p_value(result.integers, 3 * roster.plan.share_variance) < ALPHA


def test_without_noise_the_opened_sum_is_exact_to_the_last_bit():
    roster = roster_of([3, 1, 2, 2], dim=100, threshold=3)
    rng = np.random.default_rng(2)
    updates = {name: rng.standard_normal(100) for name in roster.names}
    result, *_ = run(roster, clients_of(roster, Noiseless), updates, "b")
    expected = sum(steps_of(roster, name, updates[name]) for name in "acd")
    np.testing.assert_array_equal(result.integers, expected)


def test_the_ring_holds_the_largest_sum_and_the_noise():
    roster = roster_of([1] * 10, dim=3, threshold=10, bound=1 << 20, rounds=1)
    push = np.array([2.0, 0, 0])
    result, *_ = run(roster, clients_of(roster, Noiseless), dict.fromkeys(roster.names, push))
    assert result.integers.tolist() == [10 << 20, 0, 0]
    odds = 41 * np.log(2) + np.log(3)
    noise = np.sqrt(2 * 10 * roster.plan.share_variance * odds)
    assert (10 << 20) + noise < 2 ** (roster.ring_bits - 1)
    assert roster.ring_bits % 8 == 0


@given(st.lists(st.integers(-(2**39), 2**39 - 1), min_size=1, max_size=20))
def test_ring_elements_are_written_and_read_back(values):
    integers = np.array(values, dtype=np.int64)
    ring = masks.to_ring(integers, 40)
    payload = masks.pack(ring, 40)
    assert len(payload) == 5 * len(values)
    np.testing.assert_array_equal(masks.unpack(payload, len(values), 40), ring)
    np.testing.assert_array_equal(masks.from_ring(ring, 40), integers)


def test_multiplying_a_mask_by_an_even_weight_would_lose_bits():
    mask = masks.expand(bytes(32), 1000, 24)
    assert (masks.reduce(mask * np.uint64(6), 24) % 2 == 0).all()


def test_a_restarted_client_continues_the_round():
    roster = roster_of([1, 1], dim=4, threshold=2)
    clients = clients_of(roster)
    updates = dict.fromkeys("ab", np.ones(4))
    sent = {name: client.mask(5, updates[name]) for name, client in clients.items()}
    restarted = Watched("a", clients["a"]._keys, roster, state=clients["a"].state())
    restarted.noise = clients["a"].noise
    server = SecureAggregationRound(roster, 5)
    for message in sent.values():
        server.add(message)
    both = {"a": restarted, "b": clients["b"]}
    consents = [client.consent(server.survivors()) for client in both.values()]
    for client in both.values():
        server.add_opening(client.open(consents))
    noise = restarted.noise + clients["b"].noise
    expected = 2 * steps_of(roster, "a", updates["a"]) + noise
    np.testing.assert_array_equal(server.result().integers, expected)
    assert Roster.from_bytes(roster.to_bytes()) == roster
