"""What the server and colluding clients see of honest ones: uniform numbers, and one noisy sum.

Two of five clients collude with the server. They remove every mask that any of them knows. The rest
of each honest vector must be uniform modulo 2**b, independent of the sum, and have the same
distribution for any inputs with the same sum. False alarm: ALPHA per check. Every broken control
must be rejected by the check next to it.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from offaxis.federated import SecureAggregationClient, masks
from tests.checks import ALPHA, counts_p_value
from tests.federated.rounds import (
    clients_of,
    roster_of,
    run,
    steps_of,
    without_known_masks,
)

DIM = 30_000
EVEN = np.full(256, 1 / 256)


def octets(values: np.ndarray, shift: int) -> np.ndarray:
    selected = (values >> np.uint64(shift)).astype(np.int64) & 255
    return np.bincount(selected, minlength=256)


def uniform_p_value(values: np.ndarray, bits: int) -> float:
    """χ² test of the highest and of the lowest byte (Bonferroni)."""
    return 2 * min(counts_p_value(octets(values, shift), EVEN) for shift in (0, bits - 8))


@pytest.fixture(scope="module")
def roster():
    return roster_of([1, 3, 2, 1, 1], DIM, threshold=3, colluders=2)


def view(roster, updates, dropped="", kind=SecureAggregationClient, number=1):
    """Return the sum, and the vectors of the honest clients a, b, c without the known masks."""
    clients = clients_of(roster, kind)
    result, sent, openings = run(roster, clients, updates, dropped, number)
    colluders = {name: clients[name] for name in "de"}
    rest = {
        name: without_known_masks(roster, name, sent[name], openings, colluders) for name in "abc"
    }
    return result, rest


def updates_of(roster, push: float) -> dict[str, np.ndarray]:
    """Return inputs with the same sum in lattice steps for every push: a gains what c loses."""
    base = np.full(DIM, 0.3 / np.sqrt(DIM))
    moved = {"a": base * (1 + push), "c": base}
    # The weight of a is 1 and that of c is 2: the same number of steps moves between them.
    moved["c"] = base * (1 - push / 2)
    return dict.fromkeys(roster.names, base) | moved


def test_honest_vectors_are_uniform_and_add_up_to_the_sum(roster):
    result, rest = view(roster, updates_of(roster, 0.0))
    for values in rest.values():
        assert uniform_p_value(values, roster.ring_bits) > ALPHA
    # Any two are jointly uniform: high nibbles of one against high nibbles of another.
    high = {k: (v >> np.uint64(roster.ring_bits - 4)).astype(int) for k, v in rest.items()}
    pairs = np.bincount(16 * high["a"] + high["b"], minlength=256)
    assert counts_p_value(pairs, EVEN) > ALPHA
    # They are independent of the sum of all three, which is all that is determined.
    total = masks.from_ring(
        masks.reduce(rest["a"] + rest["b"] + rest["c"], roster.ring_bits), roster.ring_bits
    )
    bins = np.searchsorted(np.quantile(total, np.linspace(0, 1, 17)[1:-1]), total)
    table = np.bincount(16 * high["a"] + bins, minlength=256).reshape(16, 16)
    assert stats.chi2_contingency(table).pvalue > ALPHA
    # The three vectors hold nothing but the opened sum; the colluders know their own part of it.
    assert np.abs(total).max() < 2 ** (roster.ring_bits - 1)
    assert result.survivors == tuple("abcde")


def test_inputs_with_the_same_sum_are_indistinguishable(roster):
    _, first = view(roster, updates_of(roster, 0.0))
    _, second = view(roster, updates_of(roster, 5.0))
    for name in "abc":
        for shift in (0, roster.ring_bits - 8):
            table = np.stack([octets(first[name], shift), octets(second[name], shift)])
            assert stats.chi2_contingency(table).pvalue > ALPHA


class SmallMasks(SecureAggregationClient):
    """A broken control with rounded Gaussian masks: they cancel, but they are not uniform."""

    def mask(self, round_number, update):
        true_expand = masks.expand

        def expand(seed, dim, bits):
            words = true_expand(seed, dim, 32).astype(float)
            normal = stats.norm.ppf((words + 0.5) / 2**32) * self.roster.plan.bound / 16
            return masks.to_ring(np.rint(normal).astype(np.int64), bits)

        masks.expand = expand
        try:
            return super().mask(round_number, update)
        finally:
            masks.expand = true_expand


@pytest.mark.parametrize("kind", [SecureAggregationClient, SmallMasks])
def test_a_masked_update_reveals_nothing_and_small_masks_are_rejected(kind):
    """Two opposite updates, almost no noise: both masked forms have the uniform distribution.

    With Gaussian masks they have different distributions, neither uniform, although each mask is
    six times as large as what it should hide.
    """
    roster = roster_of([1, 3, 2, 1, 1], DIM, threshold=3, epsilon=10_000, rounds=1)
    seen = []
    for sign in (1, -1):
        sent = clients_of(roster, kind)["b"].mask(1, np.full(DIM, sign * 2 / np.sqrt(DIM)))
        seen.append(masks.unpack(sent.payload, DIM, roster.ring_bits))
    hidden = kind is SecureAggregationClient
    assert (uniform_p_value(seen[0], roster.ring_bits) > ALPHA) == hidden
    signed = [masks.from_ring(values, roster.ring_bits) for values in seen]
    edges = np.quantile(np.concatenate(signed), np.linspace(0, 1, 17)[1:-1])
    table = np.stack([np.bincount(np.searchsorted(edges, v), minlength=16) for v in signed])
    assert (stats.chi2_contingency(table).pvalue > ALPHA) == hidden


class NoPairMask(SecureAggregationClient):
    """A broken control in which a, b and c share no masks with each other."""

    def mask(self, round_number, update):
        sent = super().mask(round_number, update)
        values = masks.unpack(sent.payload, self.roster.plan.dim, self.roster.ring_bits)
        for other in set("abc") - {self.name}:
            mask = masks.expand(
                self._pair_seed(self.roster.place(other), round_number),
                self.roster.plan.dim,
                self.roster.ring_bits,
            )
            values = values - mask if self._place < self.roster.place(other) else values + mask
        reduced = masks.reduce(values, self.roster.ring_bits)
        return type(sent)(round_number, self.name, masks.pack(reduced, self.roster.ring_bits))


def test_a_missing_pair_mask_is_rejected(roster):
    result, rest = view(roster, updates_of(roster, 0.0), kind=NoPairMask)
    assert uniform_p_value(rest["a"], roster.ring_bits) < ALPHA
    assert result.survivors == tuple("abcde"), "the round still completes"


class SameEveryRound(SecureAggregationClient):
    """A broken control whose pair seeds do not depend on the round."""

    def _pair_seed(self, place, round_number):
        return super()._pair_seed(place, 0)


@pytest.mark.parametrize("kind", [SecureAggregationClient, SameEveryRound])
def test_two_rounds_share_no_mask_and_a_reused_seed_is_rejected(roster, kind):
    clients = clients_of(roster, kind)
    seen = []
    for number in (1, 2):
        _, sent, openings = run(roster, clients, updates_of(roster, 0.0), number=number)
        colluders = {name: clients[name] for name in "de"}
        seen.append(without_known_masks(roster, "a", sent["a"], openings, colluders))
    difference = masks.reduce(seen[0] - seen[1], roster.ring_bits)
    assert (uniform_p_value(difference, roster.ring_bits) > ALPHA) == (
        kind is SecureAggregationClient
    )


def test_only_its_own_mask_keeps_a_late_client_hidden(roster):
    clients = clients_of(roster)
    result, sent, openings = run(roster, clients, updates_of(roster, 0.0), "c")
    assert "c" not in result.survivors
    colluders = {name: clients[name] for name in "de"}
    rest = without_known_masks(roster, "c", sent["c"], openings, colluders)
    assert uniform_p_value(rest, roster.ring_bits) > ALPHA
    # The broken control: without c's own mask all masks are known; update plus noise are exposed.
    own = bytes.fromhex(clients["c"]._progress.self_seed)
    exposed = masks.reduce(rest - masks.expand(own, DIM, roster.ring_bits), roster.ring_bits)
    expected = steps_of(roster, "c", updates_of(roster, 0.0)["c"]) + clients["c"].noise
    np.testing.assert_array_equal(masks.from_ring(exposed, roster.ring_bits), expected)
    assert uniform_p_value(exposed, roster.ring_bits) < ALPHA


def test_gaussian_masks_hide_by_the_formula_and_never_more_than_sigma_null():
    """K clients, weights w, real masks N(0, σ_null²) in Null(W), noise N(0, σ_row²) along W.

    The joint covariance is Σ = P σ_row² + (I − P) σ_null² with P = wwᵀ/‖w‖². A server that knows
    all other clients sees client k under normal noise of the precision (Σ⁻¹)_kk, which is the
    formula of docs/federated.md.
    """
    rng = np.random.default_rng(3)
    weights, row, null = rng.uniform(0.5, 3, 6), 2.0, 7.0
    along = np.outer(weights, weights) / (weights @ weights)
    covariance = along * row**2 + (np.eye(6) - along) * null**2
    share = weights**2 / (weights @ weights)
    precision = share / row**2 + (1 - share) / null**2
    np.testing.assert_allclose(np.diag(np.linalg.inv(covariance)), precision)
    assert (1 / np.sqrt(precision) < null).all(), "no mask hides more than σ_null"
    # An observer finds the same: regress one coordinate on the others.
    seen = rng.multivariate_normal(np.zeros(6), covariance, 200_000)
    coefficients = np.linalg.lstsq(seen[:, 1:], seen[:, 0], rcond=None)[0]
    residual = seen[:, 0] - seen[:, 1:] @ coefficients
    assert residual.var() == pytest.approx(1 / precision[0], rel=0.03)
