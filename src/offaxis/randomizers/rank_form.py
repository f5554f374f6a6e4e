"""PrivUnit in rank form: pure ε without any assumption, whatever the floats do.

Contract: for every two inputs and every payload, ``Pr[payload | w] <= exp(ε) Pr[payload | w']``.

The client draws a nonce, which stands for N public directions (directions.py), ranks them by their
correlation with its own vector, calls exactly c of them near, and reports one of the N: each near
one with probability e^ε / (c e^ε + N − c), each other one with 1 / (c e^ε + N − c). The normaliser
does not depend on the input. Which directions are near may depend on it in any way at all, even
through rounding errors: a wrong ranking costs utility, never privacy. The payload is nonce ‖ index.

With the target "vector" the client ranks by ±w, the sign by a coin that tells the length
(sign_flip.py): single reports are worse, and a mean of reports tends to the mean of the vectors.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers.base import CHOOSE, check_budget, checked
from offaxis.randomizers.directions import NONCE_BYTES, Nonces, expand, nearest, products
from offaxis.randomizers.domain import Ball, Sphere, opposite_poles
from offaxis.randomizers.lattice import onto_lattice
from offaxis.randomizers.privunit_calibration import Cap
from offaxis.randomizers.ranks import Ranks, choose, most_pairs
from offaxis.randomizers.sign_flip import draw_coins, keep_probability, signs, simulate_signs
from offaxis.randomizers.vector_parameters import VectorParameters
from offaxis.sampling.draws import Array, Rng
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.sampling.response import place, response_of
from offaxis.vectors import Order, Vectors, as_integer

LARGEST_EPSILON: Final = 100
"""Beyond it e^ε and the size of the cap leave the range of float64."""

INDEX_BYTES: Final = 4
INPUT_BOUND: Final = 1 << 20
"""A direction is laid on the integers of the ball of this radius before it is ranked."""

_SCORES: Final = 1 << 18
"""So many scores are held at a time."""

_READ_ROWS: Final = 1 << 12


@dataclass(frozen=True)
class RankForm(VectorParameters):
    """What PrivUnit2, PrivUnitG and ProjUnit share: pure ε, one nonce and one index a report.

    Parameters
    ----------
    dim : int
    radius : float
        ρ; the length given back to a decoded direction. It clips nothing, unless the vector is
        the target: longer ones then count as ρ long.
    epsilon : number
        Promised ε, read exactly.
    directions, near : int, optional
        N (even) and c; the fewest for a loss of half a percent when not given.
    target : {"direction", "vector"}
        What a report is unbiased for: ρ·w/‖w‖, best for single reports; or w itself, for means.
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
        self._settle_dimension()
        if self.directions == CHOOSE and self.near == CHOOSE:
            ranks = self._choose()
            object.__setattr__(self, "directions", 2 * ranks.pairs)
            object.__setattr__(self, "near", ranks.near)
        most = 2 * most_pairs(self.ranked_dim)
        object.__setattr__(self, "directions", as_integer(self.directions, "directions", 2, most))
        if self.directions % 2:
            raise InvalidInput(f"directions come in pairs, got directions={self.directions}")
        near = as_integer(self.near, "near", 1, self.directions // 2)
        object.__setattr__(self, "near", near)

    def _settle_dimension(self) -> None:
        """Fix the dimension of the directions, before they are counted: that of the input."""

    def _choose(self) -> Ranks:
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
        """The component along the input that infinitely many directions would give."""

    @abstractmethod
    def _mean(self, ranks: Ranks) -> float:
        """Return the expected component of the reported vector along the input."""

    @abstractmethod
    def _observed(self, g: Vectors, nonces: Nonces) -> Vectors:
        """Turn public vectors, in their integers, into observations of mean ``self.mean``."""

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
    def unbiased(self) -> bool:
        """Whether the vector is the target; a direction is unbiased for ρ·w/‖w‖, not for w."""
        return self.target == "vector"

    @property
    def payload_size(self) -> int:
        """A nonce and an index."""
        return NONCE_BYTES + INDEX_BYTES

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload a row of W."""
        W = checked(W, self.dim, entropy)
        # Everything random is drawn before the input is ranked.
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
        """How many inputs are ranked at a time, so that their scores fit the memory."""
        return max(1, _SCORES // (self.directions // 2))

    def integers(self, W: Vectors) -> NDArray[np.int64]:
        """Return the directions of W on the integers: Σn_i² <= 2**40, checked; zero stays zero."""
        return onto_lattice(self._sphere.directions(W), Ball(self.dim, 1.0, 2), INPUT_BOUND)

    def _ranked(self, inputs: NDArray[np.int64], nonces: Nonces) -> NDArray[np.int64]:
        """Return what is compared with the directions of each nonce: the input itself."""
        return inputs

    def nearest(self, W: Vectors, nonces: Nonces) -> NDArray[np.int64]:
        """Return the near directions of every row under its nonce, (n, near), ascending.

        A zero row ties everywhere, so its near directions are the first ones: as good as random.
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
        nonces, index = self._parse(payloads)
        out = np.empty((len(index), self.dim))
        rows = max(1, _READ_ROWS * 64 // self.dim)
        for start in range(0, len(index), rows):
            part = slice(start, start + rows)
            g = expand(nonces[part], index[part, None] >> 1, self.ranked_dim)[:, 0]
            sign = 1.0 - 2.0 * (index[part] & 1)
            observed = self._observed(g, nonces[part])
            out[part] = observed * (sign * (self.radius / self.mean))[:, None]
        return out

    def worst_pair(self) -> tuple[Vectors, Vectors]:
        """Return opposite poles: their near sets are disjoint, and no coin hides their sign."""
        return opposite_poles(self.dim, self.radius)

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return ε where the reported direction is near for w under the payload's nonce, else 0.

        With the vector as target log(1 + (e^ε − 1) q), q the chance of a sign that makes it near.
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

    def _simulated_directions(self, W: Array, rng: Rng) -> Array:
        """Return the unit directions that a simulation randomizes, flipped for a vector."""
        if self.target == "vector":
            W = W * simulate_signs(W, self._ball, rng)[:, None]
        return self._sphere.project(W, rng)

    @abstractmethod
    def _log_density(self, V: Vectors, U: Vectors) -> NDArray[np.float64]:
        """Return the log density of observations given unit directions, up to a constant."""

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return the log density of the observation given w, up to a constant.

        That of a zero vector is flat: over all nonces its near directions are any.
        """
        U = self._sphere.directions(W)
        density = self._log_density(V, U)
        if self.target == "vector":
            kept = keep_probability(W, self._ball)
            with np.errstate(divide="ignore"):  # on the boundary one of the signs is impossible
                density = np.logaddexp(
                    np.log(kept) + density, np.log1p(-kept) + self._log_density(V, -U)
                )
        return np.where(U.any(axis=1), density, -np.log(self.ranks.background))
