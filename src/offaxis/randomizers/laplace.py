"""Additive noise on a lattice: Laplace on the ℓ1 ball and spherical Laplace on the ℓ2 ball.

The ball is mapped to integers (:func:`onto_lattice`), integer noise that
was drawn before the input was clipped is added, and the sum is clamped to the range of the payload.
A subclass of :class:`LatticeForm` adds the law of the noise and the argument that it keeps the
guarantee for lattice points at most twice the bound apart.
"""

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
    checked_copy,
    onto_lattice,
    opposite_poles,
)
from offaxis.sampling.entropy import RealEntropy
from offaxis.sampling.laplace import DiscreteLaplace
from offaxis.sampling.spherical import RoundedSpherical
from offaxis.vectors import Vectors, as_integer, row_norms

Width = Literal[3, 4]
"""Bytes per coordinate."""


@dataclass(frozen=True)
class LatticeForm(VectorParameters):
    """Additive noise on the lattice of a ball; the subclasses document the parameters."""

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
        """Bytes per coordinate: three, or four where three would make the lattice too coarse."""

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
    def resolution(self) -> float:
        """One lattice step."""
        return self.step

    @property
    def payload_size(self) -> int:
        """``width`` bytes per coordinate."""
        return self.width * self.dim

    def noise_each(self, count: int, sources: Sequence[RealEntropy]) -> NDArray[np.int64]:
        """Draw one row of noise per source, as ``noise`` would draw it from that source alone."""
        return np.stack([self.noise(count, entropy) for entropy in sources])

    def report_each(self, W: Vectors, sources: Sequence[RealEntropy]) -> list[bytes]:
        """Return the report of every row of W, drawn from its source as by ``report``."""
        W = checked_copy(W, self.dim, *sources)
        noise = self.noise_each(self.dim, sources)
        if noise.shape != W.shape:
            raise ValueError(f"{len(W)} rows need as many sources, got {len(sources)}")
        with np.errstate(all="ignore"):
            return pack(self.integers(W) + noise, self.width)

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per row of W."""
        W = checked_copy(W, self.dim, entropy)
        # The noise is drawn from the entropy alone, before the input is clipped.
        noise = self.noise(W.size, entropy).reshape(W.shape)
        with np.errstate(all="ignore"):
            return pack(self.integers(W) + noise, self.width)

    def integers(self, W: Vectors) -> NDArray[np.int64]:
        """Return the lattice points that the noise is added to, checked to be inside the bound."""
        return onto_lattice(W, self.domain, self.bound)

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the noisy lattice points, in the units of the input."""
        return unpack(payloads, self.dim, self.width).astype(np.float64) * self.step

    def gaps(self, payloads: list[bytes], W: Vectors) -> Vectors:
        """Return (y − n) in noise scales: the noise of each payload y, given the input W."""
        y = unpack(payloads, self.dim, self.width)
        gap: Vectors = (y - self.integers(W)) / float(self.noise_steps)
        return gap

    def worst_pair(self) -> tuple[Vectors, Vectors]:
        """Return two opposite poles of the ball."""
        return opposite_poles(self.dim, self.radius)


# ---- Pure noise: Laplace and spherical Laplace

_FINE: Final = 32
"""Average steps per coordinate that the bound should allow: truncation then costs a percent."""


