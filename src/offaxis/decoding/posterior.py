"""The posterior mean over public vectors: what a report makes likely, weighed by what is common.

Contract: ẑ = Σ_j w_j z_j with w_j ∝ π_j Pr[observation | z_j] over public points z_j of prior π_j.
It lies in the convex hull of the points, and if vectors were drawn from them, no decoder would have
a smaller mean squared error in any linear image. It is biased in a mean over people.

The likelihood is the law of the release's own randomizer, which the decoder is given when a release
is put together (:class:`NeedsLaw`): a file holds points and shares, never a law.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from offaxis.arrays import namespace
from offaxis.decoding.channel import Channel, evenly
from offaxis.decoding.codeword import CodewordDecoder
from offaxis.decoding.likelihood import Likelihood, likelihood
from offaxis.encoding.encoder import frozen_map
from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Randomizer
from offaxis.randomizers.domain import FiniteSet
from offaxis.randomizers.projunit import ProjUnit
from offaxis.randomizers.symbol_form import SymbolForm
from offaxis.vectors import Vectors, as_integer

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


def posterior(
    channel: Channel, public: Any, *, size: int = _USUAL_POINTS
) -> PosteriorDecoder | PosteriorCodewordDecoder:
    """Fit a posterior decoder to public vectors, bound to the channel's randomizer.

    Parameters
    ----------
    channel : Release, or anything with an encoder and a randomizer
    public : array (n, m), or callable returning an iterator of batches
    size : int
        J, at most 4096: so many public vectors at even distances, all of equal weight. Where the
        encoder gives symbols it counts nothing: every symbol has its codeword, the mean of the
        public vectors that it stands for.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import offaxis
    >>> from offaxis.decoding import posterior
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> release = offaxis.fit(np.ones((1, 3)), public, epsilon=2)
    >>> better = replace(release, decoder=posterior(release, public, size=100))
    >>> better.decode(better.privatize(public[0])).shape, better.guarantee == release.guarantee
    ((3,), True)
    """
    size = as_integer(size, "size", 1, MOST_POINTS)
    encoder = channel.encoder
    if isinstance(channel.randomizer.domain, FiniteSet):
        sample = evenly(public, max(1, _SAMPLE_NUMBERS // encoder.input_dim))
        codewords, prior = _codewords(encoder.encode(sample), sample, encoder.output_dim)
        return PosteriorCodewordDecoder(codewords, prior).bind(channel.randomizer)
    points = evenly(public, size)
    prior = np.full(len(points), 1 / len(points))
    return PosteriorDecoder(points, encoder.encode(points), prior).bind(channel.randomizer)


def _codewords(symbols: Any, Z: Vectors, count: int) -> tuple[Vectors, Vectors]:
    """Return the mean and the share of the vectors with each symbol.

    A symbol that none has gets half a vector's share, and the mean of all.
    """
    counts = np.bincount(symbols, minlength=count).astype(np.float64)
    sums = np.zeros((count, Z.shape[1]))
    np.add.at(sums, symbols, Z)
    seen = counts > 0
    means = np.where(seen[:, None], sums / np.maximum(counts, 1.0)[:, None], Z.mean(axis=0))
    return means, np.where(seen, counts, 0.5) / np.where(seen, counts, 0.5).sum()
