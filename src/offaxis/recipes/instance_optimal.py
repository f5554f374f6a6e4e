"""Instance-optimal: rotate so that every vector is flat, clip around the median, Gaussian noise.

After Huang, Liang and Yi (2021). A Hadamard matrix with random signs spreads every vector over all
coordinates; they are counted from the public median, and the ball reaches to the public quantile
1 − σ √(r/n), where σ is the noise on the unit ball, r the dimension and n the number of public
vectors: what is clipped is then no more than what the noise hides.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import hadamard

from offaxis.decoding.decoder import back_from
from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import exact_delta
from offaxis.randomizers import make
from offaxis.randomizers.domain import LARGEST_DIM
from offaxis.randomizers.gaussian_calibration import noise_scale
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe
from offaxis.vectors import Vectors, row_norms

_LARGEST: int = min(LARGEST_DIM, 1 << 13)
"""The rotation is a dense matrix: more coordinates would take gigabytes."""


def rotation(dim: int, seed: int) -> Vectors:
    """Return H D / √d, (d, dim): a Hadamard matrix with random signs, d a power of two."""
    size = 1 << (dim - 1).bit_length()
    if size > _LARGEST:
        raise InvalidInput(f"instance-optimal takes at most {_LARGEST} coordinates, got {dim}")
    signs = 2.0 * np.random.default_rng(seed).integers(0, 2, dim) - 1
    turned: Vectors = hadamard(size, dtype=np.float64)[:, :dim] * (signs / math.sqrt(size))
    return turned


def kept_share(given: Ingredients, dim: int) -> float:
    """Return the share of public vectors that the ball holds."""
    noise = noise_scale(2.0, float(given.epsilon), float(exact_delta(given.delta)))
    return float(np.clip(1 - noise * math.sqrt(dim / given.identity.count), 0.0, 1.0))


def _prepare(given: Ingredients) -> Parts:
    turn = rotation(given.frame.dim, given.seed)
    turned = given.frame.encoder.encode(given.sample) @ turn.T
    median = np.median(turned, axis=0)
    # Padding adds coordinates that no vector reaches; that part of the median is left out.
    frame = given.frame.then(turn, turn.T, turn.T @ median)
    encoder = frame.encoder
    share = kept_share(given, frame.dim)
    radius = float(np.quantile(row_norms(encoder.encode(given.sample), 2), share))
    if radius <= 0:
        raise InvalidInput(
            "the public vectors lie too close to their median for an instance-optimal release; "
            "use more public vectors, or a larger epsilon"
        )
    randomizer = make(
        "gaussian", dim=frame.dim, radius=radius, epsilon=given.epsilon, delta=given.delta
    )
    return Parts(encoder, randomizer, back_from(frame), settings={"kept_share": share})


INSTANCE_OPTIMAL = Recipe(_prepare, 2, needs_delta=True)
