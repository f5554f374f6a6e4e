"""PLAN: Gaussian noise after every coordinate is divided by a power of its public deviation.

After Aumüller, Lebeda, Nelson and Pagh (2024), for the mean squared error (p = 2):
w = (z − μ)/s with s_i = var_i^{1/4}. The radius is a public percentile, and the noise that of the
exact Gaussian calibration, where the published comparison used one that promises too much at large
budgets (studies/without_guarantee.py).
"""

from __future__ import annotations

import numpy as np

from offaxis.decoding.decoder import back_from
from offaxis.encoding import Frame
from offaxis.errors import InvalidInput
from offaxis.randomizers import make
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe
from offaxis.vectors import Vectors


def scaled_frame(given: Ingredients) -> Frame:
    """Return the coordinates (z − μ)/s; constant ones are left out."""
    variance: Vectors = np.diag(given.frame.covariance_of(given.covariance)).copy()
    used = np.flatnonzero(variance > 0)
    if not used.size:
        raise InvalidInput("the public vectors do not vary along any coordinate")
    scale = variance[used] ** 0.25
    axes = np.eye(given.frame.dim)[:, used]
    return given.frame.then((axes / scale).T, axes * scale, given.frame.mean_of(given.mean))


def _prepare(given: Ingredients) -> Parts:
    frame = scaled_frame(given)
    encoder = frame.encoder
    randomizer = make(
        "gaussian",
        dim=frame.dim,
        radius=given.radius(encoder, 2),
        epsilon=given.epsilon,
        delta=given.delta,
    )
    settings = {"percentile": float(given.percentile)}
    return Parts(encoder, randomizer, back_from(frame), settings=settings)


PLAN = Recipe(_prepare, 2, needs_delta=True)
