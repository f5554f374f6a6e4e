"""Duchi, Jordan and Wainwright's randomizer on the box: pure ε, one bit a coordinate.

Contract: for every two inputs and every payload, ``Pr[payload | w] <= exp(ε) Pr[payload | w']``.

Each coordinate x = w/ρ in [−1, 1] is rounded to a sign v with mean x. A uniformly random vector t
of signs is drawn, and turned round if need be, so that ⟨t, v⟩ has the sign of a coin that shows +
with probability p = e^ε / (e^ε + 1); where ⟨t, v⟩ = 0 it stays. Given v, a payload t has the
probability 2^{1−m} p, 2^{1−m} (1 − p) or, for a tie, half of their sum: any two v are within e^ε,
hence any two inputs. Ties are split evenly here, not given to both sides as in the original: for
even m this needs a smaller scale for the same ε.

The exact form: x on the integers of [−2**20, 2**20], so that v has a rational mean; fair bits for
t; an exact coin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import namespace
from offaxis.errors import InvalidReport
from offaxis.randomizers.base import checked
from offaxis.randomizers.box_form import BoxForm
from offaxis.randomizers.lattice import BOX_BOUND
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.sampling.response import response_of
from offaxis.vectors import Vectors


@dataclass(frozen=True)
class Duchi(BoxForm):
    """Randomizer on the box ``{w : |w_i| <= radius}`` in R^dim (Duchi, Jordan, Wainwright 2018).

    Examples
    --------
    >>> from offaxis.randomizers import Duchi
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = Duchi(dim=12, radius=1.0, epsilon=1)
    >>> payload = randomizer.report(np.zeros((1, 12)), Entropy())
    >>> len(payload[0])  # one bit a coordinate
    2
    >>> bool(np.allclose(np.abs(randomizer.read(payload)), randomizer.size))
    True
    >>> randomizer.signs(payload).shape
    (1, 12)
    """

    kind: ClassVar[str] = "duchi"
    wire_id: ClassVar[int] = 5

    @cached_property
    def size(self) -> float:
        """B: the magnitude of every observed coordinate, for radius 1.

        E[t | v] = v · tanh(ε/2) · E|S|/m, with S the sum of m random signs and
        E|S|/m = C(m − 1, ⌊(m − 1)/2⌋) / 2^{m−1}.
        """
        half = (self.dim - 1) // 2
        log_share = (
            math.lgamma(self.dim)
            - math.lgamma(half + 1)
            - math.lgamma(self.dim - half)
            - (self.dim - 1) * math.log(2)
        )
        return math.exp(-log_share) / math.tanh(float(self.epsilon) / 2)

    @property
    def payload_size(self) -> int:
        """One bit a coordinate."""
        return -(-self.dim // 8)

    def simulate(self, W: Array, rng: Rng) -> Array:
        """Draw observations in fast floating point; never a report."""
        draws, xp = draws_from(rng, W), namespace(W)
        x = self.domain.project(W) / self.radius
        v = xp.where(2 * draws.uniform(*x.shape) - 1 < x, 1.0, -1.0)
        t = draws.signs(*x.shape)
        near = 2 * draws.uniform(len(x)) - 1 < math.tanh(float(self.epsilon) / 2)
        wrong = xp.where(near, -1, 1) * xp.sum(t * v, axis=1) > 0
        t *= xp.where(wrong, -1.0, 1.0)[:, None] * (self.size * self.radius)
        return t

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload a row of W."""
        W = checked(W, self.dim, entropy)
        # Everything random is drawn before the input is laid on the integers.
        uniform = entropy.words(2 * W.size).view("<u4").astype(np.int64) >> 11
        bits = np.unpackbits(entropy.words(-(-W.size // 16)).view(np.uint8), count=W.size)
        near, _ = response_of(2, 1, self.epsilon).draw(len(W), entropy)
        with np.errstate(all="ignore"):
            steps = self.integers(W)
        v = np.where(uniform.reshape(W.shape) < BOX_BOUND + steps, 1, -1)
        t = 2 * bits.reshape(W.shape).astype(np.int64) - 1
        t[np.where(near, -1, 1) * (t * v).sum(axis=1) > 0] *= -1
        octets = np.packbits(t > 0, axis=1, bitorder="little")
        return [row.tobytes() for row in octets]

    def signs(self, payloads: list[bytes]) -> NDArray[np.int64]:
        """Read payloads strictly: the right length, and no bit beyond the last coordinate."""
        size = self.payload_size
        if any(len(payload) != size for payload in payloads):
            raise InvalidReport(f"a duchi payload of {self.dim} coordinates has {size} bytes")
        octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(-1, size)
        bits = np.unpackbits(octets, axis=1, bitorder="little")
        if bits[:, self.dim :].any():
            raise InvalidReport("a duchi payload holds a bit that no client writes")
        return 2 * bits[:, : self.dim].astype(np.int64) - 1

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return ±B ρ in every coordinate."""
        return self.signs(payloads).astype(np.float64) * (self.size * self.radius)

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return log Pr[observation | w], up to a constant: the signs are all there is to it."""
        return self._log_chance(np.sign(V), self.domain.project(W) / self.radius)

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return log Pr[payload | w], up to a constant."""
        return self._log_chance(self.signs(payloads), self.integers(W) / BOX_BOUND)

    def _log_chance(self, t: NDArray[Any], x: Vectors) -> Vectors:
        """Return log(p Pr[⟨t, v⟩ > 0] + (1 − p) Pr[< 0] + Pr[= 0] / 2) over the random signs v.

        How many coordinates agree follows from adding them one by one.
        """
        agree = (1 + t * x) / 2
        count = np.zeros((len(x), self.dim + 1))
        count[:, 0] = 1.0
        for column in range(self.dim):
            chance = agree[:, column, None]
            count[:, 1:] = count[:, 1:] * (1 - chance) + count[:, :-1] * chance
            count[:, 0] *= 1 - agree[:, column]
        sums = 2 * np.arange(self.dim + 1) - self.dim
        far = math.exp(-float(self.epsilon))
        weight = np.where(sums > 0, 1.0, np.where(sums < 0, far, (1 + far) / 2))
        chance_of_payload: Vectors = np.log(count @ weight)
        return chance_of_payload

    def expected_squared_error(self) -> float:
        """Return m ρ² (B² − 1), at a corner of the box."""
        return self.dim * self.radius**2 * (self.size**2 - 1)
