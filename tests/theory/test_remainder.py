"""The remainder bound: closed-form moments, cells, confidence limits, and its conditions."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.simulation import simulate
from offaxis.theory import fourth_moments, nonlinear_risk, remainder_bound
from offaxis.theory.conditions import activation_cell, highest_share, lipschitz
from tests.theory.conftest import BUDGETS, STRETCHES


@pytest.mark.parametrize("settings", [{}, {"mechanism": "gaussian", "delta": 1e-5}])
def test_fourth_moments_match_the_simulation(public, head, settings):
    """Five standard errors of 200,000 draws each; the closed form is exact.

    The last two vectors are far outside, so that clipping moves them as much as noise does.
    """
    release = offaxis.fit(
        head, public, epsilon=3, percentile=30, **{"mechanism": "laplace"} | settings
    )
    weight = head.weights[0]
    vectors = np.concatenate([public[:1], 50 * public[1:2], 200 * public[2:3]])
    plain, after_first = (fourth_moments(release, vectors, w) for w in (None, weight))
    for z, moment, inner in zip(vectors, plain, after_first, strict=True):
        h = simulate(release, np.tile(z, (200_000, 1)), np.random.default_rng(3)) - z
        for moved, expected in ((h, moment), (h @ weight.T, inner)):
            values = np.sum(moved**2, axis=1) ** 2
            error = values.std() / np.sqrt(len(values))
            assert error < 0.03 * expected
            assert abs(values.mean() - expected) < 5 * error


@pytest.mark.parametrize("lambda_max", STRETCHES)
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_both_bounds_hold_on_real_features(measured, epsilon, lambda_max):
    """Measured gaps plus five standard errors stay below the bounds."""
    risk, bound, _ = measured(epsilon, lambda_max)
    first = bound.first_order.total
    for sign in (-5, 5):
        real = risk.mean + sign * risk.standard_error
        assert abs(np.sqrt(real) - np.sqrt(first)) < bound.sharper_root <= bound.root
        assert abs(real - first) < bound.sharper_risk <= bound.risk


def test_the_bound_shrinks_with_the_noise(measured):
    """From ε = 5 to 5000 the noise falls a thousandfold, and the bound follows."""
    roots = [[measured(e, s)[1].root for e in BUDGETS] for s in STRETCHES]
    assert np.isfinite(roots).all()
    for first, second, third in roots:
        assert first > 20 * second > 200 * third


def test_the_sharper_form_ignores_noise_that_the_first_layer_removes(measured):
    _, bound, _ = measured(5, 1000)
    assert bound.sharper_root < 0.01 * bound.root


def test_the_bound_is_small_if_reports_rarely_leave_the_cell():
    """One hidden unit that nearly every report leaves on: the bound is below 60 % of the risk."""
    rng = np.random.default_rng(5)
    public = rng.uniform(-1, 1, (200, 2))
    model = Layers([np.array([[1.0, 0.0]]), np.array([[1.0]])], [np.array([10.0]), np.zeros(1)])
    release = offaxis.fit(
        None, public, epsilon=3, reshaping="centre", percentile=100, mechanism="laplace"
    )
    bound = remainder_bound(release, model, public, draws=500)
    risk = nonlinear_risk(release, model, public, draws=500)
    assert 0 < bound.leaving.mean < 0.01
    first = np.sqrt(bound.first_order.total)
    assert abs(np.sqrt(risk.mean) - first) < bound.root
    assert bound.sharper_root < 0.6 * first


def test_an_affine_model_has_no_remainder(release, head, public):
    straight = Layers(head.weights, head.biases, activation="identity")
    for model in (straight, head.weights[0]):
        bound = remainder_bound(release, model, public, draws=2)
        assert bound.root == bound.risk == bound.sharper_root == 0


def test_a_measured_share_of_zero_is_not_taken_for_zero(public):
    far = Layers([np.eye(6), np.eye(6)], [np.full(6, 1e6), np.zeros(6)])
    release = offaxis.fit(None, public, epsilon=3, reshaping="centre", mechanism="laplace")
    bound = remainder_bound(release, far, public, draws=10)
    assert bound.leaving.mean == 0
    # A share of −ln(0.001) = 6.9 in 5,000 is still measured as zero in one of 1,000 simulations.
    assert bound.highest_leaving == pytest.approx(6.9 / 5000, rel=0.01)


def test_the_limit_on_leaving_covers_events_of_different_probabilities():
    """At 99 %, at most 1.8 % of 4,000 simulations miss: a false alarm in one of a million runs."""
    rng = np.random.default_rng(6)
    p = np.concatenate([np.full(80, 0.001), np.linspace(0, 0.5, 20)])
    hits = (rng.random((4000, 100)) < p).sum(1)
    limits = {h: highest_share(h, 100, 0.99) for h in set(hits.tolist())}
    missed = np.mean([limits[h] < p.mean() for h in hits.tolist()])
    assert missed < 0.018
    assert highest_share(100, 100, 0.99) == 1


def test_inside_a_cell_the_first_order_is_exact(head, public):
    rng = np.random.default_rng(8)
    near = public + 0.05 * rng.standard_normal(public.shape)
    same = (activation_cell(head, near) == activation_cell(head, public)).all(1)
    assert 100 < same.sum() < 500
    first = head.outputs(public) + np.einsum("nkm,nm->nk", head.jacobians(public), near - public)
    exact = np.isclose(first, head.outputs(near), rtol=1e-9, atol=1e-9).all(1)
    assert exact[same].all()
    assert not exact[~same].all()


def test_no_pair_of_vectors_is_stretched_beyond_the_lipschitz_constant(head, public):
    stretched = np.linalg.norm(np.diff(head.outputs(public), axis=0), axis=1)
    distance = np.linalg.norm(np.diff(public, axis=0), axis=1)
    constant = lipschitz(head.weights)
    assert (stretched <= constant * distance).all()
    assert (np.linalg.norm(head.jacobians(public), 2, axis=(1, 2)) <= constant).all()


def test_errors_name_the_condition_that_fails(release, head, public):
    bent = Layers(head.weights, head.biases, activation="gelu")
    with pytest.raises(InvalidInput, match=r"'piecewise affine' fails.*'gelu'"):
        remainder_bound(release, bent, public)
    direction = offaxis.fit(head, public, epsilon=3, mechanism="privunit2")
    with pytest.raises(InvalidInput, match="'additive noise' fails"):
        remainder_bound(direction, head, public)
    with pytest.raises(InvalidInput, match=r"confidence=0\.5"):
        remainder_bound(release, head, public, draws=2, confidence=0.5)


# ---- The first inequality: only over reports that leave the cell


@pytest.mark.parametrize("lambda_max", STRETCHES)
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_the_first_inequality_holds_on_real_features_and_is_never_the_looser(
    measured, epsilon, lambda_max
):
    """Five standard errors of the risk, and limits at 99.8 %, on seeded draws."""
    risk, bound, _ = measured(epsilon, lambda_max)
    first = bound.first_order.total
    for sign in (-5, 5):
        real = risk.mean + sign * risk.standard_error
        assert abs(np.sqrt(real) - np.sqrt(first)) < bound.sharper_leaving_root
        assert abs(real - first) < bound.sharper_leaving_risk
    assert bound.leaving_root <= bound.root
    assert bound.sharper_leaving_root <= bound.sharper_root
    assert bound.leaving_risk <= bound.risk
    assert bound.sharper_leaving_risk <= bound.sharper_risk


def test_the_first_inequality_is_much_tighter_if_reports_rarely_leave_the_cell(measured):
    """It shrinks with √P̄, the fourth-moment form with the fourth root of P̄."""
    for lambda_max in STRETCHES:
        bound = measured(5000, lambda_max)[1]
        assert bound.leaving.mean < 0.1
        assert bound.leaving_root < 0.75 * bound.root


def _one_unit(threshold: float) -> tuple[Layers, offaxis.Release, np.ndarray, float]:
    """T(z) = max(z, −threshold) + threshold, whose moments of leaving are known; z = 0, noise of b.

    The report leaves the cell if the noise is below −threshold: E[h² 1(leave)] has a closed form.
    """
    model = Layers([np.ones((1, 1)), np.ones((1, 1))], [np.array([threshold]), np.zeros(1)])
    public = np.linspace(-1, 1, 201)[:, None]
    release = offaxis.fit(
        None, public, epsilon=2, reshaping="none", percentile=100, mechanism="laplace"
    )
    b = release.randomizer.scale
    moment = np.exp(-threshold / b) / 2 * (threshold**2 + 2 * threshold * b + 2 * b**2)
    return model, release, np.zeros((4, 1)), float(moment)


def test_the_measured_moment_is_the_closed_form_and_limits_cover_it():
    """False alarm: 2e-6 for the estimate (z-test), 2e-3 for the limit; seeded."""
    model, release, vectors, moment = _one_unit(threshold=2.0)
    bound = remainder_bound(release, model, vectors, draws=50_000, seed=2)
    estimate = bound.leaving_moment
    assert abs(estimate.mean - moment) < 4.9 * estimate.standard_error
    assert 0.05 < bound.leaving.mean < 0.2
    exact = 2 * bound.lipschitz * np.sqrt(moment)
    assert exact < bound.leaving_root < bound.root
    # A broken control: reports that stay in the cell in place of those that leave it.
    variance = 2 * release.randomizer.scale**2
    assert abs((variance - moment) - estimate.mean) > 4.9 * estimate.standard_error


def test_limits_on_the_moment_miss_rarely_and_an_estimate_without_slack_often():
    """At 98 % (two limits at 99 %), 400 simulations: 25 misses occur once in a million runs."""
    model, release, vectors, moment = _one_unit(threshold=4.0)
    exact = 2 * np.sqrt(moment)
    missed, missed_without = 0, 0
    for seed in range(400):
        bound = remainder_bound(release, model, vectors, draws=50, seed=seed, confidence=0.99)
        missed += bound.leaving_root < exact
        missed_without += bound.leaving_moment.mean < moment
    assert missed < 25
    assert missed_without > 100  # the broken control: the plain estimate used as a limit


def test_a_bound_over_the_reports_that_stay_is_rejected():
    """A dead zone, T(z) = max(|z| − 0.1, 0), at z = 0: the first order is zero, most reports leave.

    The gap is √R_NL itself. The first inequality covers it by five standard errors; two broken
    controls, the moment over the reports that stay and a tenth of K, do not.
    """
    model = Layers([np.array([[1.0], [-1.0]]), np.ones((1, 2))], [np.full(2, -0.1), np.zeros(1)])
    _, release, vectors, _ = _one_unit(threshold=1.0)
    bound = remainder_bound(release, model, vectors, draws=5000)
    risk = nonlinear_risk(release, model, vectors, draws=5000)
    assert bound.first_order.total == 0
    lowest, highest = (np.sqrt(risk.mean + sign * risk.standard_error) for sign in (-5, 5))
    assert highest < bound.leaving_root < bound.root
    everything = 2 * release.randomizer.scale**2  # E h²
    stays = everything - bound.leaving_moment.mean + 5 * bound.leaving_moment.standard_error
    assert 2 * bound.lipschitz * np.sqrt(stays) < lowest
    assert 0.1 * bound.leaving_root < lowest


def test_an_affine_model_has_no_leaving_reports(release, head, public):
    straight = Layers(head.weights, head.biases, activation="identity")
    bound = remainder_bound(release, straight, public, draws=2)
    assert bound.leaving_root == bound.leaving_risk == bound.sharper_leaving_root == 0
