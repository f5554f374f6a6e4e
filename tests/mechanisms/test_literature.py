"""PLAN, instance-optimal and task-aware: the published maps around an exact randomizer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offaxis
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.geometry import Layers
from offaxis.mechanisms.literature import rotation, shares
from offaxis.randomizers.gaussian import noise_scale
from tests.checks import effective

EPSILON, DELTA = 3, 1e-5


def fitted(name, public, model=None, reshaping="none", **settings):
    delta = None if name == "task-aware" else "1e-5"
    return offaxis.fit(
        model,
        public,
        epsilon=EPSILON,
        mechanism=name,
        delta=delta,
        **effective(name, reshaping=reshaping),
        **settings,
    )


def test_plan_divides_by_the_square_root_of_the_deviation(public):
    release = fitted("plan", public)
    scale = public.var(axis=0) ** 0.25
    np.testing.assert_allclose(release.encoder.matrix, np.diag(1 / scale), rtol=1e-9)
    np.testing.assert_allclose(release.encoder.centre, public.mean(axis=0), rtol=1e-9)
    norms = np.linalg.norm((public - public.mean(axis=0)) / scale, axis=1)
    assert release.randomizer.radius == pytest.approx(np.quantile(norms, 0.9))
    assert release.randomizer.kind == "gaussian"


def test_plan_uses_the_exact_calibration(public):
    release = fitted("plan", public)
    exact = noise_scale(2 * release.randomizer.radius, EPSILON, DELTA)
    classical = 2 * release.randomizer.radius * math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON
    assert exact <= release.randomizer.scale < 1.001 * exact
    assert abs(classical / exact - 1) > 0.05


@given(st.integers(1, 70), st.integers(0, 2**32))
def test_the_rotation_preserves_lengths(dim, seed):
    turn = rotation(dim, seed)
    assert turn.shape[0] >= dim
    assert turn.shape[0] & (turn.shape[0] - 1) == 0
    np.testing.assert_allclose(turn.T @ turn, np.eye(dim), atol=1e-12)
    # A single coordinate is spread evenly over all.
    np.testing.assert_allclose(np.abs(turn[:, 0]), 1 / math.sqrt(turn.shape[0]))


def test_instance_optimal_is_centred_at_the_median_and_keeps_the_stated_share(public):
    release = fitted("instance-optimal", public)
    assert release.encoder.output_dim == 8
    encoded = release.encoder.encode(public)
    # Eight medians in a space of six dimensions: zero except where no vector reaches.
    reached = release.encoder.matrix @ release.decoder.matrix
    assert np.abs(reached @ np.median(encoded, axis=0)).max() < 1e-9
    unit = noise_scale(2.0, EPSILON, DELTA)
    share = min(1.0, max(0.0, 1 - unit * math.sqrt(8 / len(public))))
    radius = np.quantile(np.linalg.norm(encoded, axis=1), share)
    assert release.randomizer.radius == pytest.approx(radius)
    assert release.provenance.settings["kept_share"] == pytest.approx(share)
    np.testing.assert_allclose(release.decoder.decode(encoded), public, atol=1e-9)


def test_instance_optimal_has_a_largest_dimension():
    with pytest.raises(InvalidInput, match="at most"):
        rotation(10_000, 0)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=12).filter(lambda v: max(v) > 1e-6),
    st.floats(1e-6, 1e6),
)
def test_the_shares_are_positive_and_sum_to_one(values, a):
    share = shares(np.array(sorted(values, reverse=True)), a)
    assert (share > 0).all()
    assert share.sum() == pytest.approx(1)


def test_the_shares_minimise_the_published_error():
    """Σ λ_i a/(σ_i² + a) under Σσ² = 1, against random competitors."""
    rng = np.random.default_rng(0)
    values = np.array([5.0, 2.0, 1.0, 0.1, 0.0])
    for a in (0.01, 0.3, 5.0):
        best = np.zeros(5)
        optimal = shares(values, a)
        best[: optimal.size] = optimal
        error = (values * a / (best + a)).sum()
        for other in rng.dirichlet(np.full(5, 0.5), 2000):
            assert (values * a / (other + a)).sum() >= error - 1e-12


def test_task_aware_does_not_clip_vectors_within_the_radius(public, head):
    """‖Eh‖₁ <= ‖σ‖₂‖h‖₂: public vectors of white length r or less are not clipped."""
    release = fitted("task-aware", public, head)
    centred = public - public.mean(axis=0)
    white = np.linalg.solve(np.linalg.cholesky(np.cov(public.T, bias=True)), centred.T).T
    inside = np.linalg.norm(white, axis=1) <= release.randomizer.radius
    assert 0.85 < inside.mean() < 0.95
    encoded = np.abs(release.encoder.encode(public)).sum(axis=1)
    assert encoded[inside].max() <= release.randomizer.radius * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_task_aware_encodes_the_l2_ball_into_an_l1_ball_of_the_same_radius(seed):
    """With Σσ² = 1, the ℓ1 diameter of E = diag(σ)Qᵀ over the ball is 2r: Laplace 2r/ε is pure ε.

    ‖E(h − h')‖₁ is maximised over the ball by h = −h' = r·Eᵀx/‖Eᵀx‖ for a vector of signs x; for
    orthonormal directions every x attains it, and ascent from random starts finds no more. Broken
    control: equal scales of one, whose diameter is √k times as large.
    """
    rng = np.random.default_rng(seed)
    dim, radius = int(rng.integers(2, 20)), 10.0 ** rng.uniform(-1, 1)
    values = np.sort(10.0 ** rng.uniform(-2, 2, dim))[::-1]
    share = shares(values, 8 * radius**2 / 10.0 ** rng.uniform(1, 3))
    directions = np.linalg.qr(rng.standard_normal((dim, dim)))[0][:, : share.size]

    def diameter(scales: np.ndarray) -> float:
        encoder = (directions * scales).T
        longest = 0.0
        for _ in range(10):
            h = rng.standard_normal(dim)
            for _ in range(20):
                h = encoder.T @ np.sign(encoder @ h)
                h *= radius / np.linalg.norm(h)
            longest = max(longest, 2 * np.abs(encoder @ h).sum())
        return longest

    assert diameter(np.sqrt(share)) == pytest.approx(2 * radius)
    if share.size > 1:
        assert diameter(np.ones(share.size)) > 2 * radius * math.sqrt(share.size) * 0.999


def test_the_decoder_of_task_aware_has_least_error_and_supports_no_means(public):
    """No multiple of the decoder is better under the public moments."""
    task = Layers.linear(np.array([[1.0, -1, 0, 0, 0, 2]]))
    release = fitted("task-aware", public, task, percentile=100)
    w = release.encoder.encode(public)
    variance = release.randomizer.expected_squared_error() / release.randomizer.dim
    clean = (task.outputs(public) - task.outputs(public).mean())[:, 0]
    gain = task.weights[0] @ release.decoder.matrix

    def error(factor):
        return ((w @ (factor * gain).T)[:, 0] - clean).var() + (factor * gain**2).sum() * (
            factor * variance
        )

    assert error(1.0) <= min(error(f) for f in (0.9, 0.97, 1.03, 1.1))
    assert error(1.0) < clean.var()
    with pytest.raises(BiasedDecoder):
        release.decode_mean(release.privatize(public[:20]))


def test_task_aware_needs_a_task(public):
    with pytest.raises(offaxis.errors.UnsupportedModel):
        fitted("task-aware", public)
