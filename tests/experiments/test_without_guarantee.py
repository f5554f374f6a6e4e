"""Mechanisms without a guarantee can be simulated, are labelled, and cannot be released."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from experiments.without_guarantee import (
    LABEL,
    classical_noise_scale,
    classical_plan,
    classical_true_epsilon,
    unbounded_coordinatewise,
)
from offaxis.decoding import ShiftDecoder
from offaxis.encoding import ShiftEncoder
from offaxis.errors import InvalidInput
from offaxis.provenance import Provenance
from offaxis.randomizers.gaussian import log_delta, noise_scale
from offaxis.release import Release
from offaxis.simulation import simulate


@pytest.fixture(scope="module")
def unprotected(head, public):
    return [
        unbounded_coordinatewise(head, public, epsilon=2),
        unbounded_coordinatewise(head, public, epsilon=2, noise="gaussian", delta=1e-5),
        classical_plan(head, public, epsilon=10, delta=1e-5),
    ]


def test_everything_is_labelled_with_the_reason(unprotected):
    assert {each.label for each in unprotected} == {LABEL} == {"no guarantee"}
    for each in unprotected:
        with pytest.raises(InvalidInput, match=r"has no guarantee: .*cannot be released"):
            _ = each.guarantee


def test_none_can_be_put_into_a_release(unprotected, public):
    provenance = offaxis.fit(
        None, public, epsilon=1, reshaping="none", mechanism="laplace"
    ).provenance
    assert isinstance(provenance, Provenance)
    for each in unprotected:
        with pytest.raises(InvalidInput, match="no guarantee"):
            Release(ShiftEncoder(np.zeros(6)), each, ShiftDecoder(np.zeros(6)), provenance)
        assert not hasattr(each, "report")
        assert not hasattr(each, "privatize")


def test_unbounded_noise_does_not_clip(head, public):
    """This is the reason: two distant vectors can be distinguished at any ε."""
    unbounded = unbounded_coordinatewise(head, public, epsilon=2)
    bounded = offaxis.fit(head, public, epsilon=2, mechanism="coordinatewise-laplace")
    far = public.mean(axis=0) + 1e9
    rng = np.random.default_rng(0)
    assert np.abs(unbounded.simulate(far[None], rng) - far).max() < 1e8
    assert np.abs(simulate(bounded, far[None], rng)[0] - far).max() > 9e8


def test_bounded_and_unbounded_have_the_same_noise(head, public):
    unbounded = unbounded_coordinatewise(head, public, epsilon=2)
    bounded = offaxis.fit(head, public, epsilon=2, mechanism="coordinatewise-laplace")
    unit = np.linalg.norm(bounded.decoder.matrix, axis=0) / np.linalg.norm(
        unbounded.frame.back, axis=0
    )
    np.testing.assert_allclose(unit * bounded.randomizer.scale, unbounded.scales, rtol=2e-4)


def test_they_can_be_simulated_but_make_no_reports(unprotected, public):
    for each in unprotected:
        assert each.simulate(public, np.random.default_rng(0)).shape == public.shape
        assert not hasattr(each, "privatize")


@pytest.mark.parametrize(("epsilon", "true"), [(8.4, 8.396), (8.5, 8.517), (10, 10.394)])
def test_the_classical_calibration_claims_too_small_an_epsilon_beyond_8_45(epsilon, true):
    """In closed form, by the exact privacy profile; the exact calibration passes the same check."""
    assert classical_true_epsilon(epsilon, 1e-5) == pytest.approx(true, abs=2e-3)
    classical = classical_noise_scale(1.0, epsilon, 1e-5)
    exact = noise_scale(1.0, epsilon, 1e-5)
    flagged = log_delta(1 / classical, epsilon) > np.log(1e-5)
    assert flagged == (epsilon > 8.45) == (classical < exact)
    assert log_delta(1 / exact, epsilon) <= np.log(1e-5)


def test_the_reason_states_the_true_budget(unprotected):
    assert "gives ε = 10.39, not 10" in unprotected[2].why
