"""Coordinate-wise noise, bounded: every coordinate gets its own share of the budget.

After Muthukrishnan and Kalyani (2025), with Δ_i = 2 h_i, h_i the public percentile of |w_i|:
Laplace noise of scale β_i = Δ_i^{1/3} Σ_j Δ_j^{2/3} / ε, or Gaussian noise of deviation
σ_i = σ(1) √(Δ_i Σ_j Δ_j), minimises the summed error of a vector in the box ``|w_i| <= h_i``.

Dividing w_i by Δ_i^{1/3} (by √Δ_i) makes the noise the same in every coordinate, and the box a part
of the ℓ1 ball of radius Σ_i h_i / Δ_i^{1/3} (of the ℓ2 ball of radius √(Σ Δ_i) / 2). So the plain
randomizer of that ball gives exactly this noise, and the guarantee is its own: here vectors *are*
clipped, which the published form leaves out.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from offaxis.decoding.decoder import back_from
from offaxis.encoding import BoxEncoder
from offaxis.encoding.radius import check_percentile
from offaxis.errors import InvalidInput
from offaxis.randomizers import make
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe
from offaxis.vectors import Vectors


def half_widths(given: Ingredients) -> Vectors:
    """Return h: the public percentile of every coordinate's magnitude, (r,)."""
    percentile = check_percentile(given.percentile)
    magnitudes = np.abs(given.frame.encoder.encode(given.sample))
    widths: Vectors = np.quantile(magnitudes, percentile / 100, axis=0)
    return widths


def coordinatewise(noise: Literal["laplace", "gaussian"]) -> Recipe:
    """Return the recipe with the given noise."""
    order: Literal[1, 2] = 1 if noise == "laplace" else 2

    def prepare(given: Ingredients) -> Parts:
        widths = half_widths(given)
        used = np.flatnonzero(widths > 0)  # the others are constant: they need no noise
        if not used.size:
            raise InvalidInput(
                f"the {given.percentile:g}th percentile of every coordinate is zero; "
                f"use a higher percentile or public vectors that differ from each other"
            )
        unit = (2 * widths[used]) ** (1 / 3 if order == 1 else 1 / 2)
        axes = np.eye(given.frame.dim)[:, used]
        frame = given.frame.then((axes / unit).T, axes * unit, np.zeros(given.frame.dim))
        assert frame.forward is not None
        limits = widths[used] / unit
        randomizer = make(
            noise,
            dim=used.size,
            radius=float(limits.sum() if order == 1 else np.linalg.norm(limits)),
            epsilon=given.epsilon,
            delta=given.delta,
        )
        encoder = BoxEncoder(frame.forward, frame.centre, limits)
        settings = {"percentile": float(given.percentile)}
        return Parts(encoder, randomizer, back_from(frame), settings=settings)

    return Recipe(prepare, order, needs_delta=noise == "gaussian")
