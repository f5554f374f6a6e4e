"""PrivUnit2 and PrivUnitG: pure ε on directions, with nearly the smallest error for large ε.

Contract: for every two inputs and every payload, ``Pr[payload | w] <= exp(ε) Pr[payload | w']``,
with no assumption beyond the generator's (docs/proofs.md §9), whatever floating point does.

The density of the ideal report given direction u is e^ε on ``{v : ⟨v, u⟩ >= γ}`` and 1 outside, up
to a normaliser that does not depend on u. What is released is its rank form (:class:`RankForm`),
with the same guarantee and, by default, 99.5 % of its correlation with the input; simulations draw
from the law of the rank form. The length of the input is ignored: every vector is reported as ρ
times its direction, which makes a mean over people biased (``unbiased`` is False) unless ``target``
is "vector".
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri, stdtr

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.shuffling import Blanket
from offaxis.randomizers.base import (
    CHOOSE,
    Ball,
    Sphere,
    VectorParameters,
    check_budget,
    checked_copy,
    onto_lattice,
    opposite_poles,
)
from offaxis.randomizers.caps import (
    Cap,
    Ranks,
    angle_moment,
    chi_nodes,
    choose,
    gaussian_cap,
    most_pairs,
    normalised_mean,
    normalising_factor,
    sphere_cap,
)
from offaxis.randomizers.directions import NONCE_BYTES, Nonces, expand, nearest, products, spread
from offaxis.sampling.choices import below, place, response_of
from offaxis.sampling.entropy import RandomBits, RealEntropy
from offaxis.vectors import Order, Vectors, as_integer, row_dots, row_norms

# ---- Rank form

LARGEST_EPSILON: Final = 100
"""Beyond it e^ε and the mass of the cap exceed the range of float64."""

INDEX_BYTES: Final = 4
INPUT_BOUND: Final = 1 << 20
_FEW_DIMENSIONS: Final = 4
"""A direction is mapped to the integers of the ball of this radius before it is ranked."""

_SCORES: Final = 1 << 18
"""Scores held in memory at a time."""

_READ_ROWS: Final = 1 << 12


@dataclass(frozen=True)
class RankForm(VectorParameters):
    """The rank form of PrivUnit2, PrivUnitG and ProjUnit: one nonce and one index per report.

    The client draws a nonce, which determines N public directions, ranks them by their correlation
    with its vector, calls exactly c of them near, and reports one of the N: each near one with
    probability e^ε / (c e^ε + N − c), each other one with 1 / (c e^ε + N − c). The normaliser does
    not depend on the input. Which directions are near may depend on it in any way at all, even
    through rounding errors: a wrong ranking costs utility, never privacy. The payload is
    nonce ‖ index.

    With the target "vector" the client ranks by ±w, with a random sign that encodes the length:
    single reports are worse, and a mean of reports tends to the mean of the vectors.

    Parameters
    ----------
    dim : int
    radius : float
        ρ; the length of a decoded direction. It clips only if the vector is the target: a longer
        vector then counts as one of length ρ.
    epsilon : number
        The guaranteed ε, read exactly.
    directions, near : int, optional
        N (even) and c; by default the fewest with a loss of half a percent.
    target : {"direction", "vector"}
        What a report is unbiased for: ρ·w/‖w‖, best for single reports; or w, for means.
    """

    kind: ClassVar[str]
    order: ClassVar[Order] = 2
    ranked_by_angle: ClassVar[bool]

    directions: int = CHOOSE
    near: int = CHOOSE
    target: Literal["direction", "vector"] = "direction"

    def __post_init__(self) -> None:
        """Read the parameters exactly and fix the number of directions."""
        super().__post_init__()
        check_budget(self.epsilon, LARGEST_EPSILON, self.kind)
        if self.target not in ("direction", "vector"):
            raise InvalidInput(f"target must be 'direction' or 'vector', got {self.target!r}")
        self._fix_ranked_dim()
        if self.directions == CHOOSE and self.near == CHOOSE:
            ranks = self._choose_ranks()
            object.__setattr__(self, "directions", 2 * ranks.pairs)
            object.__setattr__(self, "near", ranks.near)
        most = 2 * most_pairs(self.ranked_dim)
        object.__setattr__(self, "directions", as_integer(self.directions, "directions", 2, most))
        if self.directions % 2:
            raise InvalidInput(f"directions come in pairs, got directions={self.directions}")
        near = as_integer(self.near, "near", 1, self.directions // 2)
        object.__setattr__(self, "near", near)

    def _fix_ranked_dim(self) -> None:
        """Fix the dimension of the directions before their number; by default that of the input."""

    def _choose_ranks(self) -> Ranks:
        epsilon = float(self.epsilon)
        return choose(self.ranked_dim, epsilon, self.cap.mass, self._mean, self.ideal_mean)

    @property
    def ranked_dim(self) -> int:
        """The dimension of the public directions."""
        return self.dim

    @property
    @abstractmethod
    def cap(self) -> Cap:
        """The cap of the ideal law; its mass is the share of near directions."""

    @property
    @abstractmethod
    def ideal_mean(self) -> float:
        """The expected component along the input with infinitely many directions."""

    @abstractmethod
    def _mean(self, ranks: Ranks) -> float:
        """Return the expected component of the reported vector along the input."""

    @abstractmethod
    def _observed(self, g: Vectors, nonces: Nonces) -> Vectors:
        """Turn public integer vectors into observations whose mean component is ``self.mean``."""

    @cached_property
    def ranks(self) -> Ranks:
        """The law of the reported direction's component along the input."""
        return Ranks(self.directions // 2, self.near, float(self.epsilon))

    @cached_property
    def mean(self) -> float:
        """The expected component of the reported vector along the input."""
        return self._mean(self.ranks)

    @property
    def domain(self) -> Sphere | Ball:
        """The sphere of directions, or the ball when the vector is the target."""
        return self._ball if self.target == "vector" else self._sphere

    @property
    def _sphere(self) -> Sphere:
        return Sphere(self.dim, self.radius)

    @property
    def _ball(self) -> Ball:
        return Ball(self.dim, self.radius, 2)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)

    @property
    def blanket(self) -> Blanket:
        """Near reports: c of the N directions of any nonce; opposite inputs have none in common."""
        return Blanket(self.epsilon, Fraction(self.near, self.directions))

    @property
    def unbiased(self) -> bool:
        """Whether the vector is the target; a direction is unbiased for ρ·w/‖w‖, not for w."""
        return self.target == "vector"

    @property
    def resolution(self) -> float:
        """√dim + 2 lattice steps: directions are truncated and rescaled, lengths are truncated."""
        return self.radius * (math.sqrt(self.dim) + 2) / min(INPUT_BOUND, LENGTH_BOUND)

    @property
    def rare(self) -> tuple[float, float] | None:
        """e^{−ε} and ρ/A in few dimensions; in more, directions vary whatever ε is."""
        few = self.dim <= _FEW_DIMENSIONS
        return (math.exp(-float(self.epsilon)), self.radius / self.mean) if few else None

    @property
    def payload_size(self) -> int:
        """A nonce and an index."""
        return NONCE_BYTES + INDEX_BYTES

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per row of W."""
        W = checked_copy(W, self.dim, entropy)
        # All randomness is drawn before the input is ranked.
        nonces = entropy.words(len(W) * NONCE_BYTES // 2).view(np.uint8).reshape(-1, NONCE_BYTES)
        response = response_of(self.directions, self.near, self.epsilon)
        is_near, offset = response.draw(len(W), entropy)
        if self.target == "vector":
            coins = draw_coins(len(W), entropy)
            with np.errstate(all="ignore"):
                W = W * signs(W, self._ball, coins)[:, None]
        octets = np.empty((len(W), self.payload_size), dtype=np.uint8)
        octets[:, :NONCE_BYTES] = nonces
        rows = self._rows_at_once
        for start in range(0, len(W), rows):
            part = slice(start, start + rows)
            with np.errstate(all="ignore"):
                near = self.nearest(W[part], nonces[part])
            index = place(is_near[part], offset[part], near).astype("<u4")
            octets[part, NONCE_BYTES:] = index.view(np.uint8).reshape(-1, INDEX_BYTES)
        return [row.tobytes() for row in octets]

    @property
    def _rows_at_once(self) -> int:
        """The number of inputs ranked at a time, so that their scores fit the memory."""
        return max(1, _SCORES // (self.directions // 2))

    def integers(self, W: Vectors) -> NDArray[np.int64]:
        """Return the directions of W as integers with Σn_i² <= 2**40, checked; zero stays zero."""
        return onto_lattice(self._sphere.directions(W), Ball(self.dim, 1.0, 2), INPUT_BOUND)

    def _ranked(self, inputs: NDArray[np.int64], nonces: Nonces) -> NDArray[np.int64]:
        """Return the vectors compared with the directions of each nonce; by default the input."""
        return inputs

    def nearest(self, W: Vectors, nonces: Nonces) -> NDArray[np.int64]:
        """Return the near directions of every row under its nonce, (n, near), ascending.

        All scores of a zero row tie, so its near directions are the first ones, which are random.
        """
        inputs = self._ranked(self.integers(W), nonces)
        pairs = self.directions // 2
        out = np.empty((len(W), self.near), dtype=np.int64)
        rows = self._rows_at_once
        for start in range(0, len(W), rows):
            part = slice(start, start + rows)
            score = products(nonces[part], pairs, inputs[part], normalise=self.ranked_by_angle)
            out[part] = nearest(score, self.near)
        return out

    def _parse(self, payloads: list[bytes]) -> tuple[Nonces, NDArray[np.int64]]:
        """Split payloads into nonces and indices."""
        size = self.payload_size
        if any(len(payload) != size for payload in payloads):
            raise InvalidReport(f"a {self.kind} payload has {size} bytes")
        octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(-1, size)
        index = octets[:, NONCE_BYTES:].copy().view("<u4")[:, 0].astype(np.int64)
        if index.size and index.max() >= self.directions:
            raise InvalidReport(f"a {self.kind} payload names a direction that does not exist")
        return octets[:, :NONCE_BYTES].copy(), index

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the reported directions, scaled to be unbiased for the target."""
        return self.named_directions(payloads) * (self.radius / self.mean)

    def named_directions(self, payloads: list[bytes]) -> Vectors:
        """Return the reported directions themselves."""
        nonces, index = self._parse(payloads)
        out = np.empty((len(index), self.dim))
        rows = max(1, _READ_ROWS * 64 // self.dim)
        for start in range(0, len(index), rows):
            part = slice(start, start + rows)
            g = expand(nonces[part], index[part, None] >> 1, self.ranked_dim)[:, 0]
            sign = 1.0 - 2.0 * (index[part] & 1)
            observed = self._observed(g, nonces[part])
            out[part] = observed * sign[:, None]
        return out

    def worst_pair(self) -> tuple[Vectors, Vectors]:
        """Return opposite poles: their near sets are disjoint, and their signs are certain."""
        return opposite_poles(self.dim, self.radius)

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return ε where the reported direction is near for w under the payload's nonce, else 0.

        With the vector as target it is log(1 + (e^ε − 1) q), q the probability of a sign that makes
        the reported direction near.
        """
        nonces, index = self._parse(payloads)
        W = np.asarray(W, dtype=np.float64)

        def is_near(U: Vectors) -> NDArray[np.bool_]:
            near: NDArray[np.bool_] = (self.nearest(U, nonces) == index[:, None]).any(axis=1)
            return near

        if self.target == "direction":
            return np.where(is_near(W), float(self.epsilon), 0.0)
        kept = keep_probability(W, self._ball)
        q = kept * is_near(W) + (1 - kept) * is_near(-W)
        ratio: NDArray[np.float64] = np.log1p(np.expm1(float(self.epsilon)) * q)
        return ratio

    @abstractmethod
    def _log_density(self, V: Vectors, U: Vectors) -> NDArray[np.float64]:
        """Return the log density of observations given unit directions, up to a constant."""

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return the log density of the observation given w, up to a constant.

        The density given a zero vector is flat: over all nonces its near directions are uniform.
        """
        U = self._sphere.directions(W)
        density = self._log_density(V, U)
        if self.target == "vector":
            kept = keep_probability(W, self._ball)
            with np.errstate(divide="ignore"):  # on the boundary one sign is impossible
                density = np.logaddexp(
                    np.log(kept) + density, np.log1p(-kept) + self._log_density(V, -U)
                )
        return np.where(U.any(axis=1), density, -np.log(self.ranks.background))


# ---- Randomizers

_DENSITY_NUMBERS: Final = 1 << 16
_ALONG: Final = np.array(True)


@dataclass(frozen=True)
class PrivUnit2(RankForm):
    """PrivUnit2 on S^{dim−1} (Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018).

    In one dimension it reports the sign, truthfully with probability e^ε / (e^ε + 1).

    Examples
    --------
    >>> from offaxis.randomizers import PrivUnit2
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = PrivUnit2(dim=64, radius=1.0, epsilon=5)
    >>> randomizer.directions, randomizer.near, randomizer.payload_size
    (572, 19, 16)
    >>> round(randomizer.mean / randomizer.ideal_mean, 3)  # share of the ideal correlation
    0.995
    >>> observed = randomizer.read(randomizer.report(np.eye(64)[:1], Entropy()))
    >>> round(float(np.linalg.norm(observed)) * randomizer.mean, 6)  # length ρ/A, so unbiased
    1.0
    """

    kind: ClassVar[str] = "privunit2"
    wire_id: ClassVar[int] = 3
    ranked_by_angle: ClassVar[bool] = True

    @cached_property
    def cap(self) -> Cap:
        """The optimal cap for this ε and dimension."""
        return sphere_cap(float(self.epsilon), self.dim)

    @property
    def ideal_mean(self) -> float:
        """A of the optimal cap."""
        return self.cap.mean

    def _mean(self, ranks: Ranks) -> float:
        if self.dim == 1:  # both directions have |t| = 1, so every pair has one near vector
            return (
                ranks.near / ranks.pairs * ranks.expectation(lambda tail: np.full_like(tail, 0.5))
            )
        return ranks.expectation(lambda tail: angle_moment(self._quantile(tail), self.dim))

    def _quantile(self, tail: Vectors) -> Vectors:
        """Return (1 − t)/2 at the t >= 0 with Pr[|t| >= t] = tail."""
        shape = (self.dim - 1) / 2
        quantile: Vectors = betaincinv(shape, shape, tail / 2)
        return quantile

    def _observed(self, g: Vectors, nonces: Nonces) -> Vectors:
        return g / row_norms(g, 2)[:, None]

    def _log_density(self, V: Vectors, U: Vectors) -> NDArray[np.float64]:
        cosine = row_dots(V, U) / row_norms(V, 2)
        return self.ranks.log_density(self._tail(np.abs(cosine)), cosine > 0)

    def _tail(self, cosine: Vectors) -> Vectors:
        """Return Pr[|t| >= cosine], by Student's law of t √(dim−1) / √(1 − t²)."""
        if self.dim == 1:
            return np.ones_like(cosine)
        sine = np.sqrt(np.maximum((1 - cosine) * (1 + cosine), 1e-300))
        tail: Vectors = 2 * stdtr(self.dim - 1, -cosine / sine * math.sqrt(self.dim - 1))
        return tail

    def expected_squared_error(self) -> float:
        """Return ρ² (1/A² − 1); as target, a vector inside the ball adds ρ² − ‖w‖²."""
        return float(self.radius**2 * (1 / self.mean**2 - 1))


@dataclass(frozen=True)
class PrivUnitG(RankForm):
    """PrivUnitG (Asi, Feldman, Talwar 2022): a Gaussian in place of the uniform direction.

    Parameters
    ----------
    output : {"gaussian", "sphere"}
        Report the Gaussian vector itself (the original), or its direction (what the published
        tables of the reshaping paper use).

    Examples
    --------
    >>> from offaxis.randomizers import PrivUnitG
    >>> randomizer = PrivUnitG(dim=64, radius=1.0, epsilon=5, output="sphere")
    >>> round(randomizer.cap.mass, 4), round(randomizer.ideal_mean, 2)
    (0.0321, 0.23)
    """

    kind: ClassVar[str] = "privunitg"
    wire_id: ClassVar[int] = 4
    ranked_by_angle: ClassVar[bool] = False

    output: Literal["gaussian", "sphere"] = "gaussian"

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        if self.output not in ("gaussian", "sphere"):
            raise InvalidInput(f"output must be 'gaussian' or 'sphere', got {self.output!r}")
        super().__post_init__()

    @cached_property
    def cap(self) -> Cap:
        """The optimal cap for this ε, in any dimension."""
        return gaussian_cap(float(self.epsilon))

    @property
    def ideal_mean(self) -> float:
        """The expected component of the ideal report: a Gaussian vector or its direction."""
        if self.output == "gaussian":
            return self.cap.mean
        return normalised_mean(float(self.epsilon), self.dim)

    def _mean(self, ranks: Ranks) -> float:
        if self.output == "gaussian":
            return gaussian_mean(ranks)
        return ranks.expectation(self._direction_moment)

    def _direction_moment(self, tail: Vectors) -> Vectors:
        """Return E[t/‖v‖; t >= γ] at the γ of each tail, v Gaussian with component t."""
        threshold = -ndtri(tail / 2)
        if self.dim == 1:
            return tail / 2
        return _normal_density(threshold) * normalising_factor(threshold, self.dim)

    def _observed(self, g: Vectors, nonces: Nonces) -> Vectors:
        return g / (spread() if self.output == "gaussian" else row_norms(g, 2)[:, None])

    def _log_density(self, V: Vectors, U: Vectors) -> NDArray[np.float64]:
        component = row_dots(V, U)
        if self.output == "gaussian":
            return gaussian_log_density(self.ranks, component * (self.mean / self.radius))
        # The direction is the vector without its length r ~ χ_dim, which is integrated out.
        cosine = component / row_norms(V, 2)
        lengths, weights = chi_nodes(self.dim)
        # The ratio is between 1 and e^ε: lengths rarer than its rounding are omitted.
        counts = weights > 1e-18 * math.exp(-float(self.epsilon))
        lengths, weights = lengths[counts], weights[counts]
        density = np.zeros(len(V))
        forward = np.flatnonzero(cosine > 0)  # pointing away from w the density is flat
        step = max(1, _DENSITY_NUMBERS // lengths.size)
        for start in range(0, forward.size, step):
            row = forward[start : start + step]
            ratio = np.exp(self.ranks.log_density(2 * ndtr(-cosine[row, None] * lengths), _ALONG))
            density[row] = np.log(ratio @ weights)
        return density

    def expected_squared_error(self) -> float:
        """Return ρ² ((dim − 1 + E t²)/A² − 1) for the Gaussian form, ρ² (1/B² − 1) otherwise.

        As target, a vector inside the ball adds ρ² − ‖w‖².
        """
        energy = 1.0
        if self.output == "gaussian":
            energy = self.dim - 1 + gaussian_square(self.ranks)
        return float(self.radius**2 * (energy / self.mean**2 - 1))


def gaussian_mean(ranks: Ranks) -> float:
    """Return E t, t the component along the input of a Gaussian vector reported by rank."""
    return ranks.expectation(lambda tail: _normal_density(-ndtri(tail / 2)))


def gaussian_square(ranks: Ranks) -> float:
    """Return E t² of the component of :func:`gaussian_mean`."""
    return ranks.background + ranks.expectation(_square_moment)


def gaussian_log_density(ranks: Ranks, component: Vectors) -> Vectors:
    """Return the log density of reports with these components, against the public law."""
    return ranks.log_density(2 * ndtr(-np.abs(component)), component > 0)


def _normal_density(x: Vectors) -> Vectors:
    """Return φ(x), which is also E[t; t >= x]."""
    density: Vectors = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return density


def _square_moment(tail: Vectors) -> Vectors:
    """Return E[t²; t >= γ] = γ φ(γ) + Q(γ) at the γ of each tail."""
    threshold = -ndtri(tail / 2)
    moment: Vectors = threshold * _normal_density(threshold) + tail / 2
    return moment


# ---- The sign that encodes the length, for means of vectors
#
# Contract: with w in the ball of radius ρ and a sign that is + with probability ½ + ‖w‖/2ρ, the
# direction ±w/‖w‖ has the mean w/ρ. A zero vector gets any direction and a fair sign: mean zero.
#
# The coin is exact and made of integers: w is mapped to the lattice of the ball, its length there
# is rounded down to an integer L <= B, and the sign is + when a uniform integer of [0, 2B), drawn
# before w is used, is below B + L. B is a power of two, so that no draw is rejected. The flip
# happens before the direction is randomized and needs no privacy by itself: the rank form is pure
# for every direction.

LENGTH_BOUND: Final = 1 << 20
"""B: the length of a vector on the boundary, in lattice steps."""


def draw_coins(count: int, bits: RandomBits) -> NDArray[np.int64]:
    """Draw uniform integers of [0, 2B), one per vector."""
    return below(2 * LENGTH_BOUND, count, bits)


def lengths(W: Vectors, ball: Ball) -> NDArray[np.int64]:
    """Return L of every row: ⌊√Σn_i²⌋ of its clipped lattice point, 0 <= L <= B."""
    steps = onto_lattice(W, ball, LENGTH_BOUND)
    # The square is at most 2**40, so the correctly rounded root never reaches the next integer.
    roots: NDArray[np.int64] = np.sqrt((steps * steps).sum(axis=1)).astype(np.int64)
    return roots


def signs(W: Vectors, ball: Ball, coins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one sign per row: +1 with probability (B + L)/2B, −1 otherwise."""
    return np.where(coins < LENGTH_BOUND + lengths(W, ball), 1, -1)


def keep_probability(W: Vectors, ball: Ball) -> Vectors:
    """Return (B + L)/2B of every row, exactly: a fraction of 21 binary digits."""
    kept: Vectors = (LENGTH_BOUND + lengths(W, ball)) / (2 * LENGTH_BOUND)
    return kept
