"""First-order and nonlinear risk: formulas, exactness on linear tasks, standard errors."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.theory import (
    Estimate,
    conditions,
    first_order_risk,
    mean_gram,
    noise_risk,
    nonlinear_risk,
)

WEIGHT = np.array([[3.0, 1.0, 0.0, 0.0, 0.0, 0.5], [0.0, 2.0, 0.0, 0.1, 0.0, 0.0]])


def test_the_noise_risk_of_a_plain_release_on_a_linear_task(public):
    release = offaxis.fit(
        None, public, epsilon=4, reshaping="none", percentile=100, mechanism="laplace"
    )
    risk = first_order_risk(release, WEIGHT, public)
    # Laplace noise of scale 2ρ/ε has the variance 2 (2ρ/ε)²; the radius clips no vector.
    variance = 2 * (2 * release.randomizer.radius / 4) ** 2
    assert risk.noise == pytest.approx(variance * np.sum(WEIGHT**2), rel=1e-4)
    assert risk.clipping == pytest.approx(0, abs=1e-20)


def test_the_noise_risk_is_the_trace_over_stretched_directions(release, head, public):
    """σ² Tr(ΛUᵀΩ̂U), computed from the map."""
    inverse = release.decoder.matrix
    stretch = np.sum(inverse**2, axis=0)
    basis = inverse / np.sqrt(stretch)
    gram = np.mean([j.T @ j for j in head.jacobians(public)], axis=0)
    variance = release.randomizer.expected_squared_error() / release.randomizer.dim
    expected = variance * np.trace(np.diag(stretch) @ basis.T @ gram @ basis)
    assert first_order_risk(release, head, public).noise == pytest.approx(expected, rel=1e-10)


def test_the_clipping_risk_follows_its_formula(release, head, public):
    encoded = release.encoder.encode(public)
    theta = np.minimum(1, release.randomizer.radius / np.abs(encoded).sum(1))
    assert 0 < (theta < 1).mean() < 0.2
    moved = (theta - 1)[:, None] * (public - release.encoder.centre)
    change = np.einsum("nkm,nm->nk", head.jacobians(public), moved)
    expected = np.sum(change**2) / len(public)
    assert first_order_risk(release, head, public).clipping == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("numbers", [17, 40])
def test_jacobians_too_large_for_memory_are_taken_row_by_row(
    release, head, public, monkeypatch, numbers
):
    """A Jacobian has 6 × 3 numbers: none fits into 17, two fit into 40."""
    few = public[:50]
    expected = first_order_risk(release, head, few)
    monkeypatch.setattr(conditions, "_BATCH_NUMBERS", numbers)
    whole = type(head).jacobians

    def bounded(self, Z):
        assert 18 * len(Z) <= numbers
        return whole(self, Z)

    monkeypatch.setattr(type(head), "jacobians", bounded)
    in_parts = first_order_risk(release, head, few)
    assert in_parts.clipping == pytest.approx(expected.clipping, rel=1e-12)
    assert in_parts.noise == pytest.approx(expected.noise, rel=1e-12)


@pytest.mark.parametrize("settings", [{}, {"mechanism": "gaussian", "delta": 1e-5}])
@pytest.mark.parametrize("reshaping", ["jacobian", "centre", "none"])
def test_the_first_order_is_exact_on_linear_tasks(public, settings, reshaping):
    """Five standard errors: a false alarm in one of two million runs, and the seed is fixed."""
    release = offaxis.fit(
        WEIGHT,
        public,
        epsilon=3,
        reshaping=reshaping,
        percentile=70,
        **{"mechanism": "laplace"} | settings,
    )
    risk = first_order_risk(release, WEIGHT, public)
    measured = nonlinear_risk(release, WEIGHT, public, draws=200, seed=2)
    assert risk.clipping > 0
    assert measured.standard_error < 0.02 * measured.mean
    assert abs(measured.mean - risk.total) < 5 * measured.standard_error


def test_exact_reports_have_the_first_order_risk_of_a_linear_task(public):
    """Six standard errors of 20 reports per vector: a false alarm in one of 10⁸ runs."""
    release = offaxis.fit(WEIGHT, public, epsilon=3, mechanism="laplace")
    clean = public @ WEIGHT.T
    changes = [
        np.sum((release.decode(release.privatize(public)) @ WEIGHT.T - clean) ** 2, axis=1)
        for _ in range(20)
    ]
    measured = Estimate.of(np.array(changes))
    total = first_order_risk(release, WEIGHT, public).total
    assert abs(measured.mean - total) < 6 * measured.standard_error


def test_noise_and_clipping_both_contribute(public):
    """Each part is many standard errors, so the tests above would notice a missing one."""
    release = offaxis.fit(WEIGHT, public, epsilon=20, percentile=50, mechanism="laplace")
    risk = first_order_risk(release, WEIGHT, public)
    measured = nonlinear_risk(release, WEIGHT, public, draws=200)
    assert min(risk.noise, risk.clipping) > 20 * measured.standard_error


def test_the_standard_error_is_that_of_repeated_simulations(release, head, public):
    """The spread of 40 means estimates it within a factor of 1.6 (10⁻⁴ for a χ² of 39)."""
    runs = [nonlinear_risk(release, head, public[:50], draws=10, seed=s) for s in range(40)]
    spread = np.std([run.mean for run in runs], ddof=1)
    stated = np.sqrt(np.mean([run.standard_error**2 for run in runs]))
    assert stated / 1.6 < spread < stated * 1.6


def test_the_gram_matrix_is_the_mean_over_vectors(head, public):
    expected = np.mean([j.T @ j for j in head.jacobians(public)], axis=0)
    assert np.allclose(mean_gram(head, public), expected)


def test_reshaping_lowers_the_noise_risk_on_the_real_task(features, geometry, fitted):
    plain = offaxis.fit(None, features.public, epsilon=200, reshaping="centre", mechanism="laplace")
    assert noise_risk(fitted(200, 1000), geometry.gram) < 0.5 * noise_risk(plain, geometry.gram)


@pytest.mark.parametrize("lambda_max", [2, 1000])
def test_the_first_order_is_accurate_while_reports_stay_in_the_cell(measured, lambda_max):
    """At ε = 5000 about one report in ten leaves; the risk is within one percent."""
    risk, bound, _ = measured(5000, lambda_max)
    assert bound.leaving.mean < 0.2
    assert risk.mean == pytest.approx(bound.first_order.total, rel=0.01)


def test_the_first_order_underestimates_if_all_reports_leave_the_cell(measured):
    risk, bound, _ = measured(5, 1000)
    assert bound.leaving.mean > 0.99
    assert risk.mean > 1.2 * bound.first_order.total


def test_a_gelu_task_has_a_first_order_risk(release, head, public):
    bent = Layers(head.weights, head.biases, activation="gelu")
    assert first_order_risk(release, bent, public).total > 0


def test_noise_that_is_not_additive_is_rejected(head, public):
    release = offaxis.fit(head, public, epsilon=3, mechanism="privunit2")
    with pytest.raises(InvalidInput, match="'additive noise' fails: the privunit2"):
        first_order_risk(release, head, public)
    assert nonlinear_risk(release, head, public, draws=2).mean > 0


def test_a_single_draw_is_rejected(release, head, public):
    with pytest.raises(InvalidInput, match="draws=1"):
        nonlinear_risk(release, head, public, draws=1)
