"""How likely observations are under many public candidates at once.

Contract: ``likelihood(randomizer, W)(V)`` is the matrix (n, J) of ``log_density`` of V_i given W_j,
up to a number that may depend on i. It asks the randomizer's own ``log_density`` throughout, except
that distances are taken for all pairs at once, and that the law of a direction, which depends on
one cosine alone, is tabulated (to about a hundredth of ε).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from offaxis.randomizers.base import Randomizer
from offaxis.randomizers.domain import Ball, Sphere
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.laplace import Laplace
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.randomizers.sign_flip import keep_probability
from offaxis.randomizers.spherical_laplace import SphericalLaplace
from offaxis.vectors import Vectors, row_dots

Likelihood = Callable[[Vectors], Vectors]

_NODES: Final = 1 << 13
_FAR: Final = 16.0
"""No direction is so many standard deviations away from all others by chance."""

_PAIR_NUMBERS: Final = 1 << 21
"""So many numbers of pairs are written out at a time, where a randomizer wants them in rows."""


def likelihood(randomizer: Randomizer, W: Vectors) -> Likelihood:
    """Prepare the candidates W, (J, r); what is returned maps observations (n, r) to (n, J)."""
    if isinstance(randomizer, Gaussian):
        return _gaussian(randomizer, W)
    if isinstance(randomizer, Laplace | SphericalLaplace):
        return _by_distance(randomizer, W)
    if isinstance(randomizer, PrivUnit2 | PrivUnitG) and randomizer.dim > 1:
        return _by_angle(randomizer, W)
    return _by_pairs(randomizer, W)


def _gaussian(randomizer: Gaussian, W: Vectors) -> Likelihood:
    """−‖v − w‖²/2σ² without the square of v, which all candidates share."""
    clipped = randomizer.domain.project(W) / randomizer.scale
    half = row_dots(clipped, clipped) / 2
    return lambda V: (V / randomizer.scale) @ clipped.T - half


def _by_distance(randomizer: Laplace | SphericalLaplace, W: Vectors) -> Likelihood:
    # Loaded when a report is decoded: it takes a while, and most of offaxis does without.
    from scipy.spatial.distance import cdist

    clipped = randomizer.domain.project(W) / randomizer.scale
    norm = "cityblock" if randomizer.order == 1 else "euclidean"

    def density(V: Vectors) -> Vectors:
        distance: Vectors = cdist(V / randomizer.scale, clipped, norm)
        return -distance

    return density


def _by_angle(randomizer: PrivUnit2 | PrivUnitG, W: Vectors) -> Likelihood:
    """Look up the law of a direction, and mix it with its mirror image where a coin hides it."""
    U = Sphere(randomizer.dim, 1.0).directions(W)
    law = replace(randomizer, target="direction")
    nodes, values = _table(law)
    zero = ~U.any(axis=1)
    kept = keep_probability(W, Ball(randomizer.dim, randomizer.radius, 2))
    flat = law.log_density(_pole(law.dim), np.zeros((1, law.dim)))[0]

    def density(V: Vectors) -> Vectors:
        along = _scaled(law, V) @ U.T
        found: Vectors = np.interp(along, nodes, values)
        if randomizer.target == "vector":
            mirrored = np.interp(-along, nodes, values)
            with np.errstate(divide="ignore"):  # on the boundary one of the signs is impossible
                found = np.logaddexp(np.log(kept) + found, np.log1p(-kept) + mirrored)
        found[:, zero] = flat
        return found

    return density


def _scaled(law: PrivUnit2 | PrivUnitG, V: Vectors) -> Vectors:
    """Return V so that its component along a unit direction is what the law depends on."""
    if isinstance(law, PrivUnitG) and law.output == "gaussian":
        return V * (law.mean / law.radius)
    return Sphere(law.dim, 1.0).directions(V)


def _pole(dim: int) -> Vectors:
    pole = np.zeros((1, dim))
    pole[0, 0] = 1.0
    return pole


def _table(law: PrivUnit2 | PrivUnitG) -> tuple[Vectors, Vectors]:
    """Return components from zero on, away from which the law is flat, and log densities."""
    gaussian = isinstance(law, PrivUnitG) and law.output == "gaussian"
    if gaussian:
        nodes = np.linspace(0.0, _FAR, _NODES)
        across = np.zeros(_NODES)
    else:
        # Even steps of the angle: near the pole of a low dimension the law turns fast.
        angles = np.linspace(0.0, np.arcsin(min(1.0, _FAR / np.sqrt(law.dim))), _NODES)
        nodes, across = np.sin(angles), np.cos(angles)
    unit = law.radius / law.mean if gaussian else 1.0
    values = np.empty(_NODES)
    rows = max(1, _PAIR_NUMBERS // law.dim)
    for start in range(0, _NODES, rows):
        part = slice(start, start + rows)
        V = np.zeros((len(nodes[part]), law.dim))
        V[:, 0], V[:, 1] = nodes[part] * unit, across[part] * unit
        values[part] = law.log_density(V, np.broadcast_to(_pole(law.dim), V.shape))
    return nodes, values


def _by_pairs(randomizer: Randomizer, W: Vectors) -> Likelihood:
    rows = max(1, _PAIR_NUMBERS // W.size)

    def density(V: Vectors) -> Vectors:
        found = np.empty((len(V), len(W)))
        for start in range(0, len(V), rows):
            part = V[start : start + rows]
            pairs = np.repeat(part, len(W), axis=0), np.tile(W, (len(part), 1))
            found[start : start + rows] = randomizer.log_density(*pairs).reshape(-1, len(W))
        return found

    return density
