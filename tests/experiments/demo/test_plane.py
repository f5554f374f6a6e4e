"""The ellipses have the covariance of the noise, and the plane has the stated directions."""

import numpy as np
import pytest

import offaxis
from experiments.data import load_cifar10_features
from experiments.demo.figures import (
    decoded_covariance,
    ellipse,
    inner_plane,
    noise_plane,
    same_answer,
)
from offaxis.geometry import Layers, PublicVectors, measure
from offaxis.simulation import simulate


@pytest.fixture(scope="module")
def scene():
    data = load_cifar10_features()
    geometry = measure(data.head, PublicVectors(data.public))
    return data, geometry, noise_plane(geometry)


def test_the_plane_has_one_direction_the_task_reads_and_one_it_ignores(scene):
    data, _, plane = scene
    assert plane.axes @ plane.axes.T == pytest.approx(np.eye(2), abs=1e-12)
    slopes = np.abs(data.head.jacobians(data.public[:200]) @ plane.axes.T).max(axis=(0, 1))
    assert slopes[0] > 1
    assert slopes[1] < 1e-10


@pytest.mark.parametrize("reshaping", ["none", "jacobian"])
def test_the_ellipse_is_the_covariance_of_drawn_noise(scene, reshaping):
    """200,000 draws estimate a Laplace variance within 0.5 % (1 σ); 3 % fails once in 10⁸."""
    data, geometry, plane = scene
    release = offaxis.fit(
        geometry, data.public, epsilon=7.5, reshaping=reshaping, mechanism="laplace"
    )
    centre = release.decoder.decode(np.zeros((1, 64)))
    drawn = simulate(release, np.repeat(centre, 200_000, axis=0), np.random.default_rng(1))
    measured = np.cov(plane.project(drawn).T)
    expected = decoded_covariance(release, plane)
    scale = np.sqrt(np.diag(expected))
    assert measured / np.outer(scale, scale) == pytest.approx(
        expected / np.outer(scale, scale), abs=0.03
    )


def test_encoding_stretches_the_plane_by_the_stated_factors(scene):
    data, geometry, plane = scene
    release = offaxis.fit(geometry, data.public, epsilon=7.5, mechanism="laplace")
    inside, lengths = inner_plane(release, plane)
    Z = geometry.mean + np.array([[1.0, 0.0], [0.0, 1.0]]) @ plane.axes
    assert inside.project(release.encoder.encode(Z)) == pytest.approx(np.diag(lengths), abs=1e-9)
    assert lengths[0] > 1 > lengths[1]


def test_an_outline_is_one_sigma_from_its_centre():
    covariance = np.array([[4.0, 1.0], [1.0, 2.0]])
    offsets = ellipse(covariance, (3.0, -1.0)) - (3.0, -1.0)
    distances = np.einsum("ij,jk,ik->i", offsets, np.linalg.inv(covariance), offsets)
    assert distances == pytest.approx(1.0)


def test_a_task_that_ignores_nothing_still_has_a_plane():
    task = Layers.linear(np.diag([3.0, 2.0, 1.0]))
    public = np.random.default_rng(0).standard_normal((50, 3))
    plane = noise_plane(measure(task, PublicVectors(public)))
    assert np.abs(plane.axes) == pytest.approx(np.array([[1, 0, 0], [0, 0, 1]]), abs=1e-9)


def test_the_stripe_ends_where_the_answer_changes():
    task = Layers.linear(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    low, high = same_answer(task, np.array([2.0, 0.0]), np.array([1.0, 0.0]), 10.0)
    assert low == pytest.approx(-2.0, abs=0.01)
    assert high == 10.0
