"""Pure randomizers of vectors in a box: Duchi, piecewise and hybrid.

Contract: for every two inputs and every payload, ``Pr[payload | w] <= exp(ε) Pr[payload | w']``.
All randomness is drawn before the input is mapped to integers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidReport
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers.base import (
    BOX_BOUND,
    CHOOSE,
    Box,
    VectorParameters,
    check_budget,
    checked_copy,
    onto_box,
)
from offaxis.sampling.choices import choose_columns, response_of
from offaxis.sampling.entropy import RealEntropy
from offaxis.sampling.probability import Probability, exp_minus
from offaxis.vectors import A, Array, Order, Vectors, as_integer, namespace, scattered

LARGEST_EPSILON: Final = 100
"""Beyond it a coin shows its unlikely side less than once in 2**144 flips."""


@dataclass(frozen=True)
class BoxForm(VectorParameters):
    """A pure randomizer on the box ``{w : |w_i| <= radius}``; vectors outside are clipped."""

    kind: ClassVar[str]
    order: ClassVar[Order] = "inf"

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        super().__post_init__()
        check_budget(self.epsilon, LARGEST_EPSILON, self.kind)

    @property
    def domain(self) -> Box:
        """The box of half width ``radius``."""
        return Box(self.dim, self.radius)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)

    @property
    def unbiased(self) -> bool:
        """True: the mean of the observation is w, up to the width of a lattice step."""
        return True

    @property
    def resolution(self) -> float:
        """One lattice step, or one position of a window of :class:`Piecewise`, which is longer."""
        return self.radius * (1 / BOX_BOUND + 4 / POINTS)

    def integers(self, W: Vectors) -> NDArray[np.int64]:
        """Return the coordinates of W on the integers −2**20 … 2**20, checked."""
        return onto_box(W, self.domain)

    def worst_pair(self) -> tuple[Vectors, Vectors]:
        """Return two opposite corners."""
        corner = np.full(self.dim, self.radius)
        return corner, -corner


# ---- Sampled coordinates

ENTRY: Final = np.dtype([("coordinate", "<u4"), ("point", "<u2")])
"""One reported coordinate in a payload."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class SampledForm(BoxForm):
    """A box randomizer that reports ``sampled`` of its coordinates, one by one.

    Of m coordinates k are chosen uniformly, independently of the input, and each is reported with
    ε/k (Wang et al. 2019). A payload is k entries of six bytes.

    Parameters
    ----------
    dim, radius, epsilon
        As in :class:`BoxForm`.
    sampled : int, optional
        k; by default max(1, min(m, ⌊ε/2.5⌋)).
    """

    sampled: int = CHOOSE

    def __post_init__(self) -> None:
        """Read the parameters exactly and fix the number of coordinates."""
        super().__post_init__()
        if self.sampled == CHOOSE:
            best = max(1, min(self.dim, math.floor(self.epsilon / Fraction(5, 2))))
            object.__setattr__(self, "sampled", best)
        object.__setattr__(self, "sampled", as_integer(self.sampled, "sampled", 1, self.dim))

    @property
    def share(self) -> Fraction:
        """ε/k: the budget of each reported coordinate."""
        return self.epsilon / self.sampled

    @property
    def reported_share(self) -> float:
        """k/m."""
        return self.sampled / self.dim

    @property
    def rare(self) -> tuple[float, float]:
        """e^{−ε/k}, and the largest value of a reported coordinate."""
        return math.exp(-float(self.share)), self.radius * self._largest * self.dim / self.sampled

    @property
    @abstractmethod
    def _largest(self) -> float:
        """The largest value of a coordinate in [−1, 1] that is always reported."""

    @property
    def payload_size(self) -> int:
        """Six bytes per reported coordinate."""
        return ENTRY.itemsize * self.sampled

    def entries(self, payloads: list[bytes]) -> tuple[Integers, Integers]:
        """Split payloads into coordinates, as written, and points."""
        size = self.payload_size
        if any(len(payload) != size for payload in payloads):
            raise InvalidReport(f"a {self.kind} payload has {size} bytes")
        rows = np.frombuffer(b"".join(payloads), dtype=ENTRY).reshape(-1, self.sampled)
        return rows["coordinate"].astype(np.int64), rows["point"].astype(np.int64)

    def check_coordinates(self, order: Integers) -> None:
        """Reject coordinates that do not exist or that occur twice in a payload."""
        ascending = np.sort(order, axis=1)
        if order.size and (ascending[:, -1].max() >= self.dim or not np.diff(ascending).all()):
            raise InvalidReport(f"a {self.kind} payload names coordinates that no client names")


