"""The linear decoder of least mean squared error under the public moments.

Contract: of all affine maps of the observation v, ẑ = μ + Cov(z, v) Cov(v)^{-1} (v − E v) has the
least E‖L(ẑ − z)‖² for *every* matrix L at once, z drawn from the public vectors. The constant μ is
one of these maps, so no linear task is answered worse than by the public mean; as ε falls, ẑ tends
to μ. It shrinks, so a mean over people is biased.

Only the mean and the covariance of v given z are needed:

    additive noise      E v = clip(w), covariance σ² I: exact
    directions          E v = ρ u (or w, for means), E vvᵀ = α uuᵀ + β (I − uuᵀ) by symmetry;
                        α + (r − 1) β = E‖v‖² is exact, α is one number from a seeded simulation
    other vectors       E v = clip(w) exact, covariance from a seeded simulation on public vectors
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from offaxis.decoding.channel import Channel, evenly
from offaxis.decoding.decoder import ShrinkageDecoder
from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Randomizer
from offaxis.randomizers.domain import Ball, FiniteSet, Sphere
from offaxis.randomizers.lattice_form import LatticeForm
from offaxis.randomizers.rank_form import RankForm
from offaxis.vectors import Vectors

_SAMPLE_NUMBERS: Final = 1 << 24
_SIMULATED_NUMBERS: Final = 1 << 20
_SEED: Final = 20_260_000
"""Public, so that the same public vectors give the same decoder."""

_FLAT: Final = 1e-12
"""Directions in which the observation varies less than this share are left alone."""


def shrink(channel: Channel, public: Any) -> ShrinkageDecoder:
    """Fit the decoder to public vectors.

    Parameters
    ----------
    channel : Release, or anything with an encoder and a randomizer of vectors
    public : array (n, m), or callable returning an iterator of batches

    Raises
    ------
    InvalidInput
        If the randomizer takes symbols: a posterior decoder serves those.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import offaxis
    >>> from offaxis.decoding import shrink
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> release = offaxis.fit(np.ones((1, 3)), public, epsilon=2)
    >>> better = replace(release, decoder=shrink(release, public), mean_decoder=release.decoder)
    >>> errors = [r.simulate(public, np.random.default_rng(0)) - public for r in (release, better)]
    >>> bool((errors[1] ** 2).mean() < (errors[0] ** 2).mean()), better.gives_means
    (True, True)
    """
    randomizer, domain = channel.randomizer, channel.randomizer.domain
    if isinstance(domain, FiniteSet):
        raise InvalidInput(
            f"shrinkage decodes vectors, but a {randomizer.kind} report tells a symbol; "
            f"use a posterior decoder"
        )
    Z = evenly(public, max(2, _SAMPLE_NUMBERS // channel.encoder.input_dim))
    W = channel.encoder.encode(Z)
    # In units of the radius: no square leaves the range of float64.
    scale = domain.radius
    expected = _expected(randomizer, W) / scale
    mean, centre = expected.mean(axis=0), Z.mean(axis=0)
    moved = expected - mean
    spread = moved.T @ moved / len(Z) + _noise(randomizer, W, scale)
    values, basis = np.linalg.eigh(spread)
    kept = values > _FLAT * values[-1]
    crossed = (Z - centre).T @ moved / len(Z)
    matrix = (crossed @ basis[:, kept] / values[kept]) @ basis[:, kept].T
    return ShrinkageDecoder(matrix / scale, centre - matrix @ mean)


def _expected(randomizer: Randomizer, W: Vectors) -> Vectors:
    """Return E[v | w]; a zero direction is reported as any, so it has mean zero."""
    domain = randomizer.domain
    if isinstance(domain, Sphere):
        return domain.directions(W) * domain.radius
    assert not isinstance(domain, FiniteSet)
    clipped: Vectors = domain.project(W)
    return clipped


def _noise(randomizer: Randomizer, W: Vectors, scale: float) -> Vectors:
    """Return E Cov(v | w) over the public w, in squared units of the scale."""
    dim = W.shape[1]
    if isinstance(randomizer, LatticeForm):
        variance: Vectors = np.eye(dim) * (randomizer.expected_squared_error() / scale**2 / dim)
        return variance
    if isinstance(randomizer, RankForm):
        return _noise_of_directions(randomizer, isinstance(randomizer.domain, Sphere), W, scale)
    rows = min(max(len(W), _SIMULATED_NUMBERS // dim), 64 * len(W))
    repeated = np.resize(W, (rows // len(W) * len(W), dim))
    noise = randomizer.simulate(repeated, np.random.default_rng(_SEED))
    noise = (noise - _expected(randomizer, repeated)) / scale
    covariance: Vectors = noise.T @ noise / len(noise)
    return covariance


def _noise_of_directions(
    randomizer: Randomizer, forgets_length: bool, W: Vectors, scale: float
) -> Vectors:
    dim = W.shape[1]
    energy = randomizer.expected_squared_error() / scale**2 + 1
    pole, _ = randomizer.worst_pair()
    rows = np.broadcast_to(pole, (min(max(1 << 12, _SIMULATED_NUMBERS // dim), 1 << 16), dim))
    along = randomizer.simulate(rows, np.random.default_rng(_SEED))[:, 0] / scale
    alpha = min(float(np.mean(along**2)), energy)
    beta = (energy - alpha) / (dim - 1) if dim > 1 else 0.0
    U = Sphere(dim, 1.0).directions(W)
    known = U.any(axis=1)
    # A zero vector is reported as a uniform direction: its covariance is round.
    products = (U.T @ U + np.eye(dim) * ((~known).sum() / dim)) / len(U)
    second = alpha * products + beta * (np.eye(dim) - products)
    told = U if forgets_length else Ball(dim, 1.0, 2).project(W / scale)
    noise: Vectors = second - told.T @ told / len(U)
    return noise
