"""What a decoder is fitted to: a way from vectors to observations, and public vectors."""

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
from offaxis.errors import InvalidInput
from offaxis.randomizers.additive import Laplace, SphericalLaplace
from offaxis.randomizers.base import Ball, FiniteSet, Randomizer, Sphere
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG, keep_probability
from offaxis.randomizers.projunit import ProjUnit
from offaxis.randomizers.symbols import SymbolForm
from offaxis.vectors import Vectors, namespace, row_dots

# ----------------------------------------------------------------------------
# How likely observations are under many public candidates at once.
#
# Contract: ``likelihood(randomizer, W)(V)`` is the matrix (n, J) of ``log_density`` of V_i given
# W_j, up to a number that may depend on i. It asks the randomizer's own ``log_density`` throughout,
# except that distances are taken for all pairs at once, and that the law of a direction, which
# depends on one cosine alone, is tabulated (to about a hundredth of ε).

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


# ----------------------------------------------------------------------------
# The posterior mean over public vectors: what a report makes likely, weighed by what is common.
#
# Contract: ẑ = Σ_j w_j z_j with w_j ∝ π_j Pr[observation | z_j] over public points z_j of prior
# π_j. It lies in the convex hull of the points, and if vectors were drawn from them, no decoder
# would have a smaller mean squared error in any linear image. It is biased in a mean over people.
#
# The likelihood is the law of the release's own randomizer, which the decoder is given when a
# release is put together (:class:`NeedsLaw`): a file holds points and shares, never a law.

MOST_POINTS: Final = 4096

_USUAL_POINTS: Final = 1024
_WEIGHTS: Final = 1 << 20
"""So many weights are held at a time."""

_SAMPLE_NUMBERS: Final = 1 << 24


@runtime_checkable
class NeedsLaw(Protocol):
    """A decoder that has to know the law of the observations."""

    def bind(self, randomizer: Randomizer) -> Any:
        """Return this decoder for observations of the randomizer, or refuse it."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorDecoder:
    """The posterior mean over J public vectors, given an observation in R^r.

    Attributes
    ----------
    points : (J, m) array
    encoded : (J, r) array
        The same points as the randomizer gets them.
    prior : (J,) array
        Positive; only ratios count.

    Examples
    --------
    >>> from offaxis.decoding import PosteriorDecoder
    >>> from offaxis.randomizers import Laplace
    >>> points = np.array([[-1.0, 0.0], [1.0, 0.0]])
    >>> decoder = PosteriorDecoder(points, points, prior=np.array([0.9, 0.1]))
    >>> bound = decoder.bind(Laplace(dim=2, radius=1.0, epsilon=2))
    >>> bound.decode(np.array([[1.0, 0.0]])).round(2)  # a report of the rare one convinces in part
    array([[-0.1,  0. ]])
    >>> bound.prior_mean
    array([-0.8,  0. ])
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
        """False: it pulls towards what is common."""
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
        """Mean of the points by their prior, (m,): the public mean."""
        mean: Vectors = self.prior / self.prior.sum() @ self.points
        return mean

    def bind(self, randomizer: Randomizer) -> Self:
        """Return this decoder with the law of the randomizer."""
        if isinstance(randomizer.domain, FiniteSet):
            raise InvalidInput(f"a {self.kind} decoder takes vectors, not symbols")
        if isinstance(randomizer, ProjUnit):
            # A quadrature for every point of every report: minutes for a handful of reports.
            raise InvalidInput(f"a {self.kind} decoder is too slow for projunit; use shrinkage")
        return _bound(self, randomizer)

    @cached_property
    def _likelihood(self) -> Likelihood:
        return likelihood(_law(self.randomizer, self.kind), self.encoded)

    def decode(self, observations: Vectors) -> Vectors:
        """Map (n, r) to (n, m), in memory that does not grow with n times J."""
        decoded = np.empty((len(observations), self.output_dim))
        common = np.log(self.prior)
        rows = max(1, _WEIGHTS // len(common))
        for start in range(0, len(observations), rows):
            weights = self._likelihood(observations[start : start + rows])
            weights += common
            weights -= weights.max(axis=1, keepdims=True)
            np.exp(weights, out=weights)
            weights /= weights.sum(axis=1, keepdims=True)
            decoded[start : start + rows] = weights @ self.points
        return decoded


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorCodewordDecoder(CodewordDecoder):
    """The posterior mean over codewords: a named symbol weighs e^ε times its share, others once.

    Examples
    --------
    >>> from offaxis.decoding import PosteriorCodewordDecoder
    >>> from offaxis.randomizers import KaryResponse
    >>> codewords = np.array([[-1.0], [1.0]])
    >>> decoder = PosteriorCodewordDecoder(codewords, prior=np.array([0.5, 0.5]))
    >>> bound = decoder.bind(KaryResponse(size=2, epsilon=1))
    >>> bound.decode(np.array([[-0.5, 1.5]])).round(2)  # symbol 1, which may be a lie
    array([[0.46]])
    """

    kind: ClassVar[str] = "posterior-codeword"

    randomizer: SymbolForm | None = field(default=None, init=False)

    def bind(self, randomizer: Randomizer) -> Self:
        """Return this decoder with the budget of the randomizer."""
        if not isinstance(randomizer, SymbolForm):
            raise InvalidInput(f"a {self.kind} decoder takes symbols, not vectors")
        return _bound(self, randomizer)

    def decode(self, observations: Vectors) -> Vectors:
        """Map (n, k) estimates of the symbol, positive where it was named, to (n, m)."""
        epsilon = float(_law(self.randomizer, self.kind).epsilon)
        share = self.prior / self.prior.sum()
        weighted = share[:, None] * self.codewords
        named = namespace(observations).astype(observations > 0, self.prior.dtype)
        # Divided by e^ε, so that nothing grows; the background keeps the mass above zero.
        background, gain = math.exp(-epsilon), -math.expm1(-epsilon)
        mass = background + gain * (named @ share)
        decoded: Vectors = background * weighted.sum(0) + gain * (named @ weighted)
        decoded /= mass[:, None]
        return decoded


_R = TypeVar("_R")
_D = TypeVar("_D")


def _law(randomizer: _R | None, kind: str) -> _R:
    if randomizer is None:
        raise InvalidInput(f"a {kind} decoder works in a release, or after bind(randomizer)")
    return randomizer


def _bound(decoder: _D, randomizer: Randomizer) -> _D:
    """Return a copy that shares the frozen arrays and forgets what another law left behind."""
    bound = copy(decoder)
    vars(bound).pop("_likelihood", None)
    object.__setattr__(bound, "randomizer", randomizer)
    return bound


# ----------------------------------------------------------------------------
# What is known of a vector before any report: the public mean, as well as the maps tell it.


def public_mean(encoder: Encoder, decoder: Decoder) -> Vectors:
    """Return the public mean, (m,): of what the decoder names, or what the encoder is centred on.

    Zero where the maps tell nothing: nothing was fitted, or the decoder answers something else
    than a vector.
    """
    with np.errstate(all="ignore"):
        if isinstance(decoder, CodewordDecoder | PosteriorDecoder):
            mean = decoder.prior_mean
        elif isinstance(encoder, AffineEncoder | ShiftEncoder | ArgmaxEncoder):
            mean = encoder.centre
        else:
            mean = decoder.decode(np.zeros((1, decoder.input_dim)))[0]
    # Files may hold any numbers.
    usable = mean.size == encoder.input_dim and np.isfinite(mean).all()
    return mean if usable else np.zeros(encoder.input_dim)
