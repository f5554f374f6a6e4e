"""Certified numbers against independent ones: dp_accounting, and sums by brute force."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

from offaxis.errors import InvalidInput
from offaxis.federated import MaskingPlan, certified_delta, largest_rho, sum_divergence
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers.gaussian import log_delta


def rival_delta(rho: float, epsilon: float) -> float:
    orders = 1 + np.geomspace(1e-3, 1e6, 4000)
    accountant = RdpAccountant(orders=list(orders))
    accountant.compose(GaussianDpEvent(1 / math.sqrt(2 * rho)))
    return float(accountant.get_delta(epsilon))


@pytest.mark.parametrize(
    ("rho", "epsilon"), [(0.001, 0.1), (0.03, 1.0), (0.37, 4.0), (2.0, 10.0), (20.0, 60.0)]
)
def test_delta_is_that_of_dp_accounting_and_above_the_gaussians_own(rho, epsilon):
    ours = float(certified_delta(Fraction(rho), Fraction(epsilon)))
    theirs = rival_delta(rho, epsilon)
    # Their search over orders is a grid, and so is ours: both are upper bounds of one minimum.
    assert ours == pytest.approx(theirs, rel=2e-3)
    exact = math.exp(log_delta(math.sqrt(2 * rho), epsilon))
    assert exact < ours < 40 * exact


def test_the_largest_rho_is_largest():
    epsilon, delta = Fraction(4), Fraction(1, 10**5)
    rho = largest_rho(epsilon, delta)
    assert certified_delta(Fraction(rho), epsilon) <= delta
    assert certified_delta(Fraction(rho * 1.0001), epsilon) > delta


def test_a_hopeless_epsilon_says_so():
    assert certified_delta(Fraction(100), Fraction(1)) == 1


def discrete_gaussian(variance: float, reach: int) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    p = np.exp(-(k**2) / (2 * variance))
    return p / p.sum()


@pytest.mark.parametrize(("variance", "shares"), [(1, 2), (1, 3), (1, 6), (2, 2), (2, 5)])
def test_a_sum_of_shares_differs_from_one_gaussian_by_no_more_than_the_bound(variance, shares):
    one = discrete_gaussian(variance, 60)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    ideal = discrete_gaussian(variance * shares, len(total) // 2)
    middle = slice(len(total) // 2 - 12, len(total) // 2 + 13)
    apart = np.abs(np.log(total[middle] / ideal[middle])).max()
    bound = float(sum_divergence(variance, shares))
    assert apart <= bound
    if shares == 2:
        assert apart > bound / 4, "for two shares the bound is close to the truth"


def test_a_plan_keeps_its_promise_by_another_accountant():
    plan = MaskingPlan(
        dim=50, clip=2.0, epsilon=3, delta="1e-6", rounds=7, threshold=9, colluders=3
    )
    sigma = math.sqrt(plan.honest_shares * plan.share_variance) / plan.sensitivity
    accountant = RdpAccountant(orders=list(1 + np.geomspace(1e-2, 1e5, 2000)))
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(sigma), 7))
    assert accountant.get_epsilon(1e-6) == pytest.approx(3, rel=1e-3)
    # The law itself, on one coordinate that moves by all of Δ: within the promise.
    coarse = MaskingPlan(dim=1, clip=1, epsilon=3, delta="1e-6", rounds=7, threshold=1, bound=8)
    loss = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        math.sqrt(coarse.share_variance), sensitivity=coarse.sensitivity
    ).self_compose(7)
    assert 1.5 < loss.get_epsilon_for_delta(1e-6) < 3


def test_colluders_and_rounds_cost_noise_and_more_clients_share_it():
    def plan(**changed):
        given = {"dim": 10, "clip": 1, "epsilon": 2, "delta": "1e-5", "rounds": 4, "threshold": 10}
        return MaskingPlan(**given | changed)

    base = plan().share_variance
    assert plan(colluders=5).share_variance == pytest.approx(2 * base, rel=1e-6)
    assert plan(rounds=8).share_variance == pytest.approx(2 * base, rel=1e-6)
    assert plan(threshold=20).share_variance == pytest.approx(base / 2, rel=1e-6)
    assert plan().noise_multiplier == pytest.approx(plan(colluders=5).noise_multiplier, rel=1e-6)


def test_a_coarse_lattice_pays_for_what_sums_of_shares_differ():
    """With a bound of 2 the shares are so small that τ matters; the promise is kept."""
    plan = MaskingPlan(dim=2, clip=1, epsilon=8, delta="1e-3", rounds=1, threshold=8, bound=2)
    apart = plan.dim * sum_divergence(plan.share_variance, 8)
    assert certified_delta(plan.rho, plan.epsilon - 2 * apart) * (1 + 2 * apart) <= plan.delta


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
def test_plans_that_promise_nothing_are_refused(changed, message):
    given = {"dim": 4, "clip": 1.0, "epsilon": 1, "delta": "1e-5", "rounds": 1, "threshold": 3}
    with pytest.raises(InvalidInput, match=message):
        MaskingPlan(**given | changed)


def test_the_promise_is_no_local_one_and_says_so():
    plan = MaskingPlan(dim=4, clip=1.0, epsilon=1, delta="1e-5", rounds=1, threshold=3)
    assert not isinstance(plan.guarantee, Guarantee)
    assert not plan.guarantee.local
    assert "not local" in str(plan.guarantee)
    with pytest.raises(AttributeError):
        _ = plan.guarantee.pure