# ---- Randomizers


@dataclass(frozen=True)
class Duchi(BoxForm):
    """Duchi's randomizer on the box ``{w : |w_i| <= radius}`` in R^dim: one bit per coordinate.

    Each coordinate x = w/ρ in [−1, 1] is rounded to a sign v with mean x. A uniformly random vector
    t of signs is drawn and negated if necessary, so that ⟨t, v⟩ has the sign of a coin that shows +
    with probability p = e^ε / (e^ε + 1); where ⟨t, v⟩ = 0 it stays. Given v, a payload t has the
    probability 2^{1−m} p, 2^{1−m} (1 − p) or, for a tie, half of their sum: any two v are within
    e^ε, hence any two inputs (Duchi, Jordan, Wainwright 2018). Ties are split evenly here, not
    counted on both sides as in the original: for even m this needs a smaller scale for the same ε.

    The exact form uses x on the integers of [−2**20, 2**20], so that v has a rational mean; fair
    bits for t; an exact coin.

    Examples
    --------
    >>> from offaxis.randomizers import Duchi
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = Duchi(dim=12, radius=1.0, epsilon=1)
    >>> payload = randomizer.report(np.zeros((1, 12)), Entropy())
    >>> len(payload[0])  # one bit per coordinate
    2
    >>> randomizer.read(payload).shape
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
    def rare(self) -> tuple[float, float]:
        """e^{−ε}, and B ρ in every coordinate."""
        return math.exp(-float(self.epsilon)), self.size * self.radius

    @property
    def payload_size(self) -> int:
        """One bit per coordinate."""
        return -(-self.dim // 8)

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per row of W."""
        W = checked_copy(W, self.dim, entropy)
        # All randomness is drawn before the input is mapped to integers.
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
        """Return log Pr[observation | w], up to a constant; only the signs matter."""
        return self._log_probability(np.sign(V), self.domain.project(W) / self.radius)

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return log Pr[payload | w], up to a constant."""
        return self._log_probability(self.signs(payloads), self.integers(W) / BOX_BOUND)

    def _log_probability(self, t: NDArray[Any], x: Vectors) -> Vectors:
        """Return log(p Pr[⟨t, v⟩ > 0] + (1 − p) Pr[< 0] + Pr[= 0] / 2) over the random signs v.

        The law of the number of coordinates that agree is built one coordinate at a time.
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
        log_probability: Vectors = np.log(count @ weight)
        return log_probability

    def expected_squared_error(self) -> float:
        """Return m ρ² (B² − 1), at a corner of the box."""
        return self.dim * self.radius**2 * (self.size**2 - 1)


POINTS: Final = 1 << 16
"""M: the number of values that a reported coordinate can take."""


