"""The hybrid randomizer on the box: pure ε, the better of two one-dimensional reports.

Contract: for every two inputs and every payload, ``Pr[payload | w] <= exp(ε) Pr[payload | w']``.

As the piecewise randomizer, but each chosen coordinate is reported by a sign alone with probability
e^{−ε/2k}, or always where ε/k <= 0.61 (Wang et al. 2019). Which of the two is decided by a coin
that does not look at the input and is part of the payload, so each kind of report must keep ε/k on
its own, and does: the sign is that of a random v = ±1 with mean x, told truly with probability
e^{ε/k} / (e^{ε/k} + 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import namespace
from offaxis.errors import InvalidReport
from offaxis.randomizers.base import checked
from offaxis.randomizers.lattice import BOX_BOUND
from offaxis.randomizers.piecewise import POINTS, Piecewise
from offaxis.randomizers.sampled_form import ENTRY, Integers, SampledForm
from offaxis.sampling.bernoulli import Probability
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.sampling.enclosure import exp_minus
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.sampling.response import response_of
from offaxis.sampling.uniform import choose_columns
from offaxis.vectors import Vectors

SIGNS_ONLY: Final = Fraction(61, 100)
"""The largest ε of a coordinate at which a sign alone is always better."""

_SIGN: Final = 1 << 31
"""Marks a coordinate that is reported by its sign: point 0 is −, point 1 is +."""


@dataclass(frozen=True)
class Hybrid(SampledForm):
    """Randomizer on the box ``{w : |w_i| <= radius}`` in R^dim; parameters as its base has.

    Examples
    --------
    >>> from offaxis.randomizers import Hybrid, Piecewise
    >>> parameters = {"dim": 12, "radius": 1.0, "epsilon": 1}
    >>> worst = [kind(**parameters).expected_squared_error() for kind in (Hybrid, Piecewise)]
    >>> worst[0] < worst[1]
    True
    """

    kind: ClassVar[str] = "hybrid"
    wire_id: ClassVar[int] = 7

    @cached_property
    def _piece(self) -> Piecewise:
        """The piecewise randomizer that makes the other reports."""
        return Piecewise(self.dim, self.radius, self.epsilon, self.sampled)

    @cached_property
    def _by_sign(self) -> Probability:
        """How often a coordinate is reported by its sign."""
        if self.share <= SIGNS_ONLY:
            return Probability.of(Fraction(1))
        return Probability(partial(exp_minus, self.share / 2))

    @property
    def _sign_share(self) -> float:
        return 1.0 if self.share <= SIGNS_ONLY else math.exp(-float(self.share) / 2)

    @property
    def _sign_size(self) -> float:
        """What makes a sign unbiased: coth(ε/2k)."""
        return 1 / math.tanh(float(self.share) / 2)

    def simulate(self, W: Array, rng: Rng) -> Array:
        """Draw observations in fast floating point; never a report."""
        draws, xp = draws_from(rng, W), namespace(W)
        x = self.domain.project(W) / self.radius
        out = self._piece.simulate(W, draws)
        by_sign = (out != 0) & (draws.uniform(*x.shape) < self._sign_share)
        mean = x * math.tanh(float(self.share) / 2)
        sign = xp.where(2 * draws.uniform(*x.shape) - 1 < mean, 1.0, -1.0)
        size = self._sign_size * self.radius * self.dim / self.sampled
        return xp.where(by_sign, size * sign, out)

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload a row of W."""
        W = checked(W, self.dim, entropy)
        # Everything random is drawn, for both ways, before the input is laid on the integers.
        order = choose_columns(self.dim, self.sampled, len(W), entropy)
        shape, count = order.shape, order.size
        by_sign = self._by_sign.draw(count, entropy).reshape(shape)
        uniform = (entropy.words(2 * count).view("<u4").astype(np.int64) >> 11).reshape(shape)
        truly, _ = response_of(2, 1, self.share).draw(count, entropy)
        is_near, offset = response_of(POINTS, self._piece.near, self.share).draw(count, entropy)
        with np.errstate(all="ignore"):
            steps = np.take_along_axis(self.integers(W), order, axis=1)
            start = self._piece.starts(W, order)
        sign = (uniform < BOX_BOUND + steps) == truly.reshape(shape)
        points = self._piece.points(start, is_near.reshape(shape), offset.reshape(shape))
        entries = np.empty(shape, dtype=ENTRY)
        entries["coordinate"] = order | np.where(by_sign, _SIGN, 0)
        entries["point"] = np.where(by_sign, sign, points)
        return [row.tobytes() for row in entries]

    def _parse(self, payloads: list[bytes]) -> tuple[Integers, NDArray[np.bool_], Integers]:
        """Read payloads strictly: coordinates, which of them by sign, points or signs."""
        marked, points = self.entries(payloads)
        by_sign, order = marked >= _SIGN, marked & (_SIGN - 1)
        self.check_coordinates(order)
        if (points[by_sign] > 1).any() or (self._sign_share == 1 and not by_sign.all()):
            raise InvalidReport("a hybrid payload holds a value that no client writes")
        return order, by_sign, points

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return unbiased vectors; coordinates that were not reported are zero."""
        order, by_sign, points = self._parse(payloads)
        value = np.where(
            by_sign,
            (2 * points - 1) * self._sign_size,
            (2 * points - (POINTS - 1)) * self._piece.gain,
        )
        out = np.zeros((len(order), self.dim))
        np.put_along_axis(out, order, value * (self.radius * self.dim / self.sampled), axis=1)
        return out

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return log Pr[payload | w], up to a constant independent of w."""
        order, by_sign, points = self._parse(payloads)
        share = float(self.share)
        start = self._piece.starts(W, order)
        inside = (points >= start) & (points < start + self._piece.near)
        x = np.take_along_axis(self.integers(W), order, axis=1) / BOX_BOUND
        agree = (1 + (2 * points - 1) * np.where(by_sign, x, 0.0)) / 2
        with np.errstate(divide="ignore"):
            told = np.log(agree + (1 - agree) * math.exp(-share)) + share
        chance: Vectors = np.where(by_sign, told, np.where(inside, share, 0.0)).sum(axis=1)
        return chance

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return log Pr[observation | w]: the payload can be read off the observation."""
        size = self._sign_size * self.radius * self.dim / self.sampled
        order = np.argsort(V == 0, axis=1, kind="stable")[:, : self.sampled]
        value = np.take_along_axis(V, order, axis=1)
        by_sign = np.isclose(np.abs(value), size, rtol=1e-9)
        step = self.radius * self._piece.gain * self.dim / self.sampled
        points = (np.rint(value / step).astype(np.int64) + POINTS - 1) // 2
        entries = np.empty(order.shape, dtype=ENTRY)
        entries["coordinate"] = order | np.where(by_sign, _SIGN, 0)
        entries["point"] = np.where(by_sign, value > 0, points)
        return self.log_likelihood([row.tobytes() for row in entries], W)

    def expected_squared_error(self) -> float:
        """Return E‖observation − w‖² at a corner of the box."""
        share = self._sign_share
        square = share * self._sign_size**2 + (1 - share) * self._piece.square_at_the_edge
        return self.dim * self.radius**2 * (self.dim / self.sampled * square - 1)
