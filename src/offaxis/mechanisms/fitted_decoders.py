"""Fitting decoders to public vectors; nothing changes on the devices.

A decoder is post-processing, so a release may use any of these without a change of its guarantee:
:func:`shrink`, :func:`posterior`, and a network trained on simulated reports
(:func:`offaxis.mechanisms.networks.noise_aware`). To add one, see
CONTRIBUTING.md.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from offaxis.decoding import PosteriorCodewordDecoder, PosteriorDecoder, ShrinkageDecoder
from offaxis.decoding.pairs import LEARN_INSTEAD, AnswersDecoder
from offaxis.decoding.posterior import MOST_POINTS
from offaxis.decoding.second_moments import ESTIMATE_INSTEAD
from offaxis.encoding.pairs import PairEncoder
from offaxis.encoding.questions import AnswersEncoder
from offaxis.encoding.second_moments import SecondMomentsEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry.public import evenly
from offaxis.mechanisms.codebook import CellSums
from offaxis.randomizers.base import Ball, FiniteSet, Randomizer, Sphere
from offaxis.randomizers.custom import CustomRandomizer
from offaxis.randomizers.laplace import LatticeForm
from offaxis.randomizers.privunit import RankForm
from offaxis.simulation import draw_observations
from offaxis.simulation.releases import Channel
from offaxis.vectors import Vectors, as_integer

_DEFAULT_POINTS: Final = 1024

_SAMPLE_NUMBERS: Final = 1 << 24

_SIMULATED_NUMBERS: Final = 1 << 20

_SEED: Final = 20_260_000
"""Public, so that the same public vectors give the same decoder."""

_FLAT: Final = 1e-12
"""Directions in which the observation varies less than this share are ignored."""


def shrink(channel: Channel, public: Any) -> ShrinkageDecoder:
    """Fit the linear decoder of least mean squared error under the public moments.

    Contract: of all affine maps of the observation v,
    ẑ = μ + Cov(z, v) Cov(v)^{-1} (v − E v) has the least E‖L(ẑ − z)‖² for *every* matrix L at once,
    z drawn from the public vectors. The constant μ is one of these maps, so no linear task has a
    larger error than with the public mean; as ε falls, ẑ tends to μ. It shrinks, so a mean over
    people is biased.

    Only the mean and the covariance of v given z are needed:

    - additive noise: E v = clip(w), covariance σ² I, both exact;
    - directions: E v = ρ u (or w, for means), E vvᵀ = α uuᵀ + β (I − uuᵀ) by symmetry, where
      α + (r − 1) β = E‖v‖² is exact and α is one number from a seeded simulation;
    - other vectors: E v = clip(w) is exact, the covariance comes from a seeded simulation on public
      vectors.

    Parameters
    ----------
    channel : Release, or anything with an encoder and a randomizer of vectors
    public : array (n, m), or callable returning an iterator of batches

    Raises
    ------
    InvalidInput
        If the randomizer takes symbols: use a posterior decoder for those.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.mechanisms import shrink
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> release = offaxis.fit(np.ones((1, 3)), public, epsilon=2, mechanism="laplace")
    >>> better = release.with_decoder(shrink(release, public))
    >>> both = [offaxis.simulate(r, public, np.random.default_rng(0)) for r in (release, better)]
    >>> errors = [((decoded - public) ** 2).mean() for decoded in both]
    >>> bool(errors[1] < errors[0])
    True
    """
    _check_vectors(channel.encoder)
    randomizer, domain = channel.randomizer, channel.randomizer.domain
    if isinstance(domain, FiniteSet):
        raise InvalidInput(
            f"shrinkage decodes vectors, but a {randomizer.kind} report holds a symbol; "
            f"use a posterior decoder"
        )
    Z = evenly(public, max(2, _SAMPLE_NUMBERS // channel.encoder.input_dim))
    W = channel.encoder.encode(Z)
    # In units of the radius, so that no square overflows.
    scale = domain.radius
    expected = _expected(randomizer, W) / scale
    mean, centre = expected.mean(axis=0), Z.mean(axis=0)
    centred = expected - mean
    covariance = centred.T @ centred / len(Z) + _noise(randomizer, W, scale)
    values, basis = np.linalg.eigh(covariance)
    kept = values > _FLAT * values[-1]
    cross_covariance = (Z - centre).T @ centred / len(Z)
    matrix = (cross_covariance @ basis[:, kept] / values[kept]) @ basis[:, kept].T
    return ShrinkageDecoder(matrix / scale, centre - matrix @ mean)


def posterior(
    channel: Channel, public: Any, *, size: int = _DEFAULT_POINTS
) -> PosteriorDecoder | PosteriorCodewordDecoder:
    """Fit a posterior decoder to public vectors, bound to the channel's randomizer.

    Parameters
    ----------
    channel : Release, or anything with an encoder and a randomizer
    public : array (n, m), or callable returning an iterator of batches
    size : int
        J, at most 4096: the number of evenly spaced public vectors to use, all of equal weight.
        It has no effect if the encoder returns symbols: every symbol has a codeword, the mean of
        the public vectors with this symbol.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.mechanisms import posterior
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> release = offaxis.fit(np.ones((1, 3)), public, epsilon=2, mechanism="laplace")
    >>> better = release.with_decoder(posterior(release, public, size=100))
    >>> better.guarantee == release.guarantee
    True
    """
    size = as_integer(size, "size", 1, MOST_POINTS)
    encoder = channel.encoder
    _check_vectors(encoder)
    if isinstance(channel.randomizer.domain, FiniteSet):
        sample = evenly(public, max(1, _SAMPLE_NUMBERS // encoder.input_dim))
        codewords, prior = _codewords(encoder.encode(sample), sample, encoder.output_dim)
        return PosteriorCodewordDecoder(codewords, prior).bind(channel.randomizer)
    if isinstance(channel.randomizer, CustomRandomizer):
        origin = np.zeros((1, encoder.output_dim))
        channel.randomizer.log_density(origin, origin)  # raises if it has none
    points = evenly(public, size)
    prior = np.full(len(points), 1 / len(points))
    return PosteriorDecoder(points, encoder.encode(points), prior).bind(channel.randomizer)


def _check_vectors(encoder: Any) -> None:
    if isinstance(encoder, SecondMomentsEncoder):
        raise InvalidInput(ESTIMATE_INSTEAD)
    if isinstance(encoder, AnswersEncoder):
        raise InvalidInput(AnswersDecoder.instead)
    if isinstance(encoder, PairEncoder):
        raise InvalidInput(LEARN_INSTEAD)


def _codewords(symbols: Any, Z: Vectors, count: int) -> tuple[Vectors, Vectors]:
    """Return the mean and the share of the vectors with each symbol.

    A symbol without vectors gets the share of half a vector, and the mean of all vectors.
    """
    cells = CellSums(count, Z.shape[1])
    cells.add((symbols, Z))
    used = cells.counts > 0
    means = cells.sums / np.maximum(cells.counts, 1.0)[:, None]
    weights = np.where(used, cells.counts, 0.5)
    return np.where(used[:, None], means, Z.mean(axis=0)), weights / weights.sum()


def _expected(randomizer: Randomizer, W: Vectors) -> Vectors:
    """Return E[v | w]; a zero vector is reported as a uniform direction, so its mean is zero."""
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
    noise = draw_observations(randomizer, repeated, np.random.default_rng(_SEED))
    noise = (noise - _expected(randomizer, repeated)) / scale
    covariance: Vectors = noise.T @ noise / len(noise)
    return covariance


def _noise_of_directions(
    randomizer: Randomizer, direction_only: bool, W: Vectors, scale: float
) -> Vectors:
    dim = W.shape[1]
    energy = randomizer.expected_squared_error() / scale**2 + 1
    pole, _ = randomizer.worst_pair()
    rows = np.broadcast_to(pole, (min(max(1 << 12, _SIMULATED_NUMBERS // dim), 1 << 16), dim))
    along = draw_observations(randomizer, rows, np.random.default_rng(_SEED))[:, 0] / scale
    alpha = min(float(np.mean(along**2)), energy)
    beta = (energy - alpha) / (dim - 1) if dim > 1 else 0.0
    U = Sphere(dim, 1.0).directions(W)
    nonzero = U.any(axis=1)
    # A zero vector is reported as a uniform direction: its covariance is isotropic.
    products = (U.T @ U + np.eye(dim) * ((~nonzero).sum() / dim)) / len(U)
    second_moment = alpha * products + beta * (np.eye(dim) - products)
    expected = U if direction_only else Ball(dim, 1.0, 2).project(W / scale)
    noise: Vectors = second_moment - expected.T @ expected / len(U)
    return noise
