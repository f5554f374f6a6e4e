"""Posterior means over public points, and the public mean of a release.

Contract: ẑ = Σ_j w_j z_j with w_j ∝ π_j Pr[observation | z_j] over public points z_j with prior
π_j. It is in the convex hull of the points, and if vectors were drawn from them, no decoder would
have a smaller mean squared error in any linear image. It is biased in a mean over people.

The likelihood is that of the release's randomizer, to which the decoder is bound when a release is
assembled (:class:`NeedsRandomizer`). A file holds points and shares, never a distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from offaxis.decoding.decoders import CodewordDecoder, Decoder
from offaxis.encoding.encoders import (
    AffineEncoder,
    ArgmaxEncoder,
    Encoder,
    ShiftEncoder,
    frozen_map,
)
from offaxis.encoding.pairs import NO_ANSWER, PairEncoder
from offaxis.encoding.questions import AnswersEncoder
from offaxis.encoding.second_moments import SecondMomentsEncoder
from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Ball, FiniteSet, Randomizer, Sphere
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.laplace import Laplace, SphericalLaplace
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG, keep_probability
from offaxis.randomizers.projunit import ProjUnit
from offaxis.randomizers.symbols import SymbolForm
from offaxis.vectors import Vectors, namespace, row_dots

MOST_POINTS: Final = 4096

_WEIGHTS: Final = 1 << 20
"""The number of weights held at a time."""


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorDecoder:
    """The posterior mean over J public vectors, given an observation in R^r.

    Attributes
    ----------
    points : (J, m) array
    encoded : (J, r) array
        The encodings of the points, the inputs of the randomizer.
    prior : (J,) array
        Positive; only ratios matter.

    Examples
    --------
    >>> from offaxis.decoding import PosteriorDecoder
    >>> from offaxis.randomizers import Laplace
    >>> points = np.array([[-1.0, 0.0], [1.0, 0.0]])
    >>> decoder = PosteriorDecoder(points, points, prior=np.array([0.9, 0.1]))
    >>> bound = decoder.bind(Laplace(dim=2, radius=1.0, epsilon=2))
    >>> bound.decode(np.array([[1.0, 0.0]])).round(2)  # the rare point, partly believed
    array([[-0.1,  0. ]])
    """

    kind: ClassVar[str] = "posterior"

    points: Vectors
    encoded: Vectors
    prior: Vectors
    randomizer: Randomizer | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Check shapes and signs, and freeze the arrays."""
        points, prior = frozen_map(self.points, self.prior, axis=0)
        encoded, _ = frozen_map(self.encoded, prior, axis=0)
        if len(points) > MOST_POINTS:
            raise InvalidInput(f"a posterior has at most {MOST_POINTS} points, got {len(points)}")
        if not (prior > 0).all():
            raise InvalidInput("every point of a posterior must have a positive prior")
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "encoded", encoded)
        object.__setattr__(self, "prior", prior)

    @property
    def unbiased(self) -> bool:
        """False: a posterior mean is drawn towards common points."""
        return False

    @property
    def input_dim(self) -> int:
        """Dimension r of an observation."""
        return int(self.encoded.shape[1])

    @property
    def output_dim(self) -> int:
        """Dimension m of a decoded vector."""
        return int(self.points.shape[1])

    @property
    def prior_mean(self) -> Vectors:
        """Mean of the points weighted by their prior, (m,): the public mean."""
        mean: Vectors = self.prior / self.prior.sum() @ self.points
        return mean

    def bind(self, randomizer: Randomizer) -> Self:
        """Return this decoder with the likelihood of the randomizer."""
        if isinstance(randomizer.domain, FiniteSet):
            raise InvalidInput(f"a {self.kind} decoder takes vectors, not symbols")
        if isinstance(randomizer, ProjUnit):
            # One quadrature per point and report: minutes for a handful of reports.
            raise InvalidInput(f"a {self.kind} decoder is too slow for projunit; use shrinkage")
        return _bind(self, randomizer)

    @cached_property
    def _likelihood(self) -> Likelihood:
        return likelihood(_require_bound(self.randomizer, self.kind), self.encoded)

    def decode(self, observations: Vectors) -> Vectors:
        """Map (n, r) to (n, m), in memory that does not grow with n times J."""
        decoded = np.empty((len(observations), self.output_dim))
        log_prior = np.log(self.prior)
        rows = max(1, _WEIGHTS // len(log_prior))
        for start in range(0, len(observations), rows):
            weights = self._likelihood(observations[start : start + rows])
            weights += log_prior
            weights -= weights.max(axis=1, keepdims=True)
            np.exp(weights, out=weights)
            weights /= weights.sum(axis=1, keepdims=True)
            decoded[start : start + rows] = weights @ self.points
        return decoded


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorCodewordDecoder(CodewordDecoder):
    """The posterior mean over codewords: reported symbols weigh e^ε times their share, others once.

    Examples
    --------
    >>> from offaxis.decoding import PosteriorCodewordDecoder
    >>> from offaxis.randomizers import KaryResponse
    >>> codewords = np.array([[-1.0], [1.0]])
    >>> decoder = PosteriorCodewordDecoder(codewords, prior=np.array([0.5, 0.5]))
    >>> bound = decoder.bind(KaryResponse(size=2, epsilon=1))
    >>> bound.decode(np.array([[-0.5, 1.5]])).round(2)  # symbol 1 was reported, perhaps by chance
    array([[0.46]])
    """

    kind: ClassVar[str] = "posterior-codeword"

    randomizer: SymbolForm | None = field(default=None, init=False)

    def bind(self, randomizer: Randomizer) -> Self:
        """Return this decoder with the budget of the randomizer."""
        if not isinstance(randomizer, SymbolForm):
            raise InvalidInput(f"a {self.kind} decoder takes symbols, not vectors")
        return _bind(self, randomizer)

    def decode(self, observations: Vectors) -> Vectors:
        """Map (n, k) estimates of the symbol, positive where it was reported, to (n, m)."""
        epsilon = _require_bound(self.randomizer, self.kind).strength
        share = self.prior / self.prior.sum()
        weighted = share[:, None] * self.codewords
        reported = namespace(observations).astype(observations > 0, self.prior.dtype)
        # Divided by e^ε, so that nothing overflows; the background keeps the mass above zero.
        background, gain = math.exp(-epsilon), -math.expm1(-epsilon)
        mass = background + gain * (reported @ share)
        decoded: Vectors = background * weighted.sum(0) + gain * (reported @ weighted)
        decoded /= mass[:, None]
        return decoded


@runtime_checkable
class NeedsRandomizer(Protocol):
    """A decoder that needs the distribution of the observations."""

    def bind(self, randomizer: Randomizer) -> Any:
        """Return this decoder for observations of the randomizer; an unsuitable one is an error."""
        ...


_R = TypeVar("_R")

_D = TypeVar("_D")


def _require_bound(randomizer: _R | None, kind: str) -> _R:
    if randomizer is None:
        raise InvalidInput(f"a {kind} decoder works in a release, or after bind(randomizer)")
    return randomizer


def _bind(decoder: _D, randomizer: Randomizer) -> _D:
    """Return a copy that shares the frozen arrays, without the cache of another randomizer."""
    bound = copy(decoder)
    vars(bound).pop("_likelihood", None)
    object.__setattr__(bound, "randomizer", randomizer)
    return bound


def public_mean(encoder: Encoder, decoder: Decoder) -> Vectors:
    """Return the public mean, (m,): the decoder's prior mean, or the centre of the encoder.

    It is zero if the maps do not determine it: nothing was fitted, or the decoder returns something
    else than a vector. Of pairs it is the row of a zero vector without answers.
    """
    if isinstance(encoder, AnswersEncoder):
        return encoder.blank_row
    if isinstance(encoder, PairEncoder):
        return np.append(np.zeros(encoder.vector_dim), np.full(encoder.answer_count, NO_ANSWER))
    with np.errstate(all="ignore"):
        if isinstance(decoder, CodewordDecoder | PosteriorDecoder):
            mean = decoder.prior_mean
        elif isinstance(
            encoder, AffineEncoder | ShiftEncoder | ArgmaxEncoder | SecondMomentsEncoder
        ):
            mean = encoder.centre
        else:
            mean = decoder.decode(np.zeros((1, decoder.input_dim)))[0]
    # A release file may hold any numbers.
    usable = mean.size == encoder.input_dim and np.isfinite(mean).all()
    return mean if usable else np.zeros(encoder.input_dim)


# ---- Likelihoods

Likelihood = Callable[[Vectors], Vectors]

_NODES: Final = 1 << 13

_FAR: Final = 16.0
"""No direction is this many standard deviations away from all others by chance."""

_PAIR_NUMBERS: Final = 1 << 21
"""The numbers held at a time where a randomizer takes pairs of vectors as rows."""


def likelihood(randomizer: Randomizer, W: Vectors) -> Likelihood:
    """Prepare the candidates W, (J, r); return a function from observations (n, r) to (n, J).

    Contract: ``likelihood(randomizer, W)(V)`` is the matrix (n, J) of ``log_density`` of V_i given
    W_j, up to a constant that may depend on i. It is the randomizer's ``log_density``, except that
    distances are computed for all pairs at once, and that the density of a direction, which depends
    on one cosine alone, is tabulated (to about a hundredth of ε).
    """
    if isinstance(randomizer, Gaussian):
        return _gaussian(randomizer, W)
    if isinstance(randomizer, Laplace | SphericalLaplace):
        return _by_distance(randomizer, W)
    if isinstance(randomizer, PrivUnit2 | PrivUnitG) and randomizer.dim > 1:
        return _by_angle(randomizer, W)
    return _by_pairs(randomizer, W)


def _gaussian(randomizer: Gaussian, W: Vectors) -> Likelihood:
    """Return −‖v − w‖²/2σ² without the square of v, which all candidates share."""
    clipped = randomizer.domain.project(W) / randomizer.scale
    half = row_dots(clipped, clipped) / 2
    return lambda V: (V / randomizer.scale) @ clipped.T - half


def _by_distance(randomizer: Laplace | SphericalLaplace, W: Vectors) -> Likelihood:
    # Imported only when a report is decoded: it is slow to load, and rarely needed.
    from scipy.spatial.distance import cdist

    clipped = randomizer.domain.project(W) / randomizer.scale
    norm = "cityblock" if randomizer.order == 1 else "euclidean"

    def density(V: Vectors) -> Vectors:
        distance: Vectors = cdist(V / randomizer.scale, clipped, norm)
        return -distance

    return density


def _by_angle(randomizer: PrivUnit2 | PrivUnitG, W: Vectors) -> Likelihood:
    """Look up the density of a direction, mixed with its mirror image for ``target="vector"``."""
    U = Sphere(randomizer.dim, 1.0).directions(W)
    directional = replace(randomizer, target="direction")
    nodes, values = _table(directional)
    zero = ~U.any(axis=1)
    kept = keep_probability(W, Ball(randomizer.dim, randomizer.radius, 2))
    uniform = directional.log_density(_pole(directional.dim), np.zeros((1, directional.dim)))[0]

    def density(V: Vectors) -> Vectors:
        along = _scaled(directional, V) @ U.T
        log_density: Vectors = np.interp(along, nodes, values)
        if randomizer.target == "vector":
            mirrored = np.interp(-along, nodes, values)
            with np.errstate(divide="ignore"):  # on the boundary one of the signs is impossible
                log_density = np.logaddexp(np.log(kept) + log_density, np.log1p(-kept) + mirrored)
        log_density[:, zero] = uniform
        return log_density

    return density


def _scaled(randomizer: PrivUnit2 | PrivUnitG, V: Vectors) -> Vectors:
    """Scale V so that the density depends on its component along a unit direction."""
    if isinstance(randomizer, PrivUnitG) and randomizer.output == "gaussian":
        return V * (randomizer.mean / randomizer.radius)
    return Sphere(randomizer.dim, 1.0).directions(V)


def _pole(dim: int) -> Vectors:
    pole = np.zeros((1, dim))
    pole[0, 0] = 1.0
    return pole


def _table(randomizer: PrivUnit2 | PrivUnitG) -> tuple[Vectors, Vectors]:
    """Return components, zero or more, and log densities; beyond them the density is constant."""
    gaussian = isinstance(randomizer, PrivUnitG) and randomizer.output == "gaussian"
    if gaussian:
        nodes = np.linspace(0.0, _FAR, _NODES)
        across = np.zeros(_NODES)
    else:
        # Even steps of the angle: in low dimensions the density changes fast near the pole.
        angles = np.linspace(0.0, np.arcsin(min(1.0, _FAR / np.sqrt(randomizer.dim))), _NODES)
        nodes, across = np.sin(angles), np.cos(angles)
    unit = randomizer.radius / randomizer.mean if gaussian else 1.0
    values = np.empty(_NODES)
    rows = max(1, _PAIR_NUMBERS // randomizer.dim)
    for start in range(0, _NODES, rows):
        part = slice(start, start + rows)
        V = np.zeros((len(nodes[part]), randomizer.dim))
        V[:, 0], V[:, 1] = nodes[part] * unit, across[part] * unit
        values[part] = randomizer.log_density(V, np.broadcast_to(_pole(randomizer.dim), V.shape))
    return nodes, values


def _by_pairs(randomizer: Randomizer, W: Vectors) -> Likelihood:
    rows = max(1, _PAIR_NUMBERS // W.size)

    def density(V: Vectors) -> Vectors:
        log_density = np.empty((len(V), len(W)))
        for start in range(0, len(V), rows):
            part = V[start : start + rows]
            pairs = np.repeat(part, len(W), axis=0), np.tile(W, (len(part), 1))
            log_density[start : start + rows] = randomizer.log_density(*pairs).reshape(-1, len(W))
        return log_density

    return density
