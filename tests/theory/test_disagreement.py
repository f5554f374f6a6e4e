"""The bound on changed answers: it holds, is known by hand, and names its conditions."""

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
def test_the_bound_holds_on_real_features(measured, epsilon, lambda_max):
    """On average over vectors, even with four standard errors on both sides."""
    _, _, bound = measured(epsilon, lambda_max)
    highest = bound.measured.mean + 4 * bound.measured.standard_error
    assert highest < bound.averaged - 4 * bound.leaving_mean.standard_error
    assert (bound.per_vector <= 1).all()
    assert bound.averaged == bound.per_vector.mean()


@pytest.mark.parametrize("lambda_max", STRETCHES)
def test_the_bound_is_informative_while_reports_stay_in_the_cell(measured, lambda_max):
    """At ε = 5000 one report in ten leaves: the bound is not much above that share."""
    _, _, bound = measured(5000, lambda_max)
    assert bound.covered > 0.95
    assert bound.measured.mean < bound.averaged < 0.25
    assert bound.averaged < bound.leaving_mean.mean + 0.1


def test_the_bound_is_informative_at_epsilon_200(measured):
    assert measured(200, 1000)[2].averaged < 0.9


def test_the_bound_is_one_if_all_reports_leave_the_cell(measured):
    """At ε = 5 the measured disagreement is near nine in ten."""
    _, _, bound = measured(5, 1000)
    assert bound.averaged > 0.99
    assert bound.measured.mean > 0.8


def test_the_tails_of_two_classes_match_the_formula(square):
    release = offaxis.fit(
        None, square, epsilon=40, reshaping="none", percentile=100, mechanism="laplace"
    )
    sigma = np.sqrt(2) * release.randomizer.scale
    slope = TWO[0] - TWO[1]
    margin = np.abs(square @ slope)
    variance = sigma**2 * np.sum(slope**2)
    largest = np.abs(slope).max()
    expected = np.exp(-np.minimum(margin**2 / (4 * variance), margin / (2 * sigma * largest)))
    assert np.allclose(flipping_tails(release, TWO, square), expected)


@pytest.mark.parametrize("epsilon", [4, 40, 400])
def test_no_vector_of_an_affine_task_exceeds_its_tail(square, epsilon):
    """2,000 reports per vector, five standard errors: a false alarm has probability 10⁻⁶ each."""
    release = offaxis.fit(TWO, square, epsilon=epsilon, mechanism="laplace")
    tails = flipping_tails(release, TWO, square)
    reports = simulate(release, np.tile(square, (2000, 1)), np.random.default_rng(4))
    answers = (square @ TWO.T).argmax(1)
    changed = ((reports @ TWO.T).argmax(1).reshape(2000, -1) != answers).mean(0)
    allowed = np.minimum(tails, 1)
    assert (changed <= allowed + 5 * np.sqrt(allowed * (1 - allowed) / 2000) + 5 / 2000).all()


def test_an_affine_task_never_leaves_its_cell(square):
    release = offaxis.fit(TWO, square, epsilon=400, mechanism="laplace")
    bound = disagreement_bound(release, TWO, square, draws=50)
    assert (bound.leaving == 0).all()
    assert bound.measured.mean < bound.averaged < 0.3


def test_the_bound_is_one_if_clipping_changes_the_answer(square):
    """The classes are split at 1.5 along an axis, and all vectors are clipped below that."""
    step = Layers([np.array([[1.0, 0.0], [0.0, 0.0]])], [np.array([-1.5, 0.0])])
    release = offaxis.fit(
        None, square, epsilon=100, reshaping="none", percentile=100, mechanism="laplace"
    )
    assert release.randomizer.radius < 2
    inside, outside = np.array([[0.5, 0.0]]), np.array([[1.9, 1.9]])
    bound = disagreement_bound(release, step, np.concatenate([inside, outside]), draws=50)
    assert bound.covered == 0.5
    assert bound.flipping[1] == np.inf
    assert bound.per_vector[1] == 1
    assert bound.per_vector[0] < 0.1


def test_without_noise_on_the_margin_the_tail_is_zero(square):
    """If two outputs differ by a constant, no report can change the answer."""
    lead = Layers([np.array([[1.0, 2.0], [1.0, 2.0]])], [np.array([0.3, 0.0])])
    release = offaxis.fit(None, square, epsilon=1, reshaping="none", mechanism="laplace")
    assert (flipping_tails(release, lead, square) == 0).all()


def test_the_exact_noise_has_no_heavier_tails_than_the_continuous_law():
    """E e^{sX} is larger for the continuous law, also on the coarsest lattices."""
    for log2_scale in range(6):
        scale = 1 << log2_scale
        s = np.linspace(0.01, 0.99, 50) / scale
        discrete = 1 / (1 - np.sinh(s / 2) ** 2 / np.sinh(0.5 / scale) ** 2)
        assert (discrete <= 1 / (1 - (s * scale) ** 2) * (1 + 1e-12)).all()


def test_errors_name_the_condition_that_fails(release, head, public):
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


def test_a_model_of_unknown_layers_is_rejected(release, head, public):
    with pytest.raises(InvalidInput, match="cannot be checked"):
        disagreement_bound(release, FiniteDifferences(head.outputs), public)
