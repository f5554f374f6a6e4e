"""Feature maps: which public numbers of a vector do its answers depend on?

A model that is learnt from reports is linear in public features x of a vector, or a table of public
cells. A feature map is fitted to public vectors, and to public models if there are any; no answer
and no private vector is needed. It is a small network with ‖x‖ ≤ 1, so clipping is part of the map:
devices, public moments and the learnt model all use the same x, and nothing is biased by it.

* :func:`principal`: the r principal directions with the largest public variance, whitened. x is the
  direction of these coordinates.
* ``principal(public, heads=[...])``: the directions in which public models change most, by their
  Jacobians.
* :func:`random_features`: principal directions of random nonlinear functions of them.
* :func:`cells`: the nearest of K public points, for public vectors that cluster.

Without a choice, :func:`choose` takes cells if the public vectors cluster (:data:`CLUSTERED`), and
:data:`RANK` principal directions otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from offaxis.encoding.encoders import tame
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, PublicVectors, as_task_model
from offaxis.geometry.jacobian import measure
from offaxis.geometry.models import layers_for_answers
from offaxis.geometry.partition import improve, nearest, spread_out
from offaxis.geometry.public import ROWS, PublicIdentity, evenly, survey
from offaxis.vectors import Vectors, as_batch, as_integer, row_dots

RANK: Final = 12
"""Directions of a linear model, unless chosen."""

CLUSTERED: Final = 0.2
"""Public vectors count as clustered if the mean silhouette of cells is larger by this than it would
be among normal vectors."""

CONSTANT: Final = 0.06
"""Share of ‖x‖² in the constant feature, with which the shares of answers are learnt."""

_SMALL: Final = 0.05
"""x is within 0.13 % of a unit vector unless the coordinates are shorter than this, per root r."""

_VECTORS: Final = 20_000
_NUMBERS: Final = 1 << 24
_ALL_EIGENVECTORS: Final = 2_048
"""Up to this dimension all eigenvectors are computed."""

_NEGLIGIBLE: Final = 1e-13
"""Directions with less than this share of the largest variance are dropped."""

_CLUSTERED_ON: Final = 2_000
_SILHOUETTE_ON: Final = 1_000
_NORMAL: Final = {
    3: 0.491, 4: 0.301, 5: 0.215, 6: 0.169, 7: 0.133, 8: 0.108, 9: 0.093, 10: 0.085, 11: 0.074,
    12: 0.069, 14: 0.055, 16: 0.050, 18: 0.044, 20: 0.038, 24: 0.031, 28: 0.026, 32: 0.022,
}  # fmt: skip
"""The mean silhouette of K cells in K − 1 directions of normal vectors, which have no clusters."""

_TOLERATED: Final = 0.1
"""More cells may be less clear than the clearest ones by this share."""

_STARTS: Final = 8
_ROUNDS: Final = 50


@dataclass(frozen=True, eq=False, repr=False)
class FeatureMap:
    """A public feature map, fitted to public vectors.

    Attributes
    ----------
    network : Layers
        From vectors (n, m) to features (n, d) with ‖x‖ ≤ 1; for cells, to one score per cell.
    kind : {"linear", "cells"}
    public : PublicIdentity
        The public vectors.
    sample : (n, m) array
        At most 20,000 of them.
    settings : dict
        What was chosen.

    Examples
    --------
    >>> from offaxis.learning import principal
    >>> public = np.random.default_rng(0).standard_normal((500, 6))
    >>> features = principal(public, rank=3)
    >>> features
    FeatureMap(linear, 6 → 4)
    >>> features.of(public).shape  # the last one is constant
    (500, 4)
    """

    network: Layers
    kind: Literal["linear", "cells"]
    public: PublicIdentity
    sample: Vectors
    settings: dict[str, str | float] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return for example ``FeatureMap(linear, 64 → 13)``."""
        return f"FeatureMap({self.kind}, {self.network.input_dim} → {self.size})"

    @property
    def size(self) -> int:
        """Number of features or cells."""
        return len(self.network.biases[-1])

    def of(self, Z: Vectors) -> Vectors:
        """Return the features (n, d) of vectors (n, m)."""
        return self.network.outputs(tame(as_batch(Z, self.network.input_dim)[0]))

    def cells_of(self, Z: Vectors) -> NDArray[np.int64]:
        """Return the cell of each vector, (n,)."""
        cells: NDArray[np.int64] = self.of(Z).argmax(axis=1)
        return cells


