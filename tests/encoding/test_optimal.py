"""Optimal reshaping: no other map has a smaller product of noise and radius."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offaxis.encoding import Frame, active_directions, optimal_frame, reshaping
from offaxis.encoding.reshaping import mean_magnitudes
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, PublicVectors, measure, spectrum
from offaxis.vectors import Vectors


def measured(model, vectors):
    return measure(Layers.linear(model), PublicVectors(vectors))


@pytest.fixture(scope="module")
def geometry(head, public):
    return measure(head, PublicVectors(public))


def both_maps(frame: Frame) -> tuple[Vectors, Vectors]:
    """Return the forward and the backward map of a frame that has both."""
    assert frame.forward is not None
    assert frame.back is not None
    return frame.forward, frame.back


def surrogate(forward, back, geometry, vectors, order):
    """Return the noise in the task times the squared mean size of an encoding."""
    encoded = (vectors - geometry.mean) @ forward.T
    energy = np.trace(back.T @ geometry.gram @ back)
    if order == 1:
        return energy * np.abs(encoded).sum(axis=1).mean() ** 2
    return energy * (encoded**2).sum(axis=1).mean()


def geometric_mean(gram, covariance):
    def root(matrix, power):
        values, basis = np.linalg.eigh(matrix)
        return (basis * values**power) @ basis.T

    outer = root(gram, -0.5)
    return outer @ root(root(gram, 0.5) @ covariance @ root(gram, 0.5), 0.5) @ outer


def test_the_noise_covariance_is_the_geometric_mean_of_inverse_gram_and_covariance(public):
    g = measured(np.random.default_rng(0).standard_normal((9, 6)), public)
    frame = optimal_frame(g, PublicVectors(public), order=2)
    forward, back = both_maps(frame)
    assert np.allclose(back @ back.T, geometric_mean(g.gram, g.covariance))
    assert np.allclose(forward @ back, np.eye(6))
    values = np.linalg.eigvals(g.gram @ g.covariance).real
    least = np.sqrt(values).sum() ** 2
    assert surrogate(forward, back, g, public, 2) == pytest.approx(least)


def test_no_other_map_has_a_smaller_product_in_l2(geometry, public):
    rng = np.random.default_rng(1)
    frame = optimal_frame(geometry, PublicVectors(public), order=2)
    forward, back = both_maps(frame)
    best = surrogate(forward, back, geometry, public, 2)
    start = np.linalg.pinv(forward)
    for size in (1e-3, 1e-2, 0.1, 1.0, 10.0):
        for _ in range(40):
            near = start @ (np.eye(frame.dim) + size * rng.standard_normal((frame.dim,) * 2))
            square = np.c_[near, rng.standard_normal((6, 6 - frame.dim))]
            if np.linalg.cond(square) < 1e8:
                other = surrogate(np.linalg.inv(square), square, geometry, public, 2)
                assert other >= best * (1 - 1e-9)


def test_no_other_scale_and_no_jacobian_basis_has_a_smaller_product_in_l1(geometry, public):
    rng = np.random.default_rng(2)
    source = PublicVectors(public)
    frame = optimal_frame(geometry, source, order=1)
    forward, back = both_maps(frame)
    best = surrogate(forward, back, geometry, public, 1)
    for size in (1e-3, 0.1, 2.0):
        for _ in range(50):
            t = np.exp(size * rng.standard_normal(frame.dim))
            other = surrogate(forward * t[:, None], back / t, geometry, public, 1)
            assert other >= best * (1 - 1e-12)
    eigen = spectrum(geometry.gram)
    basis, gamma = (eigen.basis[:, eigen.values > 0], eigen.values[eigen.values > 0])
    a = np.abs((public - geometry.mean) @ basis).mean(axis=0)
    t = (gamma / a) ** (1 / 3)
    jacobian = surrogate((basis * t).T, basis / t, geometry, public, 1)
    assert jacobian == pytest.approx((gamma ** (1 / 3) * a ** (2 / 3)).sum() ** 3)
    assert best < jacobian


def test_plan_is_the_special_case_of_a_task_that_sees_all_directions_equally():
    rng = np.random.default_rng(3)
    scales = np.array([5.0, 2.0, 1.0, 0.3])
    half = rng.standard_normal((200, 4)) * scales
    # Every sign pattern of every vector: the covariance is diagonal up to rounding.
    signs = np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T
    vectors = (half[:, None] * signs).reshape(-1, 4)
    frame = optimal_frame(measured(np.eye(4), vectors), PublicVectors(vectors), order=2)
    plan = np.diag(vectors.var(axis=0) ** -0.25)
    assert np.allclose(both_maps(frame)[0], plan)


def test_the_papers_rule_is_the_special_case_of_equal_variances():
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    gamma = np.array([8.0, 4.0, 1.0, 0.5])
    frame = optimal_frame(measured(np.diag(np.sqrt(gamma)), signs), PublicVectors(signs), order=1)
    assert np.allclose(both_maps(frame)[0], np.diag(gamma ** (1 / 3)))


@pytest.mark.parametrize("order", [1, 2, "inf"])
def test_a_linear_change_of_units_does_not_change_the_effect_on_the_task(public, order):
    rng = np.random.default_rng(4)
    model = rng.standard_normal((3, 6))
    maps = [rng.standard_normal((6, 6)), np.diag(np.logspace(-12, 12, 6))]
    plain = optimal_frame(measured(model, public), PublicVectors(public), order=order)
    _, plain_back = both_maps(plain)
    task_seen = model @ plain_back
    for change in maps:
        moved, seen = public @ change.T, model @ np.linalg.inv(change)
        frame = optimal_frame(measured(seen, moved), PublicVectors(moved), order=order)
        _, back = both_maps(frame)
        sign = np.sign(((seen @ back) * task_seen).sum(axis=0))  # unique up to sign
        encoded = frame.encoder.encode(moved) * sign
        assert np.allclose(encoded, plain.encoder.encode(public), atol=1e-7)
        assert np.allclose(seen @ back * sign, task_seen, atol=1e-7)
        assert np.allclose(np.linalg.solve(change, back * sign), plain_back, atol=1e-7)


@pytest.mark.parametrize("order", [1, 2])
def test_directions_that_do_not_vary_or_are_not_seen_are_dropped(order):
    rng = np.random.default_rng(5)
    inner = rng.standard_normal((300, 3)) * [1.0, 1e-3, 1e3]
    vectors = inner @ rng.standard_normal((3, 8)) + 4.0
    vectors = np.c_[vectors, np.full(300, 7.0)]
    model = rng.standard_normal((2, 9))
    frame = optimal_frame(measured(model, vectors), PublicVectors(vectors), order=order)
    assert frame.dim == 2
    forward, back = both_maps(frame)
    assert np.allclose(forward @ back, np.eye(2), atol=1e-6)
    decoded = frame.encoder.encode(vectors) @ back.T + frame.centre
    # Without noise the outputs of the task are unchanged, and so is the constant.
    assert np.allclose(decoded @ model.T, vectors @ model.T, atol=1e-5)
    assert np.allclose(decoded[:, 8], 7.0)


def test_effects_and_sizes_may_span_24_orders_of_magnitude():
    rng = np.random.default_rng(6)
    sizes = np.logspace(-12, 12, 7)
    vectors = rng.standard_normal((400, 7)) * sizes
    for model in (np.diag(1 / sizes), np.diag(sizes), np.eye(7)):
        for order in (1, 2):
            frame = optimal_frame(measured(model, vectors), PublicVectors(vectors), order=order)
            forward, back = both_maps(frame)
            assert np.isfinite(forward).all()
            assert np.isfinite(back).all()
            assert np.allclose(forward @ back, np.eye(frame.dim), atol=1e-6)
    assert frame.dim < 7  # the last task sees the large ones only
    frame = optimal_frame(measured(np.diag(1 / sizes), vectors), PublicVectors(vectors), order=2)
    assert frame.dim == 7


def test_a_smaller_rank_keeps_the_directions_of_largest_share(geometry, public):
    source = PublicVectors(public)
    directions = active_directions(geometry)
    assert np.all(np.diff(directions.effects) <= 0)
    for order in (1, 2):
        whole_forward, whole_back = both_maps(optimal_frame(geometry, source, order=order))
        few_forward, few_back = both_maps(optimal_frame(geometry, source, order=order, rank=2))
        assert np.array_equal(few_forward, whole_forward[:2])
        assert np.array_equal(few_back, whole_back[:, :2])
    shares = mean_magnitudes(optimal_frame(geometry, source, order=1), geometry, source)
    assert np.all(np.diff(shares) <= 1e-12)


def test_coordinates_are_uncorrelated_and_the_rest_is_the_public_regression(geometry, public):
    frame = optimal_frame(geometry, PublicVectors(public), order=2, rank=2)
    encoded = frame.encoder.encode(public)
    covariance = np.cov(encoded.T, bias=True)
    assert np.allclose(covariance, np.diag(np.diag(covariance)))
    fitted = np.linalg.lstsq(encoded, public - geometry.mean, rcond=None)[0]
    assert np.allclose(both_maps(frame)[1], fitted.T)


@pytest.mark.parametrize("rank", [0, -1, 99, 2.0, True, "2"])
def test_the_error_for_a_wrong_rank_names_the_largest(geometry, public, rank):
    with pytest.raises(InvalidInput, match="integer from 1 to"):
        optimal_frame(geometry, PublicVectors(public), order=2, rank=rank)


def test_a_task_that_sees_no_direction_that_varies_is_an_error():
    vectors = np.outer(np.random.default_rng(7).standard_normal(50), [3.0, 4.0, 0.0]) + 1
    for blind in ([[4.0, -3.0, 1.0]], [[0.0, 0.0, 1.0]]):
        with pytest.raises(InvalidInput, match="var"):
            active_directions(measured(np.array(blind), vectors))


def test_other_public_vectors_are_an_error(geometry, public):
    other = PublicVectors(public + 1)
    with pytest.raises(InvalidInput, match="not the ones"):
        optimal_frame(geometry, other, order=1)
    same = replace(geometry, gram=2 * geometry.gram)
    assert (
        optimal_frame(same, PublicVectors(public), order=1).dim
        == active_directions(same).effects.size
    )


@pytest.mark.parametrize("constant", [0, 3])
def test_pivoted_cholesky_gives_the_same_directions_as_eigenvectors(monkeypatch, constant):
    """Neither Ω̂ nor the covariance has full rank here."""
    rng = np.random.default_rng(8)
    vectors = rng.standard_normal((300, 12)) @ rng.standard_normal((12, 20)) * 2.0 ** -np.arange(20)
    vectors[:, :constant] = 1.5
    geometry = measured(rng.standard_normal((7, 20)), vectors)
    narrow = active_directions(geometry)
    monkeypatch.setattr(reshaping, "_WIDE", 4)
    wide = reshaping._compute_directions(geometry)
    assert narrow.effects.size == wide.effects.size == 7
    assert np.allclose(narrow.effects, wide.effects, rtol=1e-6)
    assert np.allclose(wide.forward @ wide.back, np.eye(7), atol=1e-6)
    assert np.allclose(narrow.back, wide.back, rtol=1e-5, atol=1e-6 * np.abs(narrow.back).max())
    assert np.allclose(
        wide.back.T @ geometry.gram @ wide.back,
        np.diag(wide.effects**2),
        atol=1e-6 * wide.effects[0] ** 2,
    )


def test_directions_are_computed_once_per_geometry(head, public, monkeypatch):
    geometry = measure(head, PublicVectors(public))
    first = active_directions(geometry)
    monkeypatch.setattr(reshaping, "_compute_directions", None)
    assert active_directions(geometry) is first
