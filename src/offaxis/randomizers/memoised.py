"""Memoised reports: one person reports again and again, and the whole sequence is within ε∞.

Contract: let a device draw at most R *permanent answers*, at times that do not depend on any of its
vectors, and let every report be drawn from the permanent answer in force by fresh randomness. Then
for every two sequences of vectors, of any length, and every sequence of reports,
``Pr[reports | z₁ z₂ …] <= exp(R·ε) Pr[reports | z₁' z₂' …]`` (docs/proofs.md §23). A report does
not depend on the vectors between two draws, so nothing tells when a vector changed.

A report has two layers. The permanent answer is an ε-LDP report of the vector. The instantaneous
layer is an ε₁-LDP report of the permanent answer: a single report, or a few of them, reveal less
than ε, and reports of one person are not linked by equal bytes. After s reports of one permanent
answer the loss is at most log((1 + e^{ε + sε₁})/(e^ε + e^{sε₁})), which is below ε for every s: an
observer who averages them for years learns the permanent answer and nothing more.

Permanent answers *per value* (RAPPOR, LOLOHA and others) make no such promise: equal answers show
that the value is the same, and an observer of many reports sees every change. No mechanism that
holds one answer per value has a finite ε∞ over all sequences (docs/proofs.md §23).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.privacy.guarantee import Guarantee, exact, exact_epsilon
from offaxis.privacy.shuffling import Blanket
from offaxis.randomizers.base import (
    CHOOSE,
    Ball,
    Sphere,
    VectorParameters,
    check_budget,
    opposite_poles,
)
from offaxis.randomizers.privunit import LARGEST_EPSILON, PrivUnit2
from offaxis.randomizers.symbols import KaryResponse, Symbols
from offaxis.sampling.entropy import RealEntropy
from offaxis.vectors import Order, Vectors, as_integer, row_dots, row_norms

AGE_BYTES: Final = 2
OLDEST: Final = (1 << 16) - 1
"""Ages above it are reported as this one."""

MOST_DRAWS: Final = 1_000
LONGEST_PERIOD: Final = OLDEST
MOST_ROUNDS: Final = 2**53
"""The largest number of a round, as in signed rounds."""

Held = list[bytes]
"""Permanent answers, one per person: payloads of the first layer."""


class Memoised(ABC):
    """What all memoised randomizers share: the schedule, its promises and the age of an answer.

    A payload is the age of the permanent answer, in rounds, as two bytes, and then the payload of
    the instantaneous layer. The age is public: it does not depend on any vector.

    Attributes
    ----------
    epsilon : Fraction
        ε of one permanent answer.
    instant : Fraction
        ε₁ of the instantaneous layer.
    draws : int
        R: the most permanent answers that one person ever draws. 0 stands for no limit; then the
        promise is per window of time.
    period : int
        Rounds between two draws. Only the second draw may come earlier, after half of it.
    """

    epsilon: Fraction
    instant: Fraction
    draws: int
    period: int

    def _check_schedule(self) -> None:
        if exact(self.instant, "instant") <= 0:
            raise InvalidInput(f"instant must be positive, got instant={self.instant!r}")
        object.__setattr__(self, "instant", exact_epsilon(self.instant))
        check_budget(self.instant, LARGEST_EPSILON, "the instantaneous layer")
        draws = as_integer(self.draws, "draws", 0, MOST_DRAWS)
        object.__setattr__(self, "draws", draws)
        object.__setattr__(self, "period", as_integer(self.period, "period", 1, LONGEST_PERIOD))

    @property
    def guarantee(self) -> Guarantee:
        """R·ε for the whole sequence of a person; without a limit on draws, ε for each draw."""
        return Guarantee(self.epsilon * max(1, self.draws))

    @property
    def blanket(self) -> Blanket | None:
        """None: ages and repeated answers tell shuffled reports of a person from others."""
        return None

    @property
    def first_wait(self) -> int:
        """The fewest rounds between two draws of a person: half a period, after the first draw."""
        return (self.period + 1) // 2

    def draws_within(self, rounds: int) -> int:
        """Return the most permanent answers that a person draws in so many consecutive rounds.

        The second draw follows the first after half a period at least, later ones keep the period.
        """
        beyond = rounds - 1 - self.first_wait
        most = 1 if beyond < 0 else 2 + beyond // self.period
        return min(self.draws, most) if self.draws else most

    def loss_after(self, reports: int) -> float:
        """Return the largest loss of so many reports of one permanent answer, rounded up."""
        epsilon, repeated = float(self.epsilon), reports * float(self.instant)
        # (e^ε − 1)(e^{sε₁} − 1)/(e^ε + e^{sε₁}), which neither cancels nor overflows.
        odds = math.expm1(epsilon) * -math.expm1(-repeated) / (1 + math.exp(epsilon - repeated))
        return min(math.log1p(odds) * (1 + 1e-14), epsilon)

    @property
    def single_report_epsilon(self) -> Fraction:
        """``loss_after(1)``, as a budget that is not below it; the smallest budget is 1e-9."""
        loss = Fraction(self.loss_after(1)).limit_denominator(10**12) + Fraction(1, 10**12)
        return exact_epsilon(min(max(loss, Fraction(1, 10**9)), self.epsilon))

    @abstractmethod
    def hold(self, W: NDArray[Any], entropy: RealEntropy) -> Held:
        """Draw one permanent answer per row of W. The caller keeps it and shows it to nobody."""

    @abstractmethod
    def _shown(self, held: Held, entropy: RealEntropy) -> list[bytes]:
        """Draw one report of each permanent answer, without the age."""

    def show(self, held: Held, ages: list[int], entropy: RealEntropy) -> list[bytes]:
        """Draw one payload of each permanent answer, with its age in rounds."""
        shown = self._shown(held, entropy)
        return [
            min(age, OLDEST).to_bytes(AGE_BYTES, "little") + payload
            for age, payload in zip(ages, shown, strict=True)
        ]

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return the first report of a new sequence per row of W.

        A device continues a sequence with :meth:`show`: a second call would draw a second permanent
        answer.
        """
        held = self.hold(W, entropy)
        return self.show(held, [0] * len(held), entropy)

    def ages(self, payloads: list[bytes]) -> NDArray[np.int64]:
        """Return the age of the permanent answer behind every payload, in rounds."""
        heads = b"".join(payload[:AGE_BYTES] for payload in payloads)
        return np.frombuffer(heads, dtype="<u2").astype(np.int64)

    def _split(self, payloads: list[bytes], size: int, kind: str) -> list[bytes]:
        """Return the payloads of the instantaneous layer; any other length is an error."""
        if any(len(payload) != size for payload in payloads):
            raise InvalidReport(f"a {kind} payload has {size} bytes")
        return [payload[AGE_BYTES:] for payload in payloads]