@dataclass(frozen=True)
class PureLatticeForm(LatticeForm):
    """Pure noise of scale 2**log2_scale on the lattice of a ball of ``radius`` in R^dim.

    Contract: for every two inputs and every report y,
    ``Pr[report = y | w] <= exp(ε) Pr[report = y | w']``.

    With t = 2**b a public noise scale and R = floor(ε t / 2), the ball of radius ρ is mapped to the
    lattice of step ρ / R. Two inputs differ by at most 2R in the ball's norm, and the law of the
    noise falls by at most e^{‖k‖/t} over a distance ‖k‖ in that norm: the loss is at most
    2R / t <= ε, as an exact rational. Rounding costs no sensitivity because in the local model the
    sensitivity is the diameter of the encoded set.

    Parameters
    ----------
    dim : int
    radius : float
        ρ; inputs outside the ball are clipped onto it.
    epsilon : number
        The guaranteed ε, read exactly.
    log2_scale : int, optional
        b of the lattice; by default chosen from epsilon and dim.
    """

    order: ClassVar[Literal[1, 2]]

    log2_scale: int = CHOOSE

    def __post_init__(self) -> None:
        """Fix the lattice and check, exactly, that it keeps the guarantee."""
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
        """Noise scales reserved above the bound: clamping a coordinate is rarer than e**-43."""

    def widest_log2_scale(self, width: Width) -> int:
        """Return the largest b with a checkable bound whose bound and tails fit the payload.

        (ε/2 + tail) 2**b <= largest, and for the ℓ2 ball m·R² <= m·(ε/2)² 4**b below 2**63.
        """
        widest = math.floor(largest_magnitude(width) / (self.epsilon / 2 + self.tail))
        if self.order == 2:
            checkable = math.floor(math.isqrt(((1 << 63) - 1) // self.dim) / (self.epsilon / 2))
            widest = min(widest, checkable)
        return widest.bit_length() - 1

    def _choose_log2_scale(self) -> int:
        """Return the b of three bytes per coordinate, or of four where three are too coarse."""
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
        """Three bytes per coordinate where bound and tails fit, four otherwise."""
        return 3 if self.log2_scale <= self.widest_log2_scale(3) else 4

    @property
    def realised_epsilon(self) -> Fraction:
        """2R/t: the exact privacy loss of the integer mechanism, at most ``epsilon``."""
        return Fraction(2 * self.bound, self.noise_steps)

    @property
    def domain(self) -> Ball:
        """The ball of ``radius``."""
        return Ball(self.dim, self.radius, self.order)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)


_TAIL: Final = 44
"""Noise scales that a discrete Laplace variable exceeds with probability e**-44."""

_sampler = lru_cache(maxsize=32)(DiscreteLaplace)


@dataclass(frozen=True)
class Laplace(PureLatticeForm):
    """Laplace randomizer on the ℓ1 ball of ``radius`` in R^dim: pure ε.

    The input is clipped and truncated toward zero to integers n with Σ|n_i| <= R (checked in
    integers). Every coordinate gets independent discrete Laplace noise of scale t, whose law falls
    by e^{Σ|k_i|/t} over a step k.

    Examples
    --------
    >>> from offaxis.randomizers import Laplace
    >>> randomizer = Laplace(dim=64, radius=1.0, epsilon=5)
    >>> randomizer.scale, randomizer.realised_epsilon  # b = 2ρ/ε, and the exact loss
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
        """Draw discrete Laplace noise, one row per source."""
        return _sampler(self.log2_scale, 8 * self.width).draw_each(count, sources)

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return −‖v − clip(w)‖₁ / b, the log density up to a constant independent of w."""
        return -row_norms(V - self.domain.project(W), 1) / self.scale

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return −‖y − n‖₁ / t of the integers y on the wire."""
        return -row_norms(self.gaps(payloads, W), 1)

    def expected_squared_error(self) -> float:
        """Return dim times the variance of the discrete Laplace law, in the units of the input."""
        return self.dim * self.step**2 / (2 * math.sinh(0.5 / self.noise_steps) ** 2)


@dataclass(frozen=True)
class SphericalLaplace(PureLatticeForm):
    """Spherical Laplace randomizer on the ℓ2 ball of ``radius`` in R^dim: pure ε.

    The input is clipped and truncated toward zero to integers n with Σn_i² <= R² (checked in
    integers). It gets noise round(X), X in R^m with a density proportional to exp(−‖x‖₂ / t), which
    by the triangle inequality falls by at most e^{‖k‖₂/t} over a step k. Because n is an integer,
    n + round(X) = round(n + X): the report is a function of n + X and loses no more.

    This is the K-norm mechanism (Hardt and Talwar 2010) of the ℓ2 ball, with the same noise in
    every direction. Its noise has length m·t on average; that of Laplace on the ℓ1 ball around the
    same vectors, of radius √m·ρ, is √2 times as long.

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
        """Noise scales that one coordinate exceeds with probability at most 2 e**-44.

        y + √(2(m + 1)y) with y = 44: E exp(λ X_1/t) = (1 − λ²)^{−(m+1)/2}, a sub-gamma law.
        """
        return _TAIL + math.isqrt(2 * (self.dim + 1) * _TAIL) + 1

    def noise(self, count: int, entropy: RealEntropy) -> NDArray[np.int64]:
        """Draw rounded spherical Laplace noise, in whole vectors."""
        rows, rest = divmod(count, self.dim)
        if rest:
            raise ValueError(f"noise comes in vectors of {self.dim}, got count={count}")
        return RoundedSpherical(self.dim, self.log2_scale).draw(rows, entropy).reshape(-1)

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return −‖v − clip(w)‖₂ / scale, the log density up to a constant independent of w."""
        return -row_norms(V - self.domain.project(W), 2) / self.scale

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return −‖y − n‖₂ / t of the integers y on the wire.

        This uses the density at the centre of the cell of y instead of the mass of the cell: a cell
        is a tiny fraction of a noise scale wide, and clamped payloads are rarer than e**-40.
        """
        return -row_norms(self.gaps(payloads, W), 2)

    def expected_squared_error(self) -> float:
        """Return m(m + 1) scale² + m step²/12: the error of the noise and of rounding it."""
        return self.dim * ((self.dim + 1) * self.scale**2 + self.step**2 / 12)


# ---- Bulk jobs


def report_records(
    randomizer: Randomizer, W: NDArray[Any], sources: Sequence[RealEntropy]
) -> list[bytes]:
    """Return the payload of every row, drawn from its source as by ``report``."""
    if isinstance(randomizer, LatticeForm):
        return randomizer.report_each(W, sources)
    rows = (W[i : i + 1] for i in range(len(W)))
    return [randomizer.report(row, source)[0] for row, source in zip(rows, sources, strict=True)]


# ---- Payloads: three or four bytes per coordinate (docs/report-format.md)


def largest_magnitude(width: Width) -> int:
    """Return the largest magnitude that a payload of this width represents."""
    return (1 << (8 * width - 1)) - 1


def pack(values: NDArray[np.integer[Any]], width: Width = 3) -> list[bytes]:
    """Clamp each coordinate and write it as offset binary, low byte first."""
    largest = largest_magnitude(width)
    offset = np.clip(values, -largest, largest).astype(np.int64) + (largest + 1)
    # Row-major: the next step reads the bytes in memory order.
    octets = np.ascontiguousarray(offset, dtype="<u4").view(np.uint8)
    blob = octets.reshape(*values.shape, 4)[..., :width].tobytes()
    size = values.shape[1] * width
    return [blob[i : i + size] for i in range(0, len(blob), size)]


def unpack(payloads: list[bytes], dim: int, width: Width = 3) -> NDArray[np.int64]:
    """Read payloads of :func:`pack`; a length or value that it never writes is an error."""
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
