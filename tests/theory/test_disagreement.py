from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import FiniteDifferences, Layers
from offaxis.simulation import simulate
from offaxis.theory import disagreement_bound, flipping_tails
from tests.theory.conftest import BUDGETS, STRETCHES

TWO = np.array([[1.0, 0.0], [-1.0, 0.5]])


@pytest.fixture(scope="module")
def square() -> np.ndarray:
    return np.random.default_rng(21).uniform(-1, 1, (200, 2))


@pytest.mark.parametrize("lambda_max", STRETCHES)
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_it_holds_on_real_features(measured, epsilon, lambda_max):
    """Averaged: with four standard errors of both sides against it."""
    _, _, found = measured(epsilon, lambda_max)
    highest = found.measured.mean + 4 * found.measured.standard_error
    assert highest < found.averaged - 4 * found.leaving_mean.standard_error
    assert (found.per_vector <= 1).all()
    assert found.averaged == found.per_vector.mean()


@pytest.mark.parametrize("lambda_max", STRETCHES)
def test_it_says_something_where_reports_stay_in_the_cell(measured, lambda_max):
    """At ε = 5000 one report in ten leaves: far below 0.9, and not much above the leaving."""
    _, _, found = measured(5000, lambda_max)
    assert found.covered > 0.95
    assert found.measured.mean < found.averaged < 0.25
    assert found.averaged < found.leaving_mean.mean + 0.1


def test_it_still_says_something_at_epsilon_200(measured):
    assert measured(200, 1000)[2].averaged < 0.9


def test_it_says_nothing_where_all_reports_leave(measured):
    """At ε = 5 it is 1, as it must be: the measured disagreement is near nine in ten."""
    _, _, found = measured(5, 1000)
    assert found.averaged > 0.99
    assert found.measured.mean > 0.8


def test_two_classes_by_hand(square):
    release = offaxis.fit(None, square, epsilon=40, reshaping="none", percentile=100)
    sigma = np.sqrt(2) * release.randomizer.scale
    slope = TWO[0] - TWO[1]
    margin = np.abs(square @ slope)
    variance = sigma**2 * np.sum(slope**2)
    largest = np.abs(slope).max()
    expected = np.exp(-np.minimum(margin**2 / (4 * variance), margin / (2 * sigma * largest)))
    assert np.allclose(flipping_tails(release, TWO, square), expected)


@pytest.mark.parametrize("epsilon", [4, 40, 400])
def test_every_vector_of_an_affine_task_is_under_its_tail(square, epsilon):
    """2,000 reports a vector; a share passes its tail by five errors in 10⁻⁶ of 200 vectors."""
    release = offaxis.fit(TWO, square, epsilon=epsilon)
    tails = flipping_tails(release, TWO, square)
    reports = simulate(release, np.tile(square, (2000, 1)), np.random.default_rng(4))
    answers = (square @ TWO.T).argmax(1)
    changed = ((reports @ TWO.T).argmax(1).reshape(2000, -1) != answers).mean(0)
    allowed = np.minimum(tails, 1)
    assert (changed <= allowed + 5 * np.sqrt(allowed * (1 - allowed) / 2000) + 5 / 2000).all()


def test_an_affine_task_never_leaves_its_cell(square):
    release = offaxis.fit(TWO, square, epsilon=400)
    found = disagreement_bound(release, TWO, square, draws=50)
    assert (found.leaving == 0).all()
    assert found.measured.mean < found.averaged < 0.3


def test_where_clipping_takes_the_lead_the_bound_is_one(square):
    """Classes split at 1.5 along an axis; everything is clipped to less than that."""
    step = Layers([np.array([[1.0, 0.0], [0.0, 0.0]])], [np.array([-1.5, 0.0])])
    release = offaxis.fit(None, square, epsilon=100, reshaping="none", percentile=100)
    assert release.randomizer.radius < 2
    inside, outside = np.array([[0.5, 0.0]]), np.array([[1.9, 1.9]])
    found = disagreement_bound(release, step, np.concatenate([inside, outside]), draws=50)
    assert found.covered == 0.5
    assert found.flipping[1] == np.inf
    assert found.per_vector[1] == 1
    assert found.per_vector[0] < 0.1


def test_a_direction_without_noise_costs_nothing(square):
    """Two outputs that differ by a constant: no report can change the answer."""
    lead = Layers([np.array([[1.0, 2.0], [1.0, 2.0]])], [np.array([0.3, 0.0])])
    release = offaxis.fit(None, square, epsilon=1, reshaping="none")
    assert (flipping_tails(release, lead, square) == 0).all()


def test_the_exact_noise_has_no_heavier_tails_than_the_continuous_law():
    """On the coarsest lattices too: log E e^{sX} is largest for the continuous law."""
    for log2_scale in range(6):
        scale = 1 << log2_scale
        s = np.linspace(0.01, 0.99, 50) / scale
        discrete = 1 / (1 - np.sinh(s / 2) ** 2 / np.sinh(0.5 / scale) ** 2)
        assert (discrete <= 1 / (1 - (s * scale) ** 2) * (1 + 1e-12)).all()


def test_conditions_are_named(release, head, public):
    gaussian = offaxis.fit(head, public, epsilon=3, mechanism="gaussian", delta=1e-5)
    with pytest.raises(InvalidInput, match="'Laplace noise' fails: the randomizer is gaussian"):
        disagreement_bound(gaussian, head, public)
    direction = offaxis.fit(head, public, epsilon=3, mechanism="privunitg")
    with pytest.raises(InvalidInput, match="'additive noise' fails"):
        disagreement_bound(direction, head, public)
    with pytest.raises(InvalidInput, match="has one output"):
        disagreement_bound(release, np.ones((1, 6)), public)
    bent = Layers(head.weights, head.biases, activation="tanh")
    with pytest.raises(InvalidInput, match="'piecewise affine' fails"):
        disagreement_bound(release, bent, public)


def test_a_model_of_unknown_layers_is_refused(release, head, public):
    with pytest.raises(InvalidInput, match="cannot be checked"):
        disagreement_bound(release, FiniteDifferences(head.outputs), public)
