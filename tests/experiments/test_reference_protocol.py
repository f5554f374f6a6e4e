from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.ablations import ABLATIONS, ablate
from experiments.engine import measure_row
from experiments.methods import METHODS, Method
from experiments.reference_protocol import clipped_white, on_grid, reference_shape
from experiments.sources import PublicTask, Setting
from offaxis import fit
from offaxis.geometry import Layers, PublicVectors, measure
from offaxis.randomizers import PrivUnitG

RNG = np.random.default_rng(3)
PUBLIC = RNG.standard_normal((800, 12)) @ np.diag(np.linspace(2, 0.5, 12)) + 1
HEAD = Layers(
    [RNG.standard_normal((4, 12)), RNG.standard_normal((3, 4))], [np.zeros(4), np.zeros(3)]
)


@pytest.fixture(scope="module")
def geometry():
    return measure(HEAD, PublicVectors(PUBLIC))


@pytest.fixture(scope="module")
def source():
    answers = HEAD.outputs(PUBLIC).argmax(axis=1)
    return Setting("tiny", PublicTask(HEAD, PUBLIC, jacobians=200), lambda seed: (PUBLIC, answers))


def test_the_reshaping_is_that_of_the_stacked_jacobians(geometry):
    """Singular values s > 1 % of the largest: t ∝ s^(2/3), Σt = m; the others 1/√λ_max."""
    stacked = np.concatenate(list(HEAD.jacobians(PUBLIC))) / np.sqrt(len(PUBLIC))
    s = np.linalg.svd(stacked, compute_uv=False)
    rank = int((s > 0.01 * s[0]).sum())
    assert rank == 4
    shape = reference_shape(geometry, 1000.0)
    t = shape.stretch**-0.5
    assert t[rank:] == pytest.approx(1000**-0.5)
    expected = s[:rank] ** (2 / 3)
    expected *= (12 - (12 - rank) * 1000**-0.5) / expected.sum()
    assert t[:rank] == pytest.approx(expected, rel=1e-6)
    assert shape.basis.T @ shape.basis == pytest.approx(np.eye(12), abs=1e-12)
    # The null directions are invisible to the task, whichever basis they have.
    assert np.abs(stacked @ shape.basis[:, rank:]).max() < 1e-8


def test_the_gram_is_measured_on_some_vectors_and_the_rest_on_all(source):
    whole = measure(HEAD, PublicVectors(PUBLIC))
    assert not np.allclose(source.geometry.gram, whole.gram, rtol=1e-3)
    assert np.array_equal(source.geometry.mean, whole.mean)
    assert np.array_equal(source.geometry.covariance, whole.covariance)
    everything = PublicTask(HEAD, PUBLIC)
    assert source.fingerprint != Setting("tiny", everything, source.draw).fingerprint


@pytest.mark.parametrize(("epsilon", "largest"), [(1.0, 0.4), (5.0, 1.85), (10.0, 3.0)])
def test_the_threshold_has_the_largest_mean_direction_up_to_three(epsilon, largest):
    release = fit(HEAD, PUBLIC, epsilon=epsilon, mechanism="privunitg-sphere", reshaping="none")
    randomizer = on_grid(release).randomizer
    assert isinstance(randomizer, PrivUnitG)
    rng = np.random.default_rng(0)
    t = rng.standard_normal(2_000_000)
    cosine = t / np.sqrt(t * t + rng.chisquare(11, t.size))
    order = np.argsort(-t)
    above, lift = np.arange(1, t.size + 1), np.expm1(epsilon)
    means = lift * np.cumsum(cosine[order]) / (lift * above + t.size)
    allowed = t[order] <= 3
    best = t[order][allowed][means[allowed].argmax()]
    threshold = -np.quantile(-t, randomizer.near / randomizer.directions)
    assert threshold == pytest.approx(best, abs=0.05)
    assert threshold == pytest.approx(largest, abs=0.15)
    assert randomizer.mean == pytest.approx(means[allowed].max(), rel=0.02)
    assert on_grid(release).guarantee == release.guarantee


def test_many_directions_make_the_cap_as_good_as_continuous():
    release = fit(HEAD, PUBLIC, epsilon=5, mechanism="privunit2", reshaping="none")
    fine, coarse = on_grid(release).randomizer, release.randomizer
    assert fine.ideal_mean == coarse.ideal_mean
    assert coarse.mean < 0.998 * coarse.ideal_mean
    assert fine.mean > 0.999 * fine.ideal_mean
    assert fine.guarantee == coarse.guarantee


