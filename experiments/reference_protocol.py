"""What the paper's public code does otherwise than our mechanisms: the protocol "published".

Facts of that code, with our own implementations: the rank rule and basis of the reshaping, the grid
of PrivUnitG's threshold, and where the linear task-aware mechanism clips. All of it keeps the full
guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np
from scipy.special import ndtr

from offaxis.encoding import FittedReshaping, Frame, reshape
from offaxis.encoding.encoders import Encoder
from offaxis.geometry import Geometry, spectrum
from offaxis.randomizers import PrivUnit2, PrivUnitG
from offaxis.randomizers.base import Ball
from offaxis.randomizers.caps import most_pairs, normalising_factor
from offaxis.release import Release
from offaxis.vectors import Vectors

JACOBIANS: Final = 500
"""Public vectors on which the Jacobian is measured."""

LARGEST_THRESHOLD: Final = 3.0
"""The end of the grid on which PrivUnitG's threshold is searched."""

_NEAR: Final = 200
"""Near directions of PrivUnit: so many that the cap is as good as continuous."""


def reference_shape(
    geometry: Geometry, lambda_max: float, directions: tuple[Vectors, Vectors] | None = None
) -> FittedReshaping:
    """Return the reshaping of the paper's public code.

    Directions with a singular value of at most 1 % of the largest count as null and are stretched
    to λ_max. Their basis is the one that completes the singular vectors in NumPy's decomposition.

    Parameters
    ----------
    directions : pair of arrays, optional
        Singular values and directions, as rows, of the Jacobians on which ``geometry.gram`` was
        measured, stacked below each other. The signs of the basis then follow from them. Signs
        matter to releases that apply one half of the map only.

    Examples
    --------
    >>> from experiments.reference_protocol import reference_shape
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> geometry = measure(as_task_model(np.diag([2.0, 1.0, 1e-4])), PublicVectors(public))
    >>> reference_shape(geometry, 100.0).stretch.round(2)
    array([  0.32,   0.8 , 100.  ])
    """
    shape = reshape(geometry, order=1.0, lambda_max=lambda_max, allocation="gap")
    active = int((shape.stretch < lambda_max).sum())
    rows = np.sqrt(shape.sensitivities[:active])[:, None] * shape.basis.T[:active]
    if directions is not None:
        rows = directions[0][:active, None] * directions[1][:active]
    _, _, right = np.linalg.svd(rows, full_matrices=True)
    return shape.along(right.T, geometry.gram)


def on_grid(release: Release) -> Release:
    """Return the release with PrivUnit's cap as in the paper's public code.

    For PrivUnitG that code reports the direction and takes the threshold, on a grid up to 3, that
    has the largest mean of the *direction*, by simulation there, exactly here; ours has the largest
    mean of the Gaussian vector itself. PrivUnit2's cap is the same, but so many directions are used
    that the half percent of correlation that ours gives up for short computations is not lost.
    Releases of other randomizers are returned as they are.
    """
    randomizer = release.randomizer
    if isinstance(randomizer, PrivUnitG):
        mass = float(ndtr(-_best_threshold(float(randomizer.epsilon), randomizer.dim)))
    elif isinstance(randomizer, PrivUnit2):
        mass = randomizer.cap.mass
    else:
        return release
    most = 2 * most_pairs(randomizer.dim)
    directions = min(2 * round(_NEAR / mass / 2), most)
    near = max(1, round(mass * directions))
    return replace(release, randomizer=replace(randomizer, directions=directions, near=near))


@cache
def _best_threshold(epsilon: float, dim: int) -> float:
    thresholds = np.linspace(0, LARGEST_THRESHOLD, 3001)
    moment = np.exp(-(thresholds**2) / 2) / np.sqrt(2 * np.pi) * normalising_factor(thresholds, dim)
    lift = np.expm1(epsilon)
    means = lift * moment / (lift * ndtr(-thresholds) + 1)
    return float(thresholds[means.argmax()])


@dataclass(frozen=True, eq=False)
class Preclipped:
    """An encoder that first moves vectors towards the centre, until ‖h‖₂ <= r in a frame h.

    Attributes
    ----------
    encoder : Encoder
    frame : Frame
    radius : float
    """

    kind: ClassVar[str] = "preclipped"

    encoder: Encoder
    frame: Frame
    radius: float

    @property
    def input_dim(self) -> int:
        """Dimension m of a vector."""
        return self.encoder.input_dim

    @property
    def output_dim(self) -> int:
        """Dimension of an encoding."""
        return self.encoder.output_dim

    def encode(self, vectors: Any) -> Vectors:
        """Return the encodings of vectors (n, m)."""
        ball = Ball(self.frame.dim, self.radius, 2)
        h = self.frame.encoder.encode(vectors)
        norms = np.linalg.norm(h, axis=1, keepdims=True)
        shares = np.linalg.norm(ball.project(h), axis=1, keepdims=True) / np.where(norms, norms, 1)
        moved = self.frame.centre + shares * (np.asarray(vectors) - self.frame.centre)
        return self.encoder.encode(moved)


def clipped_white(release: Release, geometry: Geometry) -> Preclipped:
    """Return the encoder of the linear task-aware mechanism that clips whitened vectors.

    Ours clips the encoding instead, to the same ℓ1 radius: both are valid, and ours loses less.
    """
    axes = spectrum(geometry.covariance)
    root = np.sqrt(axes.values)
    white = Frame(geometry.mean, (axes.basis / root).T, axes.basis * root)
    domain: Any = release.randomizer.domain
    return Preclipped(release.encoder, white, float(domain.radius))