@dataclass(frozen=True)
class Piecewise(SampledForm):
    """Piecewise randomizer on the box ``{w : |w_i| <= radius}`` in R^dim.

    The parameters are those of :class:`SampledForm`. Each reported coordinate x in [−1, 1] becomes
    one of M equally spaced points: the c points of a window whose position is linear in x have
    weight e^{ε/k}, the others 1. The window always has exactly c points, so the normaliser
    c e^{ε/k} + M − c is a constant, and the guarantee holds whatever rounding does to the position
    of the window (sampling/choices.py). The share c/M is that of the continuous law (Wang et al.
    2019), (C − 1)/2C with C = (e^{ε/2k} + 1)/(e^{ε/2k} − 1).

    Examples
    --------
    >>> from offaxis.randomizers import Piecewise
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = Piecewise(dim=12, radius=1.0, epsilon=5)
    >>> randomizer.sampled, randomizer.share  # two coordinates per report, each with ε/2
    (2, Fraction(5, 2))
    >>> observed = randomizer.read(randomizer.report(np.zeros((1, 12)), Entropy()))
    >>> int(np.count_nonzero(observed))
    2
    """

    kind: ClassVar[str] = "piecewise"
    wire_id: ClassVar[int] = 6

    @cached_property
    def near(self) -> int:
        """c: the number of points of a window."""
        half = float(self.share) / 2
        # (C − 1)/2C with C = coth(half / 2)
        return max(1, min(POINTS // 2, round(POINTS * (1 - math.tanh(half / 2)) / 2)))

    @cached_property
    def gain(self) -> float:
        """The factor that makes a point, in half steps from the centre, unbiased for x in [−1, 1].

        The points sum to zero, so the mean of a report is that of its window times
        (e^{ε/k} − 1) c / (c e^{ε/k} + M − c), and the centre of the window is x (M − c).
        """
        far = math.exp(-float(self.share))
        mean = (1 - far) * self.near / (self.near + (POINTS - self.near) * far)
        return 1 / (mean * (POINTS - self.near))

    @property
    def _largest(self) -> float:
        return self.gain * (POINTS - 1)

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per row of W."""
        W = checked_copy(W, self.dim, entropy)
        # All randomness is drawn before the input is mapped to integers.
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
        """Return the point of each draw: in the window, or on either side of it."""
        xp = namespace(offset)
        outside = offset + xp.where(offset >= start, self.near, 0)
        points: A = xp.where(is_near, start + offset, outside)
        return points

    def observations(self, order: Array, points: Array, dtype: Any = np.float64) -> Array:
        """Return the reported coordinates, scaled to be unbiased, in vectors of zeros."""
        scale = self.radius * self.gain * self.dim / self.sampled
        values = namespace(points).astype(2 * points - (POINTS - 1), dtype) * scale
        return scattered(order, values, self.dim)

    def _parse(self, payloads: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order, points = self.entries(payloads)
        self.check_coordinates(order)
        return order, points

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return unbiased vectors; coordinates that were not reported are zero."""
        observed: Vectors = self.observations(*self._parse(payloads))
        return observed

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return ε/k for every reported coordinate whose point is in the window of w."""
        scale = self.radius * self.gain * self.dim / self.sampled
        points = (np.rint(V / scale).astype(np.int64) + POINTS - 1) // 2
        order = np.argsort(V == 0, axis=1, kind="stable")[:, : self.sampled].astype(np.int64)
        return self._log_probability(order, np.take_along_axis(points, order, axis=1), W)

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return ε/k for every reported coordinate whose point is in the window of w."""
        return self._log_probability(*self._parse(payloads), W)

    def _log_probability(
        self, order: NDArray[np.int64], points: NDArray[np.int64], W: Vectors
    ) -> Vectors:
        start = self.starts(W, order)
        inside = (points >= start) & (points < start + self.near)
        log_probability: Vectors = inside.sum(axis=1) * float(self.share)
        return log_probability

    @property
    def square_at_the_edge(self) -> float:
        """E x̂² of one reported coordinate at x = ±1, before scaling for the sampled coordinates."""
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


SIGNS_ONLY: Final = Fraction(61, 100)
"""The largest ε per coordinate at which a sign alone is always better."""

_SIGN: Final = 1 << 31
"""Marks a coordinate that is reported by its sign: point 0 is −, point 1 is +."""


@dataclass(frozen=True)
class Hybrid(SampledForm):
    """Hybrid randomizer on the box ``{w : |w_i| <= radius}`` in R^dim.

    The parameters are those of :class:`SampledForm`. It works as :class:`Piecewise`, but each
    chosen coordinate is reported by a sign alone with probability e^{−ε/2k}, or always where
    ε/k <= 0.61 (Wang et al. 2019). The choice is made by a coin that is independent of the input
    and part of the payload, so each kind of report must keep ε/k by itself, and does: the sign is
    that of a random v = ±1 with mean x, reported truthfully with probability
    e^{ε/k} / (e^{ε/k} + 1).

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
    def piece(self) -> Piecewise:
        """The piecewise randomizer of the coordinates that are not reported by sign."""
        return Piecewise(self.dim, self.radius, self.epsilon, self.sampled)

    @cached_property
    def _by_sign(self) -> Probability:
        """The probability that a coordinate is reported by its sign."""
        if self.share <= SIGNS_ONLY:
            return Probability.of(Fraction(1))
        return Probability(partial(exp_minus, self.share / 2))

    @property
    def sign_share(self) -> float:
        """The expected share of entries that are reported as signs."""
        return 1.0 if self.share <= SIGNS_ONLY else math.exp(-float(self.share) / 2)

    @property
    def sign_size(self) -> float:
        """The factor that makes a sign unbiased: coth(ε/2k)."""
        return 1 / math.tanh(float(self.share) / 2)

    @property
    def _largest(self) -> float:
        return max(self.sign_size, self.piece.gain * (POINTS - 1))

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per row of W."""
        W = checked_copy(W, self.dim, entropy)
        # All randomness, for both kinds of report, is drawn before the input is mapped to integers.
        order = choose_columns(self.dim, self.sampled, len(W), entropy)
        shape, count = order.shape, order.size
        by_sign = self._by_sign.draw(count, entropy).reshape(shape)
        uniform = (entropy.words(2 * count).view("<u4").astype(np.int64) >> 11).reshape(shape)
        truthful, _ = response_of(2, 1, self.share).draw(count, entropy)
        is_near, offset = response_of(POINTS, self.piece.near, self.share).draw(count, entropy)
        with np.errstate(all="ignore"):
            steps = np.take_along_axis(self.integers(W), order, axis=1)
            start = self.piece.starts(W, order)
        sign = (uniform < BOX_BOUND + steps) == truthful.reshape(shape)
        points = self.piece.points(start, is_near.reshape(shape), offset.reshape(shape))
        entries = np.empty(shape, dtype=ENTRY)
        entries["coordinate"] = order | np.where(by_sign, _SIGN, 0)
        entries["point"] = np.where(by_sign, sign, points)
        return [row.tobytes() for row in entries]

    def _parse(self, payloads: list[bytes]) -> tuple[Integers, NDArray[np.bool_], Integers]:
        """Read payloads strictly: coordinates, which of them by sign, and points or signs."""
        marked, points = self.entries(payloads)
        by_sign, order = marked >= _SIGN, marked & (_SIGN - 1)
        self.check_coordinates(order)
        if (points[by_sign] > 1).any() or (self.sign_share == 1 and not by_sign.all()):
            raise InvalidReport("a hybrid payload holds a value that no client writes")
        return order, by_sign, points

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return unbiased vectors; coordinates that were not reported are zero."""
        order, by_sign, points = self._parse(payloads)
        value = np.where(
            by_sign,
            (2 * points - 1) * self.sign_size,
            (2 * points - (POINTS - 1)) * self.piece.gain,
        )
        out = np.zeros((len(order), self.dim))
        np.put_along_axis(out, order, value * (self.radius * self.dim / self.sampled), axis=1)
        return out

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return log Pr[payload | w], up to a constant independent of w."""
        order, by_sign, points = self._parse(payloads)
        share = float(self.share)
        start = self.piece.starts(W, order)
        inside = (points >= start) & (points < start + self.piece.near)
        x = np.take_along_axis(self.integers(W), order, axis=1) / BOX_BOUND
        agree = (1 + (2 * points - 1) * np.where(by_sign, x, 0.0)) / 2
        with np.errstate(divide="ignore"):
            of_sign = np.log(agree + (1 - agree) * math.exp(-share)) + share
        of_point = np.where(inside, share, 0.0)
        log_probability: Vectors = np.where(by_sign, of_sign, of_point).sum(axis=1)
        return log_probability

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return log Pr[observation | w]; the observation determines the payload."""
        size = self.sign_size * self.radius * self.dim / self.sampled
        order = np.argsort(V == 0, axis=1, kind="stable")[:, : self.sampled]
        value = np.take_along_axis(V, order, axis=1)
        by_sign = np.isclose(np.abs(value), size, rtol=1e-9)
        step = self.radius * self.piece.gain * self.dim / self.sampled
        points = (np.rint(value / step).astype(np.int64) + POINTS - 1) // 2
        entries = np.empty(order.shape, dtype=ENTRY)
        entries["coordinate"] = order | np.where(by_sign, _SIGN, 0)
        entries["point"] = np.where(by_sign, value > 0, points)
        return self.log_likelihood([row.tobytes() for row in entries], W)

    def expected_squared_error(self) -> float:
        """Return E‖observation − w‖² at a corner of the box."""
        share = self.sign_share
        square = share * self.sign_size**2 + (1 - share) * self.piece.square_at_the_edge
        return self.dim * self.radius**2 * (self.dim / self.sampled * square - 1)