def principal(
    public: Any, rank: int | None = None, *, heads: Any = None, intercept: bool = True
) -> FeatureMap:
    """Return the directions of the whitened coordinates in r public directions.

    Parameters
    ----------
    public : array (n, m), or callable returning an iterator of batches
    rank : int, optional
        r; by default :data:`RANK`, or fewer if the public vectors have fewer directions.
    heads : public model or list of public models, optional
        The directions are those in which these models change most, instead of those of largest
        variance.
    intercept : bool
        Whether a constant feature tells how common the answers are. Leave it out if classes are
        about equally common, or labels are public: about a sixth fewer people suffice.

    Examples
    --------
    >>> from offaxis.learning import principal
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((500, 6))
    >>> principal(public, heads=rng.standard_normal((3, 6))).size  # two directions, a constant
    3
    """
    found = _checked(_directions(as_public(public), _most(rank), heads), rank)
    return _linear(found, intercept)


def random_features(
    public: Any, rank: int | None = None, *, width: int = 256, intercept: bool = True
) -> FeatureMap:
    """Return principal directions of ``width`` random tanh functions of the public vectors.

    For answers that are not linear in a vector. More features need more people.

    Examples
    --------
    >>> from offaxis.learning import random_features
    >>> public = np.random.default_rng(0).standard_normal((500, 4))
    >>> random_features(public, rank=8).size
    9
    """
    width = as_integer(width, "width", 2, 4096)
    start = _directions(as_public(public), RANK, None)
    rng = np.random.default_rng(int(start.public.sha256[:16], 16))
    # Arguments of unit variance: enough curvature, few saturated units.
    first = rng.standard_normal((width, start.rank)) / math.sqrt(start.rank) @ start.forward
    shift = rng.uniform(-1, 1, width) - first @ start.centre
    hidden = Layers([first, np.eye(width)], [shift, np.zeros(width)], "tanh")
    forward, centre = _leading(hidden.outputs(start.sample), _most(rank))
    curved = replace(start, forward=forward, centre=centre, before=hidden, origin="random features")
    return _linear(_checked(curved, rank), intercept)


def cells(public: Any, size: int | None = None, *, rank: int | None = None) -> FeatureMap:
    """Return the nearest of K public points, by k-means among directions of r coordinates.

    Parameters
    ----------
    public : array (n, m), or callable returning an iterator of batches
    size, rank : int, optional
        K and r = K − 1; by default as many as are nearly the clearest clusters of the public
        vectors, by their mean silhouette.

    Examples
    --------
    >>> from offaxis.learning import cells
    >>> rng = np.random.default_rng(0)
    >>> centres = 5 * rng.standard_normal((3, 4))
    >>> public = centres[rng.integers(3, size=600)] + rng.standard_normal((600, 4))
    >>> cells(public).size
    3
    """
    return _best_cells(as_public(public), size, rank, 2).feature_map()


def choose(public: Any, classes: int | None) -> FeatureMap:
    """Return cells if the public vectors cluster, otherwise principal directions.

    ``classes`` is the number of classes of the answers: there are at least as many cells. It is
    None if an answer is a number, which cells cannot report.
    """
    vectors = as_public(public)
    linear = principal(vectors)
    if classes is None:
        return linear
    best = _best_cells(vectors, None, None, classes)
    if best.excess >= CLUSTERED and len(best.points) - 1 <= best.directions.rank:
        return best.feature_map()
    return replace(linear, settings={**linear.settings, "clearness": round(best.excess, 3)})


def _most(rank: Any) -> int:
    return RANK if rank is None else as_integer(rank, "rank", 1, 4096)


def as_public(public: Any) -> PublicVectors:
    """Return a source of public vectors."""
    return public if isinstance(public, PublicVectors) else PublicVectors(public)


# ---- Directions


@dataclass(frozen=True, eq=False)
class _Directions:
    """Whitened coordinates F (h(z) − c) of public vectors, with a network h in front or none."""

    forward: Vectors
    centre: Vectors
    public: PublicIdentity
    sample: Vectors
    before: Layers | None = None
    origin: str = "principal directions"

    @property
    def rank(self) -> int:
        """Number r of directions."""
        return len(self.forward)

    def coordinates(self, Z: Vectors) -> Vectors:
        """Return the whitened coordinates, (n, r)."""
        before = Z if self.before is None else self.before.outputs(Z)
        coordinates: Vectors = (before - self.centre) @ self.forward.T
        return coordinates

    def network(self, last: Vectors, bias: Vectors) -> Layers:
        """Return x = A n(s w) + b, n the activation "normalise" of the coordinates w."""
        first = self.forward / _SMALL  # s = √r/ρ with ρ = _SMALL √r
        if self.before is None:
            weights, names = [first, last], ["normalise"]
            biases = [-first @ self.centre, bias]
        else:
            outer, inner = self.before.weights[1], self.before.weights[0]
            weights, names = [inner, first @ outer, last], ["tanh", "normalise"]
            shift = first @ (self.before.biases[1] - self.centre)
            biases = [self.before.biases[0], shift, bias]
        return Layers(weights, biases, "+".join(names), name="features")


