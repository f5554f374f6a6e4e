"""Noisy lattice points on the wire, three or four bytes a coordinate (docs/report-format.md)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.privacy.guarantee import Guarantee, decimal
from offaxis.randomizers.base import (
    CHOOSE,
    Ball,
    Randomizer,
    VectorParameters,
    checked,
    onto_lattice,
    opposite_poles,
)
from offaxis.sampling.entropy import RealEntropy
from offaxis.sampling.laplace import DiscreteLaplace
from offaxis.sampling.spherical import RoundedSpherical
from offaxis.vectors import Vectors, as_integer, row_norms

Width = Literal[3, 4]
"""Bytes a coordinate."""


def largest_magnitude(width: Width) -> int:
    """Return the largest magnitude that a width carries."""
    return (1 << (8 * width - 1)) - 1


def pack(values: NDArray[np.integer[Any]], width: Width = 3) -> list[bytes]:
    """Clamp and write each coordinate as offset binary, low byte first."""
    largest = largest_magnitude(width)
    offset = np.clip(values, -largest, largest).astype(np.int64) + (largest + 1)
    # In rows: what follows reads the bytes in memory order.
    octets = np.ascontiguousarray(offset, dtype="<u4").view(np.uint8)
    blob = octets.reshape(*values.shape, 4)[..., :width].tobytes()
    size = values.shape[1] * width
    return [blob[i : i + size] for i in range(0, len(blob), size)]


def unpack(payloads: list[bytes], dim: int, width: Width = 3) -> NDArray[np.int64]:
    """Undo :func:`pack`; a length or a value that pack never writes is an error."""
    size = dim * width
    if any(len(payload) != size for payload in payloads):
        raise InvalidReport(f"a payload of {dim} coordinates has {size} bytes")
    octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(-1, dim, width)
    padded = np.zeros((*octets.shape[:2], 4), dtype=np.uint8)
    padded[..., :width] = octets
    largest = largest_magnitude(width)
    values = padded.view("<u4")[..., 0].astype(np.int64) - (largest + 1)
    if values.size and values.min() < -largest:
        raise InvalidReport("a payload holds a value that no client writes")
    return values


# ----------------------------------------------------------------------------
# Noise on a lattice: what the additive randomizers share.
#
# The ball is laid on integers (lattice.py), integer noise that was drawn before the input was
# clipped is added, the sum is clamped to what the payload carries (payload.py). What a subclass
# adds is the law of the noise and the argument that it keeps the promise for points at most twice
# the bound apart.


@dataclass(frozen=True)
class LatticeForm(VectorParameters):
    """Additive noise on the lattice of a ball; see the subclasses for the parameters."""

    @property
    @abstractmethod
    def bound(self) -> int:
        """R: the radius of the encoded ball, in lattice steps."""

    @property
    @abstractmethod
    def noise_steps(self) -> int:
        """The scale of the noise, in lattice steps."""

    @property
    @abstractmethod
    def width(self) -> Width:
        """Bytes a coordinate: three, or four where three would make the lattice too coarse."""

    @property
    @abstractmethod
    def domain(self) -> Ball:
        """The ball whose points are encoded."""

    @abstractmethod
    def noise(self, count: int, entropy: RealEntropy) -> NDArray[np.int64]:
        """Draw the noise of ``count`` coordinates, exactly."""

    @property
    def step(self) -> float:
        """g: the length of one lattice step."""
        return self.radius / self.bound

    @property
    def scale(self) -> float:
        """The scale of the noise in the units of the input."""
        return self.step * self.noise_steps

    @property
    def unbiased(self) -> bool:
        """True: the noise has mean zero (truncation to the lattice moves less than one step)."""
        return True

    @property
    def payload_size(self) -> int:
        """``width`` bytes a coordinate."""
        return self.width * self.dim

    def noise_each(self, count: int, sources: Sequence[RealEntropy]) -> NDArray[np.int64]:
        """Draw a row of noise from every source: what ``noise`` would draw from it alone."""
        return np.stack([self.noise(count, entropy) for entropy in sources])

    def report_each(self, W: Vectors, sources: Sequence[RealEntropy]) -> list[bytes]:
        """Return what ``report`` would of every row of W alone, each from its own source."""
        W = checked(W, self.dim, *sources)
        noise = self.noise_each(self.dim, sources)
        if noise.shape != W.shape:
            raise ValueError(f"{len(W)} rows need as many sources, got {len(sources)}")
        with np.errstate(all="ignore"):
            return pack(self.integers(W) + noise, self.width)

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload a row of W."""
        W = checked(W, self.dim, entropy)
        # The noise is drawn from the entropy alone, before the input is clipped.
        noise = self.noise(W.size, entropy).reshape(W.shape)
        with np.errstate(all="ignore"):
            return pack(self.integers(W) + noise, self.width)

    def integers(self, W: Vectors) -> NDArray[np.int64]:
        """Return what the noise is added to: lattice points inside the bound, checked."""
        return onto_lattice(W, self.domain, self.bound)

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the noisy lattice points, in the units of the input."""
        return unpack(payloads, self.dim, self.width).astype(np.float64) * self.step

    def gaps(self, payloads: list[bytes], W: Vectors) -> Vectors:
        """Return (y − n) in noise scales: the noise that each payload would stand for, given W."""
        y = unpack(payloads, self.dim, self.width)
        gap: Vectors = (y - self.integers(W)) / float(self.noise_steps)
        return gap

    def worst_pair(self) -> tuple[Vectors, Vectors]:
        """Return two opposite poles of the ball."""
        return opposite_poles(self.dim, self.radius)


# ----------------------------------------------------------------------------
# Reports of many records, each from its own source of randomness.


def report_records(
    randomizer: Randomizer, W: NDArray[Any], sources: Sequence[RealEntropy]
) -> list[bytes]:
    """Return the payload of every row, as ``report`` would draw it of that row alone."""
    if isinstance(randomizer, LatticeForm):
        return randomizer.report_each(W, sources)
    rows = (W[at : at + 1] for at in range(len(W)))
    return [randomizer.report(row, source)[0] for row, source in zip(rows, sources, strict=True)]


# ----------------------------------------------------------------------------
# Pure noise on a lattice: what Laplace noise on the ℓ1 and on the ℓ2 ball share.
#
# Contract: for every two inputs and every report y,
# ``Pr[report = y | w] <= exp(ε) Pr[report = y | w']``.
#
# With t = 2**b a public noise scale and R = floor(ε t / 2), the ball of radius ρ is laid on the
# lattice of step ρ / R (lattice_form.py). Two inputs differ by at most 2R in the ball's norm, and
# the law of the noise falls by at most e^{‖k‖/t} over a distance ‖k‖ in that norm: the loss is at
# most 2R / t <= ε, as an exact rational. Rounding costs no sensitivity because in the local model
# the sensitivity is the diameter of the encoded set.

_FINE: Final = 32
"""Steps a coordinate that the bound should leave on average: truncation then costs a percent."""


@dataclass(frozen=True)
class PureLatticeForm(LatticeForm):
    """Noise of scale 2**log2_scale on the lattice of a ball of ``radius`` in R^dim.

    Parameters
    ----------
    dim : int
    radius : float
        ρ; inputs outside the ball are clipped onto it.
    epsilon : number
        Promised ε, read exactly.
    log2_scale : int, optional
        b of the lattice; chosen from epsilon and dim when not given.
    """

    order: ClassVar[Literal[1, 2]]

    log2_scale: int = CHOOSE

    def __post_init__(self) -> None:
        """Fix the lattice and check, exactly, that it keeps the promise."""
        super().__post_init__()
        if self.log2_scale == CHOOSE:
            object.__setattr__(self, "log2_scale", self._choose_log2_scale())
        scale = as_integer(self.log2_scale, "log2_scale", 0, self.widest_log2_scale(4))
        object.__setattr__(self, "log2_scale", scale)
        if self.bound < 1:
            raise InvalidInput(
                f"log2_scale={scale} leaves the ball no lattice point but zero at "
                f"epsilon={decimal(self.epsilon)}; use a larger log2_scale or epsilon"
            )
        if self.realised_epsilon > self.epsilon:
            raise InvalidInput(f"the lattice gives ε={self.realised_epsilon} > {self.epsilon}")

    @property
    @abstractmethod
    def tail(self) -> int:
        """Noise scales to keep free above the bound: clamping a coordinate is rarer than e**-43."""

    def widest_log2_scale(self, width: Width) -> int:
        """Return the largest b with bound and tails inside the payload, and a bound to be checked.

        (ε/2 + tail) 2**b <= largest, and for the ℓ2 ball m·R² <= m·(ε/2)² 4**b below 2**63.
        """
        room = math.floor(largest_magnitude(width) / (self.epsilon / 2 + self.tail))
        if self.order == 2:
            checkable = math.floor(math.isqrt(((1 << 63) - 1) // self.dim) / (self.epsilon / 2))
            room = min(room, checkable)
        return room.bit_length() - 1

    def _choose_log2_scale(self) -> int:
        """Return the b of three bytes a coordinate, or of four where three are too coarse."""
        narrow = self.widest_log2_scale(3)
        if (self.epsilon * (1 << narrow) / 2) ** self.order >= _FINE**self.order * self.dim:
            return narrow
        return self.widest_log2_scale(4)

    @cached_property
    def bound(self) -> int:
        """R: the largest norm of an encoded vector, in lattice steps."""
        return math.floor(self.epsilon * self.noise_steps / 2)

    @property
    def noise_steps(self) -> int:
        """The scale t of the noise: its law falls by e every t steps."""
        return 1 << self.log2_scale

    @cached_property
    def width(self) -> Width:
        """Three bytes a coordinate where bound and tails fit, four otherwise."""
        return 3 if self.log2_scale <= self.widest_log2_scale(3) else 4

    @property
    def realised_epsilon(self) -> Fraction:
        """2R/t: the exact privacy loss of the integer mechanism, at most ``epsilon``."""
        return Fraction(2 * self.bound, self.noise_steps)

    @property
    def domain(self) -> Ball:
        """The ball."""
        return Ball(self.dim, self.radius, self.order)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)


# ----------------------------------------------------------------------------
# Laplace noise on the ℓ1 ball: pure ε.
#
# The exact form works on integers (pure_lattice_form.py): the input is clipped, truncated toward
# zero to integers n with Σ|n_i| <= R (checked in integers), and every coordinate gets independent
# discrete Laplace noise of scale t, whose law falls by e^{Σ|k_i|/t} over a step k.

_TAIL: Final = 44

_sampler = lru_cache(maxsize=32)(DiscreteLaplace)


@dataclass(frozen=True)
class Laplace(PureLatticeForm):
    """Laplace randomizer on the ℓ1 ball of ``radius`` in R^dim.

    Examples
    --------
    >>> from offaxis.randomizers import Laplace
    >>> randomizer = Laplace(dim=64, radius=1.0, epsilon=5)
    >>> randomizer.scale, randomizer.realised_epsilon  # b = 2ρ/ε, and what is really spent
    (0.4, Fraction(5, 1))
    >>> round(randomizer.expected_squared_error(), 2)  # 64 · 2b²
    20.48
    """

    kind: ClassVar[str] = "laplace"
    wire_id: ClassVar[int] = 1
    order: ClassVar[Literal[1, 2]] = 1

    @property
    def tail(self) -> int:
        """Noise scales that one coordinate exceeds with probability e**-44."""
        return _TAIL

    def noise(self, count: int, entropy: RealEntropy) -> NDArray[np.int64]:
        """Draw discrete Laplace noise."""
        return _sampler(self.log2_scale, 8 * self.width).draw(count, entropy)

    def noise_each(self, count: int, sources: Sequence[RealEntropy]) -> NDArray[np.int64]:
        """Draw discrete Laplace noise, a row from every source."""
        return _sampler(self.log2_scale, 8 * self.width).draw_each(count, sources)

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return −‖v − clip(w)‖₁ / b, the log density up to a constant independent of w."""
        return -row_norms(V - self.domain.project(W), 1) / self.scale

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return −‖y − n‖₁ / t of the integers y on the wire."""
        return -row_norms(self.gaps(payloads, W), 1)

    def expected_squared_error(self) -> float:
        """Return dim times the variance of the discrete Laplace law, in the input's units."""
        return self.dim * self.step**2 / (2 * math.sinh(0.5 / self.noise_steps) ** 2)