# ---- Symbols


@dataclass(frozen=True)
class MemoisedResponse(Memoised, KaryResponse):
    """A memoised sequence of symbols: k-ary response to k-ary response.

    One report has the law of k-ary response with odds (e^{ε+ε₁} + k − 1)/(e^ε + e^{ε₁} + k − 2), so
    shares of symbols are estimated as for any release of symbols: shares of the symbols that people
    had when they drew.

    Parameters
    ----------
    size : int
        k, at least 2.
    epsilon, instant, draws, period
        As in :class:`Memoised`.

    Examples
    --------
    >>> from offaxis.randomizers import MemoisedResponse
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = MemoisedResponse(size=4, epsilon=2, instant=2, draws=4, period=90)
    >>> str(randomizer.guarantee), round(randomizer.loss_after(1), 2)
    ('ε = 8, pure', 1.33)
    >>> held = randomizer.hold(np.array([3]), Entropy())  # kept on the device
    >>> year = [randomizer.show(held, [day], Entropy())[0] for day in range(90)]
    >>> randomizer.read(year).shape, int(randomizer.ages(year)[-1])
    ((90, 4), 89)
    """

    instant: Fraction
    draws: int
    period: int

    kind: ClassVar[str] = "memoised-response"
    wire_id: ClassVar[int] = 12

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        super().__post_init__()
        self._check_schedule()

    @cached_property
    def layers(self) -> tuple[KaryResponse, KaryResponse]:
        """The permanent and the instantaneous layer."""
        return KaryResponse(self.size, self.epsilon), KaryResponse(self.size, self.instant)

    @cached_property
    def strength(self) -> float:
        """The logarithm of the odds of the input symbol in one report, without cancellation."""
        first, second = float(self.epsilon), float(self.instant)
        others = math.exp(first) + math.exp(second) + self.size - 2
        return math.log1p(math.expm1(first) * math.expm1(second) / others)

    @property
    def payload_size(self) -> int:
        """The age and one symbol."""
        return AGE_BYTES + super().payload_size

    def hold(self, W: NDArray[Any], entropy: RealEntropy) -> Held:
        """Draw one permanent symbol per symbol of W."""
        return self.layers[0].report(W, entropy)

    def _shown(self, held: Held, entropy: RealEntropy) -> list[bytes]:
        permanent, instant = self.layers
        return instant.report(permanent.reported_symbols(held), entropy)

    def reported_symbols(self, payloads: list[bytes]) -> Symbols:
        """Read payloads strictly: the right length, and a symbol that exists."""
        return self.layers[1].reported_symbols(self._split(payloads, self.payload_size, self.kind))


