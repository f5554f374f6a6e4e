"""Local releases of gradients: budgets add up exactly and means are unbiased, in both forms."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from experiments.federated_gradients import PermutedGradients
from offaxis.errors import BiasedDecoder, BudgetExceeded, InvalidInput, InvalidReport
from offaxis.federated import DirectGradient, LocalClient, LocalServer
from offaxis.sampling.choices import choose_columns
from offaxis.sampling.entropy import Entropy
from tests.checks import ALPHA, counts_p_value, mean_p_value
from tests.federated.rounds import at_once

SAMPLES, DIM = 8, 3
PUBLIC = np.random.default_rng(0).normal([0.4, -0.2, 0.0], [1, 0.5, 2], (800, DIM))
FORMS = [DirectGradient, PermutedGradients]


@pytest.mark.parametrize("epsilon", ["0.1", 1, 7, "22/7"])
def test_the_columns_of_a_client_add_up_to_its_budget_exactly(epsilon):
    mechanism = PermutedGradients.fit(PUBLIC, samples=SAMPLES, epsilon=epsilon)
    total = Fraction(epsilon)
    assert mechanism.release.guarantee.epsilon == total / DIM
    assert mechanism.guarantee.epsilon == total
    assert mechanism.guarantee.pure
    assert mechanism.guarantee.unit == "user"
    client = LocalClient(mechanism, rounds=5)
    assert client.guarantee.epsilon == 5 * total


def test_delta_is_also_split_and_added_up_exactly():
    mechanism = PermutedGradients.fit(
        PUBLIC, samples=SAMPLES, epsilon=3, delta="1e-5", mechanism="gaussian"
    )
    assert mechanism.release.guarantee.delta == Fraction(1, 300_000)
    assert mechanism.guarantee.delta == Fraction(1, 100_000)


@pytest.mark.parametrize("form", FORMS)
def test_means_over_clients_are_unbiased_and_a_biased_control_is_rejected(form):
    """A client well inside the ball, so that clipping does not matter. False alarm: ALPHA."""
    mechanism = form.fit(PUBLIC, samples=SAMPLES, epsilon=8)
    rows = np.tile([0.2, -0.1, 0.1], (SAMPLES, 1)) + np.linspace(-0.2, 0.2, SAMPLES)[:, None]
    bundles = [mechanism.report(rows) for _ in range(400)]
    decoded = np.array([mechanism.decode(bundle) for bundle in bundles])
    # Truncation to the lattice moves a mean by far less than its error here.
    assert mean_p_value(decoded, rows.mean(axis=0)) > ALPHA
    biased = decoded + decoded.std(axis=0) * 0.5
    assert mean_p_value(biased, rows.mean(axis=0)) < ALPHA
    averaged = LocalServer(mechanism).average(bundles)
    np.testing.assert_allclose(averaged.estimate, decoded.mean(axis=0))
    assert (averaged.standard_error > 0).all()


def test_the_direct_form_is_more_accurate_at_the_same_budget():
    rng = np.random.default_rng(1)
    clients = [rng.normal([0.4, -0.2, 0.0], [1, 0.5, 2], (SAMPLES, DIM)) for _ in range(300)]
    errors = {}
    for form in FORMS:
        mechanism = form.fit(PUBLIC, samples=SAMPLES, epsilon=4)
        decoded = np.array([mechanism.decode(mechanism.report(rows)) for rows in clients])
        errors[form] = ((decoded - np.mean(clients, axis=1)) ** 2).sum(axis=1).mean()
    assert errors[DirectGradient] < errors[PermutedGradients] / 2


def test_secret_orders_are_uniform():
    mechanism = PermutedGradients.fit(PUBLIC, samples=SAMPLES, epsilon=3)
    orders = choose_columns(3, 3, 6000, Entropy())
    counts = np.unique(orders @ [9, 3, 1], return_counts=True)[1]
    assert counts_p_value(counts, np.full(6, 1 / 6)) > ALPHA
    assert len(mechanism.report(PUBLIC[:SAMPLES])) == DIM


def test_a_client_stops_when_its_budget_is_spent():
    client = LocalClient(DirectGradient.fit(PUBLIC, samples=SAMPLES, epsilon=1), rounds=2)
    with pytest.raises(InvalidInput, match="exactly 8"):
        client.report(PUBLIC[:5])
    assert client.sent == 0
    client.report(PUBLIC[:SAMPLES])
    client.report(PUBLIC[:SAMPLES])
    with pytest.raises(BudgetExceeded, match="2 of 2"):
        client.report(PUBLIC[:SAMPLES])


@pytest.mark.parametrize("wrong", [{"rounds": 2.5}, {"rounds": np.inf}, {"sent": -5}])
def test_a_client_counts_in_whole_numbers(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        LocalClient(DirectGradient.fit(PUBLIC, samples=SAMPLES, epsilon=1), **wrong)


def test_only_one_thread_gets_the_last_bundle():
    mechanism = DirectGradient.fit(PUBLIC, samples=SAMPLES, epsilon=1)
    clients = [LocalClient(mechanism, rounds=1) for _ in range(100)]

    def report(client: LocalClient) -> int:
        try:
            return len(client.report(PUBLIC[:SAMPLES]))
        except BudgetExceeded:
            return 0

    for client in clients:
        assert sum(at_once(lambda client=client: report(client))) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "value", [np.nan, np.inf, -np.inf, 1.7e308, 1e307, 5e-324, np.finfo(float).max]
)
def test_a_client_answers_for_all_numbers(form, value):
    """After an overflow the server sees a report like any other, not an error."""
    mechanism = form.fit(PUBLIC, samples=SAMPLES, epsilon=1)
    for rows in (np.full((SAMPLES, DIM), value), np.where(np.eye(SAMPLES, DIM), value, 0.1)):
        with np.errstate(all="raise"):  # as a training function may leave it
            assert len(mechanism.report(rows)) == mechanism.reports


def test_a_gradient_that_is_not_finite_counts_as_zero():
    mechanism = DirectGradient.fit(PUBLIC, samples=2, epsilon=90, mechanism="laplace")
    decoded = [mechanism.decode(mechanism.report([[0.4, 0.2, 0.2], [9.0, np.nan, 9.0]]))] * 50
    assert np.allclose(np.mean(decoded, axis=0), [0.2, 0.1, 0.1], atol=1)


@pytest.mark.parametrize("form", FORMS)
def test_invalid_arguments_raise(form):
    mechanism = form.fit(PUBLIC, samples=SAMPLES, epsilon=1)
    with pytest.raises(InvalidReport, match="a bundle has"):
        mechanism.decode([])
    with pytest.raises(InvalidInput, match="two groups"):
        form.fit(PUBLIC[:SAMPLES], samples=SAMPLES, epsilon=1)
    with pytest.raises(BiasedDecoder):
        form.fit(PUBLIC, samples=SAMPLES, epsilon=1, mechanism="privunit2")
    with pytest.raises(InvalidInput, match="epsilon"):
        form.fit(PUBLIC, samples=SAMPLES, epsilon=0)


def test_zero_public_gradients_raise_and_a_zero_coordinate_is_accepted():
    with pytest.raises(InvalidInput, match="all zero"):
        PermutedGradients.fit(np.zeros((100, 2)), samples=4, epsilon=1)
    zero_coordinate = PUBLIC * [1, 0, 1]
    mechanism = PermutedGradients.fit(zero_coordinate, samples=4, epsilon=1)
    assert mechanism.scales[1] == mechanism.scales.max()
