"""The laws of the randomizers in seeded floating point: what a server would observe.

Contract: ``draw_observations(randomizer, W, rng)`` has the law of ``randomizer.read`` applied to
exact reports of the rows of W, up to floating-point rounding. It protects nobody, and its result is
an array, which nothing accepts as a report. Every simulation is written once, in terms of the array
API, and draws from a generator of the library of its arrays (simulation/draws.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, singledispatch
from typing import Any, Final

import numpy as np
from scipy.special import betaincinv, ndtr

from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Ball, Randomizer, Sphere, extremes
from offaxis.randomizers.box import POINTS, Duchi, Hybrid, Piecewise
from offaxis.randomizers.caps import Ranks
from offaxis.randomizers.custom import CustomRandomizer
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.hashing import LocalHashing
from offaxis.randomizers.laplace import Laplace, SphericalLaplace
from offaxis.randomizers.memoised import MemoisedPrivUnit2
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG, RankForm
from offaxis.randomizers.projunit import ProjUnit
from offaxis.randomizers.symbols import KaryResponse, SubsetSelection, SymbolForm, with_own
from offaxis.simulation.draws import Draws, Rng, draws_from
from offaxis.vectors import (
    Array,
    Vectors,
    device_of,
    has_device,
    moved,
    namespace,
    row_dots,
    row_norms,
    smallest,
    special,
    with_rows,
)

_GRID: Final = 1 << 16
_LARGEST_DEVIATE: Final = 9.0
"""A standard normal variable exceeds it about once in 10^19 draws."""


@singledispatch
def draw_observations(randomizer: Randomizer, W: Array, rng: Rng) -> Any:
    """Draw what a server would observe of the rows of W, in seeded floating point; never a report.

    Parameters
    ----------
    randomizer : Randomizer
    W : array (n, r), or (n,) symbols
        A NumPy, torch or JAX array.
    rng : numpy.random.Generator, torch.Generator or JAX key
        A generator of the same library.

    Examples
    --------
    >>> from offaxis.randomizers import Laplace
    >>> from offaxis.simulation import draw_observations
    >>> rng = np.random.default_rng(0)
    >>> draw_observations(Laplace(dim=2, radius=1.0, epsilon=2), np.zeros((5, 2)), rng).shape
    (5, 2)
    """
    raise InvalidInput(
        f"no simulation exists for {type(randomizer).__name__}; register one with "
        f"offaxis.simulation.draw_observations.register"
    )


@draw_observations.register
def _custom(randomizer: CustomRandomizer, W: Array, rng: Rng) -> Array:
    if not isinstance(W, np.ndarray) or not isinstance(rng, np.random.Generator):
        raise InvalidInput(f"{randomizer.kind} is simulated in NumPy only")
    observed = np.asarray(randomizer.simulate(W.copy(), rng), dtype=np.float64)
    if observed.shape != W.shape:
        raise InvalidInput(
            f"{randomizer.kind}.simulate must return one row per row, {W.shape}, got "
            f"{observed.shape}"
        )
    return observed


# ---- Additive noise


def add_laplace(W: Array, scale: float, rng: Rng) -> Array:
    """Return W plus independent Laplace noise of the given scale."""
    noise = draws_from(rng, W).laplace(*W.shape)
    noise *= scale
    noise += W
    return noise


@draw_observations.register
def _laplace(randomizer: Laplace, W: Array, rng: Rng) -> Array:
    return add_laplace(randomizer.domain.project(W), randomizer.scale, rng)


@draw_observations.register
def _gaussian(randomizer: Gaussian, W: Array, rng: Rng) -> Array:
    noise = draws_from(rng, W).normal(*W.shape)
    noise *= randomizer.scale
    noise += randomizer.domain.project(W)
    return noise


@draw_observations.register
def _spherical_laplace(randomizer: SphericalLaplace, W: Array, rng: Rng) -> Array:
    """Add a Gaussian of random variance, χ² with m + 1 degrees of freedom."""
    draws = draws_from(rng, W)
    noise = draws.normal(*W.shape)
    variance = draws.chi_square(randomizer.dim + 1, len(W))
    noise *= randomizer.scale * namespace(W).sqrt(variance)[:, None]
    noise += randomizer.domain.project(W)
    return noise


# ---- Boxes


@draw_observations.register
def _duchi(randomizer: Duchi, W: Array, rng: Rng) -> Array:
    draws, xp = draws_from(rng, W), namespace(W)
    x = randomizer.domain.project(W) / randomizer.radius
    v = xp.where(2 * draws.uniform(*x.shape) - 1 < x, 1.0, -1.0)
    t = draws.signs(*x.shape)
    near = 2 * draws.uniform(len(x)) - 1 < math.tanh(float(randomizer.epsilon) / 2)
    wrong = xp.where(near, -1, 1) * xp.sum(t * v, axis=1) > 0
    t *= xp.where(wrong, -1.0, 1.0)[:, None] * (randomizer.size * randomizer.radius)
    return t


@draw_observations.register
def _piecewise(randomizer: Piecewise, W: Array, rng: Rng) -> Array:
    draws, xp = draws_from(rng, W), namespace(W)
    x = randomizer.domain.project(W) / randomizer.radius
    rows, chosen, others = len(x), randomizer.sampled, POINTS - randomizer.near
    order = draws.columns(randomizer.dim, chosen, rows)
    start = xp.floor((xp.take_along_axis(x, order, axis=1) + 1) / 2 * others)
    far = math.exp(-float(randomizer.share)) * others
    is_near = draws.uniform(rows, chosen) * (randomizer.near + far) < randomizer.near
    offset = draws.integers(randomizer.near, rows, chosen), draws.integers(others, rows, chosen)
    points = randomizer.points(xp.astype(start, order.dtype), is_near, xp.where(is_near, *offset))
    return randomizer.observations(order, points, draws.dtype)


@draw_observations.register
def _hybrid(randomizer: Hybrid, W: Array, rng: Rng) -> Array:
    draws, xp = draws_from(rng, W), namespace(W)
    x = randomizer.domain.project(W) / randomizer.radius
    out = _piecewise(randomizer.piece, W, draws)
    by_sign = (out != 0) & (draws.uniform(*x.shape) < randomizer.sign_share)
    mean = x * math.tanh(float(randomizer.share) / 2)
    sign = xp.where(2 * draws.uniform(*x.shape) - 1 < mean, 1.0, -1.0)
    size = randomizer.sign_size * randomizer.radius * randomizer.dim / randomizer.sampled
    return xp.where(by_sign, size * sign, out)


# ---- Symbols


def _own_symbols(randomizer: SymbolForm, W: Array) -> Array:
    """Return the symbols to randomize, on their device."""
    if not has_device(W):
        return randomizer.symbols(W)
    if W.ndim != 1 or not namespace(W).isdtype(W.dtype, "integral"):
        raise InvalidInput(f"symbols must be (n,) integers, got {W.dtype} {tuple(W.shape)}")
    return W


@draw_observations.register
def _response(randomizer: KaryResponse, W: Array, rng: Rng) -> Array:
    own = _own_symbols(randomizer, W)
    draws, xp = draws_from(rng, own), namespace(own)
    near = draws.uniform(len(own)) < randomizer.own_chance
    other = draws.integers(randomizer.size - 1, len(own))
    reported = xp.where(near, own, other + xp.astype(other >= own, other.dtype))
    return randomizer.levels_at(randomizer.one_hot(reported), draws.dtype)


@draw_observations.register
def _subset(randomizer: SubsetSelection, W: Array, rng: Rng) -> Array:
    own = _own_symbols(randomizer, W)
    draws = draws_from(rng, own)
    near = draws.uniform(len(own)) < randomizer.own_chance
    member, last = draws.subsets(randomizer.size - 1, randomizer.chosen, len(own))
    return randomizer.levels_at(with_own(member, last, near, own), draws.dtype)


@draw_observations.register
def _hashing(randomizer: LocalHashing, W: Array, rng: Rng) -> Array:
    own = _own_symbols(randomizer, W)
    draws, xp = draws_from(rng, own), namespace(own)
    near = draws.uniform(len(own)) < randomizer.own_chance
    others = draws.uniform(len(own), randomizer.size) < randomizer.other_chance
    is_own = xp.arange(randomizer.size, device=device_of(own)) == own[:, None]
    return randomizer.levels_at(xp.where(is_own, near[:, None], others), draws.dtype)


# ---- Directions


def draw_ranks(ranks: Ranks, count: int, rng: Rng) -> tuple[Array, Array]:
    """Draw (tail, towards) of reports: the rank of the reported direction, then its tail."""
    draws = draws_from(rng)
    n, c = ranks.pairs, ranks.near
    place = draws.integers(2 * n - c, count)
    near = draws.uniform(count) >= ranks.far_probability
    place = draws.redrawn(place, near, c)
    # The others are the opposites of the near ones, then both vectors of every other pair.
    beyond = ~near & (place >= c)
    rank = namespace(place).where(beyond, c + (place - c) // 2, place)
    towards = near | (beyond & ((place - c) % 2 == 0))
    return draws.beta(rank + 1, n - rank), towards


def unit_directions(sphere: Sphere, W: Array, rng: Rng) -> Array:
    """Return unit directions, with fast arithmetic; a zero row gets a random direction.

    On a device a row of subnormal numbers counts as zero: not all devices support them.
    """
    xp, limits = namespace(W), extremes(W)
    norms = row_norms(W, 2)
    extreme = ~((norms > limits.low) & (norms < limits.high))
    unit = W / xp.where(extreme, 1.0, norms)[:, None]
    if extreme.any():
        rows = W[extreme]
        zero = xp.max(xp.abs(rows), axis=1) <= limits.zero
        if zero.any():
            random_rows = draws_from(rng, W).normal(int(zero.sum()), W.shape[1])
            rows = with_rows(rows, zero, random_rows)
        unit = with_rows(unit, extreme, sphere.directions(rows))
    return unit


def draw_signs(W: Array, ball: Ball, rng: Rng) -> Array:
    """Draw the signs that make a direction unbiased for its vector."""
    xp = namespace(W)
    share = xp.clip(row_norms(W, 2) / ball.radius, max=1.0)
    return xp.where(2 * draws_from(rng, W).uniform(len(W)) < 1 + share, 1.0, -1.0)


def _directions(randomizer: RankForm, W: Array, draws: Draws) -> Array:
    """Return the unit directions to randomize, with random signs if the vector is the target."""
    if randomizer.target == "vector":
        W = W * draw_signs(W, Ball(randomizer.dim, randomizer.radius, 2), draws)[:, None]
    return unit_directions(Sphere(randomizer.dim, randomizer.radius), W, draws)


@draw_observations.register
def _privunit2(randomizer: PrivUnit2, W: Array, rng: Rng) -> Array:
    draws, xp = draws_from(rng, W), namespace(W)
    u = _directions(randomizer, W, draws)
    tail, forward = draw_ranks(randomizer.ranks, len(u), draws)
    length = randomizer.radius / randomizer.mean
    if randomizer.dim == 1:
        return xp.where(forward[:, None], length * u, -length * u)
    t = cosine(tail, randomizer.dim)
    return towards(u, xp.where(forward, t, -t), length, draws)


@draw_observations.register
def _memoised_privunit2(randomizer: MemoisedPrivUnit2, W: Array, rng: Rng) -> Array:
    """Draw the first report of a sequence; that of symbols is drawn as the response it is."""
    permanent, instant = randomizer.layers
    draws = draws_from(rng, W)
    shown = _privunit2(instant, _privunit2(permanent, W, draws), draws)
    shown *= randomizer.radius / permanent.mean
    return shown


@draw_observations.register
def _privunitg(randomizer: PrivUnitG, W: Array, rng: Rng) -> Array:
    draws = draws_from(rng, W)
    u = _directions(randomizer, W, draws)
    tail, forward = draw_ranks(randomizer.ranks, len(u), draws)
    v = gaussian_towards(u, _component(tail, forward), draws)
    if randomizer.output == "sphere":
        v /= row_norms(v, 2)[:, None]
    v *= randomizer.radius / randomizer.mean
    return v


@draw_observations.register
def _projunit(randomizer: ProjUnit, W: Array, rng: Rng) -> Array:
    """Draw no matrix: given g, Gᵀg is ‖g‖ times a normal vector with component ⟨g, a⟩/‖g‖ along u.

    So only the length of a and the component t of g along a are drawn.
    """
    draws, xp = draws_from(rng, W), namespace(W)
    u = _directions(randomizer, W, draws)
    t = _component(*draw_ranks(randomizer.ranks, len(u), draws))
    k = randomizer.projected
    across = draws.chi_square(k - 1, len(u)) if k > 1 else 0.0
    length = xp.clip(xp.sqrt(t * t + across), min=smallest(t))
    image = xp.sqrt(draws.chi_square(k, len(u)))
    v = gaussian_towards(u, t / length * image, draws)
    v *= (length * (randomizer.radius / randomizer.mean))[:, None]
    return v


def towards(u: Array, t: Array, length: float, rng: Rng) -> Array:
    """Return uniformly random v with ‖v‖ = length and ⟨v, u⟩ = length·t; unit rows u, dim >= 2."""
    xp = namespace(u)
    x = draws_from(rng, u).normal(*u.shape)
    along = row_dots(x, u)
    # x − along·u is the part of x orthogonal to u; its length follows from Pythagoras.
    across2 = xp.clip(row_dots(x, x) - along * along, min=smallest(u))
    share = length * xp.sqrt(xp.clip(1.0 - t * t, min=0.0) / across2)
    x *= share[:, None]
    x += (length * t - share * along)[:, None] * u
    return x


def gaussian_towards(u: Array, t: Array, rng: Rng) -> Array:
    """Return Gaussian vectors conditioned on ⟨v, u⟩ = t, for unit rows u."""
    x = draws_from(rng, u).normal(*u.shape)
    x += (t - row_dots(x, u))[:, None] * u
    return x


def _component(tail: Array, forward: Array) -> Array:
    """Return the normal component t with Pr[|Z| >= |t|] = tail, on the given side."""
    t = deviate(tail)
    return namespace(tail).where(forward, t, -t)


def deviate(tail: Any) -> Any:
    """Return the d with Pr[|X| >= d] = tail, X standard normal."""
    return -special(tail).ndtri(tail / 2)


def cosine(tail: Any, dim: int) -> Any:
    """Return the t with Pr[|T| >= t] = tail, T a coordinate of a uniform unit vector of R^dim.

    (1 − T)/2 has the law Beta((dim − 1)/2, (dim − 1)/2). No device library inverts it, so on a
    device the quantiles of the normal law index a table.
    """
    if isinstance(tail, np.ndarray):
        shape = (dim - 1) / 2
        return 1 - 2 * betaincinv(shape, shape, tail / 2)
    return moved(sphere_component(dim), tail)(deviate(tail))


@dataclass(frozen=True, eq=False)
class SphereComponent:
    """The map from |N(0, 1)| to |T|, T a coordinate of a uniform unit vector, by quantiles.

    The map is tabulated: it is smooth, and linear interpolation between 65,536 points is off by
    less than 1e-10, while the inverse of the incomplete beta function takes ten times as long.
    """

    values: Vectors
    slopes: Vectors

    def __call__(self, deviate: Any) -> Any:
        """Return |T| for every |N|."""
        xp = namespace(deviate)
        place = xp.clip(deviate, max=_LARGEST_DEVIATE) * (_GRID / _LARGEST_DEVIATE)
        index = xp.clip(xp.astype(place, xp.int32), max=_GRID - 1)
        low, slope = xp.take(self.values, index), xp.take(self.slopes, index)
        return low + (place - index) * slope


@lru_cache(maxsize=16)
def sphere_component(dim: int) -> SphereComponent:
    """Return the map for a dimension of at least two."""
    grid = np.linspace(0.0, _LARGEST_DEVIATE, _GRID + 1)
    shape = (dim - 1) / 2
    values = 1 - 2 * betaincinv(shape, shape, ndtr(-grid))
    return SphereComponent(values, np.diff(values))