# ---- Directions

_GRID: Final = 257
_ALONG: Final = 400
_AROUND: Final = 48


@dataclass(frozen=True)
class MemoisedPrivUnit2(Memoised, VectorParameters):
    """A memoised sequence of directions: PrivUnit2 of the direction that PrivUnit2 named.

    The mean of a report is A·A₁ times that of the input direction, with A and A₁ those of the
    layers; observations are scaled by its inverse and so are unbiased, as for PrivUnit2.

    Parameters
    ----------
    dim, radius : int, float
        As in PrivUnit2.
    epsilon, instant, draws, period
        As in :class:`Memoised`.
    target : {"direction", "vector"}
        As in PrivUnit2: "vector" is for means.
    directions, near, instant_directions, instant_near : int, optional
        Numbers of directions of the layers, and of near ones; chosen by default.

    Examples
    --------
    >>> from offaxis.randomizers import MemoisedPrivUnit2
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = MemoisedPrivUnit2(
    ...     dim=3, radius=1.0, epsilon=4, instant=2, draws=2, period=30, target="vector"
    ... )
    >>> str(randomizer.guarantee), randomizer.payload_size
    ('ε = 8, pure', 18)
    >>> held = randomizer.hold(np.eye(3)[:1], Entropy())
    >>> randomizer.read(randomizer.show(held, [7], Entropy())).shape
    (1, 3)
    """

    instant: Fraction
    draws: int
    period: int
    directions: int = CHOOSE
    near: int = CHOOSE
    instant_directions: int = CHOOSE
    instant_near: int = CHOOSE
    target: Literal["direction", "vector"] = "direction"

    kind: ClassVar[str] = "memoised-privunit2"
    wire_id: ClassVar[int] = 13
    order: ClassVar[Order] = 2

    def __post_init__(self) -> None:
        """Read the parameters exactly and fix the numbers of directions."""
        super().__post_init__()
        self._check_schedule()
        permanent, instant = self.layers
        object.__setattr__(self, "directions", permanent.directions)
        object.__setattr__(self, "near", permanent.near)
        object.__setattr__(self, "instant_directions", instant.directions)
        object.__setattr__(self, "instant_near", instant.near)

    @cached_property
    def layers(self) -> tuple[PrivUnit2, PrivUnit2]:
        """The permanent and the instantaneous layer."""
        permanent = PrivUnit2(
            self.dim, self.radius, self.epsilon, self.directions, self.near, self.target
        )
        return permanent, PrivUnit2(
            self.dim, 1.0, self.instant, self.instant_directions, self.instant_near
        )

    @property
    def mean(self) -> float:
        """The expected component of the reported direction along the input."""
        return self.layers[0].mean * self.layers[1].mean

    @property
    def domain(self) -> Sphere | Ball:
        """The sphere of directions, or the ball when the vector is the target."""
        return self.layers[0].domain

    @property
    def unbiased(self) -> bool:
        """Whether the vector is the target; a direction is unbiased for ρ·w/‖w‖, not for w."""
        return self.layers[0].unbiased

    @property
    def resolution(self) -> float:
        """That of the first layer, and that of the second scaled up to the length ρ/A."""
        first, second = self.layers
        return first.resolution + second.resolution * self.radius / first.mean

    @property
    def rare(self) -> tuple[float, float] | None:
        """As for PrivUnit2: the rarer of the two layers, and the length of an observation."""
        rare = [layer.rare for layer in self.layers]
        chances = [part[0] for part in rare if part is not None]
        return (min(chances), self.radius / self.mean) if chances else None

    @property
    def payload_size(self) -> int:
        """The age, a nonce and an index."""
        return AGE_BYTES + self.layers[1].payload_size

    def hold(self, W: NDArray[Any], entropy: RealEntropy) -> Held:
        """Draw one permanent direction per row of W: its nonce and its index."""
        return self.layers[0].report(W, entropy)

    def _shown(self, held: Held, entropy: RealEntropy) -> list[bytes]:
        permanent, instant = self.layers
        return instant.report(permanent.named_directions(held), entropy)

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the reported directions, scaled to be unbiased for the target."""
        directions = self.layers[1].read(self._split(payloads, self.payload_size, self.kind))
        return directions * (self.radius / self.layers[0].mean)

    def expected_squared_error(self) -> float:
        """Return ρ² (1/(A A₁)² − 1); as target, a vector inside the ball adds ρ² − ‖w‖²."""
        return float(self.radius**2 * (1 / self.mean**2 - 1))

    def worst_pair(self) -> tuple[Vectors, Vectors]:
        """Return opposite poles, as for PrivUnit2."""
        return opposite_poles(self.dim, self.radius)

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return the log density of what is read; the nonce tells next to nothing more."""
        return self.log_density(self.read(payloads), W)

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return the log density of the observation given w, up to a constant, by quadrature."""
        permanent = self.layers[0]
        units = Sphere(self.dim, 1.0).directions(np.asarray(W, dtype=np.float64))
        cosine = np.clip(row_dots(V, units) / row_norms(V, 2), -1.0, 1.0)
        grid, density = _composed(self)
        towards = np.interp(cosine, grid, density)
        if self.target == "vector":
            share = np.clip(row_norms(W, 2) / permanent.radius, 0.0, 1.0)
            away = np.interp(-cosine, grid, density)
            towards = (1 + share) / 2 * towards + (1 - share) / 2 * away
        # Over all nonces the directions near a zero vector are uniform, and so is the report.
        return np.where(units.any(axis=1), np.log(towards), 0.0)


@lru_cache(maxsize=16)
def _composed(randomizer: MemoisedPrivUnit2) -> tuple[Vectors, Vectors]:
    """Return a grid of ⟨V, u⟩ and the density there against the uniform law, both layers composed.

    f(t) = E g₁(ts + √(1−t²)√(1−s²) c) g(s), with s and c coordinates of uniform unit vectors of
    R^dim and R^{dim−1}, and g, g₁ the densities of the layers, by averages over quantiles.
    """
    grid = np.linspace(-1.0, 1.0, _GRID)
    permanent, instant = randomizer.layers
    if randomizer.dim == 1:
        along, around = np.array([-1.0, 1.0]), np.zeros(1)
    else:
        along = _coordinates(randomizer.dim, _ALONG)
        around = (
            np.array([-1.0, 1.0])
            if randomizer.dim == 2
            else _coordinates(randomizer.dim - 1, _AROUND)
        )
    first = _density(permanent, along)
    sines = np.sqrt((1 - grid * grid)[:, None] * (1 - along * along))
    mean = np.zeros((_GRID, along.size))
    for c in around:
        cosine = np.clip(grid[:, None] * along + sines * c, -1.0, 1.0)
        mean += _density(instant, cosine.ravel()).reshape(cosine.shape) / around.size
    return grid, instant.ranks.background * (mean @ first) / first.sum()


def mean_squares(layer: PrivUnit2) -> tuple[float, float]:
    """Return the mean square of a component of the direction: across its input, and along it.

    By averages over quantiles. E[gg^T | u] is the first times the identity, plus their difference
    times uu^T.
    """
    if layer.dim == 1:
        return 1.0, 1.0
    along = _coordinates(layer.dim, _ALONG)
    density = _density(layer, along)
    square = float(density @ (along * along) / density.sum())
    return (1 - square) / (layer.dim - 1), square


def _density(layer: PrivUnit2, cosine: Vectors) -> Vectors:
    """Return the density of a layer's direction at cosines with its input, up to a constant."""
    density: Vectors = np.exp(layer.ranks.log_density(layer._tail(np.abs(cosine)), cosine > 0))
    return density


def _coordinates(dim: int, count: int) -> Vectors:
    """Return quantiles of a coordinate of a uniform unit vector."""
    shape = (dim - 1) / 2
    coordinates: Vectors = 2 * betaincinv(shape, shape, (np.arange(count) + 0.5) / count) - 1
    return coordinates