# ----------------------------------------------------------------------------
# Spherical Laplace noise on the ℓ2 ball: pure ε, the same in every direction.
#
# The exact form works on integers (pure_lattice_form.py): the input is clipped, truncated toward
# zero to integers n with Σn_i² <= R² (checked in integers), and gets noise round(X), X in R^m with
# a density proportional to exp(−‖x‖₂ / t), which by the triangle inequality falls by at most
# e^{‖k‖₂/t} over a step k. Because n is an integer, n + round(X) = round(n + X): the report is a
# function of n + X and loses no more.
#
# This is the K-norm mechanism (Hardt and Talwar 2010) of the ℓ2 ball. Its noise is m·t long on
# average; that of Laplace on the ℓ1 ball around the same vectors, of radius √m·ρ, √2 times as long.


@dataclass(frozen=True)
class SphericalLaplace(PureLatticeForm):
    """Spherical Laplace randomizer on the ℓ2 ball of ``radius`` in R^dim.

    Examples
    --------
    >>> from offaxis.randomizers import SphericalLaplace
    >>> randomizer = SphericalLaplace(dim=64, radius=1.0, epsilon=5)
    >>> str(randomizer.guarantee), round(randomizer.expected_squared_error())  # m(m + 1)(2ρ/ε)²
    ('ε = 5, pure', 666)
    """

    kind: ClassVar[str] = "spherical-laplace"
    wire_id: ClassVar[int] = 8
    order: ClassVar[Literal[1, 2]] = 2

    @property
    def tail(self) -> int:
        """Noise scales that one coordinate exceeds with probability 2 e**-44 at most.

        y + √(2(m + 1)y) with y = 44: E exp(λ X_1/t) = (1 − λ²)^{−(m+1)/2}, a sub-gamma law.
        """
        return _TAIL + math.isqrt(2 * (self.dim + 1) * _TAIL) + 1

    def noise(self, count: int, entropy: RealEntropy) -> NDArray[np.int64]:
        """Draw rounded spherical Laplace noise, whole vectors of it."""
        rows, rest = divmod(count, self.dim)
        if rest:
            raise ValueError(f"noise comes in vectors of {self.dim}, got count={count}")
        return RoundedSpherical(self.dim, self.log2_scale).draw(rows, entropy).reshape(-1)

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return −‖v − clip(w)‖₂ / scale, the log density up to a constant independent of w."""
        return -row_norms(V - self.domain.project(W), 2) / self.scale

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return −‖y − n‖₂ / t of the integers y on the wire.

        The density at the middle of y's cell instead of its mass over it: a cell is a tiny part of
        a noise scale wide, and clamped payloads are rarer than e**-40.
        """
        return -row_norms(self.gaps(payloads, W), 2)

    def expected_squared_error(self) -> float:
        """Return m(m + 1) scale² + m step²/12: the noise, and what rounding it adds."""
        return self.dim * ((self.dim + 1) * self.scale**2 + self.step**2 / 12)
