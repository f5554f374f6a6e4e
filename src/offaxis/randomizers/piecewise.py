"""The piecewise randomizer on the box: pure ε, values near the true one preferred.

Contract: for every two inputs and every payload, ``Pr[payload | w] <= exp(ε) Pr[payload | w']``.

Some coordinates are reported, each with ε/k (sampled_form.py). One coordinate x in [−1, 1] is
reported as one of M equally spaced points: the c points of a window whose place is linear in x
weigh e^{ε/k}, the others 1. The window always has exactly c points, so the normaliser
c e^{ε/k} + M − c depends on nothing and the promise holds whatever rounding does to the window's
place (sampling/response.py). The share c/M is that of the continuous law (Wang et al. 2019),
(C − 1)/2C with C = (e^{ε/2k} + 1)/(e^{ε/2k} − 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import A, namespace, scattered
from offaxis.randomizers.base import checked
from offaxis.randomizers.lattice import BOX_BOUND
from offaxis.randomizers.sampled_form import ENTRY, SampledForm
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.sampling.response import response_of
from offaxis.sampling.uniform import choose_columns
from offaxis.vectors import Vectors

POINTS: Final = 1 << 16
"""M: how many values a reported coordinate can take."""


@dataclass(frozen=True)
class Piecewise(SampledForm):
    """Randomizer on the box ``{w : |w_i| <= radius}`` in R^dim; parameters as its base has.

    Examples
    --------
    >>> from offaxis.randomizers import Piecewise
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = Piecewise(dim=12, radius=1.0, epsilon=5)
    >>> randomizer.sampled, randomizer.share  # two coordinates a report, each with half the budget
    (2, Fraction(5, 2))
    >>> observed = randomizer.read(randomizer.report(np.zeros((1, 12)), Entropy()))
    >>> int(np.count_nonzero(observed))
    2
    >>> start = randomizer.starts(np.zeros((1, 12)), np.array([[0]]))  # of a window, for x = 0
    >>> int(start[0, 0]), int(randomizer.points(start, True, np.array([[9]]))[0, 0])
    (25470, 25479)
    >>> f"{randomizer.gain:.1e}"  # from half steps to the unit of the input
    '2.8e-05'
    >>> round(randomizer.near / 65536, 3), round(randomizer.square_at_the_edge, 2)
    (0.223, 1.75)
    """

    kind: ClassVar[str] = "piecewise"
    wire_id: ClassVar[int] = 6

    @cached_property
    def near(self) -> int:
        """c: how many points a window has."""
        half = float(self.share) / 2
        # (C − 1)/2C with C = coth(half / 2)
        return max(1, min(POINTS // 2, round(POINTS * (1 - math.tanh(half / 2)) / 2)))

    @cached_property
    def gain(self) -> float:
        """What makes a point, counted in half steps from the middle, unbiased for x in [−1, 1].

        The points add up to zero, so the mean of a report is that of its window times
        (e^{ε/k} − 1) c / (c e^{ε/k} + M − c), and the window's middle is x (M − c).
        """
        far = math.exp(-float(self.share))
        mean = (1 - far) * self.near / (self.near + (POINTS - self.near) * far)
        return 1 / (mean * (POINTS - self.near))

    def simulate(self, W: Array, rng: Rng) -> Array:
        """Draw observations in fast floating point; never a report."""
        draws, xp = draws_from(rng, W), namespace(W)
        x = self.domain.project(W) / self.radius
        rows, chosen, others = len(x), self.sampled, POINTS - self.near
        order = draws.columns(self.dim, chosen, rows)
        start = xp.floor((xp.take_along_axis(x, order, axis=1) + 1) / 2 * others)
        far = math.exp(-float(self.share)) * others
        is_near = draws.uniform(rows, chosen) * (self.near + far) < self.near
        offset = draws.integers(self.near, rows, chosen), draws.integers(others, rows, chosen)
        points = self.points(xp.astype(start, order.dtype), is_near, xp.where(is_near, *offset))
        return self._observations(order, points, draws.dtype)

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload a row of W."""
        W = checked(W, self.dim, entropy)
        # Everything random is drawn before the input is laid on the integers.
        entries = np.empty((len(W), self.sampled), dtype=ENTRY)
        order = choose_columns(self.dim, self.sampled, len(W), entropy)
        response = response_of(POINTS, self.near, self.share)
        is_near, offset = response.draw(order.size, entropy)
        with np.errstate(all="ignore"):
            start = self.starts(W, order)
        entries["coordinate"] = order
        shape = order.shape
        entries["point"] = self.points(start, is_near.reshape(shape), offset.reshape(shape))
        return [row.tobytes() for row in entries]

    def starts(self, W: Vectors, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first point of each chosen coordinate's window, 0 … M − c, in integers."""
        steps = np.take_along_axis(self.integers(W), order, axis=1)
        start: NDArray[np.int64] = (BOX_BOUND + steps) * (POINTS - self.near) // (2 * BOX_BOUND)
        return start

    def points(self, start: A, is_near: Any, offset: A) -> A:
        """Return the points a draw stands for: in the window, or on either side of it."""
        xp = namespace(offset)
        outside = offset + xp.where(offset >= start, self.near, 0)
        points: A = xp.where(is_near, start + offset, outside)
        return points

    def _observations(self, order: Array, points: Array, dtype: Any = np.float64) -> Array:
        """Return vectors that are zero but for the reported coordinates, scaled to be unbiased."""
        scale = self.radius * self.gain * self.dim / self.sampled
        values = namespace(points).astype(2 * points - (POINTS - 1), dtype) * scale
        return scattered(order, values, self.dim)

    def _parse(self, payloads: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order, points = self.entries(payloads)
        self.check_coordinates(order)
        return order, points

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return unbiased vectors; coordinates that were not reported are zero."""
        observed: Vectors = self._observations(*self._parse(payloads))
        return observed

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return ε/k for every reported coordinate whose point lies in w's window."""
        scale = self.radius * self.gain * self.dim / self.sampled
        points = (np.rint(V / scale).astype(np.int64) + POINTS - 1) // 2
        order = np.argsort(V == 0, axis=1, kind="stable")[:, : self.sampled].astype(np.int64)
        return self._log_chance(order, np.take_along_axis(points, order, axis=1), W)

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return ε/k for every reported coordinate whose point lies in w's window."""
        return self._log_chance(*self._parse(payloads), W)

    def _log_chance(
        self, order: NDArray[np.int64], points: NDArray[np.int64], W: Vectors
    ) -> Vectors:
        start = self.starts(W, order)
        inside = (points >= start) & (points < start + self.near)
        chance: Vectors = inside.sum(axis=1) * float(self.share)
        return chance

    @property
    def square_at_the_edge(self) -> float:
        """E x̂² of one reported coordinate at x = ±1, before the share of coordinates enters."""
        middle = POINTS - self.near
        around = self.near * middle**2 + (self.near**3 - self.near) / 3
        far = math.exp(-float(self.share))
        everything = (POINTS**3 - POINTS) / 3
        weight = self.near + (POINTS - self.near) * far
        return self.gain**2 * ((1 - far) * around + far * everything) / weight

    def expected_squared_error(self) -> float:
        """Return E‖observation − w‖² at a corner of the box."""
        reported = self.dim / self.sampled * self.square_at_the_edge
        return self.dim * self.radius**2 * (reported - 1)
