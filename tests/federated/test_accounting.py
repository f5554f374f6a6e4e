"""Certified numbers against independent ones: dp_accounting and brute-force sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

from offaxis.errors import InvalidInput
from offaxis.federated import SecureAggregationPlan, certified_delta, largest_rho, sum_divergence
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers.gaussian import log_delta


def reference_delta(rho: float, epsilon: float) -> float:
    orders = 1 + np.geomspace(1e-3, 1e6, 4000)
    accountant = RdpAccountant(orders=list(orders))
    accountant.compose(GaussianDpEvent(1 / math.sqrt(2 * rho)))
    return float(accountant.get_delta(epsilon))


@pytest.mark.parametrize(
    ("rho", "epsilon"), [(0.001, 0.1), (0.03, 1.0), (0.37, 4.0), (2.0, 10.0), (20.0, 60.0)]
)
def test_delta_agrees_with_dp_accounting_and_exceeds_the_exact_delta_of_the_gaussian(rho, epsilon):
    ours = float(certified_delta(Fraction(rho), Fraction(epsilon)))
    theirs = reference_delta(rho, epsilon)
    # Both search a grid of orders, so both are upper bounds of the same minimum.
    assert ours == pytest.approx(theirs, rel=2e-3)
    exact = math.exp(log_delta(math.sqrt(2 * rho), epsilon))
    assert exact < ours < 40 * exact


def test_no_larger_rho_than_the_largest_satisfies_delta():
    epsilon, delta = Fraction(4), Fraction(1, 10**5)
    rho = largest_rho(epsilon, delta)
    assert certified_delta(Fraction(rho), epsilon) <= delta
    assert certified_delta(Fraction(rho * 1.0001), epsilon) > delta


def test_delta_is_one_where_rho_is_far_too_large():
    assert certified_delta(Fraction(100), Fraction(1)) == 1


def discrete_gaussian(variance: float, reach: int) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    p = np.exp(-(k**2) / (2 * variance))
    return p / p.sum()


@pytest.mark.parametrize(("variance", "shares"), [(1, 2), (1, 3), (1, 6), (2, 2), (2, 5)])
def test_a_sum_of_shares_differs_from_one_gaussian_by_at_most_the_bound(variance, shares):
    share = discrete_gaussian(variance, 60)
    total = share
    for _ in range(shares - 1):
        total = np.convolve(total, share)
    ideal = discrete_gaussian(variance * shares, len(total) // 2)
    middle = slice(len(total) // 2 - 12, len(total) // 2 + 13)
    divergence = np.abs(np.log(total[middle] / ideal[middle])).max()
    bound = float(sum_divergence(variance, shares))
    assert divergence <= bound
    if shares == 2:
        assert divergence > bound / 4, "for two shares the bound is close to the truth"


def test_another_accountant_confirms_the_guarantee_of_a_plan():
    plan = SecureAggregationPlan(
        dim=50, clip=2.0, epsilon=3, delta="1e-6", rounds=7, threshold=9, colluders=3
    )
    sigma = math.sqrt(plan.honest_shares * plan.share_variance) / plan.sensitivity
    accountant = RdpAccountant(orders=list(1 + np.geomspace(1e-2, 1e5, 2000)))
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(sigma), 7))
    assert accountant.get_epsilon(1e-6) == pytest.approx(3, rel=1e-3)
    # The distribution itself, on one coordinate that moves by all of Δ, is within the guarantee.
    coarse = SecureAggregationPlan(
        dim=1, clip=1, epsilon=3, delta="1e-6", rounds=7, threshold=1, bound=8
    )
    loss = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        math.sqrt(coarse.share_variance), sensitivity=coarse.sensitivity
    ).self_compose(7)
    assert 1.5 < loss.get_epsilon_for_delta(1e-6) < 3


def test_colluders_and_rounds_increase_the_noise_per_client_and_more_clients_share_it():
    def plan(**changed):
        base = {"dim": 10, "clip": 1, "epsilon": 2, "delta": "1e-5", "rounds": 4, "threshold": 10}
        return SecureAggregationPlan(**base | changed)

    base = plan().share_variance
    assert plan(colluders=5).share_variance == pytest.approx(2 * base, rel=1e-6)
    assert plan(rounds=8).share_variance == pytest.approx(2 * base, rel=1e-6)
    assert plan(threshold=20).share_variance == pytest.approx(base / 2, rel=1e-6)
    assert plan().noise_multiplier == pytest.approx(plan(colluders=5).noise_multiplier, rel=1e-6)


def test_a_coarse_lattice_accounts_for_the_divergence_of_the_sum():
    """With a bound of 2 the shares are so small that τ matters; the guarantee still holds."""
    plan = SecureAggregationPlan(
        dim=2, clip=1, epsilon=8, delta="1e-3", rounds=1, threshold=8, bound=2
    )
    divergence = plan.dim * sum_divergence(plan.share_variance, 8)
    delta = certified_delta(plan.rho, plan.epsilon - 2 * divergence)
    assert delta * (1 + 2 * divergence) <= plan.delta


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"rounds": 0}, "rounds"),
        ({"threshold": 0}, "threshold"),
        ({"colluders": 3}, "colluders"),
        ({"clip": float("nan")}, "clip"),
        ({"dim": 0}, "dim"),
        ({"bound": 2**30, "dim": 1 << 20}, "bound"),
        ({"bound": 2**28, "epsilon": "1e-6"}, "smaller bound"),
    ],
)
def test_invalid_plans_raise(changed, message):
    valid = {"dim": 4, "clip": 1.0, "epsilon": 1, "delta": "1e-5", "rounds": 1, "threshold": 3}
    with pytest.raises(InvalidInput, match=message):
        SecureAggregationPlan(**valid | changed)


def test_the_guarantee_states_that_it_is_not_local():
    plan = SecureAggregationPlan(dim=4, clip=1.0, epsilon=1, delta="1e-5", rounds=1, threshold=3)
    assert not isinstance(plan.guarantee, Guarantee)
    assert not plan.guarantee.local
    assert "not local" in str(plan.guarantee)
    with pytest.raises(AttributeError):
        _ = plan.guarantee.pure