def test_half_maps_have_other_jacobians_for_every_seed(source):
    first, again, other = (source.chosen_again(seed) for seed in (1, 1, 2))
    assert np.array_equal(first.side.stacked, again.side.stacked)
    assert not np.allclose(first.geometry.gram, other.geometry.gram)
    assert first.public is source.public
    assert first.fitted is not source.fitted
    stacked = first.side.stacked
    assert stacked.shape == (600, 12)  # 200 vectors, three outputs
    assert first.geometry.gram == pytest.approx(stacked.T @ stacked / 200)
    for name in ABLATIONS:
        method = Method("x", "ablation", "laplace", "jacobian", ablation=name)
        assert not method.chooses_again
        of_reference = replace(method, protocol="published")
        assert of_reference.chooses_again is (name in ("pre only", "post only"))


def test_the_engine_fits_half_maps_for_every_seed(source, monkeypatch):
    chosen = []
    again = Setting.chosen_again
    monkeypatch.setattr(
        Setting, "chosen_again", lambda self, seed: chosen.append(seed) or again(self, seed)
    )
    method = replace(
        Method("x", "ablation", "laplace", "jacobian", ablation="pre only"), protocol="published"
    )
    scores = measure_row(source, method, [1.0, 8.0], seeds=3)
    assert chosen == [0, 1, 2]
    assert all(len(runs) == 3 for runs in scores.values())
    alone = measure_row(source.chosen_again(1), replace(method, ablation="full"), [8.0], seeds=1)
    assert alone is not None


def test_signs_of_directions_are_those_of_the_stacked_jacobians(source):
    values, directions = source.directions
    shape = reference_shape(source.geometry, 1000.0, (values, directions))
    flipped = reference_shape(source.geometry, 1000.0, (values, -directions))
    plain = reference_shape(source.geometry, 1000.0)
    for other in (flipped, plain):
        assert np.abs(other.basis[:, :4]) == pytest.approx(np.abs(shape.basis[:, :4]), abs=1e-8)
        assert other.stretch == pytest.approx(shape.stretch)


def test_other_randomizers_are_returned_as_they_are():
    release = fit(HEAD, PUBLIC, epsilon=1, mechanism="laplace")
    assert on_grid(release) is release


def test_the_task_aware_encoder_clips_whitened_vectors(geometry):
    task = Layers.linear(RNG.standard_normal((2, 12)))
    release = fit(task, PUBLIC, epsilon=2, mechanism="task-aware")
    encoder = clipped_white(release, geometry)
    root = np.linalg.cholesky(np.linalg.inv(geometry.covariance))
    norms = np.linalg.norm((PUBLIC - geometry.mean) @ root, axis=1)
    inside = norms <= encoder.radius * (1 - 1e-9)
    assert 0.85 < inside.mean() < 0.95
    assert encoder.encode(PUBLIC)[inside] == pytest.approx(release.encoder.encode(PUBLIC)[inside])
    share = (encoder.radius / norms[~inside])[:, None]
    moved = geometry.mean + share * (PUBLIC[~inside] - geometry.mean)
    assert encoder.encode(PUBLIC)[~inside] == pytest.approx(release.encoder.encode(moved))
    # The randomizer behind clips nothing more: ‖σ Qᵀh‖₁ <= ‖h‖₂.
    assert np.abs(encoder.encode(PUBLIC)).sum(axis=1).max() <= encoder.radius * (1 + 1e-9)
    assert encoder.encode(geometry.mean[None]) == pytest.approx(0, abs=1e-9)


def test_published_rows_are_full_maps_of_the_reference(source, geometry):
    method = replace(METHODS["Laplace+PA"], protocol="published")
    release = method.make(source, [3.0])[3.0]
    settings = {"epsilon": 3.0, "mechanism": "laplace", "reference": True}
    expected = ablate(source.geometry, PUBLIC, "full", directions=source.directions, **settings)
    assert release.encoder.encode(PUBLIC) == pytest.approx(expected.encoder.encode(PUBLIC))
    assert release.randomizer == expected.randomizer
    ours = METHODS["Laplace+PA"].make(source, [3.0])[3.0]
    assert not np.allclose(ours.encoder.encode(PUBLIC), release.encoder.encode(PUBLIC))
    assert ours.guarantee == release.guarantee


def test_modes_have_streams_of_their_own():
    ours = METHODS["PrivUnit2+PA"]
    assert "protocol" not in ours.key
    assert replace(ours, protocol="published").key == f"{ours.key} protocol=published"
