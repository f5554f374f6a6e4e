"""The plane in which noise is drawn: one direction the task reads, one it ignores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding import LinearDecoder
from offaxis.encoding import AffineEncoder
from offaxis.geometry import Geometry, TaskModel, spectrum
from offaxis.release import Release
from offaxis.vectors import Vectors


@dataclass(frozen=True, eq=False)
class Plane:
    """Two orthonormal directions through a point of the space.

    Attributes
    ----------
    axes : (2, m) array
        The direction the task reads most, and the ignored direction along which the public vectors
        vary most.
    centre : (m,) array
        μ, the origin of the plane.
    """

    axes: Vectors
    centre: Vectors

    def project(self, Z: Vectors) -> Vectors:
        """Return coordinates in the plane, (n, 2)."""
        return (Z - self.centre) @ self.axes.T


def noise_plane(geometry: Geometry) -> Plane:
    """Choose the plane from public data: the largest γ against the most variable ignored direction.

    If the task ignores nothing, the direction it reads least takes the second place.
    """
    found = spectrum(geometry.gram, geometry.covariance)
    # Ignored directions come last, the most variable one first among them.
    read = int(np.count_nonzero(found.values))
    second = min(read, found.values.size - 1)
    return Plane(found.basis[:, [0, second]].T, geometry.mean)


def noise_variance(release: Release) -> float:
    """Return the variance of the noise a coordinate of the encoding gets, averaged over them."""
    return release.randomizer.expected_squared_error() / release.encoder.output_dim


def decoded_covariance(release: Release, plane: Plane) -> Vectors:
    """Return the covariance of the decoded noise in the plane, (2, 2)."""
    decoder = release.decoder
    map_ = plane.axes @ decoder.matrix if isinstance(decoder, LinearDecoder) else plane.axes
    covariance: Vectors = noise_variance(release) * (map_ @ map_.T)
    return covariance


def inner_plane(release: Release, plane: Plane) -> tuple[Plane, Vectors]:
    """Return the same plane where the noise is drawn, and by how much each axis got longer."""
    encoder = release.encoder
    if not isinstance(encoder, AffineEncoder):
        return plane, np.ones(2)
    images = plane.axes @ encoder.matrix.T
    lengths = np.linalg.norm(images, axis=1)
    return Plane(images / lengths[:, None], np.zeros(encoder.output_dim)), lengths


def ellipse(covariance: Vectors, centre: Sequence[float] | Vectors, points: int = 361) -> Vectors:
    """Return the outline of the 1-σ ellipse of a covariance, (points, 2)."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, points)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    outline: Vectors = circle * np.sqrt(np.maximum(values, 0)) @ vectors.T + np.asarray(centre)
    return outline


def same_answer(
    task: TaskModel, z: Vectors, direction: Vectors, reach: float
) -> tuple[float, float]:
    """Return how far z can move back and forth along a direction before its answer changes."""
    steps = np.linspace(0, reach, 4001)
    sides = []
    for sign in (-1.0, 1.0):
        answers: NDArray[np.intp] = task.outputs(z + sign * steps[:, None] * direction).argmax(1)
        changed = np.flatnonzero(answers != answers[0])
        sides.append(sign * float(steps[changed[0]] if changed.size else reach))
    return sides[0], sides[1]
