"""Per-sample and central forms of private gradients: their accounting, and their error."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import offaxis
from experiments.federated_gradients import (
    CentralPermutedGradients,
    NoisyMeanGradient,
    PermutedGradients,
    PerSampleGradients,
)
from offaxis.errors import BiasedDecoder, InvalidInput, InvalidReport
from offaxis.federated import DirectGradient, LocalClient
from offaxis.randomizers.gaussian import log_delta
from tests.checks import ALPHA, mean_p_value

SAMPLES, DIM = 8, 3
PUBLIC = np.random.default_rng(0).normal([0.4, -0.2, 0.0], [1, 0.5, 2], (800, DIM))
DELTA = 1e-5


def per_sample(protects: str, epsilon: object = 8) -> PerSampleGradients:
    return PerSampleGradients.fit(PUBLIC, samples=SAMPLES, epsilon=epsilon, protects=protects)


def central(replaced: int = 1, **settings: float) -> CentralPermutedGradients:
    return CentralPermutedGradients.fit(
        PUBLIC, **{"rows": 60, "replaced": replaced, "epsilon": 1, "delta": DELTA} | settings
    )


# ---- Every sample by itself


@pytest.mark.parametrize("epsilon", ["0.1", 1, "22/7"])
def test_a_client_pays_for_every_sample_and_a_sample_for_one_report(epsilon):
    whole, one = per_sample("client", epsilon), per_sample("sample", epsilon)
    budget = Fraction(epsilon)
    assert whole.release.guarantee.epsilon == budget / SAMPLES
    assert (whole.guarantee.epsilon, whole.guarantee.unit) == (budget, "user")
    assert whole.guarantee == whole.client_guarantee
    assert one.release.guarantee.epsilon == budget
    assert (one.guarantee.epsilon, one.guarantee.unit) == (budget, "item")
    assert one.client_guarantee.epsilon == SAMPLES * budget
    assert any("N times ε" in text for text in one.guarantee.assumptions)
    # A client of several rounds is charged for all its reports, also if one sample is protected.
    assert LocalClient(one, rounds=5).guarantee.epsilon == 5 * SAMPLES * budget


def test_delta_is_split_like_epsilon():
    settings = {"samples": SAMPLES, "epsilon": 4, "delta": "1e-5", "mechanism": "gaussian"}
    whole = PerSampleGradients.fit(PUBLIC, protects="client", **settings)
    one = PerSampleGradients.fit(PUBLIC, protects="sample", **settings)
    assert whole.release.guarantee.delta == Fraction(1, 100_000 * SAMPLES)
    assert whole.guarantee.delta == one.guarantee.delta == Fraction(1, 100_000)
    assert one.client_guarantee.delta == Fraction(SAMPLES, 100_000)


def test_replacing_one_sample_changes_the_law_of_one_report_only():
    """The reason for the full ε per report: other reports have the law they had. Alarm: ALPHA."""
    mechanism = per_sample("sample", 20)
    rows = np.tile([0.2, -0.1, 0.1], (SAMPLES, 1))
    other = rows.copy()
    other[3] = [1.0, 0.5, -2.0]
    read = mechanism.release.decode
    before, after = (
        np.array([read(list(mechanism.report(data))) for _ in range(300)]) for data in (rows, other)
    )
    values = [
        min(stats.ks_2samp(before[:, i, j], after[:, i, j]).pvalue for j in range(DIM))
        for i in range(SAMPLES)
    ]
    assert values[3] < ALPHA
    assert min(values[:3] + values[4:]) > ALPHA / (DIM * SAMPLES)


@pytest.mark.parametrize("protects", ["client", "sample"])
def test_means_are_unbiased_and_a_biased_control_is_rejected(protects):
    """A client well inside the ball, so that clipping does not matter. False alarm: ALPHA."""
    mechanism = per_sample(protects)
    rows = np.tile([0.2, -0.1, 0.1], (SAMPLES, 1)) + np.linspace(-0.2, 0.2, SAMPLES)[:, None]
    decoded = np.array([mechanism.decode(mechanism.report(rows)) for _ in range(400)])
    assert mean_p_value(decoded, rows.mean(axis=0)) > ALPHA
    assert mean_p_value(decoded + decoded.std(axis=0) * 0.5, rows.mean(axis=0)) < ALPHA


def test_protecting_the_client_costs_n_squared_in_variance_and_the_direct_form_is_better():
    """Laplace noise of N/ε in place of 1/ε; 400 clients give the ratio to a fifth."""
    rows = np.zeros((SAMPLES, DIM))
    direct = DirectGradient.fit(PUBLIC, samples=SAMPLES, epsilon=8, mechanism="laplace")
    whole, one, mean = (
        np.mean([np.sum(m.decode(m.report(rows)) ** 2) for _ in range(400)])
        for m in (per_sample("client"), per_sample("sample"), direct)
    )
    assert whole / one == pytest.approx(SAMPLES**2, rel=0.4)
    assert whole > SAMPLES * mean


def test_invalid_local_arguments_raise():
    for fit in (per_sample, noisy_mean):
        with pytest.raises(InvalidInput, match="protects='person'"):
            fit("person")
    for kind in (PerSampleGradients, NoisyMeanGradient):
        with pytest.raises(InvalidInput, match="samples"):
            kind.fit(PUBLIC, samples=0, epsilon=1, protects="sample")
    with pytest.raises(InvalidInput, match="all zero"):
        NoisyMeanGradient.fit(np.zeros((9, 2)), samples=3, epsilon=1, protects="client")
    with pytest.raises(BiasedDecoder):
        PerSampleGradients.fit(
            PUBLIC, samples=SAMPLES, epsilon=1, protects="sample", mechanism="privunit2"
        )
    mechanism = per_sample("sample")
    with pytest.raises(InvalidReport, match="a bundle has 8 reports"):
        mechanism.decode([])
    with pytest.raises(InvalidInput, match="exactly 8"):
        mechanism.report(PUBLIC[:5])
    for value in (np.nan, np.inf, 1.7e308):  # a client answers whatever its data are
        assert len(mechanism.report(np.full((SAMPLES, DIM), value))) == SAMPLES


# ---- Noise on the mean of bounded gradients


def noisy_mean(protects: str, epsilon: object = 2) -> NoisyMeanGradient:
    return NoisyMeanGradient.fit(PUBLIC, samples=SAMPLES, epsilon=epsilon, protects=protects)


def _rows_at_the_bound(rng: np.random.Generator, clip: float, count: int) -> np.ndarray:
    rows = rng.laplace(size=(count, DIM))
    return rows * clip / np.abs(rows).sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("protects", "replaced"), [("client", SAMPLES), ("sample", 1)])
def test_no_replacement_moves_the_mean_beyond_its_sensitivity_and_one_attains_it(
    protects, replaced
):
    """Δ is 2ρ for the client and 2ρ/N for one sample, also for gradients beyond the bound."""
    mechanism = noisy_mean(protects)
    assert mechanism.sensitivity == pytest.approx(2 * mechanism.clip * replaced / SAMPLES)
    rng = np.random.default_rng(5)
    for size in (0.5, 1.0, 100.0):
        for _ in range(200):
            rows = size * _rows_at_the_bound(rng, mechanism.clip, SAMPLES)
            other = rows.copy()
            other[:replaced] = size * _rows_at_the_bound(rng, mechanism.clip, replaced)
            moved = np.abs(mechanism.bounded_mean(rows) - mechanism.bounded_mean(other)).sum()
            assert moved <= mechanism.sensitivity * (1 + 1e-9)
    corner = np.zeros((SAMPLES, DIM))
    corner[:, 0] = 7 * mechanism.clip
    opposite = corner.copy()
    opposite[:replaced] *= -1
    moved = np.abs(mechanism.bounded_mean(corner) - mechanism.bounded_mean(opposite)).sum()
    assert moved == pytest.approx(mechanism.sensitivity)


def test_the_loss_of_the_noisy_mean_is_its_epsilon_and_a_sample_does_not_stand_for_a_client():
    """Exact density ratios of Laplace noise at the worst pair of clients.

    Broken controls: noise for one sample, and noise for the radius in place of the diameter.
    """
    corner = np.zeros((SAMPLES, DIM))
    corner[:, 0] = noisy_mean("client").clip

    def worst_loss(mechanism: NoisyMeanGradient, scale: float) -> float:
        one, other = mechanism.bounded_mean(corner), mechanism.bounded_mean(-corner)
        y = one + np.random.default_rng(6).laplace(0, scale, (5000, DIM))
        return float((np.abs(y - other).sum(1) - np.abs(y - one).sum(1)).max() / scale)

    whole, one_sample = noisy_mean("client"), noisy_mean("sample")
    assert worst_loss(whole, whole.scale) == pytest.approx(2)
    assert whole.client_epsilon == 2
    assert worst_loss(one_sample, one_sample.scale) == pytest.approx(2 * SAMPLES)
    assert one_sample.client_epsilon == 2 * SAMPLES
    assert worst_loss(whole, whole.scale / 2) > 2


@pytest.mark.parametrize("protects", ["client", "sample"])
def test_the_noisy_mean_has_the_stated_mean_and_variance(protects):
    """False alarm: ALPHA each; a control with four fifths of the noise is rejected."""
    mechanism = noisy_mean(protects)
    rng = np.random.default_rng(7)
    rows = rng.normal(0.1, 0.1, (SAMPLES, DIM))
    rows[0] = [1e9, 0, 0]
    drawn = np.array([mechanism.simulate(rows, rng) for _ in range(4000)])
    expected = mechanism.bounded_mean(rows)
    assert expected[0] < mechanism.clip
    assert mean_p_value(drawn, expected) > ALPHA
    squares = (drawn - expected) ** 2
    variance = 2 * (mechanism.sensitivity / 2) ** 2
    assert mean_p_value(squares, variance) > ALPHA
    assert mean_p_value(0.8**2 * squares, variance) < ALPHA


def test_columns_at_the_full_budget_would_cost_d_times_as_much():
    """Composition over coordinates: d reports at ε/d are ε. The broken control spends ε on each."""
    permuted = PermutedGradients.fit(PUBLIC, samples=SAMPLES, epsilon="7/3")
    assert permuted.release.guarantee.epsilon == Fraction(7, 9)
    assert permuted.guarantee.epsilon == Fraction(7, 3)
    full = offaxis.fit(
        np.full((1, SAMPLES), 1 / SAMPLES),
        np.random.default_rng(3).normal(size=(300, SAMPLES)),
        epsilon="7/3",
        mechanism="laplace",
    )
    assert PermutedGradients(full, permuted.scales).guarantee.epsilon == 7


# ---- A trusted aggregator


def _distance(mechanism: CentralPermutedGradients, one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(mechanism.encode(one) - mechanism.encode(other)))


@pytest.mark.parametrize("stretch", [1.0, 50.0, 1e6])
@pytest.mark.parametrize("replaced", [1, 7, 60])
def test_no_replacement_exceeds_the_sensitivity_and_one_attains_it(stretch, replaced):
    mechanism = central(replaced, stretch=stretch)
    rng = np.random.default_rng(1)
    for _ in range(200):
        rows = rng.normal(size=(60, DIM))
        rows *= mechanism.clip / np.linalg.norm(rows, axis=1, keepdims=True)
        other = rows.copy()
        changed = rng.normal(size=(replaced, DIM)) + 3 * rng.normal(size=DIM)
        changed *= mechanism.clip / np.linalg.norm(changed, axis=1, keepdims=True)
        other[rng.choice(60, replaced, replace=False)] = changed
        order = rng.permuted(np.tile(np.arange(60)[:, None], DIM), axis=0)  # the same for both
        permuted = (np.take_along_axis(x, order, axis=0) for x in (rows, other))
        assert _distance(mechanism, *permuted) <= mechanism.sensitivity * (1 + 1e-9)
    worst = np.zeros((60, DIM))
    worst[:, 0] = mechanism.clip
    opposite = worst.copy()
    opposite[:replaced, 0] = -mechanism.clip
    assert _distance(mechanism, worst, opposite) == pytest.approx(mechanism.sensitivity)


@pytest.mark.parametrize("replaced", [1, 8])
def test_the_noise_gives_delta_and_noise_for_one_row_does_not_protect_a_client(replaced):
    """In closed form, by the exact profile of the Gaussian mechanism."""
    mechanism = central(replaced)
    loss = log_delta(mechanism.sensitivity / mechanism.sigma, 1.0)
    assert math.log(DELTA) - 1e-6 < loss <= math.log(DELTA)
    one_row = central(1).sigma
    flagged = log_delta(mechanism.sensitivity / one_row, 1.0) > math.log(DELTA)
    assert flagged == (replaced > 1)


@pytest.mark.parametrize("stretch", [1.0, 100.0])
def test_the_simulated_mean_has_the_stated_variance_and_clips(stretch):
    """False alarm: ALPHA each; a control with half of the noise is rejected."""
    mechanism = central(stretch=stretch)
    rng = np.random.default_rng(2)
    rows = rng.normal(0, 0.1, (60, DIM))
    rows[0] *= 1e9 / np.linalg.norm(rows[0])
    clipped = rows.copy()
    clipped[0] *= mechanism.clip / 1e9
    decoded = np.array([mechanism.decode(mechanism.simulate(rows, rng)) for _ in range(3000)])
    assert mean_p_value(decoded, clipped.mean(axis=0)) > ALPHA
    assert mean_p_value(decoded, rows.mean(axis=0)) < ALPHA  # without clipping
    squares = np.sum((decoded - clipped.mean(axis=0)) ** 2) / mechanism.mean_variance
    degrees = decoded.size
    assert 2 * min(stats.chi2.cdf(squares, degrees), stats.chi2.sf(squares, degrees)) > ALPHA
    assert stats.chi2.cdf(squares / 4, degrees) < ALPHA


def test_reshaping_recovers_noise_on_the_mean_and_never_beats_it():
    """Without it the variance is M times larger; at a stretch of s it is 1 + (M − 1)/s times."""
    for stretch in (1.0, 10.0, 1000.0, 1e9):
        mechanism = central(stretch=stretch)
        ratio = mechanism.mean_variance / mechanism.direct_variance
        assert ratio == pytest.approx(1 + 59 / stretch, rel=1e-6)
        assert ratio >= 1 - 1e-9
    whole = central(60)  # all rows replaced: nothing is left to hide behind
    assert whole.mean_variance / whole.direct_variance == pytest.approx(1)


def test_all_columns_together_need_less_noise_than_columns_at_a_share_each():
    """The composition over coordinates that the joint calibration avoids: d columns at ε/d, δ/d."""
    joint = central(epsilon=3)
    share = central(epsilon=1, delta=DELTA / DIM)
    assert joint.sigma < share.sigma


def test_invalid_central_arguments_raise():
    with pytest.raises(InvalidInput, match="replaced must be at most rows=60"):
        central(61)
    with pytest.raises(InvalidInput, match=r"stretch=0\.5"):
        central(stretch=0.5)
    with pytest.raises(InvalidInput, match="delta"):
        central(delta=0)
    with pytest.raises(InvalidInput, match="all zero"):
        CentralPermutedGradients.fit(np.zeros((9, 2)), rows=5, replaced=1, epsilon=1, delta=DELTA)
    with pytest.raises(InvalidInput, match="exactly 60"):
        central().simulate(PUBLIC[:5], np.random.default_rng(0))
    assert not hasattr(central(), "report")