def _directions(vectors: PublicVectors, most: int, heads: Any) -> _Directions:
    """Return at most ``most`` whitened directions."""
    dim = next(vectors.batches(1)).shape[1]
    sample = evenly(vectors, min(_VECTORS, max(100, _NUMBERS // dim)))
    if heads is None and dim > _ALL_EIGENVECTORS:
        forward, centre = _leading(sample, most)
        digest = vectors.fold(vectors.hashing, ROWS)
        return _Directions(forward, centre, digest.identity(), sample)
    surveyed = survey(vectors)
    values, vecs = _spectrum(surveyed.covariance)
    whiten = (vecs / np.sqrt(values)).T
    origin = "principal directions"
    if heads is not None:
        listed = heads if isinstance(heads, list | tuple) else [heads]
        if not listed:
            raise InvalidInput("heads are public models: pass at least one, or leave them out")
        gram = sum(_scaled_gram(head, vectors) for head in listed)
        back = vecs * np.sqrt(values)
        sensitivity, turn = np.linalg.eigh(back.T @ gram @ back)
        seen = sensitivity > max(sensitivity[-1], 0.0) * _NEGLIGIBLE
        if not seen.any():
            raise InvalidInput("the public models do not change with the vectors")
        whiten = turn[:, seen][:, ::-1].T @ whiten
        origin = f"directions of {len(listed)} public models"
    return _Directions(whiten[:most], surveyed.mean, surveyed.identity, sample, origin=origin)


def _scaled_gram(head: Any, vectors: PublicVectors) -> Vectors:
    """Return the Gram of a model, scaled so that every model counts the same."""
    model = as_task_model(head)
    layers = layers_for_answers(model)
    if layers is not None and layers.biases[-1].size > 1:
        model = layers.centred()
    gram = measure(model, vectors).gram
    scale = float(np.trace(gram))
    return gram / scale if scale > 0 else gram


def _leading(sample: Vectors, most: int) -> tuple[Vectors, Vectors]:
    """Return the whitening of the leading directions of a sample, and its mean."""
    centre = sample.mean(axis=0)
    centred = sample - centre
    most = min(most, min(centred.shape) - 1)
    if centred.shape[1] <= _ALL_EIGENVECTORS:
        values, vecs = _spectrum(centred.T @ centred / len(centred))
    elif not centred.any():
        raise InvalidInput("the public vectors do not vary: they are all equal")
    else:
        _, singular, rows = svds(centred, k=most, v0=np.ones(min(centred.shape)))
        order = np.argsort(singular)[::-1]
        kept = singular[order] ** 2 > singular.max() ** 2 * _NEGLIGIBLE
        values, vecs = singular[order][kept] ** 2 / len(centred), rows[order][kept].T
    return (vecs[:, :most] / np.sqrt(values[:most])).T, centre


def _spectrum(covariance: Vectors) -> tuple[Vectors, Vectors]:
    """Return the eigenvalues that are not negligible, largest first, and their eigenvectors."""
    values, vecs = np.linalg.eigh(covariance)
    kept = values > max(values[-1], 0.0) * _NEGLIGIBLE
    if not kept.any():
        raise InvalidInput("the public vectors do not vary: they are all equal")
    return values[kept][::-1], vecs[:, kept][:, ::-1]


def _checked(directions: _Directions, rank: int | None) -> _Directions:
    """Raise if there are fewer directions than were asked for."""
    if rank is not None and as_integer(rank, "rank", 1, 4096) > directions.rank:
        raise InvalidInput(
            f"the public vectors or models have {directions.rank} directions, fewer than "
            f"rank={rank}: choose a smaller rank"
        )
    return directions


def _linear(directions: _Directions, intercept: bool) -> FeatureMap:
    """Return x = w/‖w‖, or (√(1 − c²) w/‖w‖, c)."""
    r, share = directions.rank, CONSTANT if intercept else 0.0
    last = np.eye(r) * math.sqrt((1 - share) / r)
    bias = np.zeros(r)
    if intercept:
        last, bias = np.vstack([last, np.zeros((1, r))]), np.append(bias, math.sqrt(share))
    settings: dict[str, str | float] = {"features": directions.origin, "rank": float(r)}
    network = directions.network(last, bias)
    return FeatureMap(network, "linear", directions.public, directions.sample, settings)


# ---- Cells


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Public points p among directions x, and how much clearer they are than in normal vectors."""

    directions: _Directions
    points: Vectors
    excess: float

    def feature_map(self) -> FeatureMap:
        """Return the scores ⟨x, p⟩ − ‖p‖²/2: the largest is that of the nearest point."""
        r, points = self.directions.rank, self.points
        network = self.directions.network(points / math.sqrt(r), -row_dots(points, points) / 2)
        settings: dict[str, str | float] = {
            "features": "cells",
            "cells": float(len(points)),
            "rank": float(r),
            "clearness": round(self.excess, 3),
        }
        return FeatureMap(
            network, "cells", self.directions.public, self.directions.sample, settings
        )


def _best_cells(
    vectors: PublicVectors, size: int | None, rank: int | None, fewest: int
) -> _Clusters:
    """Return points with a size and a rank, or with the most cells that are nearly the clearest.

    K points in general position span K − 1 directions, so that is the rank of K cells.
    """
    if size is None and rank is not None:
        size = as_integer(rank, "rank", 1, 4095) + 1
    sizes = [k for k in _NORMAL if k >= fewest] or [fewest]
    if size is not None:
        sizes = [as_integer(size, "size", 2, 4096)]
    most = sizes[-1] - 1 if rank is None else rank
    found = _checked(_directions(vectors, most, None), rank)
    if size is None:
        sizes = [k for k in sizes if k - 1 <= found.rank] or sizes[:1]
    rng = np.random.default_rng(int(found.public.sha256[:16], 16))
    chosen = found.sample[rng.permutation(len(found.sample))[:_CLUSTERED_ON]]
    tried = []
    for k in sizes:
        r = min(found.rank, k - 1 if rank is None else rank)
        directions = replace(found, forward=found.forward[:r])
        x = _directed(directions.coordinates(chosen))
        points = _k_means(x, min(k, len(x)), rng)
        shown = x[:_SILHOUETTE_ON]
        value = silhouette(_distances(shown), nearest(shown, points))
        tried.append(_Clusters(directions, points, value - _NORMAL.get(k, 0.0)))
    clear = max(part.excess for part in tried)
    best = [part for part in tried if part.excess >= clear - _TOLERATED * abs(clear)][-1]
    x = _directed(best.directions.coordinates(found.sample))
    points, _ = improve(x, best.points, math.inf, _ROUNDS)
    return replace(best, points=points)


def _directed(coordinates: Vectors) -> Vectors:
    """Return the directions of coordinates as the network computes them, of length about 1."""
    r = coordinates.shape[1]
    lengths = np.sqrt((coordinates**2).sum(axis=1, keepdims=True) + _SMALL**2 * r)
    directed: Vectors = coordinates / lengths
    return directed


def _k_means(x: Vectors, size: int, rng: np.random.Generator) -> Vectors:
    """Return the points of the best of several starts."""
    starts = (improve(x, spread_out(x, size, rng), math.inf, _ROUNDS) for _ in range(_STARTS))
    return max(starts, key=lambda start: start[1])[0]


def _distances(x: Vectors) -> Vectors:
    squares = (x * x).sum(axis=1)
    distances: Vectors = np.sqrt(np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0))
    return distances


def silhouette(distances: Vectors, labels: NDArray[np.int64]) -> float:
    """Return the mean silhouette (Rousseeuw 1987) from pairwise distances, (n, n)."""
    n = np.arange(len(labels))
    used, labels = np.unique(labels, return_inverse=True)
    if len(used) < 2:
        return 0.0
    member = np.eye(len(used))[labels]
    counts = member.sum(axis=0)
    sums = distances @ member
    own = sums[n, labels] / np.maximum(counts[labels] - 1, 1)
    others = sums / counts
    others[n, labels] = np.inf
    near = others.min(axis=1)
    values = (near - own) / np.maximum(np.maximum(near, own), 1e-300)
    return float(np.where(counts[labels] > 1, values, 0.0).mean())
